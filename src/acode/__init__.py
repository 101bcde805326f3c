"""acode makes long runs of work survivable.

The names below are the library: durable steps in ordinary programs. They are loaded when they are first used, so that
`import acode` costs next to nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the type checker's own name; importing it from typing would cost more than everything else

if TYPE_CHECKING:
    from typing import Any

    from acode.errors import AcodeError, InputRequired, NonDeterminism, OutcomeUnknown, StepFailed, StepTimeout
    from acode.library.declarations import Begun, Retry
    from acode.library.decorators import current, durable, step
    from acode.library.open_session import session
    from acode.library.resolve import resolve
    from acode.library.rollback import rollback
    from acode.library.session import Session

__version__ = "0.2.0"

_PLACES = {
    **dict.fromkeys(("current", "durable", "step"), "acode.library.decorators"),
    "session": "acode.library.open_session",
    "resolve": "acode.library.resolve",
    "rollback": "acode.library.rollback",
    "Session": "acode.library.session",
    **dict.fromkeys(("Begun", "Retry"), "acode.library.declarations"),
    **dict.fromkeys(
        ("AcodeError", "InputRequired", "NonDeterminism", "OutcomeUnknown", "StepFailed", "StepTimeout"), "acode.errors"
    ),
}

__all__ = [
    "AcodeError",
    "Begun",
    "InputRequired",
    "NonDeterminism",
    "OutcomeUnknown",
    "Retry",
    "Session",
    "StepFailed",
    "StepTimeout",
    "__version__",
    "current",
    "durable",
    "resolve",
    "rollback",
    "session",
    "step",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)

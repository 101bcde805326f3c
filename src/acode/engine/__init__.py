"""The only orchestration: lock, fold, decide, validate, plan, step, step, checkpoint.

Never prints, prompts or reads the environment; the world comes in as an argument. `resume` tells the whole story. What
is named here is loaded when it is first asked for, because a list of sessions needs only a small part of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acode.engine.begin import run_plan
    from acode.engine.carry_on import resume
    from acode.engine.listing import resumable
    from acode.engine.world import Answers, Listener, Nobody, Notice, Options, Result, StopSwitch, World

_PLACES = {
    "resume": "carry_on",
    "resumable": "listing",
    "run_plan": "begin",
    **dict.fromkeys(("Answers", "Listener", "Nobody", "Notice", "Options", "Result", "StopSwitch", "World"), "world"),
}

__all__ = [
    "Answers",
    "Listener",
    "Nobody",
    "Notice",
    "Options",
    "Result",
    "StopSwitch",
    "World",
    "resumable",
    "resume",
    "run_plan",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

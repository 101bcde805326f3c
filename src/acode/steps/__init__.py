"""One module per step kind, one dict of them: execute, and settle when found in flight.

Modules are loaded when a session first needs them, so that a plan without a database never imports one; the package
itself imports none, because the keeper, a process that must start in no time, is one of its modules.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from acode.steps.interface import Kind

KINDS: dict[str, str] = {
    "read": "acode.steps.read",
    "write": "acode.steps.write",
    "run": "acode.steps.run",
    "sql": "acode.steps.sql",
    "commit": "acode.steps.commit",
    "call": "acode.steps.call",
    "model": "acode.steps.model",
}


@cache
def kind_of(name: str) -> Kind:
    if name not in KINDS:
        from acode.errors import CannotContinue

        raise CannotContinue(f"this acode knows no step kind {name}", hint="Upgrade acode.")
    return cast("Kind", import_module(KINDS[name]))

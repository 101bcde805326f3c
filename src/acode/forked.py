"""Disown the parent's locks, connections and turns in a forked child; and tell whether its code was replaced meanwhile.

A child of `os.fork` has copies of everything. Releasing a copy of a lock frees the parent's, closing a copy of a
database connection may undo what the parent writes, and a turn that another thread of the parent held is never given
back. So each such object is disowned in the child before any code of the program runs there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
_owned: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()


def own(thing: T, disown: Callable[[T], None]) -> None:
    """It is of use to this process only; in a forked child `disown` is called with the copy, and must not raise."""
    _owned[thing] = disown


def give_back(thing: object) -> None:
    """It was released or closed: there is nothing left to disown."""
    _owned.pop(thing, None)


def stamp_of_code() -> tuple[int, int]:
    """Another one after an upgrade: then a process that has loaded acode must not be copied for new work."""
    try:
        found = os.stat(Path(__file__).with_name("__init__.py"))
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _disown_all() -> None:
    for thing, disown in list(_owned.items()):
        disown(thing)
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)

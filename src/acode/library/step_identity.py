"""The identity of a step: its name, a counter where the name occurs again, and the step or branch that asked for it.

The identity depends on nothing but the program's own structure: not on time, threads or chance. Order is recorded only
where it is certain, for the thread or task that opened the scope; requests of other threads and tasks have no order.
"""

from __future__ import annotations

import re
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from acode.errors import Usage
from acode.state import NESTED

if TYPE_CHECKING:
    from acode.library.session import Session

NAME_CHARACTERS_MAX = 80
COUNTER = "#"
_NAME = re.compile(r"[^\W_][\w-]{0,79}")
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z]+")

Runner = tuple[int, int]  # a thread, and the task within it


class Current(msgspec.Struct, frozen=True):
    """The session and the place in it at which this thread or task stands."""

    session: Session
    scope: Scope


CURRENT: ContextVar[Current | None] = ContextVar("acode_current", default=None)


class Taken(msgspec.Struct, frozen=True):
    """One step's identity, and the step that was asked for before it."""

    id: str
    after: str | None
    ordered: bool  # whether the order of steps is certain for the caller
    certain: bool  # and whether all around it is in order too


def runner() -> Runner:
    """This thread, and the asyncio task in it; asyncio is not loaded for the sake of asking."""
    asyncio = sys.modules.get("asyncio.events")
    if asyncio is None or asyncio._get_running_loop() is None:
        return threading.get_ident(), 0
    return threading.get_ident(), id(sys.modules["asyncio"].current_task())


class Scope(msgspec.Struct, eq=False, weakref=True):
    """One place where steps are asked for: the session itself, the inside of a step, or a branch."""

    path: str = ""
    repeated: bool = False  # its steps may be on record even in a session that began just now
    certain: bool = True  # whether its own place among the steps around it is
    rerun: bool = False  # whether it was decided that its steps may be others than on record
    around: Scope | None = None  # of a branch with a place in the order of steps: the scope in which it stands
    within: Scope | None = None  # whatever it stands in, in order or not
    given_up: bool = False  # an attempt that ran out of its time; its thread may continue, and asks for nothing more
    passed: int = 0  # how many of the steps on record at this place were asked for already
    owner: Runner = msgspec.field(default_factory=runner)
    last: str | None = None
    failed: dict[str, Runner] = {}  # steps that failed here, and for whom, until the program continues
    _counters: dict[str, int] = {}
    _asked_by: dict[str, Runner] = {}

    @property
    def top(self) -> bool:
        return not self.path

    def take(self, name: str) -> Taken:
        """The identity of the next step of this name."""
        who = runner()
        known = self._asked_by.get(name)
        if known is None:
            checked_name(name)
            self._asked_by[name] = who
        elif known != who:
            raise Usage(
                f"two threads or tasks ask for a step {name} at the same place: which of them is the second, is chance",
                hint="Give each its own name, such as page-7, or a branch of its own: session.branch(name).",
            )
        number = self._counters[name] = self._counters.get(name, 0) + 1
        local = name if number == 1 else f"{name}{COUNTER}{number}"
        step = f"{self.path}{NESTED}{local}" if self.path else local
        if who != self.owner:
            return Taken(step, None, False, False)
        after, self.last = self.last, local
        return Taken(step, after, True, self.certain)

    def continued_failures(self, step: str) -> list[str]:
        """The failures that were caught, since `step` begins here: for the owner of the place all, for a task its own.

        Not for a thread: in a pool, the thread of a failed item takes the next one while the failure still waits for
        the program.
        """
        if not self.failed:
            return []
        self.failed.pop(step, None)
        who = runner()
        caught = [failed for failed, whose in self.failed.items() if who == self.owner or (whose == who and who[1])]
        for failed in caught:
            del self.failed[failed]
        return caught

    def left_for(self, around: Scope) -> None:
        """The caller that continues after a branch takes over the failures in it."""
        if self.owner == around.owner == runner():
            around.failed.update(self.failed)
            self.failed.clear()

    def attempt_given_up(self) -> str | None:
        """The step around this place whose attempt is not waited for any more."""
        at: Scope | None = self
        while at is not None and not at.given_up:
            at = at.within
        return at.path if at is not None else None

    def asked(self, local: str) -> bool:
        """Whether the step, named as in this scope, was asked for already."""
        name, _, number = local.partition(COUNTER)
        return self._counters.get(name, 0) >= (int(number) if number else 1)


def checked_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise Usage(
            f"{name!r} is no name for a step",
            hint=f"A name begins with a letter or digit, continues with letters, digits, _ and -, and has at most"
            f" {NAME_CHARACTERS_MAX} characters.",
        )


def name_from(kind: str, text: str) -> str:
    """A name for a step that was given none: what it does, in the characters of a name."""
    words = _NOT_IN_NAMES.sub("-", text).strip("-").lower()
    return f"{kind}-{words}"[:60].rstrip("-")

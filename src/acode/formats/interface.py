"""The interface of a foreign run, whatever its format: its state, its next action, the outcome of an action.

Values only, and the two shapes that a format's module has to have. A format decides what its own rules say; it never
decides how a step is executed, journaled or settled.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from acode.errors import AcodeError

if TYPE_CHECKING:
    from acode.engine.held_session import Held
    from acode.engine.world import Options, World

State = Literal["PAUSED", "COMPLETED", "FAILED", "CANCELLED", "DAMAGED"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a list shows it. None: a list does not read so far."""

    source: str
    run_id: str
    path: str
    title: str
    state: State
    created_at: datetime | None
    updated_at: datetime | None
    tasks_done: int | None
    tasks_total: int | None
    problem: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def resumable(self) -> bool:
        return self.state == "PAUSED"


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a workspace, the most recently active first."""

    runs: tuple[Run, ...] = ()
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # places that the machine kept back: nobody can say which runs are in them


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands, looked at closely and without changing anything."""

    run: Run
    phase: str
    done: tuple[str, ...]
    remaining: tuple[str, ...]
    last_activity: str | None
    last_completed: tuple[str, str] | None
    next_action: str
    waits_for: str | None  # why acode would not continue by itself
    needs_person: bool
    ended: bool
    refusals: tuple[AcodeError, ...]
    warnings: tuple[str, ...]
    extra: dict[str, Any]  # the fields of the JSON that only this format has


# What comes next.


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One task or phase for the driver. `origin` is all that `record` needs to know of it later."""

    name: str
    title: str
    prompt: str
    origin: dict[str, Any]


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A person must approve before the run continues."""

    name: str
    title: str
    question: str
    origin: dict[str, Any]


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    ending: Literal["completed", "failed", "cancelled"]


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can run, and no answer would change that."""

    message: str


Next = Work | Gate | Finished | Stuck


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a step of ours ended. The key names the attempt: recording it twice differs from doing it twice."""

    key: str
    status: Literal["completed", "failed", "timeout"]
    started: datetime
    finished: datetime
    message: str = ""


class ActiveRun(Protocol):
    """A run that this process continues; no other process does so meanwhile."""

    def next(self, held: Held) -> Next: ...
    def begin(self, held: Held, work: Work, *, key: str, attempt: int) -> None: ...
    def record(self, held: Held, origin: dict[str, Any], outcome: Outcome) -> AcodeError | None:
        """Record the outcome in the run, once; an error where the run itself records a failure."""
        ...


class Format(Protocol):
    """One module per format."""

    def locate(self, root: Path) -> Located: ...
    def stand(self, world: World, run: Run) -> Standing: ...
    def activate(self, world: World, run: Run, options: Options) -> AbstractContextManager[ActiveRun]: ...
    def repair_by_rules(self, world: World, run: Run, options: Options) -> tuple[str, ...]:
        """Repair the run by the format's rules, without continuing it; returns a description of each repair."""
        ...

    def approve(self, world: World, run: Run, *, note: str, asked: dict[str, Any] | None) -> str:
        """Record a person's approval in the run's own terms; returns a description. `asked`: the gate's origin, where a
        session asks.
        """
        ...

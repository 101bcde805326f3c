"""The arguments of the engine: the workspace, the clock and other inputs, the answers of a person, and a listener.

The engine itself never prints, prompts, reads the environment or looks at a clock. All of that comes in here, so that a
test can hold the clock still and a library can answer for a person.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from acode.errors import AcodeError
from acode.events.types import Settled
from acode.hints import BeginAgain, Hint
from acode.lease_file import Lease
from acode.policy import Limits
from acode.state import Session, State
from acode.state.source import AGENT, PROGRAM

if TYPE_CHECKING:  # names of types only: a list of sessions must not load what it does not use
    from acode.config import Config
    from acode.engine.notices import Notice
    from acode.engine.workspace_store import SharedStore
    from acode.plan import Settlement, Strategy
    from acode.planfile import PlanFile
    from acode.redact import Redactor
    from acode.store.store import Store
    from acode.workspace import ChangedFile


NO_SERVER = "no server is configured here"


class Listener(Protocol):
    """Receives notices: a terminal, a JSON stream, the log file. Called in order, never twice."""

    def emit(self, notice: Notice) -> None: ...
    def durable(self, seq: int) -> None: ...


Answer = Literal["yes", "no", "stop"]
# The answers of a person or a program about an interrupted step, and their records.
SETTLED_BY_ANSWER: Mapping[str, Settled] = {
    "applied": Settled.APPLIED,
    "not_applied": Settled.NOT_APPLIED,
    "retry": Settled.RETRY_ACCEPTED,
}


class Answers(Protocol):
    """Answers questions: a person at a terminal, or nobody. None: nobody can be asked."""

    def approve(self, session: Session, step: str, question: str, covers: list[str]) -> Answer | None: ...
    def changed_files(
        self, changed: tuple[ChangedFile, ...], view: Callable[[str], str]
    ) -> Literal["continue", "abort"] | None: ...
    def unknown_outcome(self, settlement: Settlement) -> Literal["applied", "not_applied", "retry", "stop"] | None: ...
    def strategy(self, settlement: Settlement) -> Literal["rollback", "retry", "stop"] | None: ...

    # Questions of an agent's session. A person who leaves instead of answering is a KeyboardInterrupt.
    def allow(self, session: Session, step: str, question: str) -> Literal["yes", "no", "always"] | None: ...
    def plan(self, session: Session, text: str, wrong: str) -> tuple[Literal["yes", "no"], str] | None: ...
    def reply(self, session: Session, step: str, question: str) -> str | None: ...


class Nobody:
    """Answers where nobody can be asked."""

    def approve(self, session: Session, step: str, question: str, covers: list[str]) -> Answer | None:
        return None

    def changed_files(self, changed: tuple[ChangedFile, ...], view: Callable[[str], str]) -> None:
        return None

    def unknown_outcome(self, settlement: Settlement) -> None:
        return None

    def strategy(self, settlement: Settlement) -> None:
        return None

    def allow(self, session: Session, step: str, question: str) -> None:
        return None

    def plan(self, session: Session, text: str, wrong: str) -> None:
        return None

    def reply(self, session: Session, step: str, question: str) -> None:
        return None


class StopSwitch:
    """How much somebody wants the run to end: at the next boundary, or at once.

    The first Ctrl+C waits for the step, the second stops its command; SIGTERM does so after a grace. `stops_at_once`:
    every signal stops the command now, for those who are killed soon after it. A request to pause still waits.
    """

    def __init__(self, monotonic: Callable[[], float], grace_s: float) -> None:
        self._monotonic = monotonic
        self._grace_s = grace_s
        self._since: float | None = None
        self._hurry = False
        self.signal: str | None = None
        self.lost: AcodeError | None = None  # why the session is not ours any more
        self.requested: Callable[[], bool] = lambda: False  # whether `session pause` has left a request
        self._by_request = False  # its signal is still to come
        self._is_request = False
        self._turn = threading.RLock()  # a signal may come while this very thread has it
        self.stops_at_once = False
        self.doubt: Callable[[], None] | None = None  # asked at boundaries: have we slept, and is it still ours?

    def press(self, signal: str) -> None:
        if self._since is None or (signal != "SIGINT" and self.signal == "SIGINT"):
            # Somebody with less patience than Ctrl+C: the grace counts from here.
            self._since = self._monotonic()
            self.signal = signal
        elif signal == "SIGINT" and self._by_request:
            self._by_request = False  # the signal that comes with a request is no second Ctrl+C
        elif signal == "SIGINT":
            self._hurry = True

    def give_up(self, error: AcodeError) -> None:
        """Another machine has the session: the run ends at the next boundary. May be called from another thread."""
        self.lost = error

    @property
    def pressed(self) -> bool:
        return self._since is not None or self.lost is not None

    def at_boundary(self) -> bool:
        if self.doubt is not None:
            self.doubt()
        if self._since is not None or self.lost is not None:
            return True
        with self._turn:  # steps in several threads ask, and a request is found once
            if not self.pressed and self.requested():
                self._is_request = True
                if self._since is None:  # its signal has not come yet
                    self._by_request = True
                    self._since, self.signal = self._monotonic(), "SIGINT"
        return self._since is not None or self.lost is not None

    def at_once(self) -> bool:
        if self._hurry or self._since is None:
            return self._hurry
        if self.stops_at_once and not self._asked_to_pause():
            return True
        patient = self.signal == "SIGINT"
        return not patient and self._monotonic() - self._since >= self._grace_s

    def _asked_to_pause(self) -> bool:
        """Whether the signal is the one that comes with a request: that is there before its signal."""
        with self._turn:
            self._is_request = self._is_request or self.requested()
        return self._is_request and self.signal == "SIGINT"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to resume. None means: as the configuration says."""

    actor: Literal["user", "system"] = "user"
    strategy: Strategy | None = None
    changed_files: Literal["prompt", "continue", "abort"] | None = None
    validate_environment: bool | None = None
    force: bool = False
    reason: str | None = None
    lenient: bool = False
    wait: bool = False
    plan: PlanFile | None = None  # an edited plan to continue with


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run, for its caller."""

    session_id: str
    state: State
    exit_code: int
    reason_code: str
    executed_steps: int
    skipped_steps: int
    remaining_steps: int
    next_action: str
    error: AcodeError | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Where the engine works and whom it talks to."""

    workspace: Path
    state_dir: Path
    config: Config
    env: Mapping[str, str]
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    new_id: Callable[[], str]
    listener: Listener
    answers: Answers
    stop: StopSwitch
    redactor: Redactor
    # Asked before a session is written on: it raises where another machine has the session, and says why the server
    # gave no answer, None: it did. `must`: the answer decides, so it is waited for; else for a second at the most.
    confirm_ownership: Callable[[Store, str, bool], str | None] = lambda store, session_id, must: NO_SERVER
    lease: Lease | None = None  # in a fleet: the lease of the session, which expires
    # In a fleet, directly before an effect: it raises where the lease has ended, and waits until the server holds the
    # log up to this event.
    before_act: Callable[[int], None] = lambda seq: None
    offline: str | None = None  # a person's reason to work on a session that was given back, without an answer
    ask_offline: Callable[[str], str | None] = lambda stated: None  # a person's reason; None: nobody
    # Why the server is not known to hold all of a session now; asked before what is here is removed.
    missing_there: Callable[[Store, str], Hint | None] = lambda store, session_id: Hint("the server was not asked")
    on_waiting: Callable[[str], None] = lambda words: None
    via: str = ""  # where a person's answers are given, if not by a command; recorded with them
    shared_store: SharedStore | None = None  # one store for several looks of a command, see `share_store`
    # The mismatches of an agent's model, as a code and a sentence each; asked before the session is resumed.
    look_at_model: Callable[[Session], tuple[tuple[str, str], ...]] = lambda session: ()

    @property
    def agent_dir(self) -> Path:
        return self.workspace / ".agent"

    @property
    def limits(self) -> Limits:
        resume = self.config.settings.resume
        return Limits(
            enabled=resume.enabled,
            attempts_max=resume.max_resume_attempts,
            attempts=resume.attempts,
            automatic_max=resume.attempts_total_max,
            cooldown_s=msgspec.to_builtins(resume.cooldown_seconds),
        )


def begin_again(session: Session) -> Hint:
    """How more work of this kind is begun, when this session has ended."""
    match session.kind:
        case AGENT.kind:
            return Hint("{}", BeginAgain('run --new "TASK"'))
        case PROGRAM.kind:
            return Hint("{}", BeginAgain())
        case _:
            return session.begin_again


def short(session_id: str) -> str:
    return session_id[-8:]

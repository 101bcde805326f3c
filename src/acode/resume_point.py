"""Find the resume point: how the last run ended, the last completed event, and what was in flight.

Pure: the same log gives the same point. There is no way to ask for another one.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from acode.errors import CannotContinue, TerminalState
from acode.events.types import InterruptionClass, UndoStarted
from acode.hints import BeginAgain, Command, Hint
from acode.state import NESTED, Failure, Mark, Session, State


class Scenario(StrEnum):
    FRESH_START = "fresh_start"
    CLEAN_SHUTDOWN = "clean_shutdown"
    USER_INTERRUPT = "user_interrupt"
    MID_OPERATION = "mid_operation"
    MID_WRITE = "mid_write"


# Why a session paused, and whether a person wanted it: the pause event names one of these.
PAUSED_BY_PERSON = frozenset({"user", "signal"})
PAUSED_BY_ACODE = frozenset(
    {
        "submitted",  # to a fleet, and not begun yet
        "drained",  # its worker was asked to end
        "lease_lost",
        "step_failed",
        "timeout",
        "denied",
        "outcome_unknown",
        "disk_full",
        "error",
        "environment",
        "rate_limit",
        "context_reset",
        "rolled_back",
    }
)
WRITING_KINDS = frozenset({"write", "edit"})


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """How the last run ended. `known` False: the end cannot be classified, and automatic attempts are refused."""

    cls: InterruptionClass | None
    at: datetime
    evidence: str
    by_person: bool = False
    known: bool = True
    retry_after_s: int = 0  # a server asked not to be asked again earlier


def find_resume_point(session: Session) -> Mark | None:
    """The last completed event; None means a fresh start."""
    return session.last_completed


def detect_scenario(session: Session, temp_left: bool = False) -> Scenario:
    """The one scenario that the end of the log fits. `temp_left`: a half-written temporary file of ours was found."""
    if session.terminal:
        raise TerminalState(
            f"Cannot resume {session.state} session {session.session_id[-8:]}: it has ended",
            hint=Hint("Start a new session: {}", BeginAgain("run")),
        )
    writing = temp_left or any(flight.started.kind in WRITING_KINDS for flight in session.in_flight.values())
    match session.state:
        case State.CREATED | State.PLANNING if not session.started_any:
            return Scenario.FRESH_START
        case State.AWAITING_APPROVAL if _waits_for_nothing_else(session):
            return Scenario.CLEAN_SHUTDOWN
        case State.AWAITING_APPROVAL if session.steps_from.asked or session.waiting_for is not None:
            return Scenario.MID_WRITE if writing else Scenario.MID_OPERATION
        case State.PLANNING if session.steps_from.asked:
            return Scenario.MID_WRITE if writing else Scenario.MID_OPERATION
        case State.EXECUTING if not session.started_any:
            return Scenario.FRESH_START
        case State.EXECUTING:
            return Scenario.MID_WRITE if writing else Scenario.MID_OPERATION
        case State.PAUSED if session.pause is not None:
            return _paused_scenario(session, session.pause.reason)
    raise CannotContinue(
        f"the log of session {session.session_id[-8:]} ends in no way acode knows: state {session.state}"
        f" after event {session.seq}, {len(session.in_flight)} steps in flight",
        hint=Hint("Look at it: {}", Command("session history SESSION"), of=session.session_id[-8:]),
        state=str(session.state),
        seq=session.seq,
    )


def _waits_for_nothing_else(session: Session) -> bool:
    """Whether all that is in flight are steps of a program inside of which it asks: those wait with it. A step of
    another task was cut off while a person was asked."""
    if not session.in_flight:
        return True
    gate = session.waiting_for.step if session.waiting_for is not None else ""
    return session.steps_from.asked and all(gate.startswith(f"{step}{NESTED}") for step in session.in_flight)


def _paused_scenario(session: Session, reason: str) -> Scenario:
    if not session.started_any:
        return Scenario.FRESH_START
    if reason in PAUSED_BY_PERSON:
        return Scenario.USER_INTERRUPT
    return Scenario.CLEAN_SHUTDOWN


def classify(
    session: Session, *, lock_touched_at: datetime | None = None, context_lost: str | None = None
) -> Interruption:
    """Put the end of the last run into exactly one class, and say by what evidence.

    A crash leaves no event, so its time is the later of the last lifecycle event and the last sign of life of the
    process that held the lock.
    """
    last = session.last_lifecycle
    at = last.at if last is not None else session.updated_at
    if context_lost is not None:
        return Interruption(cls=InterruptionClass.CONTEXT_RESET, at=at, evidence=context_lost)
    if session.undoing is not None:
        return Interruption(cls=InterruptionClass.PROCESS_CRASH, at=at, evidence=half_undone(session.undoing))
    if session.state is State.PAUSED and session.pause is not None:
        return _classify_pause(session, at)
    if session.state is State.AWAITING_APPROVAL and (session.steps_from.asked or _waits_for_nothing_else(session)):
        given = session.waiting_for is not None and session.waiting_for.step == session.answered_gate
        evidence = "waited for an approval, which was given" if given else "waits for an approval"
        return Interruption(cls=None, at=at, evidence=evidence)
    if lock_touched_at is not None and lock_touched_at > at:
        at = lock_touched_at
    what = f"{last.type} of {last.step}" if last is not None and last.step else (last.type if last is not None else "")
    return Interruption(
        cls=InterruptionClass.PROCESS_CRASH,
        at=at,
        evidence=f"the log ends with {what} (event {last.seq if last else 0}) and no pause",
    )


def still_running(session: Session) -> Interruption:
    """No interruption at all: a process holds the session, and a log that still grows has no end to classify."""
    return Interruption(cls=None, at=session.updated_at, evidence="a process is at work on it")


def half_undone(undo: UndoStarted) -> str:
    return f"a rollback was interrupted while step {undo.step} was being undone"


def _classify_pause(session: Session, at: datetime) -> Interruption:
    assert session.pause is not None
    pause = session.pause
    if pause.reason in PAUSED_BY_PERSON:
        how = f"paused by {pause.signal}" if pause.signal else "paused by the user"
        return Interruption(cls=None, at=at, evidence=how, by_person=True)
    if pause.reason not in PAUSED_BY_ACODE:
        return Interruption(cls=None, at=at, evidence=f"paused for an unknown reason: {pause.reason}", known=False)
    return Interruption(
        cls=pause.interruption,
        at=at,
        evidence=_pause_evidence(session, pause.reason, pause.message),
        retry_after_s=pause.retry_after_s,
    )


def _pause_evidence(session: Session, reason: str, message: str) -> str:
    failure: Failure | None = session.failure
    if reason in ("step_failed", "timeout") and failure is not None:
        return f"step {failure.step}: {failure.message} (event {failure.seq})"
    return message or f"paused: {reason.replace('_', ' ')}"

"""The one command to type next, after a run has stopped: the same words wherever it is said.

A command that would only be refused again is no way on.
"""

from __future__ import annotations

from acode.engine.survey import step_named
from acode.engine.world import rollback_again, short, way_to_begin_anew
from acode.errors import (
    AcodeError,
    ChangedFiles,
    Escalated,
    InputRequired,
    MissingArtifacts,
    OutcomeUnknown,
    StepTimeout,
)
from acode.plan import repeatable
from acode.state import Session, State


def to_resume(session: Session) -> str:
    return f"acode resume {short(session.session_id)}"


def to_force(session: Session) -> str:
    return f"acode resume {short(session.session_id)} --force --reason TEXT"


def to_accept_changes(session: Session) -> str:
    return f"acode resume {short(session.session_id)} --changed-files continue"


def to_settle(session: Session, step: str) -> str:
    return f"acode session resolve {short(session.session_id)} {step} --applied|--not-applied|--retry"


def to_answer(session: Session) -> str:
    return f"acode session approve {short(session.session_id)}"


def to_bring_back(session: Session) -> str:
    return f"bring .agent/blobs back from a backup, or: acode session abandon {short(session.session_id)}"


def way_on(session: Session, error: AcodeError | None, *, retries_unknown: bool = False) -> str:
    """After this end. `retries_unknown`: the settings accept that what nobody knows the outcome of is done again."""
    if session.terminal:
        return ""
    if session.undoing is not None:
        return rollback_again(session, session.undoing)
    if isinstance(error, MissingArtifacts):
        return to_bring_back(session)
    if (step := left_open(session, error, retries_unknown=retries_unknown)) is not None:
        return to_settle(session, step)
    if isinstance(error, Escalated) or session.escalated:
        return to_force(session)
    if isinstance(error, InputRequired) and session.state is State.AWAITING_APPROVAL:
        return to_answer(session)
    if isinstance(error, ChangedFiles):
        return to_accept_changes(session)
    return to_resume(session)


def mending(session: Session, error: AcodeError, *, retries_unknown: bool) -> str:
    """What a person does about a step that failed, up to the command that goes on."""
    if session.terminal:
        return f"on_failure: abort has ended the session. Mend the cause, then: {way_to_begin_anew(session)}"
    way = way_on(session, error, retries_unknown=retries_unknown)
    if left_open(session, error, retries_unknown=retries_unknown) is not None:
        return f"Find out what became of it, then say so: {way}; then: {to_resume(session)}"
    return f"Mend the cause, then: {way}"


def left_open(session: Session, error: AcodeError | None, *, retries_unknown: bool) -> str | None:
    """The step of which a person must say what became of it before anything can go on."""
    step = error.details.get("step") if isinstance(error, OutcomeUnknown | StepTimeout) else None
    if step is None or step not in session.in_flight:
        return None
    if isinstance(error, StepTimeout) and (retries_unknown or repeatable(step_named(session, step))):
        return None
    return str(step)

"""The next action about a session, and hints about it. An action that would only be refused again is no hint.

The forms of an action, a command to type and a call to write, are those of `acode.hints`.
"""

from __future__ import annotations

from acode.engine.survey import step_named
from acode.engine.world import begin_again, short
from acode.errors import (
    AcodeError,
    ChangedFiles,
    Escalated,
    InputRequired,
    LogRolledBack,
    MissingArtifacts,
    OutcomeUnknown,
    StepTimeout,
)
from acode.hints import (
    AcceptChanges,
    Action,
    Approve,
    Command,
    Force,
    Hint,
    ReplacePlan,
    Resolve,
    RestoreBlobs,
    Resume,
    Rollback,
    Subject,
)
from acode.plan import repeatable
from acode.state import Session, State
from acode.state.source import PROGRAM


def subject_of(session: Session) -> Subject:
    by_itself = session.kind == PROGRAM.kind and session.created is not None and session.created.entry is None
    return Subject(short(session.session_id), session.run_id or session.title, only_by_program=by_itself)


def session_hint(session: Session, text: str, *parts: Action | Hint | str) -> Hint:
    """A hint about the session, with an action at each {}."""
    return Hint(text, *parts, of=subject_of(session))


def command_for(session: Session, action: Action) -> str:
    """The action as a person types it."""
    return action.as_command(subject_of(session))


def next_command(session: Session, error: AcodeError | None, *, retries_unknown: bool = False) -> str:
    """The next action as a command; empty where nothing is left to do."""
    action = next_action(session, error, retries_unknown=retries_unknown)
    return command_for(session, action) if action is not None else ""


def next_action(session: Session, error: AcodeError | None, *, retries_unknown: bool = False) -> Action | None:
    """After this end. `retries_unknown`: the settings accept that a step of unknown outcome is repeated."""
    if session.terminal:
        return None
    if isinstance(error, LogRolledBack):  # a resume is refused again; verify names the way out
        return Command("session verify SESSION")
    if session.undoing is not None:
        return Rollback(session.undoing.to)
    if isinstance(error, MissingArtifacts):
        return RestoreBlobs()
    if (step := left_open(session, error, retries_unknown=retries_unknown)) is not None:
        return Resolve(step)
    if isinstance(error, Escalated) or session.escalated:
        return Force()
    if isinstance(error, InputRequired) and session.state is State.AWAITING_APPROVAL:
        return Approve()
    if isinstance(error, ChangedFiles):
        return AcceptChanges()
    return Resume()


def failure_hint(session: Session, error: AcodeError, *, retries_unknown: bool) -> Hint:
    """The hint for a failed step, up to the action that resumes the session."""
    action = next_action(session, error, retries_unknown=retries_unknown)
    if action is None:
        text = "on_failure: abort has ended the session. Fix the cause, then: {}"
        return session_hint(session, text, begin_again(session))
    if left_open(session, error, retries_unknown=retries_unknown) is not None:
        text = "Find out whether it took effect, then state it: {}; then: {}"
        return session_hint(session, text, action, Resume())
    step = error.details.get("step")
    if step is None or session.steps_from.asked or session.steps_from.carries_run:
        return session_hint(session, "Fix the cause, then: {}", action)
    text = "Fix the cause, then: {}; with the plan corrected: {}; if it was done by hand: {}"
    corrected = ReplacePlan(plan_name(session), forced=isinstance(action, Force))
    return session_hint(session, text, action, corrected, Resolve(str(step), "--applied"))


def plan_name(session: Session) -> str:
    """The file of the session's plan as it may be typed; `-` where the plan came from a pipe."""
    origin = session.plan_origin
    return origin.path if origin is not None and origin.path is not None else "-"


def left_open(session: Session, error: AcodeError | None, *, retries_unknown: bool) -> str | None:
    """The step whose outcome a person must state before the session can continue."""
    if error is None:
        return None if retries_unknown else _stopped(session)
    step = error.details.get("step") if isinstance(error, OutcomeUnknown | StepTimeout) else None
    if step is None or step not in session.in_flight:
        return None
    if isinstance(error, StepTimeout) and (retries_unknown or repeatable(step_named(session, step))):
        return None
    return str(step)


def _stopped(session: Session) -> str | None:
    """The first step whose command was stopped by a pause, and which nothing can settle without a person."""
    stopped = {step for step, flight in session.in_flight.items() if flight.stopped is not None}
    if not stopped or session.steps_from.asked:  # its program or model asks for it again, or is told
        return None
    return next((step.id for step in session.steps() if step.id in stopped and not repeatable(step)), None)

"""Hints: what to do next about a session, as an action, and in two forms: a command to type, or a call to write.

An action that would only be refused again is no hint. A session that a program began without saying how it is called
again cannot be resumed by a command: its hints name the program in both forms.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, assert_never

import msgspec

from acode.engine.survey import step_named
from acode.engine.world import command_to_begin_again, short
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
from acode.state.source import PROGRAM

if TYPE_CHECKING:
    from acode.events.types import UndoStarted


# Actions.


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Resume it as it is."""


class GrantAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Resume an escalated session once more."""


class AcceptChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Resume it with the files that were changed."""


class Resolve(msgspec.Struct, frozen=True, kw_only=True):
    """State the outcome of a step. `in_words`: with the meaning of each answer; `by_hand`: that it was done since."""

    step: str
    in_words: bool = False
    by_hand: bool = False


class ChooseStrategy(msgspec.Struct, frozen=True, kw_only=True):
    """Say whether a partial step is rolled back or repeated."""

    step: str


class Approve(msgspec.Struct, frozen=True, kw_only=True):
    """Answer the question at which it waits."""


class FinishRollback(msgspec.Struct, frozen=True, kw_only=True):
    """Finish a rollback that was cut off."""

    to: str | None


class BringBlobsBack(msgspec.Struct, frozen=True, kw_only=True):
    """Its files are missing: a backup has them, or nobody."""


class ReplacePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Resume it with an edited plan. `forced`: it is escalated."""

    file: str
    forced: bool = False


Action = (
    Resume
    | GrantAttempt
    | AcceptChanges
    | Resolve
    | ChooseStrategy
    | Approve
    | FinishRollback
    | BringBlobsBack
    | ReplacePlan
)


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a hint needs of its session. An error outlives the session's objects, so it keeps only these."""

    name: str
    key: str  # under which its program opens it
    only_by_program: bool  # a program began it, and left no function that `acode resume` could call


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence with an action at each {}."""

    text: str
    actions: tuple[Action, ...]
    subject: Subject

    def as_command(self) -> str:
        return self.text.format(*(as_command(action, self.subject) for action in self.actions))

    def as_call(self) -> str:
        return self.text.format(*(as_call(action, self.subject) for action in self.actions))


def hint(session: Session, text: str, *actions: Action) -> Hint:
    return Hint(text=text, actions=actions, subject=subject_of(session))


def add(error: AcodeError, session: Session, before: str, text: str, *actions: Action) -> None:
    """More to an error's hint, behind what it says already."""
    more = hint(session, f"{before.replace('{', '{{').replace('}', '}}')} {text}", *actions)
    error.hint, error.in_two_forms = more.as_command(), more


def subject_of(session: Session) -> Subject:
    by_itself = session.kind == PROGRAM.kind and session.created is not None and session.created.entry is None
    return Subject(name=short(session.session_id), key=session.run_id or session.title, only_by_program=by_itself)


def finish_rollback(session: Session, event: UndoStarted) -> str:
    return as_command(FinishRollback(to=event.to), subject_of(session))


# The two forms.


def as_command(action: Action, of: Subject) -> str:
    """The command that a person types."""
    if of.only_by_program and isinstance(action, Resume | GrantAttempt | AcceptChanges | ChooseStrategy | ReplacePlan):
        return as_call(action, of)
    match action:
        case Resume():
            return f"acode resume {of.name}"
        case GrantAttempt():
            return f"acode resume {of.name} --force --reason TEXT"
        case AcceptChanges():
            return f"acode resume {of.name} --changed-files continue"
        case Resolve(step=step):
            return f"acode session resolve {of.name} {step} {answers_to_type(action)}"
        case ChooseStrategy():
            return f"acode resume {of.name} --strategy rollback, or --strategy retry"
        case Approve():
            return f"acode session approve {of.name}"
        case FinishRollback(to=to):
            return f"acode session rollback {of.name}" + (f" --to {to}" if to else "")
        case BringBlobsBack():
            return f"restore .agent/blobs from a backup, or: acode session abandon {of.name}"
        case ReplacePlan(file=file, forced=forced):
            return f"acode resume {of.name} --plan {shlex.quote(file)}" + (" --force --reason TEXT" if forced else "")
        case _:
            assert_never(action)


def answers_to_type(action: Resolve) -> str:
    if action.by_hand:
        return "--applied"
    if action.in_words:
        return "--applied (it happened), --not-applied (it did not) or --retry (still unknown, a repeat is accepted)"
    return "--applied|--not-applied|--retry"


def as_call(action: Action, of: Subject) -> str:
    """The call that a program makes."""
    match action:
        case Resume() | ReplacePlan():  # a program has no plan file: it is corrected itself
            return f"run the program again (its key is {of.key!r})"
        case GrantAttempt():
            return f"run the program again with acode.session({of.key!r}, force='the reason')"
        case AcceptChanges():
            return f"run the program again with acode.session({of.key!r}, changed_files='continue')"
        case Resolve(step=step, in_words=False):
            return f"acode.resolve({of.key!r}, {step!r}, 'applied'), or 'not_applied', or 'retry'"
        case Resolve(step=step):
            return (
                f"acode.resolve({of.key!r}, {step!r}, 'applied') (it happened), 'not_applied' (it did not) or 'retry'"
                " (still unknown, a repeat is accepted)"
            )
        case ChooseStrategy(step=step):
            return f"acode.resolve({of.key!r}, {step!r}, 'retry') to repeat it on what stands there now"
        case Approve():
            return f"acode session approve {of.name}, in a terminal"
        case FinishRollback(to=to):
            return f"acode.rollback({of.key!r}" + (f", to={to!r})" if to else ")")
        case BringBlobsBack():
            return f"restore .agent/blobs from a backup, or in a terminal: acode session abandon {of.name}"
        case _:
            assert_never(action)


# What comes next.


def next_command(session: Session, error: AcodeError | None, *, retries_unknown: bool = False) -> str:
    """The next action as a command; empty where nothing is left to do."""
    action = next_action(session, error, retries_unknown=retries_unknown)
    return as_command(action, subject_of(session)) if action is not None else ""


def next_action(session: Session, error: AcodeError | None, *, retries_unknown: bool = False) -> Action | None:
    """After this end. `retries_unknown`: the settings accept that a step of unknown outcome is repeated."""
    if session.terminal:
        return None
    if session.undoing is not None:
        return FinishRollback(to=session.undoing.to)
    if isinstance(error, MissingArtifacts):
        return BringBlobsBack()
    if (step := left_open(session, error, retries_unknown=retries_unknown)) is not None:
        return Resolve(step=step)
    if isinstance(error, Escalated) or session.escalated:
        return GrantAttempt()
    if isinstance(error, InputRequired) and session.state is State.AWAITING_APPROVAL:
        return Approve()
    if isinstance(error, ChangedFiles):
        return AcceptChanges()
    return Resume()


def failure_hint(session: Session, error: AcodeError, *, retries_unknown: bool) -> str:
    """The hint for a failed step, up to the command that resumes the session."""
    action = next_action(session, error, retries_unknown=retries_unknown)
    if action is None:
        return f"on_failure: abort has ended the session. Fix the cause, then: {command_to_begin_again(session)}"
    if left_open(session, error, retries_unknown=retries_unknown) is not None:
        text = "Find out whether it took effect, then state it: {}; then: {}"
        return hint(session, text, action, Resume()).as_command()
    step = error.details.get("step")
    if step is None or session.steps_from.asked or session.steps_from.carries_run:
        return hint(session, "Fix the cause, then: {}", action).as_command()
    text = "Fix the cause, then: {}; with the plan corrected: {}; if it was done by hand: {}"
    corrected = ReplacePlan(file=plan_name(session), forced=isinstance(action, GrantAttempt))
    return hint(session, text, action, corrected, Resolve(step=str(step), by_hand=True)).as_command()


def plan_name(session: Session) -> str:
    """The file of the session's plan as it may be typed; `-` where the plan came from a pipe."""
    origin = session.plan_origin
    return origin.path if origin is not None and origin.path is not None else "-"


def left_open(session: Session, error: AcodeError | None, *, retries_unknown: bool) -> str | None:
    """The step whose outcome a person must state before the session can continue."""
    step = error.details.get("step") if isinstance(error, OutcomeUnknown | StepTimeout) else None
    if step is None or step not in session.in_flight:
        return None
    if isinstance(error, StepTimeout) and (retries_unknown or repeatable(step_named(session, step))):
        return None
    return str(step)

"""Notices: what a running session reports to its listeners, one type per kind, each with its own fields.

A notice is a head, the same for all, and a body of one of the types below. A listener matches the body; where every
kind needs a decision it ends with `assert_never`, so that a kind that is added and forgotten fails the type check
instead of missing from a terminal or a log. `public_form` alone makes of them what programs read.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType

from acode.engine.world import short

if TYPE_CHECKING:  # names of types only: a program's step must not load what it does not use
    from acode.engine.environment import Report
    from acode.engine.lease_state import SyncState
    from acode.engine.remediation import Remedy
    from acode.events import types as ev
    from acode.plan_replacement import Replacement
    from acode.state import Session


# The session.


class SessionStart(msgspec.Struct, frozen=True, kw_only=True):
    """A new session begins."""

    event: ClassVar[str] = "session_start"
    title: str
    short_id: str
    tasks: int
    steps: int
    resumed: Literal[False] = False
    workspace: str
    source: str | UnsetType = UNSET  # of a foreign run: its format and its id
    run_id: str | UnsetType = UNSET


class SessionReopened(msgspec.Struct, frozen=True, kw_only=True):
    """A session that exists is about to be resumed."""

    event: ClassVar[str] = "session_start"
    title: str
    short_id: str
    state: str
    resumed: Literal[True] = True
    tasks: int
    steps: int


class RunWarning(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "warning"
    message: str


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The database was copied before anything changes."""

    event: ClassVar[str] = "backup"
    path: str


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "repaired"
    kind: str
    quarantined: list[int]
    backup: str


class PlanChanged(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "plan_changed"
    title: str
    tasks: int
    text: str | UnsetType = UNSET  # of an agent's plan: the whole of it, as a person reads it


class PlanReplaced(msgspec.Struct, frozen=True, kw_only=True):
    """The session continues with an edited plan. The names are those of steps."""

    event: ClassVar[str] = "plan_replaced"
    previous_digest: str
    plan_digest: str
    kept: list[str]
    replaced: list[str]
    added: list[str]
    removed: list[str]
    asked_again: list[str]


class TaskCompleted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "task_completed"
    duration_ms: int


class Escalated(msgspec.Struct, frozen=True, kw_only=True):
    """No attempt is left: a person must look."""

    event: ClassVar[str] = "escalated"
    reason_code: str
    context: dict[str, Any]
    remedy: Remedy


class SyncChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The server stopped or started to answer."""

    event: ClassVar[str] = "sync_changed"
    change: Literal["degraded", "restored"]
    pending_events: int
    reason: str | None


# A resume, and the steps that it finds in progress.


class ResumeDecision(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "resume_decision"
    eligible: bool
    reason_code: str
    attempt: int
    max_attempts: int
    cooldown_seconds_remaining: int
    advice: list[str]


class EnvironmentChecked(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "environment"
    report: Report


class ChangesAccepted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "changes_accepted"
    paths: list[str]


class ResumeStarted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "resume_started"
    started: ev.ResumeStarted
    state: str
    skipped_task_ids: list[str]
    skipped_step_ids: list[str]
    remaining_step_ids: list[str]
    sync: SyncState
    task_ms: dict[str, int]


class ResumeCompleted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "resume_completed"
    state: str
    executed_steps: int
    skipped_steps: int


class StepSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was found in progress: its outcome, and the action that follows."""

    event: ClassVar[str] = "step_settled"
    kind: str
    outcome: str
    action: str
    evidence: str


class StepWaiting(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was found running is waited for."""

    event: ClassVar[str] = "step_waiting"
    evidence: str


class StepRolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """The partial effects of an attempt were undone."""

    event: ClassVar[str] = "step_rolled_back"
    restored: list[str]
    saved: int
    saved_until_end: int


# A step. Which one, the head says.


class StepStarted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_started"
    kind: str
    title: str
    attempt: int
    shown: str | UnsetType = UNSET  # of a function's call: its arguments
    number: int
    of: int
    key: str


class StepOutput(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_output"
    text: str


class StepWarning(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_warning"
    message: str


class StepRetry(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_retry"
    after_seconds: float
    attempt: int


class StepCompleted(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_completed"
    duration_ms: int
    settled: bool
    touched: list[str]
    done: int
    total: int


class StepFailed(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "step_failed"
    reason: str
    message: str
    exit_status: int | None
    output_tail: str
    touched: list[str]


class FinishedStepRolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step was undone by `session rollback`."""

    event: ClassVar[str] = "step_taken_back"
    title: str


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    event: ClassVar[str] = "approval_request"
    question: str
    covers: list[str]


class ContextCompacted(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's conversation is replaced by a summary."""

    event: ClassVar[str] = "context_compacted"
    reason: str
    messages: int


SessionBody = (
    SessionStart
    | SessionReopened
    | RunWarning
    | Backup
    | Repaired
    | PlanChanged
    | PlanReplaced
    | TaskCompleted
    | Escalated
    | SyncChanged
)
ResumeBody = (
    ResumeDecision
    | EnvironmentChecked
    | ChangesAccepted
    | ResumeStarted
    | ResumeCompleted
    | StepSettled
    | StepWaiting
    | StepRolledBack
)
StepBody = (
    StepStarted
    | StepOutput
    | StepWarning
    | StepRetry
    | StepCompleted
    | StepFailed
    | FinishedStepRolledBack
    | ApprovalRequest
    | ContextCompacted
)
Body = SessionBody | ResumeBody | StepBody


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One notice. `seq` names the event that makes it true; it may be acknowledged once that one is durable."""

    body: Body
    at: datetime
    session_id: str
    seq: int | None = None
    task: str | None = None
    step: str | None = None
    session: Session | None = None  # the session at this moment, for listeners that show its plan; it is not printed


def reopened(session: Session) -> SessionReopened:
    return SessionReopened(
        title=session.title,
        short_id=short(session.session_id),
        state=str(session.state),
        tasks=session.plan_tasks_total,
        steps=session.steps_total,
    )


def plan_replaced(found: Replacement, recorded: ev.PlanReplaced) -> PlanReplaced:
    return PlanReplaced(previous_digest=recorded.previous_digest, plan_digest=recorded.plan_digest, **found.as_json())


# The public form.


def public_form(body: Body) -> tuple[str, dict[str, Any]]:
    """The event name and the data that programs read, in JSON Lines and in the log file. Both are a promise.

    A type without a name of its own fails the type check here.
    """
    data = _resume_data(body) if isinstance(body, ResumeStarted) else msgspec.to_builtins(body)
    return body.event, data


def _resume_data(body: ResumeStarted) -> dict[str, Any]:
    """The recorded event field by field, because its stored form leaves defaults out; then what only listeners get."""
    started, sync = body.started, body.sync
    recorded = {name: getattr(started, name) for name in started.__struct_fields__ if name != "owner"}
    data: dict[str, Any] = msgspec.to_builtins(
        {
            **recorded,
            "state": body.state,
            "skipped_task_ids": body.skipped_task_ids,
            "skipped_step_ids": body.skipped_step_ids,
            "remaining_step_ids": body.remaining_step_ids,
            "sync_status": sync.status,
            "sync": sync.as_json(),
            "task_ms": body.task_ms,
        }
    )
    return data

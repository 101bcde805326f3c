"""A session at one position of its log: its state, its counters and its records.

Only data; `folding` says how events make it. Checkpoints hold it, so fields are added with a default and never renamed.
A session loaded from a small checkpoint has no `records`: it knows its position and counters, not its files and steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from acode.errors import MissingArtifacts
from acode.events import event_id_of
from acode.events import types as ev
from acode.events.definition import Plan, Step
from acode.hints import BeginAgain, Command, Hint
from acode.state.source import PLAN, SOURCES, StepSource


class State(StrEnum):
    CREATED = "CREATED"
    PLANNING = "PLANNING"
    AWAITING_APPROVAL = "AWAITING_APPROVAL"
    EXECUTING = "EXECUTING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


_S = State
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.CREATED: frozenset({_S.PLANNING, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.PLANNING: frozenset({_S.AWAITING_APPROVAL, _S.EXECUTING, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.AWAITING_APPROVAL: frozenset({_S.EXECUTING, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.EXECUTING: frozenset({_S.AWAITING_APPROVAL, _S.PAUSED, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    # A paused session can be abandoned: FAILED is reached by a person's decision, never by resuming.
    _S.PAUSED: frozenset({_S.PLANNING, _S.AWAITING_APPROVAL, _S.EXECUTING, _S.FAILED, _S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}
TERMINAL = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED})
NESTED = "."  # in a step's id: what stands before it is the step, or branch, that asked for this one


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """An event somebody may have to point at. `event_id`: as its row names it; `Session.id_of` knows the others."""

    event_id: str = ""
    seq: int
    at: datetime
    type: str
    task: str | None = None
    step: str | None = None


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that is not in flight and not untouched."""

    status: Literal["completed", "failed", "pending"]
    attempt: int
    seq: int
    resume_approved: bool = False
    failures: int = 0
    left_behind: ev.StepStarted | None = None  # a failed attempt whose outputs are restored before the next one
    left_seq: int = 0  # where that attempt is on record; 0: at `seq`
    rolling_back: bool = False  # that has begun, and is finished before the next attempt
    handled: bool = False  # the program continued after the failure, so a later run gets it again


class InFlight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step that was started and has no end, or was stopped in the middle; it is settled before anything else."""

    started: ev.StepStarted
    seq: int
    at: datetime
    failures: int = 0
    stopped: ev.StepFailed | None = None
    unknown: str | None = None  # the evidence of a settlement that found none


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest failure, for the person who has to fix it."""

    step: str
    reason: str
    message: str
    seq: int
    at: datetime
    exit_status: int | None = None
    signal: str | None = None
    tail: str = ""
    touched: tuple[str, ...] = ()


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    action_digest: str
    granted: bool
    seq: int
    contents: dict[str, str | None] = {}


class Records(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The part of a session that grows with its work."""

    steps: dict[str, StepRecord] = {}
    manifest: dict[str, ev.FileState] = {}
    outputs: dict[str, ev.Output] = {}
    task_ms: dict[str, int] = {}
    inner_done: dict[str, int] = {}  # by an agent's task: the steps inside it that are finished
    approvals: dict[str, Approval] = {}


class Conversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requests to a model, as far as they must be known before the answers themselves are looked up."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    last: str | None = None  # the last request that was answered
    compacted: tuple[str, ...] = ()  # requests before which the conversation was replaced by a summary


class PlanOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the plan of a session came from, so that its file is known again."""

    digest: str
    path: str | None = None  # None: it came from a pipe
    sha256: str | None = None


class AcceptedPast(msgspec.Struct, frozen=True, kw_only=True):
    """Events signed with a lost key, which a person took as they stood; the hashes keep them as they stood then."""

    through: int
    first_sha256: str
    past_sha256: str


class Session(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One session at one position of its log."""

    session_id: str
    seq: int
    state: State
    created_at: datetime
    updated_at: datetime
    last_event_id: str = ""  # where its row names it
    title: str = ""
    source: str = "native"
    kind: str = "plan"
    run_id: str = ""  # of the foreign run that it continues, or the key that its program gave it
    before_pause: State | None = None
    last_lifecycle: Mark | None = None
    last_completed: Mark | None = None
    pause: ev.SessionPaused | None = None
    waiting_for: ev.SessionAwaitingApproval | None = None
    answered_gate: str | None = None  # while it waits: the gate that a person has answered with yes
    in_flight: dict[str, InFlight] = {}
    in_flight_at: dict[str, int] = {}  # in a stored form only: steps in flight by the event that began them
    failure: Failure | None = None
    steps_done: int = 0
    steps_total: int = 0
    tasks_done: int = 0
    tasks_total: int = 0
    furthest: int = 0
    started_any: bool = False
    last_attempted: str | None = None
    resumes_since_progress: int = 0
    resumes_counted: int = 0
    resumes_automatic: int = 0
    resumes: int = 0
    attempting: tuple[bool, bool] = (False, False)  # what the last resume counts as: an attempt, an automatic one
    escalated: bool = False
    boot_id: str = ""  # of the owner that the log has named last
    secret_env: tuple[str, ...] = ()  # names that commands of a program have declared; a plan names its own
    last_resume_seq: int = 0
    refused_at: datetime | None = None  # by the clock of the attempts refused since the run ended, the earliest
    undoing: ev.UndoStarted | None = None
    undo_answer: ev.Settled | None = None  # what a person said became of it
    conversation: Conversation | None = None
    performer: ev.Performer | None = None  # of an observed agent: the process that began the last step
    untold: dict[str, str] = {}  # by digest of the arguments: steps that ended while their agent was away
    fresh: dict[str, str] = {}  # those of its turn: killed now, their agent may not have kept the results
    plan_blob: str | None = None  # set where the plan is not the one the session was created with
    plan_replaced_by: PlanOrigin | None = None  # set where a person has replaced the plan it was created with
    unknown_types: dict[int, str] = {}
    quarantined: tuple[int, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    accepted: AcceptedPast | None = None
    heads: dict[int, str] = {}  # codes of damaged events that a repair knew from checkpoints, and that prove the next
    records: Records | None = None
    created: ev.SessionCreated | None = None  # loaded from the first event, never stored in a checkpoint
    plan: Plan | None = None  # likewise: the snapshot is immutable and stands in the log once

    def id_of(self, mark: Mark) -> str:
        return mark.event_id or event_id_of(self.session_id, mark.seq, mark.at)

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def steps_from(self) -> StepSource:
        return SOURCES.get(self.kind, PLAN)

    @property
    def plan_tasks_done(self) -> int:
        """Finished tasks of the plan: an agent's session counts the making of its plan as one more."""
        return max(self.tasks_done - self.steps_from.planning_tasks, 0)

    @property
    def plan_tasks_total(self) -> int:
        return max(self.tasks_total - self.steps_from.planning_tasks, 0)

    def is_open_task(self, step: str) -> bool:  # an agent's, in the middle: the steps inside show its outcome
        return self.steps_from.follows_model and step in self.in_flight and NESTED not in step

    def record(self, step: str) -> StepRecord | None:
        return self.records.steps.get(step) if self.records else None

    def done(self, step: str) -> bool:
        record = self.record(step)
        return record is not None and record.status == "completed"

    @property
    def plan_origin(self) -> PlanOrigin | None:
        """The file of the plan that it follows; None where only a small checkpoint is loaded."""
        if self.plan_replaced_by is not None or self.created is None:
            return self.plan_replaced_by
        created = self.created
        return PlanOrigin(digest=created.plan_digest, path=created.plan_path, sha256=created.plan_sha256)

    @property
    def begin_again(self) -> Hint:
        """With the name of the plan; one that came from a pipe is given again, and a small checkpoint knows none."""
        import shlex

        if self.plan_origin is None:
            return Hint("with the plan that {} names", Command("explain SESSION"), of=self.session_id[-8:])
        path = self.plan_origin.path
        return Hint(
            "{}", BeginAgain(f"run --new {shlex.quote(path)}" if path else "run --new - (and the plan on stdin)")
        )

    def next_attempt(self, step: str) -> int:
        record = self.records.steps.get(step) if self.records is not None else None
        return record.attempt + 1 if record is not None else 1

    def steps(self) -> Iterable[Step]:
        from acode.events.definition import execution_order

        if self.steps_from.asked:
            return ()  # its steps are known when its program asks for them
        if self.plan is None:
            raise MissingArtifacts(
                f"the plan snapshot of session {self.session_id[-8:]} is gone",
                hint=Hint("Restore .agent/blobs from a backup, or start again: {}", self.begin_again),
            )
        return (step for task in execution_order(self.plan) for step in task.steps)

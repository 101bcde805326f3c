"""The events of a session: one frozen type per event.

The types are the log's format. Fields may be added with a default that means "as before"; a field or a default is never
changed, because stored bytes leave defaults out. A necessary change gets a new envelope version and an upcaster in
`codec`. Events hold no secrets: text for people was redacted before it came here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from acode.events.definition import Plan, Step


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The root of all events; the tag is the event's type in the log."""


class InterruptionClass(StrEnum):
    TOOL_FAILURE = "tool_failure"
    TIMEOUT = "timeout"
    CONTEXT_RESET = "context_reset"
    PROCESS_CRASH = "process_crash"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of values inside events."""


class FileState(Part, frozen=True, kw_only=True):
    """A workspace file as the session last saw it. `sha256` None: it does not exist.

    Only a regular file's `mode` has no type bits. A link's hash is that of its target's text; a directory, or
    something else without bytes, has "". `ctime_ns` 0: too fresh for the times to prove anything, only the hash does.
    """

    path: str
    sha256: str | None = None
    size: int = 0
    mtime_ns: int = 0
    mode: int = 0
    inode: int = 0
    ctime_ns: int = 0


class PreImage(Part, frozen=True, kw_only=True):
    """The state of a path before a step touched it, so that it can be restored.

    `blob` names the bytes in the blob store, or the target text of a symbolic link; a kind of "absent" has none, and a
    file without one was over the budget: it cannot be restored. `mtime_ns` is set for a command's outputs and restored
    too, because build tools compare times: an old object file with a new time would look up to date. `secret` is for a
    file that a rollback sets aside: a rule found a secret in it, so it is kept until the session ends and no longer.
    """

    path: str
    kind: Literal["file", "link", "directory", "absent", "other"]
    sha256: str | None = None
    mode: int = 0
    size: int = 0
    blob: str | None = None
    mtime_ns: int = 0
    secret: bool = False


class Output(Part, frozen=True, kw_only=True):
    """The captured output of a step: where its bytes are, and how many there were before the limit."""

    blob: str | None = None
    bytes: int = 0
    truncated: bool = False
    tail: str = ""


class Spent(Part, frozen=True, kw_only=True):
    """The cost of a request to a model."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None  # None: nobody knows the price


class Owner(Part, frozen=True, kw_only=True):
    """The process behind an event, for people and for telling a reboot from a crash."""

    pid: int
    host: str
    user: str
    boot_id: str


class Performer(Part, frozen=True, kw_only=True):
    """The process that performs a step which another one began; its pid means something only where it was recorded."""

    pid: int
    started: float
    boot_id: str
    pid_namespace: str = ""
    name: str = ""


class ToolCall(Part, frozen=True, kw_only=True):
    """A call of a tool by an observed agent, as its hook was told it."""

    id: str  # the agent's own; empty where it has none
    tool: str
    fronted: bool = False  # every command of this process passes the front: one that left no trace there never began
    subagent: str = ""


# Lifecycle: how a run ended is judged by the last of these.


class SessionCreated(Event, frozen=True, kw_only=True, tag="session_created"):
    title: str
    task: str
    source: str = "native"
    kind: Literal["plan", "agent", "library", "foreign", "observed"] = "plan"
    plan: Plan | None = None
    plan_blob: str | None = None  # set when the plan is too large or too sensitive to stand in the log
    plan_sensitive: bool = False
    plan_digest: str = ""
    plan_path: str | None = None
    plan_sha256: str | None = None
    config_digest: str = ""
    model: dict[str, Any] | None = None
    git_head: str | None = None
    git_branch: str | None = None
    entry: str | None = None  # module:function that continues a library session when it is called again
    entry_arguments: dict[str, Any] = {}
    arguments_version: int = 1  # the rule by which a later call's arguments are compared with these
    owner: Owner
    acode_version: str


class SessionPlanned(Event, frozen=True, kw_only=True, tag="session_planned"):
    tasks: int
    steps: int
    plan_digest: str


class PlanChanged(Event, frozen=True, kw_only=True, tag="plan_changed"):
    """From here on the session follows this plan: a model made it, or a foreign run showed its next task.

    The plan stands in a blob. Steps that were started are never taken out of it.
    """

    plan_blob: str
    plan_digest: str
    tasks: int
    steps: int
    plan_sensitive: bool = False
    reason: str = ""


class PlanReplaced(Event, frozen=True, kw_only=True, tag="plan_replaced"):
    """From here on the session follows a plan that a person has edited. It stands in a blob.

    Finished steps are in it as they were done; a failed one may be tried again as it is defined now.
    """

    plan_blob: str
    plan_digest: str
    previous_digest: str
    title: str
    tasks: int
    steps: int
    tasks_done: int
    plan_sensitive: bool = False
    plan_path: str | None = None
    plan_sha256: str | None = None
    kept: int = 0
    replaced: tuple[str, ...] = ()  # the first of them, as of those that were added and removed
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()  # gates whose approval covered other definitions: they are asked again
    reason: str = ""


class SessionAwaitingApproval(Event, frozen=True, kw_only=True, tag="session_awaiting_approval"):
    step: str
    question: str
    action_digest: str


class SessionExecuting(Event, frozen=True, kw_only=True, tag="session_executing"):
    reason: str = ""


class SessionPaused(Event, frozen=True, kw_only=True, tag="session_paused"):
    # user, signal, step_failed, timeout, denied, outcome_unknown, disk_full, error, submitted, drained, lease_lost
    reason: str
    interruption: InterruptionClass | None = None
    signal: str | None = None
    step: str | None = None
    message: str = ""
    retry_after_s: int = 0  # the server asked not to come back earlier
    via: str = ""  # where a person said so, if not by a command


class SessionCompleted(Event, frozen=True, kw_only=True, tag="session_completed"):
    executed_steps: int = 0


class SessionFailed(Event, frozen=True, kw_only=True, tag="session_failed"):
    reason: str
    step: str | None = None
    via: str = ""  # where a person said so, if not by a command


class SessionCancelled(Event, frozen=True, kw_only=True, tag="session_cancelled"):
    reason: str = ""
    via: str = ""  # where a person said so, if not by a command


class Asked(Part, frozen=True, kw_only=True):
    """A program's request for a step: a later run must make the same one."""

    arguments: str = ""  # SHA-256 over their canonical JSON
    digest_version: int = 1  # the rule by which that was made
    after: str | None = None  # the step that the same thread asked for before, where that is certain
    version: str = ""
    ordered: bool = False  # that its place is certain, and that of every step and branch around it; old logs do not say


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    step: str
    task: str
    kind: str
    attempt: int
    key: str
    action_digest: str
    idempotent: bool = False
    boot_id: str = ""
    place_made: bool = False  # where its keeper makes its notes stood ready: if it is gone, so is what was noted there
    before: tuple[PreImage, ...] = ()
    before_complete: bool = True  # False: the outputs were over the budget, so a rollback cannot promise anything
    astray: tuple[str, ...] = ()  # links among the outputs: bytes that the step writes through them cannot be restored
    after_sha256: str | None = None  # what a write will leave behind
    after_mode: int | None = None
    target: dict[str, Any] = {}  # kind-specific evidence: a database's name, a commit's parent
    asked: Asked | None = None  # of a library session's step, as are the next three
    definition: Step | None = None  # there is no plan to find it in
    definition_blob: str = ""  # the whole of it, where what may stand in the log is not enough to settle or undo it
    shown: str = ""  # the arguments, for people
    performer: Performer | None = None  # None: the process that holds the session
    call: ToolCall | None = None  # of an observed agent


class StepCompleted(Event, frozen=True, kw_only=True, tag="step_completed"):
    step: str
    task: str
    attempt: int
    key: str
    duration_ms: int = 0
    settled: bool = False  # completed by evidence after an interruption, not by executing
    output: Output | None = None
    files: tuple[FileState, ...] = ()
    touched: tuple[str, ...] = ()  # files an undeclared command changed
    # outputs beyond the limit, which are neither compared nor rolled back; unreadable places count as one
    unrecorded: int = 0
    result: Any = None
    asked: Asked | None = None
    spent: Spent | None = None  # of a request to a model
    start: int = 0  # the event that began it, and says what was asked for; 0: `asked` does


class StepFailed(Event, frozen=True, kw_only=True, tag="step_failed"):
    step: str
    task: str
    attempt: int
    reason: Literal["exit", "error", "timeout", "signal"]
    message: str
    exit_status: int | None = None
    signal: str | None = None
    duration_ms: int = 0
    output: Output | None = None
    files: tuple[FileState, ...] = ()
    touched: tuple[str, ...] = ()
    error: dict[str, Any] = {}  # the exception of a library session's step: its class and its arguments


class TaskCompleted(Event, frozen=True, kw_only=True, tag="task_completed"):
    task: str
    duration_ms: int = 0


# Audit and settlement.


class Settled(StrEnum):
    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"
    RETRY_ACCEPTED = "retry_accepted"


class StepSettled(Event, frozen=True, kw_only=True, tag="step_settled"):
    step: str
    attempt: int
    outcome: Settled
    evidence: str
    note: str = ""
    restored: tuple[str, ...] = ()
    saved: tuple[PreImage, ...] = ()  # bytes that stood there when a rollback put the pre-image back
    files: tuple[FileState, ...] = ()
    via: str = ""  # where a person said so, if not by a command


class FailureHandled(Event, frozen=True, kw_only=True, tag="failure_handled"):
    """The program caught the failure of a step and continued: from here on the failure is the step's outcome."""

    step: str


class ApprovalGranted(Event, frozen=True, kw_only=True, tag="approval_granted"):
    step: str
    question: str
    action_digest: str
    note: str = ""
    contents: dict[str, str | None] = {}  # hashes of the files that are applied behind it; None: there was none
    via: str = ""  # where a person said so, if not by a command


class ApprovalDenied(Event, frozen=True, kw_only=True, tag="approval_denied"):
    step: str
    question: str
    action_digest: str
    note: str = ""
    via: str = ""  # where a person said so, if not by a command


class ResumeDecision(Event, frozen=True, kw_only=True, tag="resume_decision"):
    """The audit event of the resume policy; its fields are a contract with tooling."""

    run_id: str
    interruption_class: InterruptionClass | None
    eligible: bool
    reason_code: str
    cooldown_seconds_remaining: int
    attempt: int
    max_attempts: int
    at: str
    actor: str
    event: str = "resume_decision"


class ResumeStarted(Event, frozen=True, kw_only=True, tag="resume_started"):
    scenario: str
    interruption_class: InterruptionClass | None = None
    counted: bool = False  # whether it uses up one of the attempts
    automatic: bool = False
    checkpoint_id: int = 0
    point_seq: int | None = None
    point_event_id: str | None = None
    skipped_tasks: int = 0
    skipped_steps: int = 0
    remaining_steps: int = 0
    in_progress_action: str | None = None
    environment_valid: bool | None = True  # None: nobody looked
    replay_first: int = 1
    replay_last: int = 0
    owner: Owner


class ResumeCompleted(Event, frozen=True, kw_only=True, tag="resume_completed"):
    executed_steps: int
    skipped_steps: int
    validated: bool = True


class ResumeWithdrawn(Event, frozen=True, kw_only=True, tag="resume_withdrawn"):
    """It waited for a command that still runs, and gave up: nothing was tried, so it is no attempt."""

    step: str
    evidence: str = ""


class ValidationSkipped(Event, frozen=True, kw_only=True, tag="validation_skipped"):
    reason: str


class ChangesAccepted(Event, frozen=True, kw_only=True, tag="changes_accepted"):
    """Changes by others were accepted: from here on the session expects these files."""

    files: tuple[FileState, ...]
    reason: str = ""


class FilesSeen(Event, frozen=True, kw_only=True, tag="files_seen"):
    """More files than one event holds: those a step left behind, in pieces before its end."""

    step: str
    attempt: int
    files: tuple[FileState, ...]


class CheckpointCreated(Event, frozen=True, kw_only=True, tag="checkpoint_created"):
    label: str = ""


class LockBroken(Event, frozen=True, kw_only=True, tag="lock_broken"):
    generation: int
    owner: dict[str, Any] = {}
    forced: bool = False
    reason: str = ""


class EscalatedToPerson(Event, frozen=True, kw_only=True, tag="escalated"):
    reason_code: str
    interruption_class: InterruptionClass | None = None
    attempt: int = 0
    step: str | None = None
    context: dict[str, Any] = {}


class Forced(Event, frozen=True, kw_only=True, tag="forced"):
    what: str
    reason: str = "none given"


class Counts(Part, frozen=True, kw_only=True):
    """How far a session has come, where that could not be counted from events any more."""

    steps_done: int
    steps_total: int
    tasks_done: int
    tasks_total: int


class Quarantined(Event, frozen=True, kw_only=True, tag="quarantined"):
    """A person had the log repaired. These events are not believed, and the steps that they may concern are open.

    A checkpoint with a full snapshot is written with it, so that no later load needs the events before it.
    """

    seqs: tuple[int, ...]
    reason: str
    steps: tuple[str, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()  # numbers that are missing, from the first to the last
    heads: tuple[tuple[int, str], ...] = ()  # codes of damaged events, which sealed checkpoints knew
    lost: tuple[int, int] | None = None  # events that an anchor knew of and that a rollback took away
    opened: tuple[StepStarted, ...] = ()  # steps that may have run, put as if they had begun and not ended
    counts: Counts | None = None
    through: int = 0  # up to here signed with a key that is lost, and accepted by a person as it stands
    first_sha256: str = ""  # of the first event's bytes, when they were accepted so
    past_sha256: str = ""  # over all that was accepted so
    problems: tuple[str, ...] = ()
    backup: str = ""


class StepsRolledBack(Event, frozen=True, kw_only=True, tag="steps_rolled_back"):
    """A person rolled finished steps back: they are pending again."""

    to: str | None
    steps: tuple[str, ...]
    tasks: tuple[str, ...] = ()  # tasks that were complete and are no longer
    files: tuple[FileState, ...] = ()
    kept: tuple[str, ...] = ()  # the user's bytes, not touched


class RollbackStarted(Event, frozen=True, kw_only=True, tag="rollback_started"):
    """Partial effects are about to be rolled back; the present bytes are kept under these names."""

    step: str
    attempt: int
    saved: tuple[PreImage, ...] = ()


class UndoStarted(Event, frozen=True, kw_only=True, tag="undo_started"):
    """A finished step is about to be rolled back; until that is done, nothing is executed. key: of its undo command or
    function; empty where only its files are restored, which any number of attempts may do.
    """

    step: str
    attempt: int
    key: str
    to: str | None = None
    boot_id: str = ""
    place_made: bool = False


class UndoSettled(Event, frozen=True, kw_only=True, tag="undo_settled"):
    """A person stated the outcome of an interrupted undo; its rollback continues from there."""

    step: str
    attempt: int
    outcome: Settled
    note: str = ""


class Noted(Event, frozen=True, kw_only=True, tag="noted"):
    """An action of acode outside its steps, for a later audit: the repair of a foreign checkpoint, for example."""

    what: str
    data: dict[str, Any] = {}


class RepeatDenied(Event, frozen=True, kw_only=True, tag="repeat_denied"):
    """An observed agent asked for a call that had ended while it was away, and was shown the evidence instead. If the
    same process asks again, it knows."""

    step: str
    arguments: str
    performer: Performer | None = None  # who was shown it; events of earlier versions do not say


class ContextCompacted(Event, frozen=True, kw_only=True, tag="context_compacted"):
    """The conversation has become too long: before this request it is replaced by a summary of itself."""

    step: str
    reason: Literal["long", "refused"]  # by our own count, or the model refused it
    messages: int = 0
    tokens: int = 0


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a type that this version does not know. It may be a revocation, so nothing is executed past it."""

    type: str
    ignorable: bool = False


Known = (
    SessionCreated
    | SessionPlanned
    | PlanChanged
    | PlanReplaced
    | SessionAwaitingApproval
    | SessionExecuting
    | SessionPaused
    | SessionCompleted
    | SessionFailed
    | SessionCancelled
    | StepStarted
    | StepCompleted
    | StepFailed
    | TaskCompleted
    | StepSettled
    | FailureHandled
    | ApprovalGranted
    | ApprovalDenied
    | ResumeDecision
    | ResumeStarted
    | ResumeCompleted
    | ResumeWithdrawn
    | ValidationSkipped
    | ChangesAccepted
    | FilesSeen
    | CheckpointCreated
    | LockBroken
    | EscalatedToPerson
    | Forced
    | Quarantined
    | StepsRolledBack
    | UndoStarted
    | UndoSettled
    | RollbackStarted
    | Noted
    | RepeatDenied
    | ContextCompacted
)

LIFECYCLE: frozenset[type] = frozenset(
    {
        SessionCreated,
        SessionPlanned,
        SessionAwaitingApproval,
        SessionExecuting,
        SessionPaused,
        SessionCompleted,
        SessionFailed,
        SessionCancelled,
        StepStarted,
        StepCompleted,
        StepFailed,
        TaskCompleted,
    }
)

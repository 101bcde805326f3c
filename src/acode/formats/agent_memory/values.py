"""The values that a `.agent-memory` run becomes once it is read: frozen, bounded, free of any handle to the disk.

Everything in here came from files that somebody else wrote. It is data: nothing of it is ever executed, used as a path
without a check, or shown without `wording.shown`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

TaskState = Literal["pending", "in_progress", "done", "failed", "blocked"]
Ending = Literal["completed", "failed", "cancelled"]

OUR_ACTOR = "acode"
CORE_ARTIFACTS = ("constitution.md", "prd.md", "plan.md", "task-graph.json")
APPROVED_ARTIFACTS = ("plan.md", "task-graph.json")
"""The files that a person approves at the gate: an approval is for their bytes."""
PHASE_NAMES = (
    "Intake and validation",
    "Planning",
    "Execution and verification",
    "Clean-up and PR preparation",
    "Memory consolidation",
)
STAGE_SLUGS = ("intake", "planning", "execution", "cleanup", "consolidation")
LAST_PHASE = len(PHASE_NAMES) - 1
PHASE_NUMBER_MAX = 11
"""Of any way of counting."""

RUNS_MAX = 10_000
EVENT_FILES_PER_RUN_MAX = 10_000
EVENT_FOLDER_DEPTH_MAX = 8
EVENT_LINE_BYTES_MAX = 1024 * 1024
EVENT_BYTES_PER_RUN_MAX = 4 * 1024 * 1024 * 1024
ARTIFACT_BYTES_MAX = 256 * 1024
GRAPH_BYTES_MAX = 16 * 1024 * 1024
TASKS_MAX = 10_000
TASK_ID_CHARS_MAX = 128
NAME_CHARS_MAX = 255
SKIPPED_RANGES_MAX = 200
UNKNOWN_TYPES_SHOWN_MAX = 10


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when something was said: the event that decided, so that every answer can name its evidence."""

    name: str
    """The event's type as folded: lower case, hyphens."""
    at_us: int | None
    """Microseconds since 1970, or None where the event has no usable time of its own."""
    event_id: str
    actor: str
    file: str
    """Relative to the run's folder."""
    line: int
    order: tuple[int, str, str, str, int]
    """The sort key: (timestamp, event id, actor, file, line), with the timestamp the event was given its place by."""


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The latest event of each kind for one task. That is all that its state depends on."""

    id: str
    title: str = ""
    started: Mark | None = None
    """claimed, started or implemented"""
    verified: Mark | None = None
    completed: Mark | None = None
    completed_by_others: bool = False
    """Whether anybody but acode ever said `completed` of it. Where nobody did, `verified` is the last word on it."""
    failed: Mark | None = None
    blocked: Mark | None = None
    failure: str = ""
    """The details of the latest failure, as JSON text, cut to a limit."""


class PhaseMark(msgspec.Struct, frozen=True, kw_only=True):
    phase: int
    """The number as the event has it; what it means depends on how the run counts (see `numbering`)."""
    mark: Mark
    stage: int | None = None
    """The stage that acode meant by the number; only its own events state it."""
    by_person: bool = False
    """The event names a person's approval as its trigger."""


class EndMark(msgspec.Struct, frozen=True, kw_only=True):
    ending: Ending
    mark: Mark


class ApprovalMark(msgspec.Struct, frozen=True, kw_only=True):
    """The approved files, by the SHA-256 of each, as acode recorded them."""

    digests: dict[str, str]
    mark: Mark


class RunEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The result of all event files together. It does not depend on the order in which the files are read."""

    tasks: tuple[TaskRecord, ...] = ()
    """In order of first appearance in the logs, by sort key."""
    phase: PhaseMark | None = None
    """The latest phase transition, or start of a phase."""
    phase_done: PhaseMark | None = None
    """The latest `phase-complete(d)`; it moves nothing unless the dialect has no transitions at all."""
    gates: dict[int, Mark] = {}
    """The latest `phase-gate-passed` of each phase, by its number."""
    newer: bool = False
    """An event has a phase or a type that only newer versions of the pack write."""
    approval: ApprovalMark | None = None
    """The latest event of acode that says which bytes are approved."""
    moved_by_others: Mark | None = None
    """The latest transition, or passed gate, that another actor recorded: later than `approval`, it replaces it."""
    made: tuple[str, ...] = ()
    """Core artifacts that an event says were created."""
    end: EndMark | None = None
    reopened: Mark | None = None
    """The latest event that shows work; after `end` it means that the run continued."""
    last_activity_us: int | None = None
    events_read: int = 0
    lines_skipped: int = 0
    warnings: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of task-graph.json."""

    id: str
    title: str = ""
    plan_phase: int = 0
    dependencies: tuple[str, ...] = ()
    contract: str = ""
    """The entry as the file has it, as indented JSON: the driver's prompt quotes it."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    tasks: tuple[Task, ...] = ()
    warnings: tuple[str, ...] = ()


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    text: str
    """Cut to ARTIFACT_BYTES_MAX; the task graph's text is kept in `Run.graph` instead."""
    truncated: bool = False
    sha256: str = ""
    """Of the whole file; only what is approved has one."""


class WorkflowState(msgspec.Struct, frozen=True, kw_only=True):
    """The phase by workflow-state.json, which newer versions of the pack keep."""

    phase: int = 0
    stage: int | None = None
    """None: routing or a bootstrap."""
    shown_as: str = ""
    updated_us: int | None = None
    problem: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, read from disk and complete in itself: diagnosing it needs nothing else but the time."""

    run_id: str
    path: str
    artifacts: dict[str, Artifact]
    """The core artifacts that are there and not empty, by file name."""
    graph: Graph | None
    """None: no task-graph.json, or none that can be used (a warning says which)."""
    run_events: RunEvents
    workflow: WorkflowState | None = None
    files_touched_us: int | None = None
    """The newest modification time of any file of the run, for runs whose events carry no time."""
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """The files that the machine refused, and why: the value is a part of the run, and no decision may rest on it."""

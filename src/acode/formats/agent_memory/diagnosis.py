"""Diagnose a run: its state and its next action, by the format's own rules, which precede every other resume rule.

Pure: a `Run` and the time go in, findings come out. Only events and core artifacts are read; other files in the run's
folder (a manifest, notes, instructions) do not count.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from acode.formats.agent_memory import graph as graphs
from acode.formats.agent_memory.dialect import moment
from acode.formats.agent_memory.phase_numbers import (
    EXECUTION,
    PLANNING,
    Numbering,
    Position,
    number_of,
    position,
    stage_of,
)
from acode.formats.agent_memory.values import (
    APPROVED_ARTIFACTS,
    PHASE_NAMES,
    ApprovalMark,
    Ending,
    Mark,
    Run,
    RunEvents,
    Task,
    TaskRecord,
    TaskState,
)
from acode.formats.messages import resume_report, shown

STALE_AFTER_DAYS = 7
NAMED_TASKS_MAX = 5
CLOCK_SKEW = timedelta(minutes=5)

Do = Literal[
    "write_prd", "write_plan", "break_down_tasks", "write_constitution",  # make an artifact
    "enter_phase", "run_task", "clean_up", "consolidate",
    "wait_for_approval", "wait_for_person", "nothing",
]  # fmt: skip
_MAKES: dict[str, tuple[Do, str]] = {
    "prd.md": ("write_prd", "continue the PRD"),
    "plan.md": ("write_plan", "continue the plan"),
    "task-graph.json": ("break_down_tasks", "break the plan down into task-graph.json"),
    "constitution.md": ("write_constitution", "write constitution.md from the approved plan"),
}
"""In the order in which one is made from the other."""


class NextAction(msgspec.Struct, frozen=True, kw_only=True):
    """One step forward. `automatic` says whether a driver (or acode itself, for `enter_phase`) may take it."""

    do: Do
    phase: int
    summary: str
    automatic: bool
    task: str | None = None
    artifact: str | None = None
    to_phase: int | None = None
    approve_after: bool = False
    """A new plan is not the one that was approved: the run returns to the gate of phase 1 once the plan exists."""
    numbering: Numbering = "seed"
    """`phase` and `to_phase` are stages; this says which numbers the run's own events have for them."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    phase: int
    """The run's own number."""
    stage: int | None
    """The stage that the number means: one of the five that the rules know; None where that is unclear."""
    tasks: dict[str, TaskState]
    """Tasks of the graph in its order, then those that only events know."""
    done: int
    total: int
    runnable: tuple[str, ...]
    """In graph order, those in progress included; whether one may run now is for `next_action` to say."""
    last_activity: datetime | None
    last_completed: Completed | None
    missing_artifacts: tuple[str, ...]
    remake: tuple[NextAction, ...]
    """One step for each missing artifact, in the order they must be taken."""
    next_action: NextAction
    ending: Ending | None
    stale: bool
    cautious: bool
    """Parts of the log could not be read: something done may look undone. Look at the work before repeating it."""
    warnings: tuple[str, ...]


def diagnose(run: Run, now: datetime, *, stale_after_days: float = STALE_AFTER_DAYS) -> Findings:
    now = now if now.tzinfo else now.replace(tzinfo=UTC)
    at = position(run)
    states = task_states(run)
    runnable = runnable_tasks(run, states)
    missing = missing_artifacts(run, at.stage)
    ending = ended(run.run_events)
    active = last_activity(run)
    stale = active is not None and now - active > timedelta(days=stale_after_days)
    remake = () if ending else tuple(_remake(name, at) for name in _MAKES if name in missing)
    return Findings(
        run_id=run.run_id,
        phase=at.phase,
        stage=at.stage,
        tasks=states,
        done=sum(states[name] == "done" for name in counted_tasks(run, states)),
        total=len(counted_tasks(run, states)),
        runnable=tuple(task.id for task in runnable),
        last_activity=active,
        last_completed=last_completed(run, states),
        missing_artifacts=missing,
        remake=remake,
        next_action=_next_action(run, at, states=states, runnable=runnable, remake=remake, ending=ending),
        ending=ending,
        stale=stale,
        cautious=is_damaged(run),
        warnings=(
            *_time_warnings(active, now, stale=stale, stale_after_days=stale_after_days),
            *_phase_warnings(run, at),
            *(f"{name} has changed since the plan was approved" for name in changed_since_approval(run)),
            *_graph_warnings(run),
            *run.warnings,
            *run.run_events.warnings,
        ),
    )


def as_json(findings: Findings) -> dict[str, Any]:
    """The fields that `resume --dry-run --json` adds for these runs."""
    completed = findings.last_completed
    return {
        "phase": findings.phase,
        "tasks": dict(findings.tasks),
        "runnable": list(findings.runnable),
        "last_activity": rfc3339(findings.last_activity),
        "last_completed": None if completed is None else {"id": completed.id, "title": shown(completed.title)},
        "missing_artifacts": list(findings.missing_artifacts),
        "warnings": list(findings.warnings),
    }


def report(findings: Findings, *, waits_for: str | None = None) -> str:
    """The format's resume report. The reason to wait is the action that a person must take, unless the caller names
    one.
    """
    action = findings.next_action
    if waits_for is None and not action.automatic:
        waits_for = {"wait_for_approval": "the plan's approval", "nothing": "nothing: the run has ended"}.get(
            action.do, "a person"
        )
    completed = findings.last_completed
    return resume_report(
        run_id=findings.run_id,
        phase=str(findings.phase),
        done=findings.done,
        total=findings.total,
        last_activity=rfc3339(findings.last_activity),
        last_completed=(completed.id, completed.title) if completed else None,
        next_action=action.summary,
        waits_for=waits_for,
    )


def repair(findings: Findings) -> tuple[NextAction, ...]:
    """Re-running the steps whose artifacts are missing repairs this format; its files are never edited."""
    return findings.remake


def rfc3339(when: datetime | None) -> str | None:
    if when is None:
        return None
    text = when.astimezone(UTC).isoformat(timespec="milliseconds" if when.microsecond else "seconds")
    return text.replace("+00:00", "Z")


# What the events say.


def ended(run_events: RunEvents) -> Ending | None:
    """How the run ended; None while it lasts, or where work continued after the end."""
    if run_events.end is None or (
        run_events.reopened is not None and run_events.reopened.order > run_events.end.mark.order
    ):
        return None
    return run_events.end.ending


def task_state(record: TaskRecord) -> TaskState:
    """The task's latest event decides; `verified` confirms a completion, and is one where nobody says `completed`.

    Only the task's own events count: actors of two dialects may work on one run, and an event about one task must not
    reopen another one that is done.
    """
    words: tuple[tuple[Mark | None, TaskState], ...] = (
        (record.started, "in_progress"),
        (record.failed, "failed"),
        (record.blocked, "blocked"),
        (record.completed, "done"),
    )
    latest = max(((mark.order, state) for mark, state in words if mark is not None), default=None)
    if record.verified is not None and (latest is None or record.verified.order > latest[0]):
        is_last_word = not record.completed_by_others or (latest is not None and latest[1] == "done")
        return "done" if is_last_word else "in_progress"
    return latest[1] if latest is not None else "pending"


def task_states(run: Run) -> dict[str, TaskState]:
    heard = {record.id: task_state(record) for record in run.run_events.tasks}
    states: dict[str, TaskState] = {task.id: heard.pop(task.id, "pending") for task in _graph_tasks(run)}
    return {**states, **heard}


def approval_in_force(run_events: RunEvents) -> ApprovalMark | None:
    """The approved bytes, unless another actor has moved the run forward or back since: then that actor's events
    decide.
    """
    approval, moved = run_events.approval, run_events.moved_by_others
    if approval is None or (moved is not None and moved.order > approval.mark.order):
        return None
    return approval


def digests_of(run: Run) -> dict[str, str] | None:
    """The files that an approval is for, as they are; None while one of them is missing."""
    if not all(name in run.artifacts for name in APPROVED_ARTIFACTS):
        return None
    return {name: run.artifacts[name].sha256 for name in APPROVED_ARTIFACTS}


def changed_since_approval(run: Run) -> tuple[str, ...]:
    approval, digests = approval_in_force(run.run_events), digests_of(run)
    if approval is None or digests is None:
        return ()
    return tuple(name for name in APPROVED_ARTIFACTS if digests[name] != approval.digests[name])


def runnable_tasks(run: Run, states: dict[str, TaskState]) -> tuple[Task, ...]:
    """Dependencies done, itself neither done nor blocked. Tasks outside the graph are not run."""
    return tuple(
        task
        for task in _graph_tasks(run)
        if states[task.id] not in {"done", "blocked"} and all(states.get(name) == "done" for name in task.dependencies)
    )


def last_activity(run: Run) -> datetime | None:
    """The latest event's time; where no event has one, the newest file's."""
    at_us = run.run_events.last_activity_us if run.run_events.last_activity_us is not None else run.files_touched_us
    return None if at_us is None else moment(at_us)


def last_completed(run: Run, states: dict[str, TaskState]) -> Completed | None:
    finished = []
    for record in run.run_events.tasks:
        mark = record.completed or record.verified
        if mark is not None and states[record.id] == "done":
            finished.append((mark.order, record.id, record.title))
    if not finished:
        return None
    _, task_id, title = max(finished)
    titles = {task.id: task.title for task in _graph_tasks(run)}
    return Completed(id=task_id, title=titles.get(task_id) or title)


def missing_artifacts(run: Run, stage: int | None) -> tuple[str, ...]:
    """The artifacts that earlier phases should have left, or that an event names, and that are absent or unusable."""
    if stage is None:
        return ()
    due = set(run.run_events.made)
    if stage >= 1:
        due.add("prd.md")
    if stage >= 2:
        due.update(("constitution.md", "plan.md", "task-graph.json"))
    return tuple(
        name for name in ("constitution.md", "prd.md", "plan.md", "task-graph.json") if name in due - set(run.artifacts)
    )


def is_damaged(run: Run) -> bool:
    run_events = run.run_events
    return run_events.lines_skipped > 0 or any(
        "cannot be read" in text for text in (*run_events.warnings, *run.warnings)
    )


# What comes next.


def _next_action(
    run: Run,
    at: Position,
    *,
    states: dict[str, TaskState],
    runnable: tuple[Task, ...],
    remake: tuple[NextAction, ...],
    ending: Ending | None,
) -> NextAction:
    if ending is not None:
        how = {"completed": "is complete", "failed": "was given up as failed", "cancelled": "was cancelled"}[ending]
        return _step("nothing", at, f"Nothing: the run {how}", automatic=False)
    if at.stage is None:
        why = f"acode cannot determine the next action in phase {at.phase}, so a person must take it: {at.unclear}"
        return _step("wait_for_person", at, why, automatic=False)
    if _has_no_approval(run, at):
        return _wait_for_approval(at, "Wait for approval: no event says that the plan was approved before phase 2")
    if remake:
        return remake[0]
    if at.stage == 0:
        return _make("prd.md", at) if "prd.md" not in run.artifacts else _enter(1, at)
    if at.stage == PLANNING:
        return _in_planning(run, at)
    if at.stage == EXECUTION:
        return _in_execution(run, at, states, runnable)
    if undone := [task for task in _graph_tasks(run) if states[task.id] != "done"]:
        return _left_behind(at, undone, states)
    if at.stage == 3:
        return _step("clean_up", at, "Re-run clean-up and PR preparation")
    return _step("consolidate", at, "Run memory consolidation")


def _step(do: Do, at: Position, summary: str, *, automatic: bool = True, **more: Any) -> NextAction:
    stage = at.stage if at.stage is not None else at.phase
    return NextAction(do=do, phase=stage, summary=summary, automatic=automatic, numbering=at.numbering, **more)


def _has_no_approval(run: Run, at: Position) -> bool:
    """In execution by its number alone. Where phases are counted from 0 to 6, this number is that of the planning."""
    run_events = run.run_events
    worked = any(record.started or record.completed or record.verified for record in run_events.tasks)
    said_so = run_events.phase is not None and (run_events.phase.by_person or run_events.phase.stage is not None)
    by_number = at.numbering == "seed" and at.stage == EXECUTION and digests_of(run) is not None
    return by_number and "constitution.md" not in run.artifacts and not (worked or said_so or 1 in run_events.gates)


def _left_behind(at: Position, undone: list[Task], states: dict[str, TaskState]) -> NextAction:
    """Clean-up and consolidation end a run, and a run whose tasks are not done is not at its end."""
    named = _listed([f"{task.id} is {states[task.id].replace('_', ' ')}" for task in undone])
    back = number_of(at.numbering, EXECUTION)
    why = f"Phase {at.phase} ends the run, but {named}; a person must finish these or return to phase {back}"
    return _step("wait_for_person", at, why, automatic=False)


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - NAMED_TASKS_MAX} more" if len(items) > NAMED_TASKS_MAX else ""
    return ", ".join(items[:NAMED_TASKS_MAX]) + more


def _in_planning(run: Run, at: Position) -> NextAction:
    for name in APPROVED_ARTIFACTS:
        if name not in run.artifacts:
            return _make(name, at)
    run_events = run.run_events
    entered = run_events.phase.mark.order if run_events.phase else None
    passed = [mark for number, mark in run_events.gates.items() if stage_of(at.numbering, number) == PLANNING]
    if any(entered is None or mark.order > entered for mark in passed):
        return _enter(EXECUTION, at)
    return _wait_for_approval(at, "Wait for approval of plan.md and task-graph.json; nothing is executed before it")


def _wait_for_approval(at: Position, summary: str) -> NextAction:
    return _step("wait_for_approval", at, summary, automatic=False)


def _in_execution(run: Run, at: Position, states: dict[str, TaskState], runnable: tuple[Task, ...]) -> NextAction:
    if changed := changed_since_approval(run):
        named = " and ".join(changed)
        return _wait_for_approval(at, f"Wait for another approval: {named} changed after the plan was approved")
    if runnable:
        # The first in graph order of the earliest plan phase; a bootstrap comes before what is built on it.
        task = min(runnable, key=lambda task: (at.numbering != "seed" and not _is_bootstrap(task), task.plan_phase))
        verb = {"in_progress": "Continue", "failed": "Retry"}.get(states[task.id], "Execute")
        title = f" - {shown(task.title)}" if task.title else ""
        return _step("run_task", at, f"{verb} task {task.id}{title}", task=task.id)
    undone = [task for task in _graph_tasks(run) if states[task.id] != "done"]
    if undone:
        named = _listed([_hindrance(task, states) for task in undone])
        return _step("wait_for_person", at, f"No task can run; a person must free one: {named}", automatic=False)
    if at.numbering != "seed" and all(_is_bootstrap(task) for task in _graph_tasks(run)):
        why = "The bootstrap is done; the tool that made the run must plan the development"
        return _step("wait_for_person", at, why, automatic=False)
    return _enter(3, at)


def _is_bootstrap(task: Task) -> bool:
    return re.fullmatch(r"B[0-9]+(-.*)?", task.id) is not None


def _hindrance(task: Task, states: dict[str, TaskState]) -> str:
    if states[task.id] == "blocked":
        return f"{task.id} is blocked"
    waits = [name for name in task.dependencies if states.get(name) != "done"]
    return f"{task.id} waits for {', '.join(waits[:NAMED_TASKS_MAX])}"


def _enter(stage: int, at: Position) -> NextAction:
    summary = f"Continue with phase {number_of(at.numbering, stage)}: {PHASE_NAMES[stage].lower()}"
    return _step("enter_phase", at, summary, to_phase=stage)


def _make(artifact: str, at: Position) -> NextAction:
    do, summary = _MAKES[artifact]
    return _step(do, at, summary[0].upper() + summary[1:], artifact=artifact)


def _remake(artifact: str, at: Position) -> NextAction:
    do, step = _MAKES[artifact]
    step = step.replace("continue", "write")
    summary = f"{artifact} is missing: re-run the step that makes it ({step})"
    again = at.stage is not None and at.stage >= EXECUTION and artifact in APPROVED_ARTIFACTS
    return _step(do, at, summary, artifact=artifact, approve_after=again)


# What to warn about.


def _time_warnings(active: datetime | None, now: datetime, *, stale: bool, stale_after_days: float) -> list[str]:
    if active is None:
        return []
    if stale:
        days = (now - active).days
        ago = f"{days} day{'s' if days != 1 else ''} ago (stale after {stale_after_days:g})"
        return [f"the last activity was {ago}; review the plan and the workspace before you continue"]
    if active - now > CLOCK_SKEW:
        return [f"the last event is dated in the future ({rfc3339(active)}); its clock or this one is wrong"]
    return []


def _phase_warnings(run: Run, at: Position) -> list[str]:
    worked = [record.id for record in run.run_events.tasks if record.started or record.completed]
    if at.stage in (0, PLANNING) and worked:
        return [f"task {worked[0]} was begun, but no event says that the run left phase {at.phase}"]
    if at.unclear:
        return [f"the phase is unclear: {at.unclear}"]
    return []


def _graph_warnings(run: Run) -> list[str]:
    tasks = _graph_tasks(run)
    told = [f"tasks depend on each other in a circle and can never run: {' → '.join(c)}" for c in graphs.cycles(tasks)]
    unknown = [pair for pair in graphs.unknown_dependencies(tasks) if pair[1] != "?"]
    told += [
        f"task {task} depends on {name}, which is not in task-graph.json; it can never run"
        for task, name in unknown[: graphs.GRAPH_WARNINGS_MAX]
    ]
    known = {task.id for task in tasks}
    strays = [record.id for record in run.run_events.tasks if record.id not in known]
    if tasks and strays:
        named = ", ".join(strays[:NAMED_TASKS_MAX]) + (" …" if len(strays) > NAMED_TASKS_MAX else "")
        told.append(f"events name tasks that are not in task-graph.json, they are not run: {named}")
    return told


def _graph_tasks(run: Run) -> tuple[Task, ...]:
    return run.graph.tasks if run.graph is not None else ()


def counted_tasks(run: Run, states: dict[str, TaskState]) -> list[str]:
    """The tasks that done/total is about: those of the graph, or all that events know where there is no graph."""
    return [task.id for task in _graph_tasks(run)] or list(states)

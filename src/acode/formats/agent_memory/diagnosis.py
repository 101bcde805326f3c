"""Where a run stands and what comes next, by the format's own rules, which stand above every other resume rule for it.

Pure: a `Run` and the time go in, findings come out. Only events and core artifacts are asked; whatever else lies in the
run's folder (a manifest, notes, instructions) has no say.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from acode.formats.agent_memory import graph as graphs
from acode.formats.agent_memory.dialect import moment
from acode.formats.agent_memory.shape import (
    APPROVED_ARTIFACTS,
    LAST_PHASE,
    PHASE_NAMES,
    ApprovalMark,
    Ending,
    Mark,
    Run,
    Story,
    Task,
    TaskRecord,
    TaskState,
)
from acode.formats.agent_memory.wording import resume_report, shown

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
    """A plan made anew is not the one that was approved: the run goes back to the gate of phase 1 once it is there."""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    title: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    phase: int
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
    phase = current_phase(run.story)
    states = task_states(run)
    runnable = runnable_tasks(run, states)
    missing = missing_artifacts(run, phase)
    ending = ended(run.story)
    active = last_activity(run)
    stale = active is not None and now - active > timedelta(days=stale_after_days)
    remake = () if ending else tuple(_remake(name, phase) for name in _MAKES if name in missing)
    return Findings(
        run_id=run.run_id,
        phase=phase,
        tasks=states,
        done=sum(states[name] == "done" for name in counted_tasks(run, states)),
        total=len(counted_tasks(run, states)),
        runnable=tuple(task.id for task in runnable),
        last_activity=active,
        last_completed=last_completed(run, states),
        missing_artifacts=missing,
        remake=remake,
        next_action=_next_action(run, phase, states=states, runnable=runnable, remake=remake, ending=ending),
        ending=ending,
        stale=stale,
        cautious=is_damaged(run),
        warnings=(
            *_time_warnings(active, now, stale=stale, stale_after_days=stale_after_days),
            *_phase_warnings(run, phase),
            *(f"{name} has changed since the plan was approved" for name in changed_since_approval(run)),
            *_graph_warnings(run),
            *run.warnings,
            *run.story.warnings,
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
    """The format's resume report. What a person must do first is the reason to wait, if the caller knows none."""
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
    """This format is mended by re-running the steps whose artifacts are missing, never by editing its files."""
    return findings.remake


def rfc3339(when: datetime | None) -> str | None:
    if when is None:
        return None
    text = when.astimezone(UTC).isoformat(timespec="milliseconds" if when.microsecond else "seconds")
    return text.replace("+00:00", "Z")


# What the events say.


def current_phase(story: Story) -> int:
    """The latest transition decides. A dialect without transitions only says which phase it completed last."""
    if story.phase is not None:
        return story.phase.phase
    if story.phase_done is not None:
        return min(story.phase_done.phase + 1, LAST_PHASE)
    return 0


def ended(story: Story) -> Ending | None:
    """How the run ended; None while it goes on, or where work was taken up again after the end."""
    if story.end is None or (story.reopened is not None and story.reopened.order > story.end.mark.order):
        return None
    return story.end.ending


def task_state(record: TaskRecord) -> TaskState:
    """The task's latest event decides; `verified` confirms a completion, and is one where nobody says `completed`.

    Asked of the task alone: actors of two dialects may work on one run, and a word about one task must not turn
    another, which is done, back.
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
    heard = {record.id: task_state(record) for record in run.story.tasks}
    states: dict[str, TaskState] = {task.id: heard.pop(task.id, "pending") for task in _graph_tasks(run)}
    return {**states, **heard}


def approval_in_force(story: Story) -> ApprovalMark | None:
    """The approved bytes, unless the run was moved on or back by another actor since: then that actor's word counts."""
    approval, moved = story.approval, story.moved_by_others
    if approval is None or (moved is not None and moved.order > approval.mark.order):
        return None
    return approval


def digests_of(run: Run) -> dict[str, str] | None:
    """The files that an approval is for, as they are; None while one of them is missing."""
    if not all(name in run.artifacts for name in APPROVED_ARTIFACTS):
        return None
    return {name: run.artifacts[name].sha256 for name in APPROVED_ARTIFACTS}


def changed_since_approval(run: Run) -> tuple[str, ...]:
    approval, digests = approval_in_force(run.story), digests_of(run)
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
    at_us = run.story.last_activity_us if run.story.last_activity_us is not None else run.files_touched_us
    return None if at_us is None else moment(at_us)


def last_completed(run: Run, states: dict[str, TaskState]) -> Completed | None:
    finished = []
    for record in run.story.tasks:
        mark = record.completed or record.verified
        if mark is not None and states[record.id] == "done":
            finished.append((mark.order, record.id, record.title))
    if not finished:
        return None
    _, task_id, title = max(finished)
    titles = {task.id: task.title for task in _graph_tasks(run)}
    return Completed(id=task_id, title=titles.get(task_id) or title)


def missing_artifacts(run: Run, phase: int) -> tuple[str, ...]:
    """What earlier phases should have left, or an event says was made, and is not there (or cannot be used)."""
    due = set(run.story.made)
    if phase >= 1:
        due.add("prd.md")
    if phase >= 2:
        due.update(("constitution.md", "plan.md", "task-graph.json"))
    return tuple(
        name for name in ("constitution.md", "prd.md", "plan.md", "task-graph.json") if name in due - set(run.artifacts)
    )


def is_damaged(run: Run) -> bool:
    story = run.story
    return story.lines_skipped > 0 or any("cannot be read" in text for text in (*story.warnings, *run.warnings))


# What comes next.


def _next_action(
    run: Run,
    phase: int,
    *,
    states: dict[str, TaskState],
    runnable: tuple[Task, ...],
    remake: tuple[NextAction, ...],
    ending: Ending | None,
) -> NextAction:
    if ending is not None:
        how = {"completed": "is complete", "failed": "was given up as failed", "cancelled": "was cancelled"}[ending]
        return NextAction(do="nothing", phase=phase, summary=f"Nothing: the run {how}", automatic=False)
    if remake:
        return remake[0]
    if phase == 0:
        return _make("prd.md", 0) if "prd.md" not in run.artifacts else _enter(1)
    if phase == 1:
        return _in_planning(run)
    if phase == 2:
        return _in_execution(run, states, runnable)
    if phase == 3:
        return NextAction(do="clean_up", phase=3, summary="Re-run clean-up and PR preparation", automatic=True)
    return NextAction(do="consolidate", phase=4, summary="Run memory consolidation", automatic=True)


def _in_planning(run: Run) -> NextAction:
    for name in ("plan.md", "task-graph.json"):
        if name not in run.artifacts:
            return _make(name, 1)
    story = run.story
    entered = story.phase.mark.order if story.phase else None
    if story.plan_approved is not None and (entered is None or story.plan_approved.order > entered):
        return _enter(2)
    return _wait_for_approval(1, "Wait for approval of plan.md and task-graph.json; nothing is executed before it")


def _wait_for_approval(phase: int, summary: str) -> NextAction:
    return NextAction(do="wait_for_approval", phase=phase, summary=summary, automatic=False)


def _in_execution(run: Run, states: dict[str, TaskState], runnable: tuple[Task, ...]) -> NextAction:
    if changed := changed_since_approval(run):
        named = " and ".join(changed)
        return _wait_for_approval(2, f"Wait for another approval: {named} changed after the plan was approved")
    if runnable:
        task = min(runnable, key=lambda task: task.plan_phase)  # the first in graph order of the earliest plan phase
        verb = {"in_progress": "Continue", "failed": "Retry"}.get(states[task.id], "Execute")
        title = f" - {shown(task.title)}" if task.title else ""
        return NextAction(do="run_task", phase=2, task=task.id, summary=f"{verb} task {task.id}{title}", automatic=True)
    undone = [task for task in _graph_tasks(run) if states[task.id] != "done"]
    if not undone:
        return _enter(3)
    named = ", ".join(_hindrance(task, states) for task in undone[:NAMED_TASKS_MAX])
    more = f" and {len(undone) - NAMED_TASKS_MAX} more" if len(undone) > NAMED_TASKS_MAX else ""
    summary = f"No task can run; a person must free one: {named}{more}"
    return NextAction(do="wait_for_person", phase=2, summary=summary, automatic=False)


def _hindrance(task: Task, states: dict[str, TaskState]) -> str:
    if states[task.id] == "blocked":
        return f"{task.id} is blocked"
    waits = [name for name in task.dependencies if states.get(name) != "done"]
    return f"{task.id} waits for {', '.join(waits[:NAMED_TASKS_MAX])}"


def _enter(phase: int) -> NextAction:
    summary = f"Go on to phase {phase}: {PHASE_NAMES[phase].lower()}"
    return NextAction(do="enter_phase", phase=phase - 1, to_phase=phase, summary=summary, automatic=True)


def _make(artifact: str, phase: int) -> NextAction:
    do, summary = _MAKES[artifact]
    summary = summary[0].upper() + summary[1:]
    return NextAction(do=do, phase=phase, artifact=artifact, summary=summary, automatic=True)


def _remake(artifact: str, phase: int) -> NextAction:
    do, step = _MAKES[artifact]
    step = step.replace("continue", "write")
    summary = f"{artifact} is missing: re-run the step that makes it ({step})"
    again = phase >= 2 and artifact in {"plan.md", "task-graph.json"}
    return NextAction(do=do, phase=phase, artifact=artifact, summary=summary, automatic=True, approve_after=again)


# What to warn about.


def _time_warnings(active: datetime | None, now: datetime, *, stale: bool, stale_after_days: float) -> list[str]:
    if active is None:
        return []
    if stale:
        days = (now - active).days
        ago = f"{days} day{'s' if days != 1 else ''} ago (stale after {stale_after_days:g})"
        return [f"the last activity was {ago}; review the plan and the workspace before going on"]
    if active - now > CLOCK_SKEW:
        return [f"the last event is dated in the future ({rfc3339(active)}); its clock or this one is wrong"]
    return []


def _phase_warnings(run: Run, phase: int) -> list[str]:
    worked = [record.id for record in run.story.tasks if record.started or record.completed]
    if phase < 2 and worked:
        return [f"task {worked[0]} was begun, but no event says that the run left phase {phase}"]
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
    strays = [record.id for record in run.story.tasks if record.id not in known]
    if tasks and strays:
        named = ", ".join(strays[:NAMED_TASKS_MAX]) + (" …" if len(strays) > NAMED_TASKS_MAX else "")
        told.append(f"events name tasks that are not in task-graph.json, they are not run: {named}")
    return told


def _graph_tasks(run: Run) -> tuple[Task, ...]:
    return run.graph.tasks if run.graph is not None else ()


def counted_tasks(run: Run, states: dict[str, TaskState]) -> list[str]:
    """The tasks that done/total is about: those of the graph, or all that events know where there is no graph."""
    return [task.id for task in _graph_tasks(run)] or list(states)

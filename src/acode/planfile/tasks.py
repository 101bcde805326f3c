"""The plan as a whole: its tasks, their names, and who waits for whom."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal, NamedTuple, cast

from acode.errors import AcodeError
from acode.events.definition import Plan, Step, Task
from acode.planfile.steps import (
    ID_CHARS_MAX,
    STEPS_MAX,
    TITLE_CHARS_MAX,
    Defaults,
    optional,
    own_id,
    read_id,
    read_step,
    read_timeout,
    read_title,
    refuse_same_names,
)
from acode.yamlfile import Node, did_you_mean, shown

TASKS_MAX = 2_000
PARALLEL_MAX = 64
CYCLE_SHOWN_MAX = 12

PLAN_KEYS = ("version", "title", "on_failure", "parallel", "defaults", "tasks")
TASK_KEYS = ("id", "title", "needs", "steps")
DEFAULTS_KEYS = ("idempotent", "timeout")
ON_FAILURE = ("pause", "abort")
EXAMPLE = "For example: {version: 1, tasks: [{title: Build, steps: [{run: make}]}]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step that could be read, and where it stands in the file."""

    step: Step
    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of reading a file: the plan, or every error in it and the steps that can be read in spite of them."""

    plan: Plan | None
    errors: tuple[AcodeError, ...]
    steps: tuple[PlacedStep, ...]


def read_plan(root: Node, defaults: Defaults) -> Reading:
    """The plan. Where the source gathers errors, the reader continues behind each of them."""
    if root.data is None:
        raise root.problem("expected a plan, found nothing", hint=EXAMPLE)
    source, steps = root.source, list[PlacedStep]()
    entries = root.mapping(PLAN_KEYS, "a plan with version and tasks")
    if "tasks" not in entries:
        source.refuse(root.problem('expected the key "tasks", found none', hint=EXAMPLE))
    optional(entries, "version", _refuse_other_version)
    defaults = optional(entries, "defaults", lambda entry: _read_defaults(entry, defaults)) or defaults
    on_failure = optional(entries, "on_failure", lambda entry: entry.choice(*ON_FAILURE)) or "pause"
    parallel = optional(entries, "parallel", lambda entry: entry.whole(1, PARALLEL_MAX)) or 1
    tasks = optional(entries, "tasks", lambda entry: _read_tasks(entry, defaults, steps))
    title = optional(entries, "title", read_title) if "title" in entries else _title_of(root)
    plan = None
    if not source.mistakes and tasks is not None and title is not None:
        ends = cast('Literal["pause", "abort"]', on_failure)
        plan = Plan(title=title, on_failure=ends, parallel=parallel, tasks=tasks)
    return Reading(plan=plan, errors=tuple(source.gathered or ()), steps=tuple(steps))


def _refuse_other_version(node: Node) -> None:
    if node.data != 1 or isinstance(node.data, bool):
        raise node.wrong("1", hint="This acode knows plan files of version 1; a newer acode may know yours.")


def _title_of(root: Node) -> str:
    """A plan without a title is called after its file, less what a terminal would obey."""
    stem = "".join(c for c in PurePath(root.source.name).stem if c.isprintable())
    return stem.strip()[:TITLE_CHARS_MAX] or "plan"


def _read_defaults(node: Node, defaults: Defaults) -> Defaults:
    if node.data is None:
        return defaults
    entries = node.mapping(DEFAULTS_KEYS, "a mapping with idempotent and timeout")
    idempotent = optional(entries, "idempotent", Node.flag)
    timeout_s = optional(entries, "timeout", read_timeout)
    if idempotent is not None:
        defaults = replace(defaults, idempotent=idempotent)
    return defaults if timeout_s is None else replace(defaults, timeout_s=timeout_s)


def _read_tasks(node: Node, defaults: Defaults, steps: list[PlacedStep]) -> tuple[Task, ...]:
    nodes = node.items("a list of tasks", items_max=TASKS_MAX)
    if not nodes:
        raise node.problem("expected at least one task, found an empty list", hint=EXAMPLE)
    opened = [_open_task(task, number) for number, task in enumerate(nodes, start=1)]
    ids = [task.id for task in opened if task.id is not None]
    refuse_same_names([(task.id, task.node) for task in opened if task.id is not None], "task id")
    read = [_read_task(task, defaults, steps) for task in opened]
    if (count := sum(len(task.steps) for task in read)) > STEPS_MAX:
        node.source.refuse(node.problem(f"expected at most {STEPS_MAX:,} steps, found {count:,}"))
    # A need that no task has may be that of a task whose id cannot be read: that one is reported already.
    known = frozenset(ids) if len(ids) == len(opened) else None
    tasks = tuple(_with_needs(task, index, opened, known) for index, task in enumerate(read))
    _refuse_cycles(tasks, nodes)
    return tasks


class _OpenedTask(NamedTuple):
    """A task before its steps are read: the ids of all must be known first. No id: it has none that can be read."""

    node: Node
    number: int
    id: str | None
    entries: dict[str, Node]


def _open_task(node: Node, number: int) -> _OpenedTask:
    entries = node.source.attempt(node.mapping, TASK_KEYS, "a task with title and steps")
    task_id = None if entries is None else node.source.attempt(_task_id, node, entries, number)
    return _OpenedTask(node, number, task_id, entries or {})


def _task_id(node: Node, entries: Mapping[str, Node], number: int) -> str:
    if "id" in entries:
        return read_id(entries["id"])
    if "title" not in entries:
        raise node.problem("expected an id or a title, found neither", hint="For example: title: Build and check")
    return slug(read_title(entries["title"])) or f"task-{number}"


def slug(title: str) -> str:
    """The title as an id; empty where the title has no letter or digit that an id may hold."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[: ID_CHARS_MAX + 1].strip("-")[:ID_CHARS_MAX].rstrip("-")


def _read_task(task: _OpenedTask, defaults: Defaults, placed: list[PlacedStep]) -> Task:
    """The task with the steps that can be read; they are added to `placed`. One that cannot be opened has none."""
    task_id, steps = task.id or f"task-{task.number}", None
    if isinstance(task.node.data, dict):
        steps = task.node.source.attempt(_read_steps, task, task_id, defaults)
        placed.extend(steps or ())
    # A title that is the task's id has been read as such.
    title = optional(task.entries, "title", read_title) if "id" in task.entries or task.id else None
    return Task(id=task_id, title=title or task_id, steps=tuple(one.step for one in steps or ()))


def _read_steps(task: _OpenedTask, task_id: str, defaults: Defaults) -> list[PlacedStep]:
    if "steps" not in task.entries:
        raise task.node.problem('expected the key "steps", found none', hint="For example: steps: [{run: make test}]")
    nodes = task.entries["steps"].items("a list of steps", items_max=STEPS_MAX)
    if not nodes:
        raise task.entries["steps"].problem("expected at least one step, found an empty list")
    placed = []
    for number, node in enumerate(nodes, start=1):
        step = node.source.attempt(read_step, node, task_id, number, defaults)
        if step is not None:
            placed.append(PlacedStep(step=step, node=node))
    names = [(own_id(node, number), node) for number, node in enumerate(nodes, start=1)]
    refuse_same_names([(f"{task_id}.{name}", node) for name, node in names if name is not None], "step id")
    return placed


def _with_needs(task: Task, index: int, opened: list[_OpenedTask], known: frozenset[str] | None) -> Task:
    """A task without `needs` waits for the one before it, so that a plain list runs from top to bottom."""
    entries = opened[index].entries
    if "needs" in entries:
        needs = optional(entries, "needs", lambda entry: _read_needs(entry, known)) or ()
    else:
        before = opened[index - 1].id if index else None
        needs = () if before is None else (before,)
    return Task(id=task.id, title=task.title, needs=needs, steps=task.steps)


def _read_needs(node: Node, known: frozenset[str] | None) -> tuple[str, ...]:
    needs: list[str] = []

    def read_need(item: Node) -> None:
        need = item.text("a task id", chars_max=TITLE_CHARS_MAX)
        if known is not None and need not in known:
            close = did_you_mean(need, sorted(known))
            raise item.problem(f"expected the id of a task, found {shown(need)}, which no task has{close}")
        if need in needs:
            raise item.problem(f"the task {shown(need)} is named twice")
        needs.append(need)

    for item in node.items("a list of task ids", items_max=TASKS_MAX):
        node.source.attempt(read_need, item)
    return tuple(needs)


def _refuse_cycles(tasks: tuple[Task, ...], nodes: tuple[Node, ...]) -> None:
    """Report every cycle, and every gate that waits for one: nobody would ever be asked."""
    places: dict[str, Node] = {}
    needs: dict[str, set[str]] = {}
    for task, node in zip(tasks, nodes, strict=True):  # of two with one id, which is reported, the first counts
        places.setdefault(task.id, node)
        needs.setdefault(task.id, set(task.needs))
    waiting = stuck = _waiting_for_themselves({task_id: needs[task_id] & places.keys() for task_id in places})
    while waiting:
        cycle = _one_cycle(waiting)
        way = [*cycle, cycle[0]] if len(cycle) <= CYCLE_SHOWN_MAX else [*cycle[:CYCLE_SHOWN_MAX], "…", cycle[0]]
        node = places[cycle[0]]
        assert isinstance(node.data, dict)
        problem = node.data.get("needs", node).problem(
            f"expected tasks in an order, found a cycle: {' → '.join(way)}",
            hint="Read → as needs. A task without needs waits for the one before it; needs: [] waits for none.",
        )
        node.source.refuse(problem)
        left = {task_id: open_needs - set(cycle) for task_id, open_needs in waiting.items() if task_id not in cycle}
        waiting = _waiting_for_themselves(left)
    for task_id in stuck:
        for gate in _gates_in(places[task_id]):
            gate.source.refuse(gate.problem("this gate is never reached: its task waits for a cycle of tasks"))


def _waiting_for_themselves(needs: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Take away tasks whose needs are all gone, again and again; whatever stays waits for itself."""
    open_needs = {task_id: set(others) for task_id, others in needs.items()}
    needed_by: dict[str, list[str]] = {task_id: [] for task_id in needs}
    for task_id, others in needs.items():
        for need in others:
            needed_by[need].append(task_id)
    ready = [task_id for task_id, others in open_needs.items() if not others]
    while ready:
        done = ready.pop()
        del open_needs[done]
        for waiting in needed_by[done]:
            open_needs[waiting].discard(done)
            if not open_needs[waiting]:
                ready.append(waiting)
    return open_needs


def _gates_in(node: Node) -> list[Node]:
    steps = node.data["steps"].data if isinstance(node.data, dict) and "steps" in node.data else ()
    if not isinstance(steps, tuple):
        return []
    return [step.data["approve"] for step in steps if isinstance(step.data, dict) and "approve" in step.data]


def _one_cycle(open_needs: dict[str, set[str]]) -> list[str]:
    """Walk from need to need until a task comes again: every task here has a need that is here, so one does.

    The result begins with the task that is first in the file.
    """
    order = {task_id: index for index, task_id in enumerate(open_needs)}
    here, seen = next(iter(open_needs)), dict[str, int]()
    while here not in seen:
        seen[here] = len(seen)
        here = min(open_needs[here], key=order.__getitem__)
    cycle = list(seen)[seen[here] :]
    first = cycle.index(min(cycle, key=order.__getitem__))
    return cycle[first:] + cycle[:first]

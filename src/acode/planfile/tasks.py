"""The plan as a whole: its tasks, their names, and who waits for whom."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import PurePath
from typing import Literal, cast

from acode.events.definition import Plan, Task
from acode.planfile.steps import (
    ID_CHARS_MAX,
    STEPS_MAX,
    TIMEOUT_S_MAX,
    Defaults,
    one_line,
    read_id,
    read_step,
    refuse_same_names,
)
from acode.yamlfile import Node, did_you_mean, shown

TASKS_MAX = 2_000
TITLE_CHARS_MAX = 200
CYCLE_SHOWN_MAX = 12

PLAN_KEYS = ("version", "title", "on_failure", "defaults", "tasks")
TASK_KEYS = ("id", "title", "needs", "steps")
EXAMPLE = "For example: {version: 1, tasks: [{title: Build, steps: [{run: make}]}]}"


def read_plan(root: Node, defaults: Defaults) -> Plan:
    if root.data is None:
        raise root.problem("expected a plan, found nothing", hint=EXAMPLE)
    entries = root.mapping(PLAN_KEYS, "a plan with version and tasks")
    if "tasks" not in entries:
        raise root.problem('expected the key "tasks", found none', hint=EXAMPLE)
    version = entries.get("version")
    if version and (version.data != 1 or isinstance(version.data, bool)):
        raise version.wrong("1", hint="This acode knows plan files of version 1; a newer acode may know yours.")
    if "defaults" in entries:
        defaults = _read_defaults(entries["defaults"], defaults)
    on_failure = entries["on_failure"].choice("pause", "abort") if "on_failure" in entries else "pause"
    tasks = _read_tasks(entries["tasks"], defaults)
    return Plan(
        title=one_line(entries["title"], chars_max=TITLE_CHARS_MAX) if "title" in entries else _title_of(root),
        on_failure=cast('Literal["pause", "abort"]', on_failure),
        tasks=tasks,
    )


def _title_of(root: Node) -> str:
    """A plan without a title is called after its file, less what a terminal would obey."""
    stem = "".join(c for c in PurePath(root.source.name).stem if c.isprintable())
    return stem.strip()[:TITLE_CHARS_MAX] or "plan"


def _read_defaults(node: Node, defaults: Defaults) -> Defaults:
    if node.data is None:
        return defaults
    entries = node.mapping(("idempotent", "timeout"), "a mapping with idempotent and timeout")
    if "idempotent" in entries:
        defaults = replace(defaults, idempotent=entries["idempotent"].flag())
    if "timeout" in entries:
        timeout_s = entries["timeout"].number(0, TIMEOUT_S_MAX, above_low=True, unit="seconds")
        defaults = replace(defaults, timeout_s=timeout_s)
    return defaults


def _read_tasks(node: Node, defaults: Defaults) -> tuple[Task, ...]:
    nodes = node.items("a list of tasks", items_max=TASKS_MAX)
    if not nodes:
        raise node.problem("expected at least one task, found an empty list", hint=EXAMPLE)
    ids = [_task_id(task, number) for number, task in enumerate(nodes, start=1)]
    refuse_same_names(list(zip(ids, nodes, strict=True)), "task id")
    tasks = [_read_task(task, task_id, defaults) for task, task_id in zip(nodes, ids, strict=True)]
    if (count := sum(len(task.steps) for task in tasks)) > STEPS_MAX:
        raise node.problem(f"expected at most {STEPS_MAX:,} steps, found {count:,}")
    with_needs = tuple(_with_needs(task, index, tasks, nodes[index]) for index, task in enumerate(tasks))
    _refuse_cycle(with_needs, nodes)
    return with_needs


def _task_id(node: Node, number: int) -> str:
    entries = node.mapping(TASK_KEYS, "a task with title and steps")
    if "id" in entries:
        return read_id(entries["id"])
    if "title" not in entries:
        raise node.problem("expected an id or a title, found neither", hint="For example: title: Build and check")
    return slug(one_line(entries["title"], chars_max=TITLE_CHARS_MAX)) or f"task-{number}"


def slug(title: str) -> str:
    """The title as an id; empty where the title has no letter or digit that an id may hold."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[: ID_CHARS_MAX + 1].strip("-")[:ID_CHARS_MAX].rstrip("-")


def _read_task(node: Node, task_id: str, defaults: Defaults) -> Task:
    entries = node.mapping(TASK_KEYS, "a task with title and steps")
    if "steps" not in entries:
        raise node.problem('expected the key "steps", found none', hint="For example: steps: [{run: make test}]")
    steps = entries["steps"].items("a list of steps", items_max=STEPS_MAX)
    if not steps:
        raise entries["steps"].problem("expected at least one step, found an empty list")
    read = tuple(read_step(step, task_id, number, defaults) for number, step in enumerate(steps, start=1))
    refuse_same_names([(step.id, at) for step, at in zip(read, steps, strict=True)], "step id")
    title = one_line(entries["title"], chars_max=TITLE_CHARS_MAX) if "title" in entries else task_id
    return Task(id=task_id, title=title, steps=read)


def _with_needs(task: Task, index: int, tasks: list[Task], node: Node) -> Task:
    """A task without `needs` waits for the one before it, so that a plain list runs from top to bottom."""
    assert isinstance(node.data, dict)
    if "needs" not in node.data:
        needs: tuple[str, ...] = (tasks[index - 1].id,) if index else ()
    else:
        known = {other.id for other in tasks}
        needs = _read_needs(node.data["needs"], known)
    return Task(id=task.id, title=task.title, needs=needs, steps=task.steps)


def _read_needs(node: Node, known: set[str]) -> tuple[str, ...]:
    needs: list[str] = []
    for item in node.items("a list of task ids", items_max=TASKS_MAX):
        need = item.text("a task id", chars_max=TITLE_CHARS_MAX)
        if need not in known:
            close = did_you_mean(need, sorted(known))
            raise item.problem(f"expected the id of a task, found {shown(need)}, which no task has{close}")
        if need in needs:
            raise item.problem(f"the task {shown(need)} is named twice")
        needs.append(need)
    return tuple(needs)


def _refuse_cycle(tasks: tuple[Task, ...], nodes: tuple[Node, ...]) -> None:
    """Take away tasks whose needs are all gone, again and again; whatever stays waits for itself."""
    open_needs = {task.id: set(task.needs) for task in tasks}
    needed_by: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for need in task.needs:
            needed_by[need].append(task.id)
    ready = [task_id for task_id, needs in open_needs.items() if not needs]
    while ready:
        done = ready.pop()
        del open_needs[done]
        for waiting in needed_by[done]:
            open_needs[waiting].discard(done)
            if not open_needs[waiting]:
                ready.append(waiting)
    if not open_needs:
        return
    cycle = _one_cycle(open_needs)
    node = next(node for task, node in zip(tasks, nodes, strict=True) if task.id == cycle[0])
    assert isinstance(node.data, dict)
    way = [*cycle, cycle[0]] if len(cycle) <= CYCLE_SHOWN_MAX else [*cycle[:CYCLE_SHOWN_MAX], "…", cycle[0]]
    raise node.data.get("needs", node).problem(
        f"expected tasks in an order, found a cycle: {' → '.join(way)}",
        hint="Read → as needs. A task without needs waits for the one before it; needs: [] waits for none.",
    )


def _one_cycle(open_needs: dict[str, set[str]]) -> list[str]:
    """Walk from need to need until a task comes again: every task here has a need that is here, so one does.

    Told from the task that stands first in the file.
    """
    order = {task_id: index for index, task_id in enumerate(open_needs)}
    here, seen = next(iter(open_needs)), dict[str, int]()
    while here not in seen:
        seen[here] = len(seen)
        here = min(open_needs[here], key=order.__getitem__)
    cycle = list(seen)[seen[here] :]
    first = cycle.index(min(cycle, key=order.__getitem__))
    return cycle[first:] + cycle[:first]

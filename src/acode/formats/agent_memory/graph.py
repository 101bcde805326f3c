"""Read task-graph.json in both of its shapes, order its tasks, and find the tasks that can never run.

Pure. Both shapes share `tasks[].id` and `tasks[].dependencies`; the first also has plan phases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from acode.formats.agent_memory.dialect import BOM, usable_id
from acode.formats.agent_memory.values import TASKS_MAX, Graph, Task
from acode.formats.messages import shown

CYCLES_REPORTED_MAX = 20
GRAPH_WARNINGS_MAX = 100
CONTRACT_CHARS_MAX = 16_000
PLAN_PHASE_MAX = 1_000_000

_decode = msgspec.json.Decoder().decode


def parse_graph(data: bytes) -> Graph | str:
    """The graph, or the reason why there is none in these bytes."""
    try:
        found = _decode(data.removeprefix(BOM))
    except (msgspec.MsgspecError, ValueError) as error:
        return f"no JSON ({shown(str(error), chars_max=100)})"
    except RecursionError:
        return "nested too deeply"
    if not isinstance(found, dict) or not isinstance(found.get("tasks"), list):
        return "no object with a list `tasks`"
    phases = _phases_beside(found.get("phases"))
    tasks: dict[str, Task] = {}
    warnings: list[str] = []
    for number, entry in enumerate(found["tasks"][:TASKS_MAX], start=1):
        task = _task(entry, phases, number, warnings)
        if task is None:
            continue
        if task.id in tasks:
            warnings.append(f"task-graph.json names task {task.id} twice; the first one counts")
        tasks.setdefault(task.id, task)
    if len(found["tasks"]) > TASKS_MAX:
        warnings.append(f"task-graph.json has {len(found['tasks'])} tasks; only the first {TASKS_MAX} were read")
    if not tasks:
        return "no task in it"
    return Graph(tasks=tuple(tasks.values()), warnings=tuple(warnings[:GRAPH_WARNINGS_MAX]))


def count_tasks(data: bytes) -> int | None:
    """How many tasks the graph has, for a listing that must not take long; None where it cannot be read."""
    try:
        found = _counting.decode(data.removeprefix(BOM))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        graph = parse_graph(data)
        return None if isinstance(graph, str) else len(graph.tasks)
    return len({task.id for task in found.tasks})


class _CountedTask(msgspec.Struct, gc=False):
    id: str


class _Counted(msgspec.Struct, gc=False):
    tasks: list[_CountedTask]


_counting = msgspec.json.Decoder(_Counted)


def _task(entry: object, phases: Mapping[str, int], number: int, warnings: list[str]) -> Task | None:
    task_id = usable_id(entry.get("id")) if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or task_id is None:
        warnings.append(f"task-graph.json: entry {number} of `tasks` has no usable id; left out")
        return None
    title = entry.get("title")
    return Task(
        id=task_id,
        title=title if isinstance(title, str) else "",
        plan_phase=_plan_phase(entry.get("phase"), phases.get(task_id, 0)),
        dependencies=_dependencies(task_id, entry.get("dependencies"), warnings),
        contract=_contract(entry),
    )


def _plan_phase(value: object, otherwise: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PLAN_PHASE_MAX:
        return value
    return otherwise


def _dependencies(task_id: str, value: object, warnings: list[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        warnings.append(f"task-graph.json: the dependencies of task {task_id} are no list; the task will not be run")
        return ("?",)
    named: dict[str, None] = {}
    for item in value:
        dependency = usable_id(item)
        if dependency is None:
            warnings.append(f"task-graph.json: task {task_id} has a dependency that is no id; the task will not be run")
        named[dependency or "?"] = None
    return tuple(named)


def _contract(entry: Mapping[str, Any]) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(entry), indent=2).decode()[:CONTRACT_CHARS_MAX]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""


def _phases_beside(value: object) -> dict[str, int]:
    phases: dict[str, int] = {}
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("tasks"), list):
            number = _plan_phase(entry.get("number"), 0)
            phases.update({task_id: number for item in entry["tasks"] if (task_id := usable_id(item)) is not None})
    return phases


def unknown_dependencies(tasks: Iterable[Task]) -> list[tuple[str, str]]:
    """(task, dependency) for every dependency that no task of the graph answers to; such a task can never run."""
    tasks = tuple(tasks)
    known = {task.id for task in tasks}
    return [(task.id, name) for task in tasks for name in task.dependencies if name not in known]


def cycles(tasks: Iterable[Task]) -> list[tuple[str, ...]]:
    """Each cycle found, from its first task back to itself: ('T1', 'T2', 'T1')."""
    graph = {task.id: task.dependencies for task in tasks}
    left = {name: [other for other in others if other in graph] for name, others in graph.items()}
    found: list[tuple[str, ...]] = []
    while len(found) < CYCLES_REPORTED_MAX:
        left = _without_ends(left)
        if not left:
            break
        cycle = _one_cycle(left)
        found.append((*cycle, cycle[0]))
        for name in cycle:
            del left[name]
    return found


def _without_ends(graph: dict[str, list[str]]) -> dict[str, list[str]]:
    """Take away, again and again, what depends on nothing: what stays is in a cycle or waits for one."""
    waiting = {name: sum(other in graph for other in others) for name, others in graph.items()}
    dependents: dict[str, list[str]] = {}
    for name, others in graph.items():
        for other in others:
            if other in graph:
                dependents.setdefault(other, []).append(name)
    free = [name for name, count in waiting.items() if count == 0]
    while free:
        name = free.pop()
        del waiting[name]
        for dependent in dependents.get(name, ()):
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                free.append(dependent)
    return {name: [other for other in graph[name] if other in waiting] for name in graph if name in waiting}


def _one_cycle(graph: dict[str, list[str]]) -> list[str]:
    """Every task left has a dependency left, so that walking on must come back to where it was."""
    name = next(iter(graph))
    walked: dict[str, int] = {}
    while name not in walked:
        walked[name] = len(walked)
        name = graph[name][0]
    return list(walked)[walked[name] :]

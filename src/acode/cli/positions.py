"""The position of a step in its plan, as people read it: Task 2, Step 3."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from acode.events.definition import Plan, Step, Task, describe, execution_order
from acode.state import Session
from acode.text import one_line
from acode.text.durations import count, shortened, took

if TYPE_CHECKING:
    from acode.redact import Redactor

LINES_MAX = 10  # more finished tasks than this are shown as ranges


class Place(NamedTuple):
    task_number: int
    task: Task
    step_number: int
    step: Step

    @property
    def name(self) -> str:
        return f"Task {self.task_number}, Step {self.step_number}"

    @property
    def title(self) -> str:
        return describe(self.step)


class Skipped(NamedTuple):
    """Finished work as one line: a task, some tasks, or some steps of a task."""

    name: str
    title: str
    took_ms: int


class Outline:
    """The plan as it is walked, with numbers from 1."""

    def __init__(self, plan: Plan) -> None:
        self.order = execution_order(plan)
        self.places = {
            step.id: Place(task_number, task, step_number, step)
            for task_number, task in enumerate(self.order, 1)
            for step_number, step in enumerate(task.steps, 1)
        }

    def name(self, step_id: str | None) -> str:
        place = self.places.get(step_id or "")
        return place.name if place else (step_id or "the end")

    def title(self, step_id: str) -> str:
        place = self.places.get(step_id)
        return place.title if place else step_id

    def next_step(self, session: Session) -> Place | None:
        """Where the session stands: the step in flight, or the first that is not done."""
        if session.in_flight:
            return self.places.get(next(iter(session.in_flight)))
        return next((place for step_id, place in self.places.items() if not session.done(step_id)), None)

    def in_flight(self, session: Session) -> list[Place]:
        """The steps in flight; several where tasks run at the same time."""
        return [self.places[step] for step in session.in_flight if step in self.places]

    def skipped(self, session: Session) -> list[Skipped]:
        """Finished work in order, whole tasks first."""
        took = session.records.task_ms if session.records else {}
        found = list(self._skipped(session.done, took))
        if len(found) <= LINES_MAX:
            return found
        return _in_ranges(found)

    def _skipped(self, done: Callable[[str], bool], took: dict[str, int]) -> Iterator[Skipped]:
        for number, task in enumerate(self.order, 1):
            finished = [index for index, step in enumerate(task.steps, 1) if done(step.id)]
            if finished and len(finished) == len(task.steps):
                yield Skipped(f"Task {number}", task.title, took.get(task.id, 0))
            else:
                for first, last in runs(finished):
                    steps = f"Step {first}" if first == last else f"Steps {first}-{last}"
                    yield Skipped(f"Task {number}, {steps}", "", 0)


def runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """1 2 3 7 as (1, 3), (7, 7)."""
    start = previous = None
    for number in numbers:
        if start is None or previous is None:
            start = number
        elif number != previous + 1:
            yield start, previous
            start = number
        previous = number
    if start is not None and previous is not None:
        yield start, previous


def _in_ranges(found: list[Skipped]) -> list[Skipped]:
    tasks = [int(one.name.removeprefix("Task ")) for one in found if "," not in one.name]
    took = {int(one.name.removeprefix("Task ")): one.took_ms for one in found if "," not in one.name}
    whole = [
        Skipped(
            f"Task {first}" if first == last else f"Tasks {first}-{last}",
            "" if first != last else next(one.title for one in found if one.name == f"Task {first}"),
            sum(took[number] for number in range(first, last + 1)),
        )
        for first, last in runs(tasks)
    ]
    return [*whole, *(one for one in found if "," in one.name)]


def position(session: Session, outline: Outline | None) -> str:
    """“Task 2/3, Step 3/5”, or how far it came where there is no plan to point into."""
    if session.steps_from.follows_model:
        at = agent_place(session)
        return f"Task {at.task_number}/{session.plan_tasks_total}, Step {at.step_number}" if at else of_agent(session)
    place = outline.next_step(session) if outline is not None else None
    if outline is None or place is None:
        return f"{session.steps_done} of {session.steps_total} steps done"
    beside = len(session.in_flight) - 1
    more = f" (and {beside} more in flight)" if beside > 0 else ""
    return f"Task {place.task_number}/{len(outline.order)}, Step {place.step_number}/{len(place.task.steps)}{more}"


def titled_position(session: Session, outline: Outline | None, redactor: Redactor) -> str:
    """The position, with the title of the step there if it has one of its own."""
    where = position(session, outline)
    place = outline.next_step(session) if outline is not None else None
    return f"{where}: {own_title(place, redactor)}" if place is not None and place.step.title else where


def own_title(place: Place, redactor: Redactor) -> str:
    """The step's own title as it may be shown; empty where it has none."""
    return shortened(one_line(redactor.text(place.step.title)))


NAMES_SHOWN_MAX = 10
CHANGES = {
    "replaced": "Replaced",
    "added": "Added",
    "removed": "Removed",
    "asked_again": "Asked again, because the approval covered other steps",
}


def replacement_lines(changes: dict[str, list[str]]) -> Iterator[str]:
    """What an edited plan changes: first the numbers, then the names of the steps."""
    numbers = ", ".join(f"{len(changes[name])} {name}" for name in ("kept", "replaced", "added", "removed"))
    yield f"Plan changes: {numbers}"
    for name, words in CHANGES.items():
        if changes[name]:
            more = len(changes[name]) - NAMES_SHOWN_MAX
            shown = ", ".join(changes[name][:NAMES_SHOWN_MAX])
            yield f"  {words}: {shown}" + (f", and {more} more" if more > 0 else "")


class AgentPlace(NamedTuple):
    """Where an agent's session continues: the first task of its plan that is not done, and the step inside it."""

    task_number: int
    task: Task
    step_number: int

    @property
    def name(self) -> str:
        return f"Task {self.task_number}, Step {self.step_number}"


def agent_place(session: Session) -> AgentPlace | None:
    if session.plan is None or session.records is None:
        return None
    for number, task in enumerate(execution_order(session.plan), 1):
        if not session.done(task.id):
            return AgentPlace(number, task, session.records.inner_done.get(task.id, 0) + 1)
    return None


def of_agent(session: Session) -> str:
    """Without a place: the plan is not made yet, or all of it is done, or only the counts are loaded."""
    if session.plan_tasks_total == 0:
        return "planning the work"
    return f"{session.plan_tasks_done} of {session.plan_tasks_total} tasks done"


def agent_skipped(session: Session) -> list[Skipped]:
    """The finished tasks of an agent's plan, with the time that they took."""
    order = execution_order(session.plan) if session.plan is not None else ()
    took = session.records.task_ms if session.records is not None else {}
    done = [(number, task) for number, task in enumerate(order, 1) if session.done(task.id)]
    found = [Skipped(f"Task {number}", task.title, took.get(task.id, 0)) for number, task in done]
    return found if len(found) <= LINES_MAX else _in_ranges(found)


def open_tasks(session: Session) -> list[Task]:
    """The tasks of an agent's plan that are not done, in their order."""
    order = execution_order(session.plan) if session.plan is not None else ()
    return [task for task in order if not session.done(task.id)]


def outline_of(session: Session) -> Outline | None:
    """The plan of a session that is walked by it; a program, an agent among them, finds its steps on the way."""
    return Outline(session.plan) if session.plan is not None and not session.steps_from.asked else None


def agent_lines(session: Session) -> list[str]:
    """Where an agent's session stands."""
    at, spent = agent_place(session), sum(one.took_ms for one in agent_skipped(session))
    lines = [f"Loaded state: {session.state}" + (f" at {at.name}" if at else f", {of_agent(session)}")]
    if session.plan_tasks_done:
        lines.append(f"Skipping: {count(session.plan_tasks_done, 'completed task')} ({took(spent)} of work)")
    talk = session.conversation
    if talk is not None:
        tokens = talk.input_tokens + talk.output_tokens
        lines.append(f"Conversation: {count(talk.requests, 'request')} answered, {tokens} tokens; none is asked again")
    return lines


def settled_lines(kind: str, outcome: str, action: str, evidence: str) -> list[tuple[str, str]]:
    """How a step found in progress is treated, as lines: status, the check that was made, each action."""
    lines = [("Status", "Was in progress")]
    if outcome == "partial":
        lines = [("Status", "Partially written" if kind in ("write", "edit") else "Partially done")]
    if kind == "read":
        return [*lines, ("Action", "Re-reading file" if action == "retry" else "Already read, skipping")]
    if kind in ("write", "edit") and outcome != "unknown":
        matches = "File matches expected state" if outcome == "applied" else "File does not match expected state"
        lines.append(("Checking", f"{matches} ({evidence})"))
    else:
        lines.append(("Checking", evidence))
    match action:
        case "skip":
            return [*lines, ("Action", "Already applied, skipping")]
        case "rollback_and_retry":
            return [*lines, ("Action", "Rolling back to checkpoint"), ("Action", "Re-executing step")]
        case "retry":
            return [*lines, ("Action", "Re-executing step")]
        case "end":
            return [*lines, ("Action", "Ending the session, as its plan says")]
        case "wait":
            return [*lines, ("Action", "Waiting for it to end")]
        case _:
            return [*lines, ("Action", "A person must decide")]

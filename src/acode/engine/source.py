"""Where the steps of a session come from: a plan, or a program or agent that asks for them one by one.

A source says what a start records of a step's definition, which step comes next, and what a grant covers. It never
decides whether a guard holds: the guards stand in `engine.step`, once, for every source. A foreign run is a plan that
grows: each of its pieces becomes a task before it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from acode.engine.grants import Allowed, allowed_by
from acode.events import types as ev
from acode.events.definition import (
    Approve,
    Call,
    Commit,
    Plan,
    Run,
    Step,
    Task,
    Write,
    command_line,
    definition_digest,
    digest,
)
from acode.steps.interface import Done
from acode.steps.step_outputs import private_outputs, put_output
from acode.store.journal import Blob

if TYPE_CHECKING:
    from acode.engine.held_session import Held


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a step's definition that its start records."""

    digest: str = ""
    shown: Step | None = None  # the definition itself, without secrets
    blob: str = ""  # the private file that holds it with its secrets
    blobs: dict[str, Blob] = {}


class Source(Protocol):
    """The differences between the sources of steps."""

    wakes: str  # why a session that waited executes again
    warns: bool  # whether a person reads what cannot be rolled back before the step begins
    fails_unprepared: bool  # whether a step that cannot be prepared has failed; else its program is raised the error
    planned: bool  # whether a plan holds its steps: only there a step has a next one, a task that ends, an output kept

    def definition(self, step: Step) -> Definition: ...
    def position(self, step: Step) -> tuple[int, int]: ...
    def following_read(self, step: Step) -> Step | None: ...
    def task_ending(self, step: str, duration_ms: int) -> tuple[ev.TaskCompleted, ...]: ...
    def keep_output(self, step: str, done: Done) -> None: ...
    def covered_by(self, gate: Step) -> Allowed: ...


class PlannedSteps:
    """The steps stand in the session's plan: a start names its definition by a digest."""

    wakes = "approved"
    warns = True
    fails_unprepared = True
    planned = True

    def __init__(self, run: Held) -> None:
        self._run = run
        self._plan: Plan | None = None
        self._places: dict[str, tuple[Task, int]] = {}
        self._open_steps: dict[str, int] = {}  # by task: how many are not done

    def definition(self, step: Step) -> Definition:
        return Definition(digest=definition_digest(step))

    def position(self, step: Step) -> tuple[int, int]:
        """The number of the step in its task, and how many steps the task has."""
        task, number = self._place(step.id)
        return number, len(task.steps)

    def following_read(self, step: Step) -> Step | None:
        """The next step of the task, if it is a read: it needs no preparation, so it begins with this one's completion.

        One transaction then holds a completion and the next start, and a read costs no commit of its own.
        """
        task, number = self._place(step.id)
        following = task.steps[number] if number < len(task.steps) else None
        if following is None or following.kind != "read" or self._run.session.record(following.id):
            return None
        return None if self._run.world.stop.at_boundary() else following

    def task_ending(self, step: str, duration_ms: int) -> tuple[ev.TaskCompleted, ...]:
        task, _ = self._place(step)
        if not self._closes(task):
            return ()
        assert self._run.session.records is not None
        task_ms = self._run.session.records.task_ms.get(task.id, 0) + duration_ms
        return (ev.TaskCompleted(task=task.id, duration_ms=task_ms),)

    def keep_output(self, step: str, done: Done) -> None:
        """The captured output under the step's name, for later commands; a copy that can always be made again."""
        if done.output is None or done.output.blob is None:
            return
        run, name = self._run, done.output.blob
        data = done.blobs.get(name, ("", None))[1]
        put_output(
            private_outputs(run.site()),
            step,
            data if data is not None else run.store.blob(run.session.session_id, name),
        )

    def covered_by(self, gate: Step) -> Allowed:
        return allowed_by(self._run, gate)

    def _place(self, step: str) -> tuple[Task, int]:
        plan = self._run.session.plan
        if plan is not self._plan:
            assert plan is not None
            self._plan = plan
            self._open_steps.clear()
            self._places = {one.id: (task, n) for task in plan.tasks for n, one in enumerate(task.steps, 1)}
        return self._places[step]

    def _closes(self, task: Task) -> bool:
        """Whether the step that is being completed is the last open one of its task.

        Steps of a task are completed one by one, so the count from the last look is one behind at the most.
        """
        if task.id not in self._open_steps:
            done = self._run.session.done
            self._open_steps[task.id] = sum(not done(step.id) for step in task.steps)
        self._open_steps[task.id] -= 1
        return self._open_steps[task.id] == 0


class AskedSteps:
    """A program asks for its steps: no plan holds them, so a start holds its definition."""

    wakes = "the program continues"
    warns = False
    fails_unprepared = False
    planned = False

    def __init__(self, run: Held) -> None:
        self._run = run

    def definition(self, step: Step) -> Definition:
        if type(step.action) is Call and step.undo is None:
            return Definition(shown=step)
        shown = without_secrets(self._run, step)
        if shown is step or not is_executed_later(step):
            return Definition(shown=shown)
        # Without the private file a probe or an undo would count as undeclared.
        name, blob = self._run.store.keep(msgspec.json.encode(step), "sensitive")
        return Definition(shown=shown, blob=name, blobs={name: blob})

    def position(self, step: Step) -> tuple[int, int]:
        return 0, 0

    def following_read(self, step: Step) -> None:
        return None

    def task_ending(self, step: str, duration_ms: int) -> tuple[ev.TaskCompleted, ...]:
        return ()  # each step that the session itself asks for is a task

    def keep_output(self, step: str, done: Done) -> None:
        """A program is given the output of its commands, and hands it on itself."""

    def covered_by(self, gate: Step) -> Allowed:
        """This question, asked by this session at this place."""
        assert isinstance(gate.action, Approve)
        session_id = self._run.session.session_id
        return Allowed(digest=digest({"session": session_id, "gate": gate.id, "question": gate.action.question}))


class ObservedSteps(AskedSteps):
    """Another agent performs its own steps, and acode is told of each before it begins."""

    wakes = "the agent continues"


def source_of(run: Held) -> Source:
    if run.session.steps_from.observed:
        return ObservedSteps(run)
    return AskedSteps(run) if run.session.steps_from.asked else PlannedSteps(run)


def without_secrets(run: Held, step: Step) -> Step:
    """The definition as people and policies read it: without the content of a file, and without anything secret."""
    redactor = run.world.redactor
    match step.action:
        case Write(path=path, mode=mode):
            return msgspec.structs.replace(step, action=Write(path=path, content="", mode=mode))
        case Run() as action if redactor.matches(msgspec.json.encode(step).decode()):
            bare = msgspec.structs.replace(
                action,
                command=redactor.text(command_line(action.command)),
                probe=None if action.probe is None else redactor.text(action.probe),
                env={},
            )
            return msgspec.structs.replace(step, action=bare, undo=shown_undo(run, step))
        case Commit(message=message) as action if redactor.matches(message):
            return msgspec.structs.replace(step, action=msgspec.structs.replace(action, message=redactor.text(message)))
        case _ if step.undo is not None and redactor.matches(command_line(step.undo)):
            return msgspec.structs.replace(step, undo=shown_undo(run, step))
        case _:
            return step


def shown_undo(run: Held, step: Step) -> str | None:
    return None if step.undo is None else run.world.redactor.text(command_line(step.undo))


def is_executed_later(step: Step) -> bool:
    """Whether a later process executes a part of the definition: its undo, or the probe that settles it."""
    return step.undo is not None or (isinstance(step.action, Run) and step.action.probe is not None)

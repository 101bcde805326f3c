"""Check a plan against its workspace without running it: every error, and how each step would be settled.

Nothing here changes anything or runs a command of the plan. How a step would be settled comes from the functions that
settle it after a crash (`steps.*.predict`, `plan.settle`); a table of its own would disagree with them one day.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from acode.engine.create import refuse_secret_names
from acode.engine.step import refuse_directory_outside
from acode.engine.survey import chosen_strategy, retries_unknown
from acode.engine.world import Options, World
from acode.errors import AcodeError, BadPlan
from acode.events.definition import (
    Approve,
    Commit,
    Plan,
    Read,
    Run,
    Sql,
    Step,
    Write,
    declared_outputs,
    execution_order,
)
from acode.plan import Action, Finding, Outcome, covered_by, settle
from acode.planfile import PlacedStep, Reading, place_of
from acode.steps import kind_of
from acode.steps.interface import Prediction
from acode.workspace import Root, look
from acode.workspace.declared_outputs import Patterns
from acode.yamlfile import ERRORS_MAX, Node

GATE = Prediction(
    finding=Finding(outcome=Outcome.UNKNOWN, evidence="the question has no answer on record"),
    reason="gate",
    because="a gate without an answer asks again",
)


CHANGING_MAX = 500  # each is compared with all before it


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """How a step would be settled if the machine went down in the middle of it."""

    step: Step
    action: Action
    reason: str
    because: str


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Errors make the plan unusable here; warnings may have reasons that only its author knows."""

    errors: tuple[AcodeError, ...]
    warnings: tuple[AcodeError, ...]
    prospects: tuple[Prospect, ...]


class _Doubt(msgspec.Struct, frozen=True):
    """Something that a step needs and that is not there."""

    problem: AcodeError
    certain: bool


def check_plan(world: World, reading: Reading) -> Checked:
    """Everything that is known before the first step: in the order of the file, errors of the reader included."""
    doubts: list[_Doubt] = []
    earlier: list[Step] = []
    placed = _in_order(reading)
    before = _ended_before(reading.plan)
    with Root(world.workspace) as root:
        for one in placed:
            doubts.extend(_doubts_of(world, root, one, [step for step in earlier if before(step, one.step)]))
            earlier.append(one.step)
            if len(doubts) >= ERRORS_MAX:  # each looks through all steps before it
                break
    doubts.extend(_repository_doubts(world, placed))
    if reading.plan is not None:
        doubts.extend(_doubts_of_plan(world, reading.plan, placed))
    errors = (*reading.errors, *(doubt.problem for doubt in doubts if doubt.certain))
    return Checked(
        errors=tuple(sorted(errors, key=place_of)),
        warnings=tuple(sorted((doubt.problem for doubt in doubts if not doubt.certain), key=place_of)),
        prospects=tuple(prospect_of(world, one.step) for one in placed),
    )


def prospect_of(world: World, step: Step) -> Prospect:
    """The step as `resume` would settle it under the settings in force."""
    if isinstance(step.action, Approve):  # never in flight: the question waits, and the answer is what is recorded
        return Prospect(step=step, action=Action.ASK, reason=GATE.reason, because=GATE.because)
    predicted = kind_of(step.kind).predict(step)
    settlement = settle(
        step.id,
        step.kind,
        predicted.finding,
        strategy=chosen_strategy(world, Options()),
        retry_unknown=retries_unknown(world),
    )
    return Prospect(step=step, action=settlement.action, reason=predicted.reason, because=predicted.because)


def _in_order(reading: Reading) -> list[PlacedStep]:
    """The steps as they are executed; in the order of the file where there is no order yet."""
    if reading.plan is None:
        return list(reading.steps)
    placed = {one.step.id: one for one in reading.steps}
    return [placed[step.id] for task in execution_order(reading.plan) for step in task.steps]


# The plan as a whole.


Before = Callable[[Step, Step], bool]  # whether the one has ended when the other begins


def _ended_before(plan: Plan | None) -> Before:
    """In the order of the plan; where tasks run at the same time, only what a task needs, and its own steps."""
    if plan is None or plan.parallel == 1:
        return lambda earlier, later: True
    needed = dict[str, frozenset[str]]()
    for task in execution_order(plan):
        needed[task.id] = frozenset(task.needs).union(*(needed[one] for one in task.needs))
    return lambda earlier, later: earlier.task == later.task or earlier.task in needed[later.task]


def _doubts_of_parallel(plan: Plan, placed: Sequence[PlacedStep]) -> Iterator[_Doubt]:
    """What two tasks would do to each other if they run at the same time."""
    if plan.parallel == 1:
        return
    before = _ended_before(plan)
    firsts = [task.steps[0] for task in execution_order(plan)]
    if all(before(one, other) for one, other in pairwise(firsts)):
        hint = "A task waits for the one before it unless it says otherwise: give tasks needs: [] or the ids they need."
        yield _Doubt(BadPlan(f"parallel: {plan.parallel} has no effect: each task needs another one", hint=hint), False)
    changing = [one for one in placed if isinstance(one.step.action, Write) or declared_outputs(one.step)]
    for at, one in enumerate(changing[:CHANGING_MAX]):
        for other in changing[:at]:
            path = None if before(other.step, one.step) else _both_change(other.step, one.step)
            if path is not None:
                text = f"{other.step.id} and {one.step.id} both change {path}, and may run at the same time"
                yield _Doubt(one.node.problem(text, hint="Let one of the tasks need the other."), certain=False)


def _both_change(one: Step, other: Step) -> str | None:
    """A path that both declare, where the texts show it; two patterns may meet where nobody sees it."""
    for first, second in ((one, other), (other, one)):
        named = first.action.path if isinstance(first.action, Write) else None
        for path in (named,) if named is not None else declared_outputs(first):
            if path in declared_outputs(second) or _makes(second, path, directory=False):
                return path
    return None


def _doubts_of_plan(world: World, plan: Plan, placed: Sequence[PlacedStep]) -> Iterator[_Doubt]:
    order = execution_order(plan)
    yield from _doubts_of_parallel(plan, placed)
    for one in placed:
        if isinstance(one.step.action, Approve) and not covered_by(order, one.step):
            unguarded = one.node.problem(
                "this gate stands before no step", hint="Put it before the steps that need the answer."
            )
            yield _Doubt(unguarded, certain=False)
    try:
        refuse_secret_names(world, plan)
    except BadPlan as error:
        yield _Doubt(error, certain=True)


def _repository_doubts(world: World, placed: Sequence[PlacedStep]) -> Iterator[_Doubt]:
    """The first commit step stands for all: there is one workspace."""
    index = next((index for index, one in enumerate(placed) if isinstance(one.step.action, Commit)), None)
    if index is None:
        return
    from acode.steps.commit import repository_in
    from acode.steps.repository import GitFailed

    try:
        repository_in(os.fspath(world.workspace), world.env)
    except GitFailed as error:
        made = _made_by([one.step for one in placed[:index]], ".git")
        node = _entry(placed[index].node, "commit")
        yield from _missing(node, f"no commit can be made here: {error}", made, hint="Make one: git init")


# One step.


def _doubts_of(world: World, root: Root, one: PlacedStep, earlier: Sequence[Step]) -> Iterator[_Doubt]:
    match one.step.action:
        case Read(path=path):
            yield from _missing_file(root, _entry(one.node, "read", "path"), path, earlier)
        case Sql() as action:
            yield from _sql_doubts(world, root, one.node, action, earlier)
        case Run() as action:
            yield from _run_doubts(world, one.node, action, earlier)
        case _:
            return


def _missing_file(root: Root, node: Node, path: str, earlier: Sequence[Step]) -> Iterator[_Doubt]:
    try:
        there = look(root, path) is not None
    except AcodeError as error:  # a link on the way that leads out of the workspace
        yield _Doubt(node.problem(error.message, hint=error.hint), certain=True)
        return
    if not there:
        yield from _missing(node, f"the file {path} does not exist", _made_by(earlier, path))


def _sql_doubts(world: World, root: Root, node: Node, action: Sql, earlier: Sequence[Step]) -> Iterator[_Doubt]:
    from acode.steps.sql import FILE_BYTES_MAX, database_in, statements_of
    from acode.workspace import read_file

    file = _entry(node, "sql", "file")
    missing = list(_missing_file(root, file, action.file, earlier))
    yield from missing
    try:
        database = database_in(action, world.env)
    except AcodeError as error:  # another environment may have it
        yield _Doubt(_entry(node, "sql", "database").problem(error.message), certain=False)
        return
    if missing or look(root, action.file) is None or _made_by(earlier, action.file) == "yes":
        return
    try:
        statements_of(read_file(root, action.file, FILE_BYTES_MAX)[0], action.file, database)
    except AcodeError as error:
        yield _Doubt(file.problem(error.message.removesuffix("; nothing was executed"), hint=error.hint), certain=True)
    except OSError as error:
        yield _Doubt(file.problem(f"{action.file} cannot be read: {error.strerror}"), certain=True)


def _run_doubts(world: World, node: Node, action: Run, earlier: Sequence[Step]) -> Iterator[_Doubt]:
    absent = [name for name in action.secret_env if name not in world.env]
    if absent:
        unset = _entry(node, "secret_env").problem(
            f"{', '.join(absent)} is not set in this environment", hint="Set it before the plan runs."
        )
        yield _Doubt(unset, certain=False)
    if action.cwd is None:
        return
    place, workspace = _entry(node, "cwd"), os.fspath(world.workspace)
    try:
        refuse_directory_outside(action.cwd, workspace)
    except AcodeError as error:
        yield _Doubt(place.problem(error.message, hint=error.hint), certain=True)
        return
    if not os.path.isdir(os.path.join(workspace, action.cwd)):
        made = _made_by(earlier, action.cwd, directory=True)
        yield from _missing(place, f"the working directory {action.cwd} does not exist", made)


# Effects of earlier steps.

_Made = Literal["yes", "maybe", "no"]


def _made_by(earlier: Sequence[Step], path: str, *, directory: bool = False) -> _Made:
    """Whether an earlier step makes the path: `maybe` where a command does not declare its outputs."""
    if any(_makes(step, path, directory=directory) for step in earlier):
        return "yes"
    return "maybe" if any(isinstance(step.action, Run) and not step.action.outputs for step in earlier) else "no"


def _makes(step: Step, path: str, *, directory: bool) -> bool:
    if isinstance(step.action, Write):
        return step.action.path == path or (directory and step.action.path.startswith(f"{path}/"))
    patterns = declared_outputs(step)
    if not patterns:
        return False
    matches = Patterns(patterns)
    return matches(path, directory) or (directory and matches.may_lie_in(path))


def _missing(node: Node, text: str, made: _Made, *, hint: str | None = None) -> Iterator[_Doubt]:
    if made == "yes":
        return
    if made == "maybe":
        yield _Doubt(node.problem(f"{text}; an earlier command may make it"), certain=False)
        return
    yield _Doubt(node.problem(text, hint=hint or "Paths are relative to the workspace."), certain=True)


def _entry(node: Node, *keys: str) -> Node:
    """The value behind the keys, as far as they lead: an action may be a text or a mapping."""
    for key in keys:
        if isinstance(node.data, dict) and key in node.data:
            node = node.data[key]
    return node

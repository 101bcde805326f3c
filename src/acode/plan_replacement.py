"""Compare the plan of a session with an edited one: the steps kept, replaced, added and removed, and what forbids it.

Pure. Steps match by their ids. A finished step is compared by what it did and how it is undone: its title, timeout and
retries decide nothing any more, so that a longer timeout for the steps to come does not make the finished ones look
changed. What was done stays in the plan as it was done.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from acode.events import types as ev
from acode.events.definition import Approve, Plan, Step, digest_of_plan, execution_order, untitled
from acode.plan import Action, approval_digest, covered_by
from acode.state import Session
from acode.state.session_fold import replace_plan

NAMES_IN_EVENT_MAX = 500  # of each kind; with the longest ids still below the limit of an event

Why = Literal["changed", "shifted", "removed", "asked", "running"]


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A step that forbids the new plan. `now`: the id under which the new plan has the definition of a shifted step."""

    step: str
    why: Why
    now: str = ""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """A new plan for a session: finished steps are in it as they were done. The names are step ids in its order."""

    plan: Plan
    kept: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()  # in the order of the old plan
    reopened: tuple[str, ...] = ()  # gates that were passed, and whose approval covered something else
    conflicts: tuple[Conflict, ...] = ()

    def as_json(self) -> dict[str, list[str]]:
        """The object that programs read."""
        return {
            "kept": list(self.kept),
            "replaced": list(self.replaced),
            "added": list(self.added),
            "removed": list(self.removed),
            "asked_again": list(self.reopened),
        }


def compare_plans(session: Session, new: Plan, in_flight: Mapping[str, Action] | None = None) -> Replacement:
    """What the new plan would change. `in_flight`: how each step in flight is going to be settled."""
    actions = dict(in_flight or {})
    old = {step.id: step for step in session.steps()}
    wanted = {step.id: step for task in new.tasks for step in task.steps}
    finished = {step for step in old if session.done(step) or actions.get(step) is Action.SKIP}
    merged = _with_finished(new, {step: old[step] for step in finished if step in wanted})
    kept, replaced, conflicts = list[str](), list[str](), list[Conflict]()
    for name, step in wanted.items():
        if name not in old:
            continue
        if done_alike(old[name], step) if name in finished else untitled(old[name]) == untitled(step):
            kept.append(name)
        elif name in finished:
            conflicts.append(_changed(old[name], old, wanted))
        elif actions.get(name) is Action.WAIT:
            conflicts.append(Conflict(step=name, why="running"))
        else:
            replaced.append(name)
    missing = [name for name in old if name not in wanted]
    begun, asked = _begun(session), _asked(session)
    conflicts += [
        _removed(old[name], old, wanted, asked=name in asked and name not in begun)
        for name in missing
        if name in begun or name in asked
    ]
    return Replacement(
        plan=merged,
        kept=tuple(kept),
        replaced=tuple(replaced),
        added=tuple(name for name in wanted if name not in old),
        removed=tuple(missing),
        reopened=tuple(_reopened(session, merged, finished)) if not conflicts else (),
        conflicts=tuple(conflicts),
    )


def done_alike(one: Step, other: Step) -> bool:
    """Whether two definitions of a finished step say that the same was done, to be undone in the same way."""
    return one.action == other.action and one.undo == other.undo


def _with_finished(new: Plan, finished: Mapping[str, Step]) -> Plan:
    """The new plan with the finished steps as they were done; only their titles are the new ones."""

    def as_done(step: Step) -> Step:
        known = finished.get(step.id)
        return step if known is None else msgspec.structs.replace(known, title=step.title)

    tasks = tuple(msgspec.structs.replace(task, steps=tuple(map(as_done, task.steps))) for task in new.tasks)
    return msgspec.structs.replace(new, tasks=tasks)


def _begun(session: Session) -> set[str]:
    """Steps that the log knows: without them in the plan it could not be continued."""
    assert session.records is not None
    return {*session.records.steps, *session.in_flight}


def _asked(session: Session) -> set[str]:
    """Gates whose question was put: taken out of the plan, it would be passed without an answer."""
    assert session.records is not None
    waiting = {session.waiting_for.step} if session.waiting_for is not None else set[str]()
    return {*session.records.approvals, *waiting}


def _changed(step: Step, old: Mapping[str, Step], wanted: Mapping[str, Step]) -> Conflict:
    """A finished step of which the new plan says something else; or one whose default id an insertion has shifted."""
    others = (name for name, other in wanted.items() if name != step.id and done_alike(step, other))
    now = next((name for name in others if name not in old or not done_alike(old[name], wanted[name])), "")
    return Conflict(step=step.id, why="shifted" if now else "changed", now=now)


def _removed(step: Step, old: Mapping[str, Step], wanted: Mapping[str, Step], *, asked: bool) -> Conflict:
    if asked:
        return Conflict(step=step.id, why="asked")
    found = _changed(step, old, wanted)
    return found if found.why == "shifted" else Conflict(step=step.id, why="removed")


def _reopened(session: Session, merged: Plan, finished: set[str]) -> Iterator[str]:
    """Passed gates with open steps behind them that are not the ones which the approval covered."""
    after = msgspec.structs.replace(session, plan=merged)
    order = execution_order(merged)
    for gate in after.steps():
        if not isinstance(gate.action, Approve) or not session.done(gate.id):
            continue
        is_open = any(step.id not in finished for _, step in covered_by(order, gate))
        if is_open and approval_digest(session, gate) != approval_digest(after, gate):
            yield gate.id


def event_of(session: Session, found: Replacement, **where: Any) -> ev.PlanReplaced:
    """The event that makes this the plan of the session. `where`: the place of the stored plan, and of its file."""
    assert session.plan is not None
    is_done = {step for step in found.kept if session.done(step) and step not in found.reopened}
    tasks_done = sum(all(step.id in is_done for step in task.steps) for task in found.plan.tasks)
    return ev.PlanReplaced(
        plan_digest=digest_of_plan(found.plan),
        previous_digest=digest_of_plan(session.plan),
        tasks=len(found.plan.tasks),
        steps=sum(len(task.steps) for task in found.plan.tasks),
        tasks_done=tasks_done,
        kept=len(found.kept),
        replaced=found.replaced[:NAMES_IN_EVENT_MAX],
        added=found.added[:NAMES_IN_EVENT_MAX],
        removed=found.removed[:NAMES_IN_EVENT_MAX],
        reopened=found.reopened,
        **where,
    )


def as_replaced(session: Session, found: Replacement, event: ev.PlanReplaced) -> Session:
    """The session as it would be behind the event, for a look ahead; the session itself stays as it is."""
    ahead = copy.deepcopy(session)
    replace_plan(ahead, event, seq=session.seq)
    ahead.plan = found.plan
    return ahead

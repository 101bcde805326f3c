"""Plans that change: tasks appear while a session runs, or a person continues with an edited plan.

The plan changes by an event before a step of it begins, so that a resume finds every step that was ever started. A step
that was started is never taken out; its definition may be replaced for a later attempt.
"""

from __future__ import annotations

import msgspec

from acode.engine.create import holds_secret, keep_plan
from acode.engine.held_session import Held
from acode.engine.step import awake, end, start_of
from acode.errors import CannotContinue
from acode.events import Envelope
from acode.events import types as ev
from acode.events.definition import Plan, Task, digest_of_plan
from acode.steps.interface import Done
from acode.store.store import verify_row

RUN_CONTINUES = "the run continues"


def change_plan(run: Held, plan: Plan, *, reason: str) -> None:
    """From here on the session follows this plan.

    Not synced on its own: the start of the step that needs it follows in the same log, and cannot outlive it.
    """
    event, blobs = plan_change(run, plan, reason=reason)
    run.append(event, durable=False, blobs=blobs)
    run.session.plan = plan


def plan_change(run: Held, plan: Plan, *, reason: str) -> tuple[ev.PlanChanged, dict[str, tuple[str, bytes | None]]]:
    """The event that makes this the session's plan, and the values that must be stored with it, for a caller that
    records more events with it.
    """
    encoded = msgspec.json.encode(plan)
    sensitive = holds_secret(run.world, plan, encoded)
    name, blob = keep_plan(encoded, sensitive=sensitive)
    event = ev.PlanChanged(
        plan_blob=name,
        plan_digest=digest_of_plan(plan),
        tasks=len(plan.tasks),
        steps=sum(len(task.steps) for task in plan.tasks),
        plan_sensitive=sensitive,
        reason=reason,
    )
    return event, {name: blob}


def put_task(run: Held, task: Task, *, reason: str) -> None:
    """Add a task at the end of the plan, or replace the one of the same id; nothing is said where nothing changes."""
    plan = run.session.plan
    assert plan is not None
    known = next((one for one in plan.tasks if one.id == task.id), None)
    if known == task:
        return
    tasks = tuple(task if one.id == task.id else one for one in plan.tasks) if known else (*plan.tasks, task)
    change_plan(run, msgspec.structs.replace(plan, tasks=tasks), reason=reason)


def open_tasks(run: Held) -> tuple[Task, ...]:
    """Tasks of the plan with a step that is not done."""
    plan = run.session.plan
    assert plan is not None
    return tuple(task for task in plan.tasks if not all(run.session.done(step.id) for step in task.steps))


def adopt_task(run: Held, task: Task, *, evidence: str) -> None:
    """The source of the tasks says that this one is done: its open steps are settled by that, not executed."""
    for step in task.steps:
        if run.session.done(step.id):
            continue
        started, _ = start_of(run, step)
        settled = ev.StepSettled(step=step.id, attempt=started.attempt, outcome=ev.Settled.APPLIED, evidence=evidence)
        done = Done(result={"adopted": evidence})
        end(run, step, started, done, settled=True, before=(settled, *awake(run, RUN_CONTINUES)))


def adopted(completed: ev.StepCompleted) -> bool:
    """Whether a completion only repeats what the source of the tasks had said."""
    return isinstance(completed.result, dict) and "adopted" in completed.result


def event_at(run: Held, seq: int) -> Envelope:
    """One event of the session, verified."""
    session_id = run.session.session_id
    rows = list(run.store.rows(session_id, seq - 2, 2)) if seq > 1 else []
    if len(rows) != 2 or rows[1][0] != seq:
        raise CannotContinue(f"event {seq} of session {session_id[-8:]} cannot be found")
    (_, _, head), (_, body, mac) = rows
    return verify_row(session_id, seq, body, mac=mac, head=head, keys=run.store.keys_of(session_id))

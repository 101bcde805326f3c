"""Answers about the steps of a program, given by the program or its caller: an outcome, a result, another attempt.

Only functions are settled here. A command or a write leaves evidence, and is settled like that of a plan.
"""

from __future__ import annotations

from acode.engine.held_session import Held
from acode.engine.step import end
from acode.engine.survey import step_named
from acode.engine.world import SETTLED_BY_ANSWER
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.state import NESTED
from acode.steps.interface import Done


def settle_call(
    run: Held, step_id: str, answer: str, *, evidence: str, note: str = "", actor: str, done: Done | None = None
) -> None:
    """The outcome of a function in flight: applied, not_applied or retry."""
    started = run.session.in_flight[step_id].started
    outcome = SETTLED_BY_ANSWER[answer]
    settled = ev.StepSettled(step=step_id, attempt=started.attempt, outcome=outcome, evidence=evidence, note=note)
    if outcome is not ev.Settled.APPLIED:
        run.append(settled, actor=actor)
        return
    step = step_named(run.session, step_id)
    end(run, step, started, done or Done(), settled=True, before=(settled,), actor=actor)


def reopen_step(run: Held, step_id: str) -> None:
    """A finished step is to run again, because its program wants it: it is pending from here on."""
    run.append(reopened(step_id), actor="user")


def reopened(step_id: str) -> ev.StepsRolledBack:
    return ev.StepsRolledBack(to=None, steps=(step_id,), tasks=() if NESTED in step_id else (step_id,))


def give_result(run: Held, lost: ev.StepCompleted, answer: str, *, evidence: str, note: str, done: Done | None) -> None:
    """A finished step whose result could not be stored is given one by a person, or is to run again."""
    outcome = SETTLED_BY_ANSWER[answer]
    settled = ev.StepSettled(step=lost.step, attempt=lost.attempt, outcome=outcome, evidence=evidence, note=note)
    if done is None:
        run.append(reopened(lost.step), settled, actor="user")
        return
    started = ev.StepStarted(
        step=lost.step,
        task=lost.task,
        kind="call",
        attempt=lost.attempt,
        key=lost.key,
        action_digest="",
        asked=lost.asked,
    )
    step = Step(id=lost.step, action=Call(function=""))
    end(run, step, started, done, settled=True, before=(reopened(lost.step), settled), actor="user")

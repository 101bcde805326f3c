"""Walk a plan: its one order, from the first step that is not done, to the end or to the first step that fails."""

from __future__ import annotations

from collections.abc import Callable

from acode.engine.endings import Ending, pause_by_signal, stop_at_failure
from acode.engine.gate import pass_gate
from acode.engine.held_session import Held
from acode.engine.step import Performed, Request, execute, lifecycle, perform
from acode.engine.world import Result
from acode.events.definition import Approve, Step, execution_order
from acode.plan import repeatable
from acode.steps.interface import Done

Finish = Callable[[Held, int], Result]  # ends what has no step left; the number is of steps that were skipped
Walk = Callable[[Held, int, Finish], Result]


def perform_all(run: Held, skipped: int, finish: Finish) -> Result:
    """Walk the plan's one order from the first step that is not done; `finish` ends what has no step left."""
    session = run.session
    assert session.plan is not None
    order = execution_order(session.plan)
    total = sum(len(task.steps) for task in order)
    if session.plan.parallel > 1:
        from acode.engine.parallel_tasks import ParallelTasks

        ended = ParallelTasks(run, order, session.plan.parallel, skipped).perform()
        return finish(run, skipped) if ended is None else ended
    for task in order:
        for step in task.steps:
            if session.done(step.id):
                continue
            if run.world.stop.at_boundary():
                return pause_by_signal(run, skipped)
            ending = perform_step(run, step, last=lambda: session.steps_done + 1 == total, skipped=skipped)
            if ending is not None:
                return ending
    return finish(run, skipped)


def perform_step(run: Held, step: Step, *, last: Callable[[], bool], skipped: int) -> Ending:
    """One step of a plan with its attempts; None where the next one may follow."""
    if isinstance(step.action, Approve):
        return pass_gate(run, step, skipped)
    performed = perform_attempts(run, step, last=last)
    if isinstance(performed.outcome, Done):
        return None
    if performed.stopped:
        return pause_by_signal(run, skipped)
    return stop_at_failure(run, step, performed.outcome, skipped)


def perform_attempts(
    run: Held, step: Step, *, last: Callable[[], bool], stopped: Callable[[], bool] | None = None
) -> Performed:
    """The step, as often as its plan says. `stopped`: ends the wait between two attempts."""
    request = Request(retry=lambda failed, failures: retry_after_s(run, step, failures), last=last)
    return perform(run, lifecycle(run, step, request), execute(run, step), stopped=stopped)


def retry_after_s(run: Held, step: Step, failures: int) -> float | None:
    """Seconds until the next attempt, or None where there is none left, or where the outcome is still open."""
    record = run.session.record(step.id)
    if step.retry is None or record is None or record.status != "failed" or not repeatable(step):
        return None
    return step.retry.backoff_s if failures < step.retry.attempts else None

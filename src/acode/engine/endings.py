"""How a run ends: completed, failed, paused by a person or by a failure; each with one result and the next command."""

from __future__ import annotations

from acode.engine.held_session import Held
from acode.engine.next_action import failure_hint, next_command
from acode.engine.survey import retries_unknown
from acode.engine.world import Result
from acode.errors import AcodeError, StepFailed, StepTimeout
from acode.events import types as ev
from acode.events.definition import Step
from acode.state import State
from acode.steps.interface import Failed

Ending = Result | None  # None: the next step may follow


def aborts(run: Held) -> bool:
    return run.session.plan is not None and run.session.plan.on_failure == "abort"


def stop_at_failure(run: Held, step: Step, failed: Failed, skipped: int, *, also: tuple[str, ...] = ()) -> Result:
    """`also`: steps of other tasks that failed at the same time."""
    others = f"; {', '.join(also)} failed too" if also else ""
    message = run.world.redactor.text(failed.message) + others
    if failed.reason == "signal" and run.world.stop.at_boundary():
        return pause_by_signal(run, skipped)
    if failed.reason == "timeout":
        error: AcodeError = StepTimeout(f"step {step.id}: {message}", step=step.id)
        paused = ev.SessionPaused(
            reason="timeout", interruption=ev.InterruptionClass.TIMEOUT, step=step.id, message=message
        )
    else:
        error = StepFailed(f"step {step.id}: {message}", step=step.id, exit_status=failed.exit_status)
        paused = ev.SessionPaused(
            reason="step_failed", interruption=ev.InterruptionClass.TOOL_FAILURE, step=step.id, message=message
        )
    if aborts(run):
        run.append(ev.SessionFailed(reason=message, step=step.id))
    else:
        run.append(paused)
    error.give_hint(failure_hint(run.session, error, retries_unknown=retries_unknown(run.world)))
    return ending(run, error, "step_failed", skipped)


def pause_by_signal(run: Held, skipped: int) -> Result:
    """A person wanted it: no interruption class, no cool-down, no attempt used."""
    if run.world.stop.lost is not None:
        return pause_for_loss(run, run.world.stop.lost, skipped)
    signal = run.world.stop.signal or "SIGINT"
    if run.session.state is not State.PAUSED:
        drained = run.world.lease is not None and signal == "SIGTERM"  # by its worker, which is asked to end itself
        reason = "drained" if drained else "user" if signal == "SIGINT" else "signal"
        paused = ev.SessionPaused(reason=reason, signal=signal)
        run.append(*not_begun(run), paused, actor="system" if drained else "user")
    return ending(run, None, "paused_by_user", skipped, exit_code=130 if signal == "SIGINT" else 143)


def pause_for_loss(run: Held, error: AcodeError, skipped: int) -> Result:
    """Another machine has the session. The events of this machine stay recorded here; a person decides which history
    stays.
    """
    if run.session.state is not State.PAUSED:
        run.append(*not_begun(run), ev.SessionPaused(reason="lease_lost", message=error.message))
    return ending(run, error, "lease_lost", skipped)


def not_begun(run: Held) -> tuple[ev.Known, ...]:
    """Reads whose start was recorded ahead, and which a person stopped before they were read."""
    begun, run.begun = run.begun, {}
    evidence = "paused before it was read"
    return tuple(
        ev.StepSettled(step=one.step, attempt=one.attempt, outcome=ev.Settled.NOT_APPLIED, evidence=evidence)
        for one in begun.values()
    )


def complete(run: Held, skipped: int, *before: ev.Known) -> Result:
    """The end."""
    run.append(*before, ev.SessionCompleted(executed_steps=run.executed))
    return ending(run, None, "completed", skipped, exit_code=0)


def ending(run: Held, error: AcodeError | None, reason: str, skipped: int, *, exit_code: int | None = None) -> Result:
    session = run.session
    return Result(
        session_id=session.session_id,
        state=session.state,
        exit_code=exit_code if exit_code is not None else (error.exit_code if error else 0),
        reason_code=reason,
        executed_steps=run.executed,
        skipped_steps=skipped,
        remaining_steps=session.steps_total - session.steps_done,
        next_action=next_command(session, error, retries_unknown=retries_unknown(run.world)),
        error=error,
    )

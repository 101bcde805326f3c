"""The undo command of a finished step: under a keeper, like any command, with a start on record.

One that was interrupted is settled by its keeper before it may run again, or by a person where the keeper is gone too.
Other modules decide whether a step is rolled back, and restore its files.
"""

from __future__ import annotations

from acode import lock as locks
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.world import SETTLED_BY_ANSWER
from acode.errors import OutcomeUnknown, StepFailed, StepStillRunning, Usage
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Run, Step
from acode.hints import Resolve, Rollback
from acode.plan import Outcome
from acode.state import Session
from acode.steps import run as commands
from acode.steps.interface import Failed
from acode.steps.keeper_notes import make_run_directory

UNDO = "~undo"  # no step id can hold this, so an undo's key is nobody else's


def run_undo(run: Held, step: Step, to: str | None) -> None:
    """The undo command under a keeper; one that was interrupted is settled by its keeper before it may run again."""
    assert step.undo is not None
    undo = undo_step(step)
    open_undo = run.session.undoing
    if open_undo is not None and open_undo.step == step.id and settle_undo(run, undo, open_undo):
        return  # it is done, and the step is about to be recorded as rolled back
    attempt = undos_so_far(run, step.id) + 1
    key = make_key(run.session.session_id, undo.id, attempt)
    place_made = make_run_directory(run.world.agent_dir, key)
    event = ev.UndoStarted(
        step=step.id, attempt=attempt, key=key, to=to, boot_id=locks.boot_id(), place_made=place_made
    )
    run.append(event, actor="user")
    run.journal.refuse_if_fenced()
    outcome = commands.execute(undo, run.site(), as_started(undo, event))
    if isinstance(outcome, Failed):
        raise StepFailed(
            f"the undo of step {step.id} failed: {run.world.redactor.text(outcome.message)}",
            hint="Fix the cause and give the same rollback again.",
            step=step.id,
        )


def undos_so_far(run: Held, step_id: str) -> int:
    """Each undo has a key of its own: under an old one the keeper's old status would pass for its end."""
    events = (envelope.event for envelope, _, _ in run.store.events(run.session.session_id))
    return max((one.attempt for one in events if isinstance(one, ev.UndoStarted) and one.step == step_id), default=0)


def undo_step(step: Step) -> Step:
    action = step.action
    settings = action if isinstance(action, Run) else None
    assert step.undo is not None
    return Step(
        id=f"{step.id}{UNDO}",
        action=Run(
            command=step.undo,
            cwd=settings.cwd if settings else None,
            env=settings.env if settings else {},
            secret_env=settings.secret_env if settings else (),
        ),
        timeout_s=step.timeout_s,
    )


def as_started(undo: Step, event: ev.UndoStarted) -> ev.StepStarted:
    return ev.StepStarted(
        step=undo.id,
        task=undo.task,
        kind="run",
        attempt=event.attempt,
        key=event.key,
        action_digest="",
        boot_id=event.boot_id,
        place_made=event.place_made,
    )


def settle_undo(run: Held, undo: Step, event: ev.UndoStarted) -> bool:
    """True: it was applied. An undo whose end nobody knows is a person's decision, like any command."""
    if run.session.undo_answer is not None:
        return run.session.undo_answer is ev.Settled.APPLIED
    finding = commands.look(undo, run.site(), as_started(undo, event))
    if finding.still_running:
        raise StepStillRunning(
            f"the undo of step {event.step} is {finding.evidence}", hint="Wait for it, then give it again."
        )
    if finding.outcome is Outcome.APPLIED:
        return True
    if finding.outcome is Outcome.NOT_APPLIED and commands.forestall(run.site(), as_started(undo, event)):
        return False
    raise unknown_undo(run.session, f": {finding.evidence}")


def unknown_undo(session: Session, why: str = "") -> OutcomeUnknown:
    assert session.undoing is not None
    step = session.undoing.step
    return OutcomeUnknown(
        f"the undo of step {step} was interrupted and its outcome is unknown{why}",
        hint=session_hint(
            session,
            "Find out whether it happened, and state it: {}; then give the rollback again.",
            Resolve(step, "--applied, --not-applied or --retry"),
        ),
        step=step,
    )


def is_being_undone(session: Session, step_id: str) -> bool:
    return session.undoing is not None and session.undoing.step == step_id


def answer_undo(run: Held, answer: str, *, note: str, force: bool) -> None:
    """A person states the outcome of the interrupted undo: applied, not_applied, or retry."""
    event = run.session.undoing
    assert event is not None
    if not event.key:
        raise Usage(
            f"the files of step {event.step} are being"
            f" restored: their content shows"
            f" how far that is, no answer is needed",
            hint=session_hint(run.session, "Finish it: {}. Or call it off: --not-applied", Rollback(event.to)),
        )
    undo = Step(id=f"{event.step}{UNDO}", action=Run(command=""))  # its keeper is found by its key alone
    finding = commands.look(undo, run.site(probes=False), as_started(undo, event))
    if finding.still_running and not force:
        raise StepStillRunning(
            f"the undo of step {event.step} is {finding.evidence}",
            hint="Wait for it or stop it; --force settles it anyway.",
        )
    outcome = SETTLED_BY_ANSWER[answer]
    run.append(ev.UndoSettled(step=event.step, attempt=event.attempt, outcome=outcome, note=note), actor="user")

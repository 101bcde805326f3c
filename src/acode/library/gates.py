"""A person's answer at a program's gate: the one on record, or the one that is given now; never a guess."""

from __future__ import annotations

from acode.engine import called, hints, notices
from acode.engine.held_session import Held
from acode.errors import InputRequired
from acode.events import types as ev
from acode.events.definition import Approve
from acode.library.declarations import Begun
from acode.state import State


def asked_a_person(run: Held, begun: Begun) -> tuple[bool, tuple[ev.Known, ...]]:
    """The answer, and the event that records it where it is new. A grant for other words is none."""
    step = begun.work.step
    assert isinstance(step.action, Approve) and run.session.records is not None
    allowed, question = called.gate_digest(run, step), step.action.question
    known = run.session.records.approvals.get(begun.id)
    if known is not None and known.action_digest == allowed:
        return known.granted, ()
    if run.session.state is not State.AWAITING_APPROVAL:
        waiting = ev.SessionAwaitingApproval(step=begun.id, question=question, action_digest=allowed)
        run.append(*called.awake(run), waiting)
    run.emit(notices.ApprovalRequest(question=question, covers=[]), step=begun.id)
    match run.world.answers.approve(run.session, begun.id, question, []):
        case "yes":
            return True, (ev.ApprovalGranted(step=begun.id, question=question, action_digest=allowed),)
        case "no":
            return False, (ev.ApprovalDenied(step=begun.id, question=question, action_digest=allowed),)
        case "stop":
            run.world.stop.press("SIGINT")
            raise KeyboardInterrupt
        case None:
            raise InputRequired(
                f"step {begun.id} needs an approval and nobody can be asked: {question}",
                hint=hints.hint(run.session, "Answer with: {} (or deny), then run the program again.", hints.Approve()),
                gate=begun.id,
            )

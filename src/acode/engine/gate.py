"""A gate: a person is asked, and the answer is on record before anything behind the gate begins.

One order for every source: the grant on record for exactly this question; else the session waits, the person is asked,
and the answer is recorded with the passing of the gate. The sources differ in the way they ask and in the steps that a
grant covers. A grant for anything else is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from acode import hints
from acode.engine import notices
from acode.engine.endings import Ending, aborts, ending, pause_by_signal
from acode.engine.grants import Allowed, why_not
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.step import awake, end, start_of
from acode.engine.world import Result
from acode.errors import ApprovalDenied, InputRequired
from acode.events import types as ev
from acode.events.definition import Approve, Step, describe_in_full, execution_order
from acode.hints import Hint
from acode.plan import covered_by
from acode.state import State
from acode.state.session import Approval
from acode.steps.interface import Done


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A question, as it is shown, and what a yes to it allows."""

    step: Step
    question: str
    allowed: Allowed
    asked: ev.Asked | None = None
    covers: tuple[str, ...] = ()
    takes_no: bool = True  # whether a recorded no is an answer; at a gate of a plan the question is asked again


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    granted: bool
    note: str = ""
    seq: int | None = None  # where it is on record; None: it was given now
    text: str = ""  # what the person said, where the question wants more than yes or no


Reply = Answer | Literal["stop"] | None  # None: nobody can be asked
Way = Callable[[], Reply]


def gate_of(run: Held, step: Step, *, asked: ev.Asked | None = None, allowed: Allowed | None = None) -> Gate:
    assert isinstance(step.action, Approve)
    return Gate(
        step=step,
        question=run.world.redactor.text(step.action.question),
        allowed=allowed if allowed is not None else run.source.covered_by(step),
        asked=asked,
    )


def ask(run: Held, gate: Gate, way: Way) -> Reply:
    """The answer on record for exactly this, or the one that is given now."""
    known = answer_on_record(run, gate)
    if known is not None and (known.granted or gate.takes_no):
        return Answer(granted=known.granted, seq=known.seq)
    assert run.session.records is not None
    why = why_not(run.session, gate.step, run.session.records.approvals.get(gate.step.id), gate.allowed)
    if why is not None:
        run.warn(f"{why}: the question is asked again")
    wait_at(run, gate)
    reply = way()
    if reply == "stop":
        run.world.stop.press("SIGINT")
    return reply


def answer_on_record(run: Held, gate: Gate) -> Approval | None:
    assert run.session.records is not None
    known = run.session.records.approvals.get(gate.step.id)
    return known if known is not None and known.action_digest == gate.allowed.digest else None


def by_yes_or_no(run: Held, gate: Gate) -> Way:
    """The way of asking that needs no more than yes or no."""

    def way() -> Reply:
        match run.world.answers.approve(run.session, gate.step.id, gate.question, list(gate.covers)):
            case "yes":
                return Answer(granted=True)
            case "no":
                return Answer(granted=False)
            case "stop":
                return "stop"
            case None:
                return None

    return way


def wait_at(run: Held, gate: Gate) -> None:
    """The session waits for the answer, which may come from another terminal after this process has ended."""
    note_waiting(run, gate)
    run.emit(notices.ApprovalRequest(question=gate.question, covers=list(gate.covers)), step=gate.step.id)


def note_waiting(run: Held, gate: Gate) -> None:
    with run.turn:
        waiting = run.session.waiting_for
        waits = run.session.state is State.AWAITING_APPROVAL
        if not waits or waiting is None or waiting.action_digest != gate.allowed.digest:
            resumes = () if waits else tuple(one for one in awake(run) if isinstance(one, ev.SessionExecuting))
            awaiting = ev.SessionAwaitingApproval(
                step=gate.step.id, question=gate.question, action_digest=gate.allowed.digest
            )
            run.append(*resumes, awaiting)


def answer_event(gate: Gate, answer: Answer, *, via: str = "") -> ev.ApprovalGranted | ev.ApprovalDenied:
    step, question, digest = gate.step.id, gate.question, gate.allowed.digest
    if not answer.granted:
        return ev.ApprovalDenied(step=step, question=question, action_digest=digest, note=answer.note, via=via)
    contents = gate.allowed.contents
    return ev.ApprovalGranted(
        step=step, question=question, action_digest=digest, note=answer.note, contents=contents, via=via
    )


def close(run: Held, gate: Gate, answer: Answer, done: Done, *, before: tuple[ev.Known, ...] = ()) -> ev.StepStarted:
    """The answer, the gate's passing and that the session executes: one transaction, because nothing lies between."""
    with run.turn:  # steps of other tasks may be in flight
        started, _ = start_of(run, gate.step, asked=gate.asked)
        given = () if answer.seq is not None else (answer_event(gate, answer),)
        begun = () if gate.asked is None else (started,)
        actor = "user" if given else "system"
        end(run, gate.step, started, done, before=(*before, *given, *awake(run), *begun), actor=actor)
        return started


def nobody_to_ask(gate: Gate, hint: Hint, *, why: str = "") -> InputRequired:
    said = f"{gate.question} ({why})" if why else gate.question
    return InputRequired(
        f"step {gate.step.id} needs an approval and nobody can be asked: {said}", hint=hint, gate=gate.step.id
    )


# The gates of a plan.


def is_granted(run: Held, step: Step) -> bool:
    """Whether the gate is passed without asking anybody."""
    known = answer_on_record(run, gate_of(run, step))
    return known is not None and known.granted


def pass_gate(run: Held, step: Step, skipped: int, *, drain: Callable[[], None] = lambda: None) -> Ending:
    """None where the steps behind the gate may run. `drain`: ends what runs beside it, before the session waits."""
    assert run.session.plan is not None and run.session.records is not None
    behind = (one for _, one in covered_by(execution_order(run.session.plan), step) if not run.session.done(one.id))
    covers = [run.world.redactor.text(describe_in_full(one)) for one in behind]
    gate = msgspec.structs.replace(gate_of(run, step), covers=tuple(covers), takes_no=False)
    why = why_not(run.session, step, run.session.records.approvals.get(step.id), gate.allowed)
    match ask(run, gate, by_yes_or_no(run, gate)):
        case Answer(granted=True, seq=None) as answer:
            # The file that the person has looked at may have been edited meanwhile.
            gate = msgspec.structs.replace(gate, allowed=run.source.covered_by(step))
            open_gate(run, gate, answer)
            return None
        case Answer(granted=True) as answer:
            open_gate(run, gate, answer)
            return None
        case Answer():
            return deny(run, gate, skipped, drain)
        case "stop":
            drain()
            return pause_by_signal(run, skipped)
        case None:
            drain()
            note_waiting(run, gate)  # again, where another task has continued meanwhile
            hint = session_hint(run.session, "Answer with: {}, then: {}", hints.Approve(or_deny=True), hints.Resume())
            return ending(run, nobody_to_ask(gate, hint, why=why or ""), "approval_required", skipped)


def open_gate(run: Held, gate: Gate, answer: Answer) -> None:
    """From here on the session knows the files behind it: a resume sees a change by somebody else."""
    files = tuple(state for state in gate.allowed.files if state.sha256 is not None)
    close(run, gate, answer, Done(files=files))


def deny(run: Held, gate: Gate, skipped: int, drain: Callable[[], None]) -> Result:
    step = gate.step.id
    denied: tuple[ev.Known, ...] = (answer_event(gate, Answer(granted=False)),)
    if run.session.in_flight:  # the answer is not lost while the others come to their end
        run.append(*denied, actor="user")
        denied = ()
    drain()
    error = ApprovalDenied(
        f"approval denied at {step}: {gate.question}",
        hint=session_hint(run.session, "The session waits at the gate; ask again with: {}", hints.Resume()),
    )
    after: ev.Known = (
        ev.SessionFailed(reason="approval denied", step=step)
        if aborts(run)
        else ev.SessionPaused(reason="denied", step=step, message=f"denied: {gate.question}")
    )
    run.append(*denied, after, actor="user")
    return ending(run, error, "approval_denied", skipped)

"""Where a person is asked: the plan, a tool that the settings leave to them, a question of the model.

An answer is a step of its own, so it is asked for once; a question that nobody has answered yet is asked again by the
next run. What is allowed "for this session" is remembered by this process alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from acode.agent.context import Job
from acode.agent.messages import Call
from acode.engine import called, notices
from acode.errors import InputRequired
from acode.events import types as ev
from acode.events.definition import Approve, digest
from acode.library.declarations import Begun
from acode.state import State

BY_PERSON = "the person did not allow it"
BY_SETTINGS = "the settings do not allow it"


def refusal(job: Job, name: str, call: Call, *, step: str, question: str, answer: str) -> str | None:
    """Why a tool may not be used now; None where it may. `answer` is what the settings say about this call.

    The gate is offered in any case: what is on record must not depend on the settings of the day. `step` is the call's
    own name: nobody is asked about a call that was made, whether the settings allowed it then or an "always" did.
    """
    begun = job.bench.offer(name, [call.tool, call.arguments], shown=question)
    if begun.found:
        return None if begun.result else BY_PERSON
    if answer == "deny":
        return BY_SETTINGS
    if answer == "allow" or call.tool in job.allowed:
        return None
    if job.bench.knows(step):
        return None
    text = job.world.redactor.text(question)

    def ask() -> tuple[bool, str] | None:
        said = job.world.answers.allow(job.bench.run.session, begun.id, text)
        if said == "always":
            job.allowed.add(call.tool)
        note = "and further calls of this tool until the session is interrupted" if said == "always" else ""
        return None if said is None else (said != "no", note)

    return None if pass_gate(job, begun, text, ask) else BY_PERSON


def pass_gate(job: Job, begun: Begun, question: str, ask: Callable[[], tuple[bool, str] | None]) -> bool:
    """The answer on record for exactly this question, or the one that is given now, recorded with the passing."""
    run, gate = job.bench.run, begun.id
    # The question shows a file's new content by its size: the grant is bound to all of the call.
    asked = begun.work.asked.arguments
    wanted = digest({"session": run.session.session_id, "gate": gate, "question": question, "call": asked})
    assert run.session.records is not None
    known = run.session.records.approvals.get(gate)
    if known is not None and known.action_digest == wanted:
        close_gate(job, begun, question, known.granted, ())
        return known.granted
    wait_at(job, gate, question, wanted)
    said = ask()
    if said is None:
        raise nobody(job, gate, question)
    granted, note = said
    word = ev.ApprovalGranted if granted else ev.ApprovalDenied
    close_gate(job, begun, question, granted, (word(step=gate, question=question, action_digest=wanted, note=note),))
    return granted


def wait_at(job: Job, gate: str, question: str, wanted: str) -> None:
    run = job.bench.run
    waiting = run.session.waiting_for
    if run.session.state is not State.AWAITING_APPROVAL or waiting is None or waiting.action_digest != wanted:
        run.append(ev.SessionAwaitingApproval(step=gate, question=question, action_digest=wanted))
    run.emit(notices.ApprovalRequest(question=question, covers=[]), step=gate)


def nobody(job: Job, gate: str, question: str) -> InputRequired:
    name = job.bench.session.id[-8:]
    return InputRequired(
        f"{gate} needs an answer and nobody can be asked: {question}",
        hint=f"Answer with: acode session approve {name} (or deny), then: acode resume {name}",
        gate=gate,
    )


def close_gate(
    job: Job,
    begun: Begun,
    question: str,
    result: Any,
    words: tuple[ev.Known, ...],
    *,
    blobs: Mapping[str, Any] | None = None,
) -> None:
    """The answer, that the session goes on, and the gate's passing: one transaction, because nothing lies between."""
    session, run = job.bench.session, job.bench.run
    job.bench._decide(begun, Approve(question=question), idempotent=False, timeout_s=None)
    begun.started = called.gate_passed(run, begun.work.step, begun.work.asked)
    said = (*words, *called.awake(run), begun.started)
    done = session._asking.record.pack(result)
    done = msgspec.structs.replace(done, blobs={**done.blobs, **(blobs or {})})
    called.end(run, begun.started, done, took_ms=0, before=said, actor="user" if words else "system", durable=True)
    session._asking.finished(begun)


def answered_in_words(job: Job, begun: Begun, question: str) -> str:
    """What a person answers to the model's question."""
    run, text = job.bench.run, job.world.redactor.text(question)
    wanted = digest({"session": run.session.session_id, "gate": begun.id, "question": text})
    known = run.session.records.approvals.get(begun.id) if run.session.records is not None else None
    if known is not None and known.action_digest == wanted:
        answer = note_of(job, known.seq) or ("yes" if known.granted else "no")
        close_gate(job, begun, text, answer, ())
        return answer
    wait_at(job, begun.id, text, wanted)
    said = job.world.answers.reply(run.session, begun.id, text)
    if said is None:
        error = nobody(job, begun.id, text)
        name = job.bench.session.id[-8:]
        error.hint = f"Answer with: acode session approve {name} --note TEXT, then: acode resume {name}"
        raise error
    granted = ev.ApprovalGranted(step=begun.id, question=text, action_digest=wanted, note=job.world.redactor.text(said))
    close_gate(job, begun, text, said, (granted,))
    return said


def note_of(job: Job, seq: int) -> str:
    from acode.engine.plan_changes import event_at

    event = event_at(job.bench.run, seq).event
    return event.note if isinstance(event, ev.ApprovalGranted | ev.ApprovalDenied) else ""

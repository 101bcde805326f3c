"""The gates of an agent's session: the plan, a tool that the settings leave to a person, a question of the model.

An answer is a step of its own, so it is asked for once; a question that nobody has answered yet is asked again by the
next run. Only this process remembers a permission "for this session".
"""

from __future__ import annotations

from acode.agent.context import Context
from acode.agent.messages import Call
from acode.engine.gate import Answer, Gate, Reply, Way, ask
from acode.errors import InputRequired
from acode.events import types as ev
from acode.hints import Approve, Command, Hint, Resume
from acode.library.declarations import Begun

BY_PERSON = "the person did not allow it"
BY_SETTINGS = "the settings do not allow it"


def refusal(context: Context, name: str, call: Call, *, step: str, question: str, answer: str) -> str | None:
    """Why a tool may not be used now; None where it may. `answer` is what the settings say about this call.

    The gate is offered in any case: what is on record must not depend on the settings of the day. `step` is the call's
    own name: nobody is asked about a call that was made, whether the settings allowed it then or an "always" did.
    """
    begun = context.steps.offer(name, [call.tool, call.arguments], shown=question)
    if begun.found:
        return None if begun.result else BY_PERSON
    if answer == "deny":
        return BY_SETTINGS
    if answer == "allow" or call.tool in context.allowed:
        return None
    if context.steps.knows(step):
        return None
    text = context.world.redactor.text(question)

    def way() -> Reply:
        said = context.world.answers.allow(context.steps.run.session, begun.id, text)
        if said == "always":
            context.allowed.add(call.tool)
        note = "and further calls of this tool until the session is interrupted" if said == "always" else ""
        return None if said is None else Answer(granted=said != "no", note=note)

    return None if pass_gate(context, begun, text, way) else BY_PERSON


def pass_gate(context: Context, begun: Begun, question: str, way: Way) -> bool:
    """The answer on record for exactly this question, or the one that is given now, recorded with the passing."""
    # The question shows a file's new content by its size: the grant is bound to all of the call.
    gate = context.steps.gate(begun, question, call=begun.work.asked.arguments)
    answer = answered(context, gate, way)
    context.steps.close_gate(begun, gate, answer, answer.granted)
    return answer.granted


def answered(context: Context, gate: Gate, way: Way, hint: Hint | None = None) -> Answer:
    reply = ask(context.steps.run, gate, way)
    if reply == "stop":
        raise KeyboardInterrupt
    if reply is None:
        raise nobody(context, gate.step.id, gate.question, hint)
    return reply


def nobody(context: Context, gate: str, question: str, hint: Hint | None = None) -> InputRequired:
    name = context.steps.session.id[-8:]
    return InputRequired(
        f"{gate} needs an answer and nobody can be asked: {question}",
        hint=hint or Hint("Answer with: {}, then: {}", Approve(or_deny=True), Resume(), of=name),
        gate=gate,
    )


def answered_with_text(context: Context, begun: Begun, question: str) -> str:
    """A person's answer to the model's question."""
    run, text = context.steps.run, context.world.redactor.text(question)
    gate = context.steps.gate(begun, text)

    def way() -> Reply:
        said = context.world.answers.reply(run.session, begun.id, text)
        return None if said is None else Answer(granted=True, note=context.world.redactor.text(said), text=said)

    name = context.steps.session.id[-8:]
    noted = Command("session approve SESSION --note TEXT")
    hint = Hint("Answer with: {}, then: {}", noted, Resume(), of=name)
    answer = answered(context, gate, way, hint)
    words = answer.text
    if answer.seq is not None:
        words = note_of(context, answer.seq) or ("yes" if answer.granted else "no")
    context.steps.close_gate(begun, gate, answer, words)
    return words


def note_of(context: Context, seq: int) -> str:
    from acode.engine.plan_changes import event_at

    event = event_at(context.steps.run, seq).event
    return event.note if isinstance(event, ev.ApprovalGranted | ev.ApprovalDenied) else ""

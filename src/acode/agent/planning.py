"""Planning: a model makes the plan, a person sees, edits and approves it, and the log holds the approved plan.

The plan is an ordinary one, under the rules of plan files; its steps are texts, because the model finds out while it
works which actions they need.
"""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec

from acode.agent import prompts
from acode.agent.context import Context
from acode.agent.conversation import TaskConversation
from acode.agent.gates import answered
from acode.agent.messages import Call
from acode.agent.tools import use
from acode.engine import notices
from acode.engine.gate import Answer, Gate, Reply, answer_event
from acode.engine.plan_changes import change_plan, plan_change
from acode.engine.world import short
from acode.errors import ApprovalDenied, BadPlan, BadReply
from acode.events import types as ev
from acode.events.definition import Model, Plan, digest
from acode.hints import Command, Hint, Resume
from acode.library.declarations import Begun
from acode.planfile import parse_text_plan, plan_from_data
from acode.state import State

TRIES_MAX = 3
FILES_SHOWN_CHARACTERS_MAX = 8_000
STEP = "plan"  # the name of planning among the session's tasks; no task of a plan may have it
QUESTION_TITLE_CHARACTERS = 120


def plan_work(context: Context, *, approved: bool) -> dict[str, Any]:
    """From the task to an approved plan. `approved`: the person who began the session approved it in advance."""
    plan = accepted(context, drafted(context), approved=approved)
    begin_executing(context)
    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


# The draft.


def drafted(context: Context) -> Plan:
    """Ask for a plan until one follows the rules; the model gets the error of the last one. After some attempts a
    person is informed, and may allow more by resuming.
    """
    files = use(context, "list_files-0-1", Call(id="files", tool="list_files", arguments="{}")).text
    conversation = TaskConversation(
        context.instructions["plan"],
        f"The work: {context.goal}\n\nFiles:\n{files[:FILES_SHOWN_CHARACTERS_MAX]}\n\nTools that will be there: "
        + context.instructions["tools"],
    )
    number = 0
    while True:
        number += 1
        reply = context.ask_in_time(
            f"ask-{number}", conversation, lambda: conversation.asking(answer=prompts.PLAN_SCHEMA)
        )
        conversation.add_reply(reply)
        try:
            return plan_of(reply.text)
        except BadPlan as error:
            wrong = error.message
            conversation.add_text(f"That is no plan: {wrong}\nAnswer with the corrected JSON object alone.")
        if number % TRIES_MAX == 0 and not context.stopped_before(f"no-plan-{number}", "tries"):
            name = short(context.steps.session.id)
            raise BadReply(
                f"the model made no plan in {number} attempts; the last one: {wrong}",
                hint=Hint(
                    "Let it try again: {}; or begin again with a clearer task or a larger model; or write a plan file"
                    " yourself.",
                    Resume(),
                    of=name,
                ),
            )


def plan_of(text: str) -> Plan:
    """The plan in a model's answer, which may have put it between marks."""
    begin, end = text.find("{"), text.rfind("}")
    try:
        data = json.loads(text[begin : end + 1]) if 0 <= begin < end else None
    except (ValueError, RecursionError) as error:
        raise BadPlan(f"it is no JSON object: {error}") from error
    if not isinstance(data, dict):
        raise BadPlan("it holds no JSON object")
    return checked(plan_from_data(data, "the plan", timeout_s_default=0, words=True))


def checked(plan: Plan) -> Plan:
    if any(task.id == STEP for task in plan.tasks):
        raise BadPlan(f"a task cannot have the id {STEP}: the making of the plan has it", hint="Give it another id.")
    return plan


# The approval.


def accepted(context: Context, plan: Plan, *, approved: bool) -> Plan:
    """The plan as a person approved it; the grant is bound to exactly this plan."""
    begun = context.steps.offer("approve", [], shown=plan.title)
    if begun.found:
        return msgspec.convert(begun.result, Plan)
    keep(context, plan, "the model's plan")
    if approved:
        grant(context, begun, plan, "--approve-plan")
        return plan
    chosen: list[tuple[Plan, str]] = []

    def way() -> Reply:
        answer = asked(context, plan)
        if answer is None:
            return None
        granted, edited, note = answer
        chosen.append((edited, note))
        return Answer(granted=granted)

    gate = gate_of_plan(context, begun, plan)
    answer = answered(context, gate, way)
    if answer.seq is not None:
        context.steps.close_gate(begun, gate, answer, msgspec.to_builtins(plan))
        return plan
    edited, note = chosen[0]
    if not answer.granted:
        raise denied(context, begun, edited)
    grant(context, begun, edited, note)
    return edited


def asked(context: Context, plan: Plan) -> tuple[bool, Plan, str] | None:
    """Show it until it is approved or denied; an edited one that breaks the rules is shown again with its errors."""
    text, wrong = as_text(plan), ""
    while True:
        reply = context.world.answers.plan(context.steps.run.session, text, wrong)
        if reply is None:
            return None
        answer, edited = reply
        if answer == "no":
            return False, plan, ""
        if edited == as_text(plan):
            return True, plan, ""
        try:
            limit = context.world.config.settings.limits.plan_bytes
            return True, checked(parse_text_plan(edited, "the edited plan", plan_bytes_max=limit)), "edited"
        except BadPlan as error:
            text, wrong = edited, error.message


def gate_of_plan(context: Context, begun: Begun, plan: Plan) -> Gate:
    gate = context.steps.gate(begun, question_of(context, plan))
    return msgspec.structs.replace(gate, takes_no=False)


def grant(context: Context, begun: Begun, plan: Plan, note: str) -> None:
    """Record a person's edit of the plan together with the approval, in one transaction: a crash between the two would
    lose the edit, or leave a plan in the log that nobody approved.
    """
    run, gate = context.steps.run, gate_of_plan(context, begun, plan)
    answer, result = Answer(granted=True, note=note), msgspec.to_builtins(plan)
    if run.session.plan is not None and digest(run.session.plan) == digest(plan):
        context.steps.close_gate(begun, gate, answer, result)
        return
    changed, blobs = plan_change(run, plan, reason="edited by a person")
    context.steps.close_gate(begun, gate, answer, result, before=(changed,), blobs=blobs)
    run.session.plan = plan
    emit_plan(context, plan)


def denied(context: Context, begun: Begun, plan: Plan) -> ApprovalDenied:
    """The session waits at the gate: resumed, it asks again."""
    run, gate = context.steps.run, gate_of_plan(context, begun, plan)
    run.append(
        answer_event(gate, Answer(granted=False)),
        ev.SessionPaused(reason="denied", step=begun.id, message="the plan was not approved"),
        actor="user",
    )
    name = short(run.session.session_id)
    return ApprovalDenied(
        f"the plan was not approved: {context.world.redactor.text(plan.title)}",
        hint=Hint(
            "Look at it again, and edit it: {}; or give it up: {}",
            Resume(),
            Command("session cancel SESSION"),
            of=name,
        ),
    )


def question_of(context: Context, plan: Plan) -> str:
    """It names the plan by its hash, so that a grant for another one is none."""
    tasks = len(plan.tasks)
    title = context.world.redactor.text(plan.title)[:QUESTION_TITLE_CHARACTERS]
    return f"Execute the plan “{title}” with {tasks} task{'s' * (tasks != 1)} ({digest(plan)[:12]})?"


# The log.


def keep(context: Context, plan: Plan, reason: str) -> None:
    """The plan stands in the log before anybody is asked about it, so that a later run asks about the same."""
    run = context.steps.run
    if run.session.plan is None or digest(run.session.plan) != digest(plan):
        change_plan(run, plan, reason=reason)
    emit_plan(context, plan)


def emit_plan(context: Context, plan: Plan) -> None:
    clean = context.world.redactor.text
    changed = notices.PlanChanged(title=clean(plan.title), tasks=len(plan.tasks), text=clean(as_text(plan)))
    context.steps.run.emit(changed)


def begin_executing(context: Context) -> None:
    if context.steps.run.session.state is not State.EXECUTING:
        context.steps.run.append(ev.SessionExecuting(reason="the plan is approved"))


def as_text(plan: Plan) -> str:
    """The plan as a person edits it: a plan file whose steps are texts."""
    from ruamel.yaml import YAML

    tasks: list[dict[str, Any]] = []
    for task in plan.tasks:
        needs = {"needs": list(task.needs)} if task.needs else {}
        steps = [step.action.text for step in task.steps if isinstance(step.action, Model)]
        tasks.append({"id": task.id, "title": task.title, **needs, "steps": steps})
    stream = io.StringIO()
    yaml = YAML()
    yaml.width = 110
    yaml.dump({"title": plan.title, "tasks": tasks}, stream)
    return stream.getvalue()

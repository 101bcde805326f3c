"""Planning: a model makes the plan, a person sees, edits and approves it, and the log holds what was approved.

The plan is an ordinary one, under the rules of plan files; its steps are in words, because what they need is found out
while they are done.
"""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec

from acode.agent import prompts
from acode.agent.context import Job
from acode.agent.conversation import Talk
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
from acode.library.declarations import Begun
from acode.planfile import parse_words, plan_from_data
from acode.state import State

TRIES_MAX = 3
FILES_SHOWN_CHARACTERS_MAX = 8_000
STEP = "plan"  # the name of planning among the session's tasks; no task of a plan may have it
QUESTION_TITLE_CHARACTERS = 120


def plan_work(job: Job, *, approved: bool) -> dict[str, Any]:
    """From the task to an approved plan. `approved`: whoever began the session allowed it in advance."""
    plan = accepted(job, drafted(job), approved=approved)
    begin_executing(job)
    found: dict[str, Any] = msgspec.to_builtins(plan)
    return found


# The draft.


def drafted(job: Job) -> Plan:
    """Ask for a plan until one follows the rules; what was wrong is told to the model.

    After some attempts a person is told, who may let it try some more by resuming.
    """
    files = use(job, "list_files-0-1", Call(id="files", tool="list_files", arguments="{}")).text
    talk = Talk(
        job.words["plan"],
        f"The work: {job.goal}\n\nFiles:\n{files[:FILES_SHOWN_CHARACTERS_MAX]}\n\nTools that will be there: "
        + job.words["tools"],
    )
    number = 0
    while True:
        number += 1
        reply = job.ask_in_time(f"ask-{number}", talk, lambda: talk.asking(answer=prompts.PLAN_SCHEMA))
        talk.heard(reply)
        try:
            return plan_of(reply.text)
        except BadPlan as error:
            wrong = error.message
            talk.said(f"That is no plan: {wrong}\nAnswer with the corrected JSON object alone.")
        if number % TRIES_MAX == 0 and not job.stopped_before(f"no-plan-{number}", "tries"):
            name = short(job.bench.session.id)
            raise BadReply(
                f"the model made no plan in {number} attempts; the last one: {wrong}",
                hint=f"Let it try again: acode resume {name}; or begin anew with a clearer task or a larger model;"
                " or write a plan file yourself.",
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


def accepted(job: Job, plan: Plan, *, approved: bool) -> Plan:
    """What a person made of it; the grant is bound to exactly this plan."""
    begun = job.bench.offer("approve", [], shown=plan.title)
    if begun.found:
        return msgspec.convert(begun.result, Plan)
    keep(job, plan, "the model's plan")
    if approved:
        grant(job, begun, plan, "--approve-plan")
        return plan
    chosen: list[tuple[Plan, str]] = []

    def way() -> Reply:
        answer = asked(job, plan)
        if answer is None:
            return None
        granted, edited, note = answer
        chosen.append((edited, note))
        return Answer(granted=granted)

    gate = gate_of_plan(job, begun, plan)
    answer = answered(job, gate, way)
    if answer.seq is not None:
        job.bench.close_gate(begun, gate, answer, msgspec.to_builtins(plan))
        return plan
    edited, note = chosen[0]
    if not answer.granted:
        raise denied(job, begun, edited)
    grant(job, begun, edited, note)
    return edited


def asked(job: Job, plan: Plan) -> tuple[bool, Plan, str] | None:
    """Show it until it is approved or denied; an edited one that breaks the rules is shown again with what is wrong."""
    text, wrong = as_text(plan), ""
    while True:
        reply = job.world.answers.plan(job.bench.run.session, text, wrong)
        if reply is None:
            return None
        answer, edited = reply
        if answer == "no":
            return False, plan, ""
        if edited == as_text(plan):
            return True, plan, ""
        try:
            limit = job.world.config.settings.limits.plan_bytes
            return True, checked(parse_words(edited, "the edited plan", plan_bytes_max=limit)), "edited"
        except BadPlan as error:
            text, wrong = edited, error.message


def gate_of_plan(job: Job, begun: Begun, plan: Plan) -> Gate:
    gate = job.bench.gate(begun, question_of(job, plan))
    return msgspec.structs.replace(gate, takes_no=False)


def grant(job: Job, begun: Begun, plan: Plan, note: str) -> None:
    """What a person made of the plan stands in the log with the approval, or not at all: a crash between the two would
    lose the edit, or leave a plan in the log that nobody approved.
    """
    run, gate = job.bench.run, gate_of_plan(job, begun, plan)
    answer, result = Answer(granted=True, note=note), msgspec.to_builtins(plan)
    if run.session.plan is not None and digest(run.session.plan) == digest(plan):
        job.bench.close_gate(begun, gate, answer, result)
        return
    changed, blobs = plan_change(run, plan, reason="edited by a person")
    job.bench.close_gate(begun, gate, answer, result, before=(changed,), blobs=blobs)
    run.session.plan = plan
    emit_plan(job, plan)


def denied(job: Job, begun: Begun, plan: Plan) -> ApprovalDenied:
    """The session waits at the gate: resumed, it asks again."""
    run, gate = job.bench.run, gate_of_plan(job, begun, plan)
    run.append(
        answer_event(gate, Answer(granted=False)),
        ev.SessionPaused(reason="denied", step=begun.id, message="the plan was not approved"),
        actor="user",
    )
    name = short(run.session.session_id)
    return ApprovalDenied(
        f"the plan was not approved: {job.world.redactor.text(plan.title)}",
        hint=f"Look at it again, and edit it: acode resume {name}; or give it up: acode session cancel {name}",
    )


def question_of(job: Job, plan: Plan) -> str:
    """It names the plan by its hash, so that a grant for another one is none."""
    tasks = len(plan.tasks)
    title = job.world.redactor.text(plan.title)[:QUESTION_TITLE_CHARACTERS]
    return f"Carry out the plan “{title}” with {tasks} task{'s' * (tasks != 1)} ({digest(plan)[:12]})?"


# The log.


def keep(job: Job, plan: Plan, reason: str) -> None:
    """The plan stands in the log before anybody is asked about it, so that a later run asks about the same."""
    run = job.bench.run
    if run.session.plan is None or digest(run.session.plan) != digest(plan):
        change_plan(run, plan, reason=reason)
    emit_plan(job, plan)


def emit_plan(job: Job, plan: Plan) -> None:
    clean = job.world.redactor.text
    changed = notices.PlanChanged(title=clean(plan.title), tasks=len(plan.tasks), text=clean(as_text(plan)))
    job.bench.run.emit(changed)


def begin_executing(job: Job) -> None:
    if job.bench.run.session.state is not State.EXECUTING:
        job.bench.run.append(ev.SessionExecuting(reason="the plan is approved"))


def as_text(plan: Plan) -> str:
    """The plan as a person edits it: a plan file with steps in words."""
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

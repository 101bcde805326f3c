"""The loop of an agent's session: plan, have the plan approved, do task after task, tool call after tool call.

It runs from the beginning each time. Recorded steps return their results; the work continues at the first step that has
no record. Nothing is remembered outside the log.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec

from acode.agent import gates, permission, prompts
from acode.agent.context import Context, Endpoint
from acode.agent.conversation import TaskConversation, opening_of, signature
from acode.agent.messages import Call, Setup
from acode.agent.planning import STEP, plan_work
from acode.agent.tools import TOOLS, refuse, use
from acode.engine.world import Options, World
from acode.errors import CannotContinue, ModelLoops, Usage
from acode.events.definition import Plan, execution_order
from acode.hints import Command, Hint, Resume
from acode.library.deferred_steps import DeferredSteps
from acode.library.open_session import Opening
from acode.library.session import Session
from acode.library.world import LENT

ENTRY = "acode.agent.session_loop:work"
TASK_CHARACTERS_MAX = 100_000
TITLE_CHARACTERS_MAX = 120
TURNS_BETWEEN_STOPS = 100  # of one task; then a person is informed, and may resume it
SAME_CALLS_MAX = 2  # the third in a row stops the session
CUT_OFF = "Your answer was cut off. Go on from where it ended."


def work(goal: str, approve_plan: bool) -> None:
    """Begin the session, or continue the one that was passed in; `acode resume` calls this too. approve_plan: the
    person who began it approved its plan in advance; a crash does not revoke that.
    """
    lent = LENT.get()
    assert lent is not None, "an agent's session is run from the command line"
    with opening(lent.world, goal, lent.options, approve_plan=approve_plan) as session:
        context = Context(DeferredSteps(session), setup_of_session(session), instructions_of(session), goal, endpoint())
        run_tasks(context, approved=approve_plan)


def run_tasks(context: Context, *, approved: bool) -> None:
    plan = msgspec.convert(
        context.task(STEP, "Plan the work", [context.goal], lambda: plan_work(context, approved=approved)), Plan
    )
    summaries: list[tuple[str, str]] = []
    for task in execution_order(plan):
        first_message = opening_of(plan, task, context.goal, summaries)
        work = partial(do_task, context, first_message)
        summary = context.task(task.id, task.title, [first_message], work)
        summaries.append((task.title, summary))


def do_task(context: Context, first_message: str) -> str:
    """The tool loop: ask the model, make its calls, answer with their results; until the model calls no more tools."""
    conversation = TaskConversation(context.instructions["work"], first_message)
    tools = tuple(tool.schema for tool in TOOLS.values())
    same: list[str] = []
    turn = 0
    while True:
        turn += 1
        stop_endless_task(context, turn)
        reply = context.ask_in_time(f"ask-{turn}", conversation, lambda: conversation.asking(tools))
        conversation.add_reply(reply)
        if not reply.calls and reply.finish != "length":
            return reply.text
        if not reply.calls:
            conversation.add_text(CUT_OFF)
        for number, call in enumerate(reply.calls, start=1):
            same = [*same, signature(call)] if same[-1:] == [signature(call)] else [signature(call)]
            answer = answer_to(context, turn, number, call, times=len(same))
            conversation.add_answer(call, answer)


def answer_to(context: Context, turn: int, number: int, call: Call, *, times: int) -> str:
    """The answer to one of the model's calls."""
    place = f"{turn}-{number}"
    if times > SAME_CALLS_MAX:
        return stop_loop(context, place, call)
    name = f"{plain(call.tool)}-{place}"
    if call.tool in TOOLS:
        wanted = permission.decide(call.tool, call.arguments, context.world.config.settings.tools)
        question = permission.question(call.tool, call.arguments, context.world.redactor.text)
        reason = gates.refusal(context, f"allow-{place}", call, step=name, question=question, answer=wanted)
    else:
        reason = None  # the table of tools says that there is none such
    answer = use(context, name, call) if reason is None else refuse(context, name, call, reason)
    return prompts.guarded(context.steps.session.id, f"{context.place}.{name}", plain(call.tool), answer.text)


def plain(tool: str) -> str:
    """A tool's name as a model wrote it, in the characters of a step's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", tool).strip("-_")[:40] or "tool"


# Stops.

SHOW = Command("session show SESSION")


def stop_loop(context: Context, place: str, call: Call) -> str:
    """The same call a third time: the session stops once; a person who resumes it lets the model hear that."""
    text = "Stopped: you made this call twice already, and its answer will not change. Do something else, or end."
    if not context.stopped_before(f"same-{place}", call.tool):
        name = context.steps.session.id[-8:]
        shown = context.world.redactor.text(signature(call))[:200]
        raise ModelLoops(
            f"the model makes the same call a third time: {shown}",
            hint=Hint("Look: {}. To resume, with a note for the model: {}", SHOW, Resume(), of=name),
            call=shown,
        )
    return text


def stop_endless_task(context: Context, turn: int) -> None:
    """Stop a task without an end, so that a person looks at it; a resume continues it."""
    if turn % TURNS_BETWEEN_STOPS or context.stopped_before(f"turns-{turn}", "turns"):
        return
    name = context.steps.session.id[-8:]
    raise CannotContinue(
        f"the model has been asked {turn} times in one task",
        hint=Hint("Look: {}. To continue: {}", SHOW, Resume(), of=name),
    )


# The session.


def opening(world: World, goal: str, options: Options, *, approve_plan: bool) -> Opening:
    return Opening(
        title_of(goal),
        world.workspace,
        on_completed="return",
        on_change="raise",
        probes={},
        options=options,
        entry=ENTRY,
        arguments={"args": [goal, approve_plan]},
        model={
            **msgspec.to_builtins(setup_of(world)),
            "configured": configured(world),
            "words": prompts.instructions(),
        },
    )


def checked_goal(world: World, goal: str) -> str:
    """The task's text; it is stored in the log and sent to the model, so it must hold no secret."""
    text = goal.strip()
    if not title_of(text).strip() or len(text) > TASK_CHARACTERS_MAX or "\x00" in text:
        raise Usage(f"a task has 1 to {TASK_CHARACTERS_MAX:,} characters, and some that can be seen")
    if not is_unicode(text):
        raise Usage("the task holds bytes that are no text", hint="Write it in the encoding of your terminal: UTF-8.")
    if world.redactor.matches(text):
        raise Usage(
            f"the task holds what looks like a secret: {world.redactor.text(text)[:200]}",
            hint="Put the secret into an environment variable or a file, and name that in the task.",
        )
    return text


def is_unicode(text: str) -> bool:
    """Whether it can be written down: arguments in another encoding arrive with stand-ins for their bytes."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


def title_of(goal: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in " ".join(goal.split()))
    return line if len(line) <= TITLE_CHARACTERS_MAX else line[: TITLE_CHARACTERS_MAX - 1] + "…"


def setup_of(world: World) -> Setup:
    model = world.config.settings.model
    return Setup(name=model.name, base_url=model.base_url, api_key_env=model.api_key_env)


def configured(world: World) -> dict[str, str]:
    """The model settings of files and variables; a flag sets them for one session only."""
    keys = ("model.name", "model.base_url", "model.api_key_env")
    said = {key: world.config.origin(key).partition(" ")[0] for key in keys}
    now = msgspec.to_builtins(setup_of(world))
    return {key: now[key.removeprefix("model.")] for key, where in said.items() if where not in ("default", "flag")}


def recorded_setup(model: dict[str, Any]) -> Setup:
    return Setup(name=model["name"], base_url=model["base_url"], api_key_env=model["api_key_env"])


def setup_of_session(session: Session) -> Setup:
    created = session._run.session.created
    assert created is not None and created.model is not None
    return recorded_setup(created.model)


def instructions_of(session: Session) -> dict[str, str]:
    created = session._run.session.created
    assert created is not None and created.model is not None
    found: dict[str, str] = created.model.get("words", {})
    return {**prompts.instructions(), **found}


def endpoint() -> Endpoint:
    from acode.agent.endpoint import request

    return request

"""The story of an agent's session: plan, have it approved, do task after task, tool call after tool call.

It is told from the beginning each time. What is on record is found and passed by; the first thing that is not there is
where the work goes on. Nothing is remembered beside the log.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from acode.agent import gates, permission, prompts
from acode.agent.context import Endpoint, Job
from acode.agent.conversation import Talk, opening_of, signature
from acode.agent.messages import Call, Setup
from acode.agent.planning import STEP, plan_work
from acode.agent.tools import TOOLS, refuse, use
from acode.engine.world import Options, World
from acode.errors import CannotContinue, ModelLoops, Usage
from acode.events.definition import Plan, execution_order
from acode.library.deferred_steps import DeferredSteps
from acode.library.open_session import Opening
from acode.library.session import Session
from acode.library.world import LENT

ENTRY = "acode.agent.session_loop:work"
TASK_CHARACTERS_MAX = 100_000
TITLE_CHARACTERS_MAX = 120
TURNS_BETWEEN_STOPS = 100  # of one task; then a person is told, and may let it go on
SAME_CALLS_MAX = 2  # the third in a row stops the session
CUT_OFF = "Your answer was cut off. Go on from where it ended."


def work(goal: str, approve_plan: bool) -> None:
    """Begin the session, or carry on the one that was lent; `acode resume` comes back through here.

    approve_plan: whoever began it has approved its plan in advance; a crash does not take that back.
    """
    lent = LENT.get()
    assert lent is not None, "an agent's session is run from the command line"
    with opening(lent.world, goal, lent.options, approve_plan=approve_plan) as session:
        job = Job(DeferredSteps(session), setup_of_session(session), words_of(session), goal, endpoint())
        carry_out(job, approved=approve_plan)


def carry_out(job: Job, *, approved: bool) -> None:
    plan = msgspec.convert(job.task(STEP, "Plan the work", [job.goal], lambda: plan_work(job, approved=approved)), Plan)
    summaries: list[tuple[str, str]] = []
    for task in execution_order(plan):
        opening_words = opening_of(plan, task, job.goal, summaries)
        summary = job.task(task.id, task.title, [opening_words], lambda words=opening_words: do_task(job, words))  # type: ignore[misc]
        summaries.append((task.title, summary))


def do_task(job: Job, opening_words: str) -> str:
    """The tool loop: ask, do what is asked for, tell what came of it; until the model calls no more tools."""
    talk = Talk(job.words["work"], opening_words)
    tools = tuple(tool.told for tool in TOOLS.values())
    same: list[str] = []
    turn = 0
    while True:
        turn += 1
        stop_now_and_then(job, turn)
        reply = job.ask_in_time(f"ask-{turn}", talk, lambda: talk.asking(tools))
        talk.heard(reply)
        if not reply.calls and reply.finish != "length":
            return reply.text
        if not reply.calls:
            talk.said(CUT_OFF)
        for number, call in enumerate(reply.calls, start=1):
            same = [*same, signature(call)] if same[-1:] == [signature(call)] else [signature(call)]
            answer = answer_to(job, turn, number, call, times=len(same))
            talk.answered(call, answer)


def answer_to(job: Job, turn: int, number: int, call: Call, *, times: int) -> str:
    """What the model is told of one of its calls."""
    place = f"{turn}-{number}"
    if times > SAME_CALLS_MAX:
        return stop_loop(job, place, call)
    name = f"{plain(call.tool)}-{place}"
    if call.tool in TOOLS:
        wanted = permission.decide(call.tool, call.arguments, job.world.config.settings.tools)
        question = permission.question(call.tool, call.arguments, job.world.redactor.text)
        reason = gates.refusal(job, f"allow-{place}", call, step=name, question=question, answer=wanted)
    else:
        reason = None  # the table of tools says that there is none such
    answer = use(job, name, call) if reason is None else refuse(job, name, call, reason)
    return prompts.guarded(job.bench.session.id, f"{job.place}.{name}", plain(call.tool), answer.text)


def plain(tool: str) -> str:
    """A tool's name as a model wrote it, in the characters of a step's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", tool).strip("-_")[:40] or "tool"


# Stops.


def stop_loop(job: Job, place: str, call: Call) -> str:
    """The same call a third time: the session stops once; a person who resumes it lets the model hear that."""
    text = "Stopped: you made this call twice already, and its answer will not change. Do something else, or end."
    if not job.stopped_before(f"same-{place}", call.tool):
        name = job.bench.session.id[-8:]
        shown = job.world.redactor.text(signature(call))[:200]
        raise ModelLoops(
            f"the model makes the same call a third time: {shown}",
            hint=f"Look: acode session show {name}. To tell the model so and go on: acode resume {name}",
            call=shown,
        )
    return text


def stop_now_and_then(job: Job, turn: int) -> None:
    """A task without an end is stopped for a person to look at; resumed, it goes on."""
    if turn % TURNS_BETWEEN_STOPS or job.stopped_before(f"turns-{turn}", "turns"):
        return
    name = job.bench.session.id[-8:]
    raise CannotContinue(
        f"the model has been asked {turn} times in one task",
        hint=f"Look: acode session show {name}. To let it go on: acode resume {name}",
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
        model={**msgspec.to_builtins(setup_of(world)), "configured": configured(world), "words": prompts.words()},
    )


def checked_goal(world: World, goal: str) -> str:
    """The task in words; it stands in the log and goes to the model, so it must hold no secret."""
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
    """What files and variables say about the model; a flag says it for one session only."""
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


def words_of(session: Session) -> dict[str, str]:
    created = session._run.session.created
    assert created is not None and created.model is not None
    found: dict[str, str] = created.model.get("words", {})
    return {**prompts.words(), **found}


def endpoint() -> Endpoint:
    from acode.agent.endpoint import request

    return request

"""What becomes of an agent's run: its steps by name, its streams, its tools, its failures, and agents in agents."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra: pydantic-ai")

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import ModelFallback
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
)
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, FunctionToolset, ToolsetTool

import acode
from acode.errors import NotStorable, Usage
from acode.events import types as ev
from acode.integrations.pydantic_ai import AcodeDurability
from acode.integrations.pydantic_ai.step_identity import Run, arguments_of, canonical, plain_message, step_name
from acode.integrations.pydantic_ai.steps import repeatable
from tests.integrations.scripted import Script, Stop, events_of, left_in_the_middle, made, returned, steps_of
from tests.library.programs import Place

pytestmark = pytest.mark.usefixtures("loop")


def test_the_names_that_are_recorded_do_not_change(place: Place) -> None:
    """They are compatibility data: with others, no session that is under way could be carried on."""
    script = Script([ToolCallPart("look_up", {}), ToolCallPart("look_up", {})], ["done"])

    async def checked(ctx: RunContext[None]) -> None:
        return None

    def look_up() -> int:
        return 1

    agent = made(script, Tool(look_up, args_validator=checked))
    with acode.session("k"):
        agent.run_sync("go")
        agent.run_sync("go", timeout=60)
    run = ["model-1", "check-1-1-look_up", "check-1-2-look_up", "call-1-1-look_up", "call-1-2-look_up", "model-2"]
    wanted = [f"support-run{n}.{step}" for n in (1, 2) for step in run]
    assert Counter(steps_of("k")) == Counter(["support-run2-began", *wanted])


@pytest.mark.parametrize(
    ("operation", "names"),
    [
        (ModelRequestId(model_name="m"), ["model-1", "model-2"]),
        (ModelRequestId(model_name="m", streaming=True), ["model-1", "model-2"]),
        (ModelCompactMessagesId(model_name="m"), ["compact-1", "compact-2"]),
        (ModelCancelSuspendedResponseId(model_name="m"), ["withdraw-1", "withdraw-2"]),
        (ToolsetGetToolsId("mcp", toolset_id="my server"), ["tools-my-server-1", "tools-my-server-2"]),
        (ToolsetGetInstructionsId("s"), ["instructions-s-1", "instructions-s-2"]),
        (CapabilityOperationId("memory", operation="load"), ["do-memory-load-1", "do-memory-load-2"]),
    ],
)
def test_every_operation_has_a_name_by_its_place(operation: Any, names: list[str]) -> None:
    run = Run()
    assert [step_name(operation, None, run) for _ in names] == names


def test_only_operations_known_to_be_harmless_are_repeated() -> None:
    assert repeatable(ModelRequestId(model_name="m")) and repeatable(ToolsetGetToolsId("mcp", toolset_id="s"))
    assert not repeatable(CapabilityOperationId("workspace", operation="call"))
    assert not repeatable(ToolsetCallToolId("function", toolset_id="s"))


def test_time_stamps_and_the_providers_ids_are_no_part_of_what_is_asked_for() -> None:
    def message(call: str, year: int) -> list[ModelMessage]:
        at = datetime(year, 1, 1, tzinfo=UTC)
        response = ModelResponse([ToolCallPart("t", {"a": 1}, tool_call_id=call)], timestamp=at)
        back = ToolReturnPart("t", {"when": 7, "who": {"b", "a"}}, tool_call_id=call, timestamp=at)
        return [ModelRequest([UserPromptPart("go", timestamp=at)]), response, ModelRequest([back])]

    one, other = ([plain_message(each) for each in message(*given)] for given in (("x", 2001), ("y", 2002)))
    assert one == other and "'go'" in str(one) and "['a', 'b']" in str(one)


def test_the_form_in_which_a_request_is_recorded_does_not_change() -> None:
    said = [
        ModelRequest([SystemPromptPart("You help."), UserPromptPart("What is 7 × 6?")], instructions="Be brief."),
        ModelResponse([TextPart("A moment."), ToolCallPart("multiply", {"a": 7, "b": 6})]),
        ModelRequest([ToolReturnPart("multiply", 42, tool_call_id="1")], instructions="Be brief."),
    ]
    tools = [ToolDefinition(name="multiply", parameters_json_schema={"type": "object"}, description="a × b")]
    params = ModelRequestParams(
        messages=said,
        model_settings={"temperature": 0.5},
        model_request_parameters=ModelRequestParameters(function_tools=tools),
        run_context=None,  # type: ignore[arg-type]
    )
    assert arguments_of(ModelRequestId(model_name="m"), params) == (
        "multiply: 42",
        "model m",
        "messages f7fccd78f984",
        "instructions 7dafa90f94d2",
        "tools 7dc6f6297a41",
        "settings ef6fd868675e",
    )


def test_what_never_reaches_the_model_and_what_later_versions_add_is_no_part_of_it_either() -> None:
    bare = ToolDefinition(name="t", description="does it")
    told = ToolDefinition(name="t", description="does it", metadata={"acode": False}, timeout=7, toolset_id="s")
    other = ToolDefinition(name="t", description="does something else")
    assert canonical(bare) == canonical(told) == {"is": "ToolDefinition", "name": "t", "description": "does it"}
    assert canonical(other) != canonical(bare)
    assert canonical(TextPart("x")) != canonical(ThinkingPart("x"))


def test_parallel_calls_of_one_tool_are_told_apart_whichever_ends_first(place: Place) -> None:
    script = Script([ToolCallPart("wait", {"turns": n}) for n in (3, 1, 2)], ["done"])
    ended: list[int] = []

    async def wait(turns: int) -> int:
        for _ in range(10 * turns):
            await asyncio.sleep(0)
        ended.append(turns)
        if len(ended) == 3:
            raise Stop  # the last one to end fails, and with it the run
        return turns

    agent = made(script, wait)
    with pytest.raises(Stop), acode.session("k"):
        agent.run_sync("go")
    assert ended == [1, 2, 3]
    with acode.session("k"):
        result = agent.run_sync("go")
    assert ended == [1, 2, 3, 3] and returned(result.all_messages()) == [3, 1, 2]
    assert script.asked == 2
    assert set(steps_of("k")) >= {f"support-run1.call-1-{place}-wait" for place in (1, 2, 3)}


def test_a_tool_says_itself_that_it_may_be_repeated_or_is_no_step(place: Place) -> None:
    calls = [ToolCallPart(name, {}) for name in ("harmless", "by_name", "pure", "effect")]
    tools = [
        Tool(lambda: 1, name="harmless", metadata={"acode": {"idempotent": True}}),
        Tool(lambda: 2, name="by_name"),
        Tool(lambda: 3, name="pure", metadata={"acode": False}),
        Tool(lambda: 4, name="effect"),
    ]
    agent = made(Script(calls, ["done"]), *tools, durability={"idempotent": ["by_name"]})
    left_in_the_middle(agent)
    begun = [event for event in events_of("k") if isinstance(event, ev.StepStarted)]
    assert {event.step.partition(".")[2]: event.idempotent for event in begun} == {
        "model-1": True,
        "call-1-1-harmless": True,
        "call-1-2-by_name": True,
        "call-1-4-effect": False,
        "model-2": True,
    }


@pytest.mark.parametrize("wrong", [True, {"idempotnet": True}, "yes"])
def test_a_wrong_word_in_a_tools_metadata_is_refused(place: Place, wrong: Any) -> None:
    agent = made(Script([ToolCallPart("t", {})]), Tool(lambda: 1, name="t", metadata={"acode": wrong}))
    with pytest.raises(Usage, match="tool t: its metadata"), acode.session("k"):
        agent.run_sync("go")
    with pytest.raises(Usage, match="names of tools"):
        AcodeDurability(idempotent="t")


class Answer(BaseModel):
    total: Decimal
    days: list[date]


def test_structured_output_and_a_tools_plea_to_try_again_come_back_as_they_were(place: Place) -> None:
    tries: list[int] = []

    def parse(text: str) -> Answer:
        tries.append(1)
        if text == "bad":
            raise ModelRetry("not that")
        return Answer(total=Decimal("1.50"), days=[date(2026, 1, 31)])

    script = Script(
        [ToolCallPart("parse", {"text": "bad"})],
        [ToolCallPart("parse", {"text": "good"})],
        [ToolCallPart("final_result", {"total": "1.50", "days": ["2026-01-31"]})],
    )
    agent = made(script, parse, output_type=Answer)
    left_in_the_middle(agent)
    with acode.session("k"):
        result = agent.run_sync("go")
    assert result.output == Answer(total=Decimal("1.50"), days=[date(2026, 1, 31)])
    with acode.session("k"):
        assert agent.run_sync("go").output == result.output, "a completed session gives what it has recorded"
    assert (script.asked, len(tries)) == (3, 2)


def test_a_call_that_waits_for_approval_is_carried_on_in_a_later_run(place: Place) -> None:
    sent: list[str] = []

    def send(to: str) -> None:
        sent.append(to)

    script = Script([ToolCallPart("send", {"to": "x"}, tool_call_id="1")], ["done"])
    tool = Tool(send, requires_approval=True)
    agent = made(script, tool, output_type=[str, DeferredToolRequests])

    def program(*, stop: bool) -> str:
        with acode.session("k"):
            first = agent.run_sync("go")
            assert isinstance(first.output, DeferredToolRequests)
            granted = DeferredToolResults(approvals={"1": True})
            second = agent.run_sync(message_history=first.all_messages(), deferred_tool_results=granted)
            if stop:
                raise Stop
            return str(second.output)

    with pytest.raises(Stop):
        program(stop=True)
    assert program(stop=False) == "done" and sent == ["x"] and script.asked == 2
    assert "support-run2.call-0-1-send" in steps_of("k")


# Streams.


def streaming(script: Script) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for part in script(messages, info).parts:
            assert isinstance(part, TextPart)
            for word in part.content.split():
                yield f"{word} "

    return FunctionModel(stream_function=stream)


def test_a_streamed_response_is_given_again_without_asking_the_model(place: Place) -> None:
    script, seen = Script(["one two three"]), list[str]()

    async def watch(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                seen.append(event.delta.content_delta)

    capability = AcodeDurability[None](event_stream_handler=watch)
    agent: Agent[None, str] = Agent(streaming(script), name="support", capabilities=[capability])

    async def program(*, stop: bool) -> str:
        async with acode.session("k"), agent.run_stream("go") as result:
            text = await result.get_output()
            if stop:
                raise Stop
            return str(text)

    with pytest.raises(Stop):
        asyncio.run(program(stop=True))
    assert seen == ["two ", "three "], "what the model streams is shown while it streams"
    assert asyncio.run(program(stop=False)) == "one two three "
    assert script.asked == 1 and seen == ["two ", "three "]
    assert steps_of("k") == ["support-run1.model-1"]


def test_a_run_that_is_stepped_through_by_hand_goes_on_where_it_was_left(place: Place) -> None:
    sent: list[int] = []
    script = Script([ToolCallPart("send", {})], ["done"])
    agent = made(script, Tool(lambda: sent.append(1), name="send"))

    async def program(nodes_max: int) -> str | None:
        async with acode.session("k"), agent.iter("go") as run:
            async for _node in run:
                nodes_max -= 1
                if nodes_max == 0:
                    raise Stop
        return str(run.result.output) if run.result else None

    for nodes_max in (2, 3, 4):
        with pytest.raises(Stop):
            asyncio.run(program(nodes_max))
    assert asyncio.run(program(100)) == "done" and (script.asked, sent) == (2, [1])


# Agents in steps, in tools, in tasks.


def test_an_agent_in_a_tool_has_its_steps_in_the_tools_step(place: Place) -> None:
    below = Script(["found it"])
    searcher = Agent(FunctionModel(below), name="searcher", capabilities=[AcodeDurability[None]()])
    failing = [True]

    async def search() -> str:
        found = await searcher.run("where?")
        if failing:
            failing.clear()
            raise Stop
        return str(found.output)

    agent = made(Script([ToolCallPart("search", {})], ["done"]), search, durability={"idempotent": {"search"}})
    with pytest.raises(Stop), acode.session("k"):
        agent.run_sync("go")
    with acode.session("k"):
        result = agent.run_sync("go")
    assert returned(result.all_messages()) == ["found it"] and below.asked == 1
    assert "support-run1.call-1-1-search.searcher-run1.model-1" in steps_of("k")


def test_a_step_that_is_tried_again_does_not_repeat_the_agents_run_in_it(place: Place) -> None:
    sent: list[int] = []
    script = Script([ToolCallPart("send", {})], ["done"])
    agent = made(script, Tool(lambda: sent.append(1), name="send"))

    def ask() -> str:
        output = str(agent.run_sync("go").output)
        if len(tries) == 0:
            tries.append(1)
            raise ConnectionError
        return output

    tries: list[int] = []
    with acode.session("k") as s:
        assert s.step("ask", ask, idempotent=True, retry=3) == "done"
    assert (script.asked, sent, tries) == (2, [1], [1])


def test_two_runs_at_once_at_the_same_place_are_refused_and_have_branches_of_their_own(place: Place) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.sleep(0)
        return ModelResponse([TextPart("done")])

    agent = made(respond)

    async def at_once() -> None:
        async with acode.session("refused"):
            await asyncio.gather(agent.run("a"), agent.run("b"))

    with pytest.raises(Usage, match="two runs of the agent support at the same time"):
        asyncio.run(at_once())

    async def in_branches() -> list[str]:
        async with acode.session("k") as s:

            async def one(prompt: str) -> str:
                with s.branch(prompt):
                    return str((await agent.run(prompt)).output)

            return await asyncio.gather(one("a"), one("b"))

    assert asyncio.run(in_branches()) == ["done", "done"]
    assert set(steps_of("k")) == {"a.support-run1.model-1", "b.support-run1.model-1"}


def test_a_thread_that_knows_of_no_session_is_refused(place: Place) -> None:
    agent, refused = made(Script(["done"])), list[Exception]()

    def run() -> None:
        try:
            asyncio.run(agent.run("go"))
        except Usage as error:
            refused.append(error)

    with acode.session("k"):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert "knows of no session" in str(refused[0])


def test_outside_of_a_session_an_agent_runs_as_any_other(place: Place) -> None:
    script = Script([ToolCallPart("t", {})], ["done"])
    assert made(script, Tool(lambda: 1, name="t")).run_sync("go").output == "done"
    assert not (place.workspace / ".agent").exists()


# What goes wrong.


def test_a_model_that_failed_and_was_replaced_fails_again_on_a_resume_and_is_replaced_again(place: Place) -> None:
    first = Script(ModelHTTPError(503, "first", {"error": "busy"}))
    second = Script(["done"])
    other = FunctionModel(second)
    capabilities = [ModelFallback(other), AcodeDurability(models={"other": other})]
    agent = made(first, capabilities=capabilities)
    left_in_the_middle(agent)
    with acode.session("k"):
        assert agent.run_sync("go").output == "done"
    assert (first.asked, second.asked) == (1, 1)


def test_a_request_that_was_cancelled_leaves_nothing_open(place: Place) -> None:
    async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        await asyncio.Event().wait()
        raise AssertionError

    agent = made(respond)

    async def program() -> str:
        async with acode.session("k") as s:
            try:
                await asyncio.wait_for(agent.run("go"), 0.01)
            except TimeoutError:
                return await s.step("after", after)
        raise AssertionError

    async def after() -> str:
        return "late"

    assert asyncio.run(program()) == "late"
    (row,) = place.json("session", "list", "--all")
    assert row["state"] == "COMPLETED"


def test_a_call_whose_result_cannot_be_stored_has_run_and_is_given_one_by_a_person(place: Place) -> None:
    called: list[int] = []

    def handle() -> object:
        called.append(1)
        return object()

    agent = made(Script([ToolCallPart("handle", {})], ["done"]), handle)
    for _ in range(2):
        with pytest.raises(NotStorable, match=r"call-1-1-handle has run, but its result") as caught, acode.session("k"):
            agent.run_sync("go")
    acode.resolve("k", caught.value.details["step"], "applied", result="a handle")
    with acode.session("k"):
        result = agent.run_sync("go")
    assert returned(result.all_messages()) == ["a handle"] and called == [1]


def test_what_looks_like_a_secret_is_in_no_event_and_is_gone_when_the_session_has_ended(place: Place) -> None:
    secret = "ghp_" + "a1B2" * 9
    script = Script([ToolCallPart("t", {"token": secret})], ["done"])
    agent = made(script, Tool(lambda token: f"used {token}", name="t"))
    left_in_the_middle(agent)
    (row,) = place.json("session", "list")
    assert secret not in place.acode("--json", "session", "history", row["short_id"]).stdout
    with acode.session("k"):
        result = agent.run_sync("go")
    assert returned(result.all_messages()) == [f"used {secret}"] and script.asked == 2
    kept = [path for path in (place.workspace / ".agent").rglob("*") if path.is_file()]
    assert [path.name for path in kept if secret.encode() in path.read_bytes()] == []


class OwnToolset(AbstractToolset[None]):
    @property
    def id(self) -> str:
        return "own"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return {}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: Any) -> Any:
        raise AssertionError


def test_tools_that_could_not_be_steps_are_refused(place: Place) -> None:
    with pytest.raises(Usage, match="the tools of OwnToolset cannot be steps"):
        made(Script(["done"]), toolsets=[OwnToolset()])
    agent = made(Script(["done"]))
    late: FunctionToolset[None] = FunctionToolset([Tool(lambda: 1, name="t")], id="late")
    with pytest.raises(UserError, match="cannot be added at runtime with acode"), acode.session("k"):
        agent.run_sync("go", toolsets=[late])


def test_tools_that_a_function_provides_are_steps_too(place: Place) -> None:
    sent, listed = list[int](), list[int]()

    def provided(ctx: RunContext[None]) -> FunctionToolset[None]:
        listed.append(1)
        return FunctionToolset([Tool(lambda: sent.append(1), name="send")])

    script = Script([ToolCallPart("send", {})], ["done"])
    agent = made(script, toolsets=[DynamicToolset(provided, id="mails")])
    left_in_the_middle(agent)
    before = len(listed)
    with acode.session("k"):
        assert agent.run_sync("go").output == "done"
    assert (script.asked, sent, len(listed)) == (2, [1], before)
    wanted = ["tools-mails-1", "model-1", "call-1-1-send", "tools-mails-2", "model-2"]
    assert steps_of("k") == [f"support-run1.{step}" for step in wanted]


def test_names_of_any_length_and_script_become_names_of_steps(place: Place) -> None:
    name, agent_name = "tool_" + "x" * 59, "_Tür & Tor " + "y" * 80
    script = Script([ToolCallPart(name, {})], ["done"])
    agent: Agent[None, str] = Agent(
        FunctionModel(script), name=agent_name, tools=[Tool(lambda: 1, name=name)], capabilities=[AcodeDurability()]
    )
    with acode.session("k"):
        assert agent.run_sync("go", timeout=60).output == "done"
    assert steps_of("k")[0].startswith("Tür-Tor-yyy") and steps_of("k")[0].endswith("-run1-began")
    assert [step.partition(".")[2][:10] for step in steps_of("k")[1:]] == ["model-1", "call-1-1-t", "model-2"]

"""Behaviors that Pydantic AI's own tests ask of its engines for durable execution, asked of acode.

Its tests are written against each engine (Temporal, DBOS, Prefect) with that engine's names and cannot be run with
another one. What they state is stated here in acode's terms; docs/proof/2026-11-18-someone-elses-tests.md lists which
of them hold, which stand in the neighboring files, and which do not apply.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra: pydantic-ai")

from pydantic_ai import Agent, CancellationToken, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, ResolveModelId, durable_operation
from pydantic_ai.exceptions import ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    BinaryContent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import DynamicToolset, ExternalToolset, FunctionToolset
from pydantic_ai.usage import UsageLimits

import acode
from acode.integrations.pydantic_ai import AcodeDurability
from tests.integrations.scripted import Script, Stop, left_in_the_middle, made, returned, steps_of
from tests.library.programs import Place

pytestmark = pytest.mark.usefixtures("loop")


def agent_of(script: Any, **more: Any) -> Agent[Any, Any]:
    durability = AcodeDurability[Any](**more.pop("durability", {}))
    return Agent(FunctionModel(script), capabilities=[*more.pop("capabilities", []), durability], **more)


# The agent and its names.


def test_an_agent_needs_a_name_and_the_capability_can_give_it_one(place: Place) -> None:
    with pytest.raises(UserError, match="name"):
        agent_of(Script(["done"]))
    agent = agent_of(Script(["done"]), durability={"name": "given"})
    with acode.session("k"):
        assert agent.run_sync("go").output == "done"
    other = agent_of(Script(["done"]), name="own", durability={"name": "given"})
    with acode.session("other"):
        other.run_sync("go")
    assert steps_of("k") == steps_of("other") == ["given-run1.model-1"]


def test_an_agent_needs_a_model_before_its_first_run() -> None:
    with pytest.raises(UserError, match="needs to have a `model`"):
        Agent(name="support", capabilities=[AcodeDurability()])


def test_two_such_capabilities_on_one_agent_are_refused() -> None:
    both = [AcodeDurability[None](), AcodeDurability[None](name="other")]
    with pytest.raises(UserError, match="only one durable execution engine"):
        Agent(FunctionModel(Script(["done"])), name="support", capabilities=both)


def test_two_toolsets_of_the_same_id_are_refused_and_one_used_twice_is_not() -> None:
    tools = FunctionToolset[None]([Tool(lambda: 1, name="a")], id="same")
    other = FunctionToolset[None]([Tool(lambda: 1, name="b")], id="same")
    with pytest.raises(UserError, match="same `id` 'same'"):
        made(Script(["done"]), toolsets=[tools, other])
    with pytest.raises(UserError, match="unique `id`"):
        made(Script(["done"]), toolsets=[DynamicToolset[None](lambda _: tools)])


def test_a_run_may_bring_tools_that_somebody_else_executes(place: Place) -> None:
    definition = ToolDefinition(name="outside", parameters_json_schema={"type": "object", "properties": {}})
    agent = made(Script(["done"]))
    with acode.session("k"):
        assert agent.run_sync("go", toolsets=[ExternalToolset[None]([definition])]).output == "done"


@pytest.mark.parametrize("kind", ["function", "dynamic"])
def test_a_run_may_not_bring_tools_that_are_executed_here(place: Place, kind: str) -> None:
    tools = FunctionToolset[None]([Tool(lambda: 1, name="t")], id="late")
    late: Any = tools if kind == "function" else DynamicToolset[None](lambda _: tools, id="late")
    script = Script(["done"])
    with pytest.raises(UserError, match="cannot be added at runtime with acode"), acode.session("k"):
        made(script).run_sync("go", toolsets=[late])
    assert script.asked == 0
    assert made(script).run_sync("go", toolsets=[late]).output == "done", "outside of a session it may"


# The model.


def test_a_registered_model_is_chosen_by_its_name_or_itself_and_given_again(place: Place) -> None:
    first, second = Script(["first"]), Script(["second"])
    other = FunctionModel(second)
    agent = made(first, durability={"models": {"other": other}})

    def program(*, stop: bool) -> list[str]:
        with acode.session("k"):
            by_name, itself = agent.run_sync("go", model="other"), agent.run_sync("go", model=other)
            with agent.override(model=other):
                overridden = agent.run_sync("go")
            if stop:
                raise Stop
            return [one.output for one in (by_name, itself, overridden)]

    with pytest.raises(Stop):
        program(stop=True)
    assert program(stop=False) == ["second"] * 3
    assert (first.asked, second.asked) == (0, 3)


def test_a_model_that_was_not_registered_is_refused_before_it_is_asked(place: Place) -> None:
    script = Script(["late"])
    with pytest.raises(UserError, match="was not registered with `AcodeDurability`"), acode.session("k"):
        made(Script(["done"])).run_sync("go", model=FunctionModel(script))
    assert script.asked == 0


def test_a_model_may_be_found_by_what_the_run_depends_on(place: Place) -> None:
    scripts = {"red": Script(["red"]), "blue": Script(["blue"])}
    resolver = ResolveModelId[str](lambda ctx, model_id: FunctionModel(scripts[ctx.deps]))
    agent = agent_of(Script(["done"]), name="support", deps_type=str, capabilities=[resolver])
    for _ in range(2):
        with acode.session("k", on_completed="return"):
            assert agent.run_sync("go", model="tenant:any", deps="blue").output == "blue"
    assert (scripts["blue"].asked, scripts["red"].asked) == (1, 0)


def suspended(script: list[ModelResponse]) -> tuple[Any, list[int]]:
    asked: list[int] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(len(messages))
        return script[len(asked) - 1]

    return respond, asked


def test_a_response_that_was_suspended_is_continued_and_given_again_whole(place: Place) -> None:
    respond, asked = suspended(
        [ModelResponse([TextPart("half ")], state="suspended"), ModelResponse([TextPart("whole")])]
    )
    agent = agent_of(respond, name="support")
    left_in_the_middle(agent)
    with acode.session("k"):
        assert agent.run_sync("go").output.endswith("whole")
    assert len(asked) == 2


# Tools.


def test_metadata_of_a_tools_return_comes_back_and_never_reaches_the_model(place: Place) -> None:
    def look() -> ToolReturn:
        return ToolReturn(return_value={"n": 1}, content=["see this"], metadata={"source": "page 3"})

    agent = made(Script([ToolCallPart("look", {})], ["done"]), look)
    left_in_the_middle(agent)
    with acode.session("k"):
        messages = agent.run_sync("go").all_messages()
    (part,) = [one for message in messages for one in message.parts if isinstance(one, ToolReturnPart)]
    assert (part.content, part.metadata) == ({"n": 1}, {"source": "page 3"})
    prompts = [one.content for message in messages for one in message.parts if isinstance(one, UserPromptPart)]
    assert prompts[0] == "go" and "see this" in prompts[1]


def test_bytes_that_a_tool_returns_come_back_with_their_type(place: Place) -> None:
    def draw() -> BinaryContent:
        return BinaryContent(data=b"\x89PNG\x00\xff", media_type="image/png")

    agent = made(Script([ToolCallPart("draw", {})], ["done"]), draw)

    def seen() -> list[BinaryContent]:
        with acode.session("k", on_completed="return"):
            messages = agent.run_sync("go").all_messages()
        parts: list[Any] = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        found = [getattr(part, "content", None) for part in parts]
        flat = [item for content in found for item in (content if isinstance(content, list) else [content])]
        return [item for item in flat if isinstance(item, BinaryContent)]

    first, again = seen(), seen()
    assert [(item.data, item.media_type) for item in first] == [(b"\x89PNG\x00\xff", "image/png")]
    assert again == first


def test_a_tool_that_asks_for_another_try_is_not_retried_by_the_engine(place: Place) -> None:
    tries: list[int] = []

    def send() -> str:
        tries.append(1)
        raise ModelRetry("say please")

    script = Script([ToolCallPart("send", {})], [ToolCallPart("send", {})], ["never"])
    agent = made(script, send)
    for _ in range(2):
        with pytest.raises(UnexpectedModelBehavior), acode.session("k"):
            agent.run_sync("go")
    assert (len(tries), script.asked) == (2, 2), "the second run was given what the first one had recorded"


def test_a_tool_that_has_failed_for_good_is_told_to_the_model_once(place: Place) -> None:
    tries: list[int] = []

    def send() -> str:
        tries.append(1)
        raise ToolFailed("the account is closed")

    script = Script([ToolCallPart("send", {})], ["done"])
    agent = made(script, send)
    left_in_the_middle(agent)
    with acode.session("k"):
        result = agent.run_sync("go")
    assert result.output == "done" and returned(result.all_messages()) == ["the account is closed"]
    assert (len(tries), script.asked) == (1, 2)


@pytest.mark.parametrize("what", ["enqueue", "cancel"])
def test_a_tool_that_is_a_step_may_not_change_the_run_around_it(place: Place, what: str) -> None:
    """What it enqueues or cancels would be missing when its result is given from the record."""

    def send(ctx: RunContext[None]) -> str:
        ctx.enqueue("and this") if what == "enqueue" else ctx.cancel()
        return "sent"

    with pytest.raises(UserError, match=what), acode.session("k"):
        made(Script([ToolCallPart("send", {})], ["done"]), send).run_sync("go")


def test_a_tool_that_is_renamed_or_left_out_for_a_run_is_the_same_on_a_resume(place: Place) -> None:
    sent: list[str] = []

    async def prepare(ctx: RunContext[None], definition: ToolDefinition) -> ToolDefinition:
        definition.name = "deliver"
        return definition

    def send(to: str) -> str:
        sent.append(to)
        return to

    script = Script([ToolCallPart("deliver", {"to": "x"})], ["done"])
    agent = made(script, Tool(send, prepare=prepare))
    left_in_the_middle(agent)
    with acode.session("k"):
        result = agent.run_sync("go")
    assert returned(result.all_messages()) == ["x"] and sent == ["x"]


@dataclass
class Deps:
    """Of the next test: pydantic looks for the class by its name."""

    connection: Any


def test_dependencies_that_cannot_be_stored_are_no_part_of_the_record(place: Place) -> None:
    seen: list[object] = []

    def use(ctx: RunContext[Deps]) -> str:
        seen.append(ctx.deps.connection)
        return "used"

    agent = agent_of(Script([ToolCallPart("use", {})], ["done"]), name="support", tools=[use], deps_type=Deps)
    connection = object()
    for _ in range(2):
        with acode.session("k", on_completed="return"):
            assert agent.run_sync("go", deps=Deps(connection)).output == "done"
    assert seen == [connection]


# The run.


def test_a_run_has_the_same_id_on_a_resume_and_keeps_the_one_that_it_was_given(place: Place) -> None:
    ids: list[list[str | None]] = []

    def note(ctx: RunContext[None]) -> None:
        ids[-1].append(ctx.run_id)

    agent = made(Script([ToolCallPart("note", {})], ["done"]), Tool(note, metadata={"acode": False}))
    for stop in (True, False):
        ids.append([])
        try:
            with acode.session("k"):
                agent.run_sync("go")
                agent.run_sync("go", run_id="mine")
                if stop:
                    raise Stop
        except Stop:
            pass
    assert ids[0] == ids[1] and ids[0][1] == "mine" and ids[0][0]


def test_a_token_that_another_task_could_cancel_is_refused_in_a_session(place: Place) -> None:
    script = Script(["done"])
    with pytest.raises(UserError, match="cancellation"), acode.session("k"):
        made(script).run_sync("go", cancellation_token=CancellationToken())
    assert script.asked == 0


def test_usage_is_counted_once_and_its_limit_holds_on_a_resume(place: Place) -> None:
    script = Script([ToolCallPart("t", {})], [ToolCallPart("t", {})], ["done"])
    agent = made(script, Tool(lambda: 1, name="t"))
    for _ in range(2):
        with pytest.raises(UsageLimitExceeded), acode.session("k"):
            agent.run_sync("go", usage_limits=UsageLimits(request_limit=2))
    assert script.asked == 2
    with acode.session("k"):
        result = agent.run_sync("go")
    assert result.usage.requests == 3 and script.asked == 3


def test_a_handler_of_events_sees_the_tools_results_on_a_resume_too(place: Place) -> None:
    seen: list[list[str]] = []

    async def watch(ctx: RunContext[None], events: AsyncIterable[AgentStreamEvent]) -> None:
        async for event in events:
            if isinstance(event, FunctionToolResultEvent):
                seen[-1].append(str(event.part.content))

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if any(isinstance(part, ToolReturnPart) for one in messages for part in one.parts):
            yield "done"
        else:
            yield {0: DeltaToolCall(name="t", json_args="{}")}

    sent: list[int] = []

    def t() -> str:
        sent.append(1)
        return "sent"

    durability = AcodeDurability[None](event_stream_handler=watch)
    agent = Agent(FunctionModel(stream_function=stream), name="support", tools=[t], capabilities=[durability])
    for _ in range(2):
        seen.append([])
        with acode.session("k", on_completed="return"):
            assert agent.run_sync("go").output == "done"
    assert seen == [["sent"], ["sent"]] and sent == [1]


def test_an_operation_of_a_capability_is_a_step(place: Place) -> None:
    called: list[str] = []

    class Greets(AbstractCapability[None]):
        id = "greets"

        @durable_operation("greet")
        async def greet(self, name: str) -> str:
            called.append(name)
            return f"hello {name}"

        async def before_run(self, ctx: RunContext[None]) -> None:
            assert await self.greet("ann") == "hello ann"

    agent = agent_of(Script(["done"]), name="support", capabilities=[Greets()])
    for _ in range(2):
        with acode.session("k", on_completed="return"):
            assert agent.run_sync("go").output == "done"
    assert called == ["ann"] and steps_of("k")[0] == "support-run1.do-greets-greet-1"

"""Agents whose model says what the test wrote, in the test's own process; and what they left on record."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

import acode
from acode.engine.workspace_store import opened
from acode.events import types as ev
from acode.integrations.pydantic_ai import AcodeDurability
from acode.library.open_session import find_session
from acode.library.world import world_of


def returned(messages: list[ModelMessage]) -> list[Any]:
    return [part.content for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


class Script:
    """A model that gives these responses one after the other, and counts how often it was asked."""

    def __init__(self, *responses: list[Any] | Exception) -> None:
        self.responses = responses
        self.asked = 0

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        response = self.responses[sum(message.kind == "response" for message in messages)]
        if isinstance(response, Exception):
            raise response
        return ModelResponse([TextPart(part) if isinstance(part, str) else part for part in response])


class Stop(Exception):
    """Ends a block before its end."""


def made(script: Any, *tools: Any, **more: Any) -> Agent[None, Any]:
    capabilities = more.pop("capabilities", [AcodeDurability(**more.pop("durability", {}))])
    return Agent(FunctionModel(script), name="support", tools=tools, capabilities=capabilities, **more)


def left_in_the_middle(agent: Agent[None, Any], prompt: str = "go", key: str = "k") -> Any:
    with pytest.raises(Stop), acode.session(key):
        agent.run_sync(prompt)
        raise Stop


def events_of(key: str) -> list[Any]:
    world = world_of(".")
    known = find_session(world, key)
    assert known is not None
    with opened(world, look_only=True) as store:
        return [envelope.event for envelope, _, _ in store.events(known[0])]


def steps_of(key: str) -> list[str]:
    return [event.step for event in events_of(key) if isinstance(event, ev.StepCompleted)]

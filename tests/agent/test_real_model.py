"""The same requests to a real model: whether what it says is clever is not asked, only whether the way there holds.

Needs a running server that speaks the OpenAI chat API: ACODE_TEST_MODEL_URL=http://127.0.0.1:PORT/v1, and
ACODE_TEST_MODEL if it is not the first that the server lists. docs/guide/agent.md says how to start a small one.
"""

from __future__ import annotations

import json
import os

import pytest

from acode.agent.availability import available, models_of
from acode.agent.endpoint import request
from acode.agent.messages import Ask, Message, Reply, Setup, Tool
from acode.errors import ContextTooLong, ModelUnknown

# Read before a test begins: tests see nothing of the caller's ACODE_ variables.
URL = os.environ.get("ACODE_TEST_MODEL_URL", "")
NAME = os.environ.get("ACODE_TEST_MODEL", "")
TIMEOUT_S = 120.0

pytestmark = [
    pytest.mark.release,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not URL, reason="no real model: ACODE_TEST_MODEL_URL names no server (see docs/guide/agent.md)"),
]

PLAN = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 60},
        "tasks": {"type": "array", "items": {"type": "string", "maxLength": 60}, "minItems": 1, "maxItems": 3},
    },
    "required": ["title", "tasks"],
    "additionalProperties": False,
}
READ = Tool(
    name="read_file",
    description="Read a file.",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


@pytest.fixture(scope="module")
def model() -> Setup:
    unnamed = Setup(name=NAME, base_url=URL, api_key_env="ACODE_TEST_MODEL_KEY")
    if NAME:
        return unnamed
    listed = models_of(unnamed, None, TIMEOUT_S)
    assert isinstance(listed, list) and listed, listed
    return Setup(name=listed[0], base_url=URL, api_key_env="ACODE_TEST_MODEL_KEY")


def asked(model: Setup, ask: Ask, shown: list[str] | None = None) -> Reply:
    pieces: list[str] = [] if shown is None else shown
    return request(model, ask, api_key=None, timeout_s=TIMEOUT_S, show=pieces.append, stopped=lambda: False)


def ask_for(text: str, **more: object) -> Ask:
    return Ask(instructions="You are brief.", messages=(Message(role="user", text=text),), **more)  # type: ignore[arg-type]


def test_it_is_available_and_another_is_not(model: Setup) -> None:
    assert available(model, None, TIMEOUT_S) is None
    other = Setup(name="no-such-model-at-all", base_url=model.base_url, api_key_env=model.api_key_env)
    assert isinstance(available(other, None, TIMEOUT_S), ModelUnknown)


def test_it_is_heard_piece_by_piece_and_what_it_used_is_counted(model: Setup) -> None:
    shown: list[str] = []
    reply = asked(model, ask_for("Say hello in five words."), shown)
    assert len(shown) > 1 and "".join(shown) == reply.text
    assert reply.finish == "stop"
    assert reply.input_tokens > 0 and reply.output_tokens > 0


def test_an_answer_with_a_schema_is_well_formed(model: Setup) -> None:
    reply = asked(model, ask_for("Plan how to add a README file to a project.", answer=PLAN))
    plan = json.loads(reply.text)
    assert set(plan) == {"title", "tasks"}
    assert isinstance(plan["title"], str)
    assert 1 <= len(plan["tasks"]) <= 3 and all(isinstance(task, str) for task in plan["tasks"])


def test_it_can_be_offered_tools_and_a_conversation_with_their_answers_goes_on(model: Setup) -> None:
    """A very small model calls none, or with strange arguments; both are replies."""
    first = asked(model, ask_for("Read the file notes.txt with your tool.", tools=(READ,)))
    assert first.text or first.calls
    messages = [
        Message(role="user", text="Read the file notes.txt with your tool."),
        Message(role="assistant", text=first.text, calls=first.calls),
        *(Message(role="tool", text="buy milk", call_id=call.id, tool=call.tool) for call in first.calls),
        Message(role="user", text="What did it say? Answer in five words."),
    ]
    second = asked(model, Ask(instructions="You are brief.", messages=tuple(messages), tools=(READ,)))
    assert second.text or second.calls


def test_a_conversation_that_is_too_long_is_recognised(model: Setup) -> None:
    with pytest.raises(ContextTooLong):
        asked(model, ask_for("word " * 400_000))

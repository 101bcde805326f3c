"""Translate a conversation between acode's types and the model library's.

The same question is always translated into the same bytes: nothing of the clock and no made-up id gets into a request.
Importing this module loads the library, which takes a second: only a request may do that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic_ai import messages as lib
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from acode.agent.messages import Ask, Call, Message, Reply

# The library wants a time in every message. No endpoint receives it.
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
ANSWER_NAME = "answer"
TOOL_NAME_CHARACTERS_MAX = 64
# Also where the endpoint is given the schema as such: many take it and let it be, and small models need to read it.
ANSWER_WANTED = (
    "Answer with one JSON object that fits this schema. Write nothing before or after it, and no Markdown fence.\n\n"
    "{schema}"
)

Mode = Literal["native", "prompted"]


def parameters_of(ask: Ask, mode: Mode) -> ModelRequestParameters:
    tools = [
        ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in ask.tools
    ]
    instructions = [lib.InstructionPart(content=ask.instructions)] if ask.instructions else []
    if ask.answer is None:
        return ModelRequestParameters(function_tools=tools, instruction_parts=instructions)
    return ModelRequestParameters(
        function_tools=tools,
        instruction_parts=instructions,
        output_mode=mode,
        output_object=OutputObjectDefinition(json_schema=ask.answer, name=ANSWER_NAME),
        prompted_output_template=ANSWER_WANTED,
    )


def messages_of(ask: Ask) -> list[lib.ModelMessage]:
    """The library has one message for everything between two answers of the model."""
    found: list[lib.ModelMessage] = []
    asked: list[lib.ModelRequestPart] = []
    open_ids: list[str] = []  # of the calls that wait for their answers, which come in the order of the calls
    for message in ask.messages:
        if message.role == "assistant":
            found += _requests(asked)
            asked, open_ids = [], ids_of(message)
            found.append(lib.ModelResponse(parts=list(_said(message, open_ids)), timestamp=NO_TIME))
        elif message.role == "tool":
            asked.append(_tool_answer(message, open_ids.pop(0) if open_ids else message.call_id))
        elif asked and isinstance(asked[-1], lib.UserPromptPart):
            # Two in a row become one: the templates of many small models insist on taking turns.
            asked[-1] = _prompt(f"{asked[-1].content}\n\n{message.text}")
        else:
            asked.append(_prompt(message.text))
    return found + _requests(asked)


def _requests(parts: list[lib.ModelRequestPart]) -> list[lib.ModelMessage]:
    return [lib.ModelRequest(parts=parts, timestamp=NO_TIME)] if parts else []


def _prompt(text: str) -> lib.UserPromptPart:
    return lib.UserPromptPart(content=text, timestamp=NO_TIME)


def ids_of(message: Message) -> list[str]:
    """The ids of the calls in one answer, each its own: some models give two the same, and servers refuse that."""
    ids: list[str] = []
    for number, call in enumerate(message.calls, start=1):
        ids.append(f"{call.id}-{number}" if call.id in ids else call.id)
    return ids


def name_on_the_wire(tool: str) -> str:
    """A tool's name as every server takes it; one that a model made up may hold anything, and would be refused."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", tool)[:TOOL_NAME_CHARACTERS_MAX] or "tool"


def _tool_answer(message: Message, call_id: str) -> lib.ToolReturnPart:
    return lib.ToolReturnPart(
        tool_name=name_on_the_wire(message.tool), content=message.text, tool_call_id=call_id, timestamp=NO_TIME
    )


def _said(message: Message, ids: list[str]) -> Iterator[lib.ModelResponsePart]:
    if message.text:
        yield lib.TextPart(content=message.text)
    for call, call_id in zip(message.calls, ids, strict=True):
        # Malformed arguments are wrapped by the library on their way out: many servers refuse a history with them.
        yield lib.ToolCallPart(tool_name=name_on_the_wire(call.tool), args=call.arguments, tool_call_id=call_id)


def piece_of(event: lib.ModelResponseStreamEvent) -> str:
    """The text that an event of the stream adds to the text on the screen; thoughts are not shown."""
    match event:
        case lib.PartStartEvent(part=lib.TextPart(content=text)):
            return text
        case lib.PartDeltaEvent(delta=lib.TextPartDelta(content_delta=text)):
            return text
    return ""


def weight_of(event: lib.ModelResponseStreamEvent) -> int:
    """How many characters an event adds to the answer, whatever they are for."""
    match event:
        case lib.PartDeltaEvent(delta=lib.ToolCallPartDelta(args_delta=str() as text)):
            return len(text)
        case lib.PartDeltaEvent(delta=lib.ThinkingPartDelta(content_delta=str() as text)):
            return len(text)
    return len(piece_of(event))


def reply_of(response: lib.ModelResponse, *, wants_object: bool) -> Reply:
    text = written("".join(part.content for part in response.parts if isinstance(part, lib.TextPart)))
    said = (response.provider_details or {}).get("finish_reason") or response.finish_reason or ""
    return Reply(
        text=object_in(text) if wants_object else text,
        calls=tuple(_call(part) for part in response.parts if isinstance(part, lib.ToolCallPart)),
        finish=str(said),
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        model=response.model_name or "",
    )


def _call(part: lib.ToolCallPart[Any]) -> Call:
    arguments = part.args if isinstance(part.args, str) else json.dumps(part.args or {})
    return Call(id=written(part.tool_call_id), tool=written(part.tool_name), arguments=written(arguments))


def written(text: str) -> str:
    """The text as it can be written down: halves of a character that came in two pieces are put together, and what
    stays half is replaced.
    """
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def object_in(text: str) -> str:
    """The JSON object inside a model's text; the text itself if there is none.

    Only the outermost braces count: the inner part of an object that was cut off is not the answer.
    """
    inner = text[text.find("{") : text.rfind("}") + 1]
    for candidate in (text.strip(), inner):
        try:
            if isinstance(json.loads(candidate), dict):
                return candidate
        except (ValueError, RecursionError):
            continue
    return text

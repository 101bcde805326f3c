"""The identity of an agent's requests as steps: a name by the place in the run, and arguments in one form.

Names and arguments are compared with what earlier runs recorded, so they are compatibility data: a change here makes
every session that is under way ask for something else. They leave out values that differ from run to run without
meaning, such as time stamps and a provider's ids for its calls.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ModelRequestParams,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import RunContext
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import PydanticSerializationError, to_jsonable_python

NAME_CHARACTERS_MAX = 48  # of the part that others chose; a step's name has room for it and what stands around it
PROMPT_CHARACTERS_MAX = 64
DIGEST_CHARACTERS = 12
BOOKKEEPING = {
    "pydantic_ai.messages": frozenset({"timestamp", "tool_call_id", "id", "provider_name", "provider_details"}),
    "pydantic_ai.tools": frozenset({"metadata", "sequential", "timeout", "toolset_id", "capability_id"}),
}  # by the module of a class, what neither was said nor reaches the model

_NOT_IN_NAMES = re.compile(r"[^\w-]+")
_ordered = msgspec.json.Encoder(order="deterministic")


class Run:
    """One run of an agent, and the count of each of its requests."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}

    def next(self, what: str) -> str:
        number = self._counters[what] = self.so_far(what) + 1
        return f"{what}-{number}"

    def so_far(self, what: str) -> int:
        return self._counters.get(what, 0)


# Names.


def step_name(operation: DurableOperationId, params: Any, run: Run) -> str:
    """The step's name within its run."""
    match operation:
        case ModelRequestId():
            return run.next("model")
        case ToolsetCallToolId():
            return name_of_call("call", params, run)
        case ToolsetValidateToolArgumentsId():
            return name_of_call("check", params, run)
        case ModelCompactMessagesId():
            return run.next("compact")
        case ModelCancelSuspendedResponseId():
            return run.next("withdraw")
        case ToolsetGetToolsId(toolset_id=toolset):
            return run.next(f"tools-{in_a_name(toolset)}")
        case ToolsetGetInstructionsId(toolset_id=toolset):
            return run.next(f"instructions-{in_a_name(toolset)}")
        case CapabilityOperationId(capability_id=capability, operation=name):
            return run.next(f"do-{in_a_name(f'{capability}-{name}')}")
    return run.next(f"do-{in_a_name(type(operation).__name__)}")  # later versions of Pydantic AI may know more


def name_of_call(what: str, params: Any, run: Run) -> str:
    """A tool call by its place in the response that asked for it: several run at once, and any may be the first."""
    response = run.so_far("model")
    place = place_in_response(params.ctx)
    number = f"{response}-{place}" if place is not None else str(response)
    return f"{what}-{number}-{in_a_name(tool_name(params))}"


def tool_name(params: Any) -> str:
    """The name that the model knows; a toolset with a prefix hides it from its tools."""
    return params.ctx.tool_name or params.name


def place_in_response(ctx: RunContext[Any]) -> int | None:
    """1 for the first call of the latest response; None where it was no model that asked."""
    for message in reversed(ctx.messages):
        if isinstance(message, ModelResponse):
            calls = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            return calls.index(ctx.tool_call_id) + 1 if ctx.tool_call_id in calls else None
    return None


def in_a_name(text: str) -> str:
    """Text in the characters of a step's name."""
    return _NOT_IN_NAMES.sub("-", text).strip("-_")[:NAME_CHARACTERS_MAX] or "unnamed"


# Arguments.


def arguments_of(operation: DurableOperationId, params: Any) -> tuple[Any, ...]:
    """The arguments that a later run must repeat, each part by itself, so that a mismatch names the changed part."""
    if isinstance(operation, ModelRequestId) and isinstance(params, ModelRequestParams):
        return arguments_of_request(operation, params)
    if isinstance(operation, ToolsetCallToolId | ToolsetValidateToolArgumentsId):
        return (canonical(params.tool_args),)
    return (canonical(params),)


def arguments_of_request(operation: ModelRequestId, params: ModelRequestParams) -> tuple[str, ...]:
    requests = [message for message in params.messages if isinstance(message, ModelRequest)]
    known = canonical(params.model_request_parameters)
    parts = known.pop("instruction_parts", None)
    return (
        shown_prompt(requests[-1].parts if requests else ()),
        f"model {params.model_id or operation.model_name}",
        f"messages {digest([plain_message(message) for message in params.messages])}",
        f"instructions {digest([[message.instructions for message in requests], parts])}",
        f"tools {digest(known)}",
        f"settings {digest(canonical(params.model_settings))}",
    )


def shown_prompt(parts: Sequence[Any]) -> str:
    """The latest message to the model, for people, cut short."""
    words = []
    for part in parts:
        if isinstance(part, UserPromptPart):
            words.append(part.content if isinstance(part.content, str) else f"prompt of {len(part.content)} parts")
        elif isinstance(part, ToolReturnPart):
            words.append(f"{part.tool_name}: {part.model_response_str()}")
    text = " ".join(" | ".join(words).split())
    return text if len(text) <= PROMPT_CHARACTERS_MAX else text[: PROMPT_CHARACTERS_MAX - 1] + "…"


def plain_message(message: ModelMessage) -> Any:
    """The content of a message. All else is bookkeeping, which a later run makes again."""
    return [message.kind, [canonical(part) for part in message.parts]]


def canonical(value: Any) -> Any:
    """JSON that is the same in every process; what is no value counts by its type."""
    match value:
        case Enum():
            return canonical(value.value)
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray():
            return f"sha256:{hashlib.sha256(value).hexdigest()}"
        case Mapping():
            return {str(key): canonical(item) for key, item in value.items()}
        case list() | tuple():
            return [canonical(item) for item in value]
        case set() | frozenset():
            return sorted((canonical(item) for item in value), key=_ordered.encode)
        case BaseModel():
            return canonical(value.model_dump())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__} | {field: canonical(item) for field, item in meant(value).items()}
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return f"{type(value).__module__}.{type(value).__qualname__}"


def meant(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that mean something: none of its own workings, and nothing of the run around it.

    A field that has its default is left out, so that one which a later version adds changes nothing.
    """
    found = {field.name: (getattr(value, field.name), default_of(field)) for field in dataclasses.fields(value)}
    left_out = BOOKKEEPING.get(type(value).__module__, frozenset[str]())
    return {
        name: item
        for name, (item, default) in found.items()
        if not name.startswith("_")
        and name not in left_out
        and not isinstance(item, RunContext | ToolsetTool)
        and not (type(item) is type(default) and item == default)
    }


def default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def digest(plain: Any) -> str:
    return hashlib.sha256(_ordered.encode(plain)).hexdigest()[:DIGEST_CHARACTERS]

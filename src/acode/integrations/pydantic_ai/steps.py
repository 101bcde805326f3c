"""The calls of the agent framework as steps of the open session: begun, ended, and returned from the record on a
resume.

A model request may be repeated. A tool call is an effect, and is repeated only where it was declared to be harmless, or
where somebody decided so. The record is the JSON of Pydantic AI's own adapters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai.durable_exec import (
    BoundDurableOperation,
    DurableOperation,
    DurableOperationBackend,
    DurableOperationId,
    EventStreamHandlerId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
)
from pydantic_ai.exceptions import AgentRunError
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import PydanticSerializationError

from acode.errors import NotStorable, Usage
from acode.integrations.pydantic_ai.step_identity import Run, arguments_of, in_a_name, step_name, tool_name
from acode.library.decorators import current
from acode.library.step_identity import CURRENT

RECORDED = "pydantic_ai"  # a result under this key is the framework's; any other was said by a person
METADATA = "acode"  # of a tool: {"idempotent": True}, or False for a tool that is no step
RUN: ContextVar[Run | None] = ContextVar("acode_pydantic_ai_run", default=None)

Declared = Mapping[str, Any]


class Withdrawn(Exception):
    """Somebody cancelled it in the middle. It may be repeated, so nothing about it is left open."""


class Steps(DurableOperationBackend[Declared]):
    """Binds what the framework declares to the session that is open when it is called."""

    def __init__(self, agent: str, idempotent: frozenset[str]) -> None:
        self._agent = agent
        self._idempotent = idempotent

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        return AsStep(operation, self._agent, self._idempotent)

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: object | None, tool_name: str
    ) -> Declared | Literal[False]:
        return declared_of(tool, tool_name)

    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class AsStep(BoundDurableOperation[Any, Any, Any]):
    """One operation, callable: each call is one step."""

    def __init__(self, operation: DurableOperation[Any, Any, Any], agent: str, idempotent: frozenset[str]) -> None:
        self._operation = operation
        self._agent = agent
        self._idempotent = idempotent

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        return self._operation

    async def __call__(self, params: Any, *, config: Any = None) -> Any:
        asked = self._operation.operation_id
        if isinstance(asked, EventStreamHandlerId):
            # t shows events as they happen, and gets them again on a resume
            return await self._operation.handler(params)
        session, run = current(), RUN.get()
        name = step_name(asked, params, run or Run())
        if run is None:
            name = f"{in_a_name(self._agent)[:10]}-{name}"
        may_repeat = self._may_repeat(params, config)
        try:
            recorded = await session.step(
                name, self._unit(params, may_repeat), *arguments_of(asked, params), idempotent=may_repeat
            )
        except Withdrawn:
            raise asyncio.CancelledError from None
        return self._given_back(recorded, name)

    def _may_repeat(self, params: Any, config: Any) -> bool:
        asked = self._operation.operation_id
        if not isinstance(asked, ToolsetCallToolId):
            return repeatable(asked)
        declared = isinstance(config, Mapping) and config.get("idempotent") is True
        return declared or not self._idempotent.isdisjoint((params.name, tool_name(params)))

    def _unit(self, params: Any, may_repeat: bool) -> Callable[..., Any]:
        async def unit(*_arguments: object) -> object:
            try:
                with durable_unit_scope():
                    value = await self._operation.handler(params)
            except asyncio.CancelledError as error:
                if may_repeat:
                    raise Withdrawn from error
                raise  # whether it took effect, nobody knows: it stays open
            except AgentRunError as error:
                made_of = error.__reduce__()
                error.args = tuple(made_of[1])  # what a later run needs to raise the same error again
                raise
            return {RECORDED: self._encoded(value)}

        asked = self._operation.operation_id
        what = tool_name(params) if isinstance(asked, ToolsetCallToolId) else type(asked).__name__.removesuffix("Id")
        unit.__module__, unit.__qualname__ = self._agent, what  # for people: Call support:send
        return unit

    def _encoded(self, value: Any) -> Any:
        try:
            return self._operation.result_codec.dump(value)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            here = CURRENT.get()
            step = here.scope.path if here is not None else ""
            raise NotStorable(
                f"step {step} has run, but its result is lost: {error}",
                hint="Return what is JSON: text, numbers, lists, dicts, dataclasses, pydantic models.",
                step=step,
            ) from error

    def _given_back(self, recorded: Any, name: str) -> Any:
        ours = isinstance(recorded, dict) and recorded.keys() == {RECORDED}
        if not ours and isinstance(self._operation.operation_id, ToolsetCallToolId):
            return recorded
        try:
            return self._operation.result_codec.load(recorded[RECORDED] if ours else recorded)
        except ValidationError as error:
            raise NotStorable(
                f"what is recorded for step {name} is no {self._operation.config_role} result that this version of"
                f" pydantic-ai can read: {error}",
                hint="Use the version that recorded it; or begin again under another key.",
            ) from error


def repeatable(asked: DurableOperationId) -> bool:
    """Whether repeating it is harmless. A call of an unknown kind is an effect."""
    return isinstance(
        asked,
        ModelRequestId
        | ModelCompactMessagesId
        | ModelCancelSuspendedResponseId
        | ToolsetGetToolsId
        | ToolsetGetInstructionsId
        | ToolsetValidateToolArgumentsId,
    )


def declared_of(tool: object | None, name: str) -> Declared | Literal[False]:
    """The declarations in the tool's own metadata."""
    known = tool.tool_def.metadata if isinstance(tool, ToolsetTool) else None
    declared = (known or {}).get(METADATA, {})
    if declared is False:
        return False
    if isinstance(declared, Mapping) and declared.keys() <= {"idempotent"}:
        return dict(declared)
    raise Usage(f"tool {name}: its metadata {METADATA!r} must be {{'idempotent': True}} or False, found {declared!r}")

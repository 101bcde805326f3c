"""The messages between acode and a model, in acode's own types. The log keeps these values, whatever library sends them
to an endpoint; so they are part of the log's format: fields may be added with a default, never renamed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class LogValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The root of these values."""


class Call(LogValue, frozen=True, kw_only=True):
    """A tool call as the model wrote it; the arguments may be malformed, and the id is the provider's own."""

    id: str
    tool: str
    arguments: str  # JSON, as it came


class Message(LogValue, frozen=True, kw_only=True):
    role: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: tuple[Call, ...] = ()  # of the assistant
    call_id: str = ""  # of a tool's answer: the call that it answers
    tool: str = ""


class Tool(LogValue, frozen=True, kw_only=True):
    """The description of a tool for a model."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON schema of an object


class Ask(LogValue, frozen=True, kw_only=True):
    """One request to the model."""

    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    answer: dict[str, Any] | None = None  # JSON schema of the object that must be answered, instead of text


class Reply(LogValue, frozen=True, kw_only=True):
    """The model's whole answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = ""  # stop, length, tool_calls, content_filter, as the endpoint said
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""  # as the endpoint calls it


class Setup(LogValue, frozen=True, kw_only=True):
    """The model configuration that a session begins with, and is resumed with."""

    name: str
    base_url: str
    api_key_env: str

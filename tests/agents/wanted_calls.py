"""The scripted model's mind: which call it wants next, from nothing but the conversation that a client sends.

It has no memory, as a real model has none: a client that was killed and resumed is answered from what it still shows.
It asks for a call again when the conversation shows no result of it, or one that says that it was interrupted; it does
not when anybody has told it what became of the call. This is a choice, and no measure of how often real models repeat.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

INTERRUPTED = re.compile(r"interrupt|abort|cancel|terminated|was killed|no result", re.IGNORECASE)
# What acode says to a model about a call that must not be made again: in its context, or instead of a result.
TOLD = re.compile(r"acode: (?:this exact call|.*?Do not run it again)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCall:
    """One thing that the model wants done: a command, or a file with these contents."""

    kind: Literal["command", "write"]
    text: str  # the command, or the contents
    path: str = ""

    def is_asked_in(self, arguments: str) -> bool:
        """The arguments stand one on a line; a command must be one of them, not a part of one. A patch names its file
        at the end of a line."""
        if self.kind == "write":
            return any(line.endswith(self.path) for line in arguments.splitlines())
        return f"\n{self.text}\n" in f"\n{arguments}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One entry of a conversation, whatever the API: a text, a call or the result of one."""

    kind: Literal["text", "call", "result"]
    role: str = ""
    call_id: str = ""
    text: str = ""  # a call: its arguments as they were sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Wants these calls, one after the other; `trusting`: any result at all ends a call.

    `asked_for`: does what the person asks instead, the command that this pattern finds in the last prompt.
    """

    calls: tuple[WantedCall, ...] = ()
    trusting: bool = False
    asked_for: re.Pattern[str] | None = None

    def next_call(self, conversation: Sequence[Said]) -> WantedCall | None:
        calls = self.calls if self.asked_for is None else tuple(self._prompted(conversation))
        return next((call for call in calls if not self.has_ended(call, conversation)), None)

    def _prompted(self, conversation: Sequence[Said]) -> Iterator[WantedCall]:
        assert self.asked_for is not None
        prompts = [said.text for said in conversation if said.kind == "text" and said.role == "user"]
        found = [match.group() for text in prompts for match in self.asked_for.finditer(text)]
        if found:
            yield WantedCall(kind="command", text=found[-1])

    def has_ended(self, call: WantedCall, conversation: Sequence[Said]) -> bool:
        ids = {said.call_id for said in conversation if said.kind == "call" and call.is_asked_in(said.text)}
        results = [said.text for said in conversation if said.kind == "result" and said.call_id in ids]
        if any(self.trusting or not INTERRUPTED.search(text) for text in results):
            return True
        return any(is_told(said.text) for said in conversation if said.kind != "call")


def is_told(text: str) -> bool:
    """Somebody has said that the call must not be made again. A model of one call need not ask which."""
    return TOLD.search(text) is not None


# Conversations as the four APIs send them.


def conversation_of(api: str, asked: dict[str, Any]) -> list[Said]:
    readers = {"anthropic": _anthropic, "responses": _responses, "chat": _chat, "gemini": _gemini}
    return list(readers[api](asked))


def _anthropic(asked: dict[str, Any]) -> Iterator[Said]:
    for message in asked.get("messages", []):
        content = message["content"]
        for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if part.get("type") == "text":
                yield Said(kind="text", role=message["role"], text=part["text"])
            elif part.get("type") == "tool_use":
                yield Said(kind="call", call_id=part["id"], text=_arguments(part["input"]))
            elif part.get("type") == "tool_result":
                yield Said(kind="result", call_id=part["tool_use_id"], text=text_of(part.get("content")))


def _responses(asked: dict[str, Any]) -> Iterator[Said]:
    for item in asked.get("input", []):
        kind = item.get("type", "message")
        if kind == "message":
            yield Said(kind="text", role=item.get("role", ""), text=text_of(item.get("content")))
        elif kind.endswith("_output"):
            yield Said(kind="result", call_id=item["call_id"], text=text_of(item.get("output")))
        elif kind.endswith("_call"):
            arguments = item.get("arguments", item.get("input", item.get("action")))
            yield Said(kind="call", call_id=item["call_id"], text=_arguments(arguments))


def _chat(asked: dict[str, Any]) -> Iterator[Said]:
    for message in asked.get("messages", []):
        if message["role"] == "tool":
            yield Said(kind="result", call_id=message["tool_call_id"], text=text_of(message.get("content")))
            continue
        yield Said(kind="text", role=message["role"], text=text_of(message.get("content")))
        for call in message.get("tool_calls") or []:
            yield Said(kind="call", call_id=call["id"], text=_arguments(call["function"]["arguments"]))


def _gemini(asked: dict[str, Any]) -> Iterator[Said]:
    for message in asked.get("contents", []):
        for part in message.get("parts", []):
            if "functionCall" in part:
                call = part["functionCall"]
                yield Said(kind="call", call_id=call.get("id") or call["name"], text=_arguments(call.get("args")))
            elif "functionResponse" in part:
                answer = part["functionResponse"]
                text = text_of(answer.get("response"))
                yield Said(kind="result", call_id=answer.get("id") or answer["name"], text=text)
            elif "text" in part:
                yield Said(kind="text", role=message.get("role", ""), text=part["text"])


def _arguments(given: Any) -> str:
    """All values, as they were meant: a command with quotes must be found in them."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return given
    values = given.values() if isinstance(given, dict) else [given]
    return "\n".join(value if isinstance(value, str) else json.dumps(value) for value in values)


def text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(text_of(part) for part in content)
    if isinstance(content, dict):
        known = next((content[name] for name in ("text", "output", "content", "error") if name in content), None)
        return json.dumps(content) if known is None else text_of(known)
    return "" if content is None else str(content)

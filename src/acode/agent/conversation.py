"""The conversation of one task, and its shortening; pure. The same answers give the same conversation."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from acode.agent.messages import Ask, Call, Message, Reply, Tool
from acode.events.definition import Plan, Task

CHARACTERS_PER_TOKEN = 4
FULL_SHARE = 0.75  # of the context: beyond it the conversation is replaced by a summary before the next request
TOOL_CHARACTERS_IN_RECORD = 600
SUMMARIES_CHARACTERS_MAX = 20_000
SHORTEN = "Write the summary now."


class TaskConversation:
    """The messages of one task so far."""

    def __init__(self, instructions: str, opening: str) -> None:
        self.instructions = instructions
        self.opening = Message(role="user", text=opening)
        self.messages = [self.opening]
        self.tokens = 0  # of the last request and its answer, as the endpoint counted

    def asking(self, tools: tuple[Tool, ...] = (), answer: dict[str, Any] | None = None) -> Ask:
        return Ask(instructions=self.instructions, messages=tuple(self.messages), tools=tools, answer=answer)

    def add_reply(self, reply: Reply) -> None:
        self.messages.append(Message(role="assistant", text=reply.text, calls=reply.calls))
        self.tokens = reply.input_tokens + reply.output_tokens

    def add_answer(self, call: Call, text: str) -> None:
        self.messages.append(Message(role="tool", text=text, call_id=call.id, tool=call.tool))

    def add_text(self, text: str) -> None:
        self.messages.append(Message(role="user", text=text))

    def full(self, context_tokens: int) -> bool:
        """Whether the next request would come near the model's context limit."""
        return self.estimate() > context_tokens * FULL_SHARE and len(self.messages) > 1

    def estimate(self) -> int:
        """By the endpoint's last count and what was said since; by the characters where it counts nothing."""
        if not self.tokens:
            return characters(self.messages) // CHARACTERS_PER_TOKEN
        last = max(at for at, message in enumerate(self.messages) if message.role == "assistant")
        return self.tokens + characters(self.messages[last + 1 :]) // CHARACTERS_PER_TOKEN

    # Shortening.

    def to_shorten(self, instructions: str, context_tokens: int) -> Ask:
        """The request for a summary; the record in it is cut until it fits, the newest part is kept."""
        room = int(context_tokens * CHARACTERS_PER_TOKEN * FULL_SHARE / 2)
        lines = [in_record(message) for message in self.messages]
        record = "\n\n".join(lines)
        if len(record) > room:
            record = f"{lines[0][: room // 4]}\n\n[… left out …]\n\n{record[-room * 3 // 4 :]}"
        text = f"[record]\n{record}\n[end of record]\n\n{SHORTEN}"
        return Ask(instructions=instructions, messages=(Message(role="user", text=text),))

    def shortened(self, summary: str) -> None:
        self.messages = [
            self.opening,
            Message(role="user", text=f"You have worked on this already. What you noted down:\n\n{summary}\n\nGo on."),
        ]
        self.tokens = 0


def characters(messages: list[Message]) -> int:
    return sum(len(one.text) + sum(len(call.arguments) for call in one.calls) for one in messages)


def in_record(message: Message) -> str:
    match message.role:
        case "user":
            return f"Person: {message.text}"
        case "assistant":
            calls = "".join(f"\n→ {call.tool} {call.arguments[:TOOL_CHARACTERS_IN_RECORD]}" for call in message.calls)
            return f"You: {message.text}{calls}"
        case "tool":
            return f"{message.tool} answered: {message.text[:TOOL_CHARACTERS_IN_RECORD]}"


def opening_of(plan: Plan, task: Task, goal: str, summaries: list[tuple[str, str]]) -> str:
    """The first message of a task: the goal, the finished tasks, and this task."""
    steps = "".join(f"\n- {msgspec.to_builtins(step.action).get('text', '')}" for step in task.steps)
    done = "".join(f"\n\n{title}: {summary}" for title, summary in summaries)
    if len(done) > SUMMARIES_CHARACTERS_MAX:
        done = "\n\n[…]" + done[-SUMMARIES_CHARACTERS_MAX:]
    before = f"\n\nDone so far:{done}" if summaries else ""
    return f"The whole work: {goal}\n\nThe plan: {plan.title}{before}\n\nYour task now: {task.title}{steps}"


def signature(call: Call) -> str:
    """The identity of a call: the tool and its arguments, however they are spaced and ordered."""
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        arguments = call.arguments
    return f"{call.tool} {arguments}"

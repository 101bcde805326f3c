"""The conversation of an agent's session: each request to the model with its answer, its calls and its tokens.

Read from the verified log, from the end on; a long conversation is shown in pieces. Values are shown as they were
stored: nothing of them is imported or built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from acode.events import Envelope
from acode.events import types as ev
from acode.state import Session
from acode.text.durations import count, took
from acode.ui.html import Html, el, join
from acode.ui.views import Words, facts_list

TURN_LINES_MAX = 60
CALL_CHARS_MAX = 600
TAG = "$"  # stands in a stored value before the name of its type


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was answered."""

    seq: int
    step: str
    asked: str
    text: str
    calls: tuple[tuple[str, str], ...]  # tool and arguments
    input_tokens: int
    output_tokens: int
    usd: float | None
    model: str
    duration_ms: int
    shortened: bool = False  # before it the conversation was replaced by a summary


def turns_of(session: Session, envelopes: Iterable[Envelope]) -> list[Turn]:
    asked: dict[str, str] = {}
    found = []
    shortened = session.conversation.compacted if session.conversation is not None else ()
    for envelope in envelopes:
        event = envelope.event
        if isinstance(event, ev.StepStarted) and event.kind == "model":
            asked[event.step] = event.shown
        if isinstance(event, ev.StepCompleted) and event.spent is not None:
            found.append(_turn(envelope.seq, event, event.spent, asked.get(event.step, ""), event.step in shortened))
    return found


def _turn(seq: int, event: ev.StepCompleted, spent: ev.Spent, asked: str, shortened: bool) -> Turn:
    stored = event.result if isinstance(event.result, dict) else {}
    reply = plain(stored.get("v"))
    reply = reply if isinstance(reply, dict) else {}
    calls = reply.get("calls", ())
    return Turn(
        seq=seq,
        step=event.step,
        asked=asked,
        text=str(reply.get("text", "")) if "blob" not in stored else "The answer is kept outside the log: it is long.",
        calls=tuple(
            (str(one.get("tool", "")), str(one.get("arguments", ""))) for one in calls if isinstance(one, dict)
        ),
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        usd=spent.usd,
        model=str(reply.get("model", "")),
        duration_ms=event.duration_ms,
        shortened=shortened,
    )


def plain(stored: Any) -> Any:
    """A stored value without the names of its types."""
    if isinstance(stored, list):
        return [plain(one) for one in stored]
    if not isinstance(stored, dict):
        return stored
    if TAG in stored:
        return plain(stored.get("v"))
    return {key: plain(value) for key, value in stored.items()}


# As HTML.


def conversation_body(session: Session, turns: Sequence[Turn], words: Words, *, earlier: str = "") -> Html:
    return join(
        el("h1", "Conversation"),
        el("p", words.line(session.title)),
        totals(session),
        el("p", el("a", "Earlier requests", href=earlier)) if earlier else None,
        el("ol", [turn_item(one, words) for one in turns], class_="turns")
        if turns
        else el("p", "No request was answered here."),
    )


def totals(session: Session) -> Html | None:
    talk = session.conversation
    if talk is None:
        return None
    return facts_list(
        (
            ("Requests", f"{talk.requests:,}"),
            ("Tokens read", f"{talk.input_tokens:,}"),
            ("Tokens written", f"{talk.output_tokens:,}"),
            ("Price", f"${talk.usd:,.4f}" if talk.usd else None),
            ("Shortened", count(len(talk.compacted), "time") if talk.compacted else None),
        )
    )


def turn_item(one: Turn, words: Words) -> Html:
    price = f", ${one.usd:,.4f}" if one.usd else ""
    spent = f"{one.input_tokens:,} tokens read, {one.output_tokens:,} written{price}, {took(one.duration_ms)}"
    return el(
        "li",
        el("p", "The conversation was replaced by a summary here.", class_="notice") if one.shortened else None,
        el("h2", el("code", one.step), " ", el("span", words.line(one.model, 80), class_="evidence")),
        said("Asked", one.asked, words),
        said("Answered", one.text, words),
        [said_call(tool, arguments, words) for tool, arguments in one.calls],
        el("p", f"#{one.seq} · {spent}", class_="evidence"),
    )


def said(who: str, text: str, words: Words) -> Html | None:
    if not text:
        return None
    shown = el("pre", words.block(text, TURN_LINES_MAX), class_="output", tabindex=0, role="group", aria_label=who)
    return join(el("h3", who), shown)


def said_call(tool: str, arguments: str, words: Words) -> Html:
    return el("p", "→ ", el("strong", words.line(tool, 80)), " ", el("code", words.line(arguments, CALL_CHARS_MAX)))

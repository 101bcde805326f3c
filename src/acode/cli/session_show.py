"""acode session show and history: look into one session without touching it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from acode.cli import status
from acode.cli.candidates import all_sessions
from acode.cli.durations import SPAN_EXAMPLES, ago, count, shortened, span, stamp
from acode.cli.flags import Command, Flags
from acode.cli.progress import model_of
from acode.cli.screen import Screen, as_json, one_line
from acode.cli.session_picker import to_look_into
from acode.cli.world import build_world
from acode.engine.preview import Preview, history, preview
from acode.engine.world import Options, World
from acode.errors import Usage
from acode.events import Envelope
from acode.events.definition import describe, execution_order
from acode.events.types import SessionCreated, Unknown
from acode.state import NESTED, Conversation, Session

DETAIL_CHARACTERS_MAX = 200

ID = click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)


# Show.


@click.command(cls=Command, name="show")
@ID
@click.pass_obj
def show(flags: Flags, *, session: str | None) -> int:
    """Everything about one session: where it came from, its plan, and each step's state."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    found = preview(
        world, to_look_into(world, screen, session), Options(actor="system"), probes=False, environment=False
    )
    if flags.json:
        screen.document(
            {
                **status.as_json(found),
                "origin": origin(found.session),
                "tasks": tasks(world, found.session),
                **conversation(found.session),
            }
        )
        return 0
    for line in (*status.lines(world, screen, found), "", *shown_origin(world, found), *shown_steps(world, found)):
        screen.data(line)
    return 0


def origin(session: Session) -> dict[str, Any]:
    """Where the session came from; the plan itself is told step by step."""
    if session.created is None:
        return {}
    plain: dict[str, Any] = {
        name: msgspec.to_builtins(getattr(session.created, name))
        for name in session.created.__struct_fields__
        if name not in ("plan", "title", "task")
    }
    return plain


def conversation(session: Session) -> dict[str, Any]:
    """What the model of an agent's session was asked, counted."""
    return (
        {"conversation": msgspec.to_builtins(session.conversation or Conversation())}
        if session.steps_from.follows_model
        else {}
    )


def tasks(world: World, session: Session) -> list[dict[str, Any]]:
    order = execution_order(session.plan) if session.plan is not None else ()
    return [
        {
            "id": task.id,
            "title": world.redactor.text(task.title),
            "needs": list(task.needs),
            "steps": [
                {
                    "id": step.id,
                    "kind": step.kind,
                    "title": world.redactor.text(describe(step)),
                    "status": step_status(session, step.id),
                    "attempt": attempt(session, step.id),
                }
                for step in task.steps
            ],
        }
        for task in order
    ]


def step_status(session: Session, step: str) -> str:
    if session.steps_from.follows_model:
        step = step.partition(NESTED)[0]  # a model does the steps of a task together
    if step in session.in_flight:
        return "in_flight"
    record = session.record(step)
    return record.status if record else "pending"


def attempt(session: Session, step: str) -> int:
    if step in session.in_flight:
        return session.in_flight[step].started.attempt
    record = session.record(step)
    return record.attempt if record else 0


def shown_origin(world: World, found: Preview) -> Iterable[str]:
    session = found.session
    yield f"Id: {session.session_id}"
    yield f"Created: {stamp(session.created_at)} ({ago(session.created_at, world.clock())})"
    created = session.created
    if created is not None:
        if created.plan_path:
            yield f"Plan file: {one_line(created.plan_path)}"
        if created.git_head:
            yield f"Git: {created.git_branch} at {created.git_head[:12]}"
        yield f"Owner: {created.owner.user} on {created.owner.host}, acode {created.acode_version}"
    yield f"Events: {session.seq}; resumed {count(session.resumes, 'time')}"
    if session.conversation is not None:
        talk = session.conversation
        cost = f", {talk.usd:.4f} USD" if talk.usd else ""
        yield (
            f"Model: {model_of(session)}; {count(talk.requests, 'request')}, {talk.input_tokens} tokens read,"
            f" {talk.output_tokens} written{cost}"
        )


SIGNS = {"completed": "✓", "failed": "✗", "in_flight": "●", "pending": " "}


def shown_steps(world: World, found: Preview) -> Iterable[str]:
    for number, task in enumerate(tasks(world, found.session), 1):
        yield ""
        yield f"Task {number}: {one_line(task['title'])}"
        for step in task["steps"]:
            again = f" (attempt {step['attempt']})" if step["attempt"] > 1 else ""
            state = step["status"].replace("_", " ")
            yield f"  {SIGNS[step['status']]} {step['id']}: {shortened(one_line(step['title']))} - {state}{again}"


# History.


@click.command(cls=Command, name="history")
@ID
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the latest N events.")
@click.option("--since", metavar="TIME", help="Only events from TIME on: RFC 3339, or 30m, 2h, 7d ago.")
@click.pass_obj
def events(flags: Flags, *, session: str | None, limit: int | None, since: str | None) -> int:
    """The recorded events of a session, the oldest first; each is verified before it is shown."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    start = moment(since, world.clock()) if since else None
    found = (one for one in history(world, to_look_into(world, screen, session)) if start is None or one[0].at >= start)
    chosen: Iterable[tuple[Envelope, bytes]] = deque(found, maxlen=limit) if limit else found
    if flags.json:
        print_array(screen, (event_json(envelope, mac) for envelope, mac in chosen))
        return 0
    for envelope, _ in chosen:
        screen.data(event_line(envelope))
    return 0


def moment(text: str, now: datetime) -> datetime:
    if (ago_s := span(text)) is not None:
        return now - ago_s
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Usage(
            f"--since {text}: expected a time such as 2026-03-01T12:00:00Z, or a span such as {SPAN_EXAMPLES}"
        ) from error
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def print_array(screen: Screen, items: Iterator[dict[str, Any]]) -> None:
    """One document, written as it is read: a log of a million events is never held in memory."""
    lead = "["
    for item in items:
        screen.json_text(lead + as_json(item))
        lead = ","
    screen.data("]" if lead == "," else "[]")


def event_json(envelope: Envelope, mac: bytes) -> dict[str, Any]:
    event = envelope.event
    is_creation = isinstance(event, SessionCreated)  # its `task` is the task in words, not one of the plan
    left_out = ("type", "step") if is_creation else ("type", "step", "task")
    plain = {} if isinstance(event, Unknown) else msgspec.to_builtins(event)
    return {
        "seq": envelope.seq,
        "event_id": envelope.event_id,
        "at": stamp(envelope.at),
        "type": envelope.type,
        "actor": envelope.actor,
        "task": None if is_creation else getattr(event, "task", None) or task_of(event),
        "step": getattr(event, "step", None),
        "data": {name: value for name, value in plain.items() if name not in left_out},
        "hash": mac.hex(),
    }


def task_of(event: object) -> str | None:
    step = getattr(event, "step", None)
    return step.partition(".")[0] if step else None


def event_line(envelope: Envelope) -> str:
    plain = event_json(envelope, b"")
    data = {name: value for name, value in plain["data"].items() if name in TOLD}
    detail = " ".join(f"{name}={value if isinstance(value, str) else as_json(value)}" for name, value in data.items())
    detail = one_line(detail)
    if len(detail) > DETAIL_CHARACTERS_MAX:
        detail = f"{detail[:DETAIL_CHARACTERS_MAX]}…"
    step = plain["step"] or plain["task"] or ""
    return f"{envelope.seq:>5}  {envelope.at:%Y-%m-%d %H:%M:%S}Z  {envelope.type:<26} {step:<22} {detail}".rstrip()


# What tells a person most; the rest is in the JSON.
TOLD = (
    *("title", "reason", "message", "attempt", "kind", "outcome", "evidence", "note", "duration_ms", "exit_status"),
    *("settled", "question", "reason_code", "eligible", "scenario", "remaining_steps", "label", "what", "signal"),
)

"""acode session show and history: look into one session without touching it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click
import msgspec

from acode.cli import status
from acode.cli.candidates import all_sessions
from acode.cli.flags import Command, Flags
from acode.cli.progress import model_of
from acode.cli.screen import Screen, as_json
from acode.cli.session_picker import to_look_into
from acode.cli.world import build_world
from acode.engine.preview import LISTED_MAX, Preview, history, preview
from acode.engine.step_times import StepTimes, step_times
from acode.engine.workspace_store import share_store
from acode.engine.world import Options, World
from acode.errors import Usage
from acode.events import Envelope
from acode.events.definition import describe, execution_order
from acode.events.types import SessionCreated, Unknown
from acode.state import NESTED, Conversation, Session
from acode.text import one_line
from acode.text.durations import SPAN_EXAMPLES, ago, count, shortened, span, stamp, took

DETAIL_CHARACTERS_MAX = 200
SHOWN_MAX = 50  # steps of a program, for people

Times = Mapping[str, StepTimes]

ID = click.argument("session", metavar="[ID]", required=False, shell_complete=all_sessions)


# Show.


@click.command(cls=Command, name="show")
@ID
@click.pass_obj
def show(flags: Flags, *, session: str | None) -> int:
    """Everything about one session: where it came from, its plan, and each step's state."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    with share_store(world, look_only=True) as looking:
        name = to_look_into(looking, screen, session)
        found = preview(looking, name, Options(actor="system"), probes=False, environment=False)
        times = step_times(envelope for envelope, _ in history(looking, found.session.session_id))
    if flags.json:
        screen.document(
            {
                **status.as_json(found),
                "origin": origin(found.session),
                "tasks": tasks(world, found.session, times),
                **steps_of_program(world, found.session, times),
                **conversation(found.session),
            }
        )
        return 0
    about = (*status.lines(world, screen, found), "", *shown_origin(world, found))
    for line in (*about, *shown_steps(world, found.session, times), *shown_program(world, found.session, times)):
        screen.data(line)
    return 0


def origin(session: Session) -> dict[str, Any]:
    """The origin of the session; the plan itself is shown step by step."""
    if session.created is None:
        return {}
    plain: dict[str, Any] = {
        name: msgspec.to_builtins(getattr(session.created, name))
        for name in session.created.__struct_fields__
        if name not in ("plan", "title", "task")
    }
    return plain


def conversation(session: Session) -> dict[str, Any]:
    """The number of requests to the model of an agent's session."""
    return (
        {"conversation": msgspec.to_builtins(session.conversation or Conversation())}
        if session.steps_from.follows_model
        else {}
    )


def tasks(world: World, session: Session, times: Times) -> list[dict[str, Any]]:
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
                    **times_json(times.get(step.id)),
                }
                for step in task.steps
            ],
        }
        for task in order
    ]


def times_json(one: StepTimes | None) -> dict[str, Any]:
    return {
        "started_at": stamp(one.started_at) if one is not None and one.started_at is not None else None,
        "ended_at": stamp(one.ended_at) if one is not None and one.ended_at is not None else None,
        "duration_ms": one.duration_ms if one is not None else None,
    }


def steps_of_program(world: World, session: Session, times: Times) -> dict[str, Any]:
    """The steps that a program or an agent asked for: no plan lists them, so the log does."""
    if not session.steps_from.asked:
        return {}
    latest = list(times.values())[-LISTED_MAX:]
    steps = [
        {
            "id": one.step,
            "kind": one.kind,
            "title": world.redactor.text(one.title),
            "status": one.status,
            "attempt": one.attempt,
            **times_json(one),
        }
        for one in latest
    ]
    return {"steps": steps, "steps_listed_of": len(times)}


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


def shown_steps(world: World, session: Session, times: Times) -> Iterable[str]:
    for number, task in enumerate(tasks(world, session, times), 1):
        yield ""
        yield f"Task {number}: {one_line(task['title'])}"
        for step in task["steps"]:
            again = f" (attempt {step['attempt']})" if step["attempt"] > 1 else ""
            state = step["status"].replace("_", " ")
            title = shortened(one_line(step["title"]))
            when = when_it_ran(times.get(step["id"]))
            yield f"  {SIGNS[step['status']]} {step['id']}: {title} - {state}{again}{when}"


def shown_program(world: World, session: Session, times: Times) -> Iterable[str]:
    """The latest steps of a program; a plan's stand under their tasks."""
    if not session.steps_from.asked or not times:
        return
    latest = list(times.values())[-SHOWN_MAX:]
    hidden = len(times) - len(latest)
    yield ""
    yield f"Steps: {f'the latest {len(latest)} of {len(times)}' if hidden else len(times)}"
    for one in latest:
        title = f": {shortened(one_line(world.redactor.text(one.title)))}" if one.title else ""
        again = f" (attempt {one.attempt})" if one.attempt > 1 else ""
        state = one.status.replace("_", " ")
        yield f"  {SIGNS[one.status]} {one_line(one.step)}{title} - {state}{again}{when_it_ran(one)}"


def when_it_ran(one: StepTimes | None) -> str:
    """Beginning and duration; of a gate the answer."""
    if one is None:
        return ""
    at = one.started_at or one.ended_at
    spent = f", {took(one.duration_ms)}" if one.duration_ms is not None and one.kind != "approve" else ""
    return f", {at:%Y-%m-%d %H:%M:%S}Z{spent}" if at is not None else ""


# History.


@click.command(cls=Command, name="history")
@ID
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Only the latest N events; with --after the next N."
)
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Only events behind this number.")
@click.option("--since", metavar="TIME", help="Only events from TIME on: RFC 3339, or 30m, 2h, 7d ago.")
@click.pass_obj
def events(flags: Flags, *, session: str | None, limit: int | None, after: int | None, since: str | None) -> int:
    """The recorded events of a session, the oldest first; each is verified before it is shown."""
    world = build_world(flags)
    screen = Screen(flags, world.env)
    start = moment(since, world.clock()) if since else None
    read = history(world, to_look_into(world, screen, session), after=after or 0)
    found = (one for one in read if start is None or one[0].at >= start)
    chosen: Iterable[tuple[Envelope, bytes]] = found
    if limit is not None:
        chosen = deque(found, maxlen=limit) if after is None else islice(found, limit)
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
    is_creation = isinstance(event, SessionCreated)  # its `task` is the task's text, not one of the plan
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


# The most useful fields for a person; the rest is in the JSON.
TOLD = (
    *("title", "reason", "message", "attempt", "kind", "outcome", "evidence", "note", "duration_ms", "exit_status"),
    *("settled", "question", "reason_code", "eligible", "scenario", "remaining_steps", "label", "what", "signal"),
    *("kept", "replaced", "added", "removed", "reopened", "previous_digest", "plan_digest"),
)

"""acode fleet: what the fleet does, and what a person does to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from acode.cli.flags import Command, Flags, Group, reason_option
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine import session_commands
from acode.engine.world import World, short
from acode.errors import NotInFleet
from acode.fleet import answers
from acode.fleet.overview import needs_of, overview, state_of_worker, way_of, workers_seen
from acode.fleet.server import FleetServer, Member, opened_fleet
from acode.fleet.timetable import remove_entry
from acode.state import Session
from acode.text import one_line
from acode.text.durations import ago_short, count

COMMANDS = {
    "status": ("fleet:status", "Open sessions of the fleet, and how many there are of each state."),
    "workers": ("fleet:workers", "The workers, what they serve, and when they were last heard of."),
    "parked": ("fleet:parked", "Sessions that need a person, and what they need."),
    "pause": ("fleet:pause_queue", "Take no more sessions from a queue."),
    "resume": ("fleet:resume_queue", "Take sessions from a queue again."),
    "drain": ("fleet:drain", "Ask a worker to hand its sessions back and end."),
    "retry": ("fleet:retry_session", "Try a parked session again."),
    "cancel": ("fleet:cancel_session", "End a session of the fleet."),
}
command = Group("fleet", table=COMMANDS, help="What the fleet does: sessions, workers, those that need a person.")
ID = click.argument("session", metavar="ID")
LIMIT = click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Rows at the most.")


def row_of(member: Member) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(member)
    for name in ("job", "deaths", "source"):
        plain.pop(name)
    source = str(member.source.get("kind", "none"))
    return {
        "session_id": member.session_id,
        "short_id": short(member.session_id),
        **plain,
        "source": source,
        "attention": "parked" if member.state == "parked" else None,
    }


def show_members(screen: Screen, server: FleetServer, members: list[Member]) -> None:
    now = server.clock()
    titles = {one.session_id: one for one in server.ledger.sessions([one.session_id for one in members])}
    cells = []
    for one in members:
        shared = titles[one.session_id]
        due = f", due {stamp(one.due_at)}" if one.due_at is not None and one.due_at > now else ""
        needs = needs_of(one)
        cells.append(
            (
                short(one.session_id),
                one.state + due,
                f"{shared.steps_done}/{shared.steps_total}",
                one.queue,
                ago_short(one.changed_at, now),
                f"{shared.title}: {needs}" if needs else shared.title,
            )
        )
    show_table(screen, ("ID", "STATE", "STEPS", "QUEUE", "SINCE", "TASK"), cells)


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def begin(flags: Flags) -> tuple[World, Screen]:
    world = build_world(flags, wants_trust=True)
    return world, Screen(flags, world.env)


@click.command(cls=Command, name="status")
@LIMIT
@click.pass_obj
def status(flags: Flags, *, limit: int) -> int:
    """Open sessions of the fleet, the last changed first, and how many there are of each state."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        seen = overview(server, limit)
        if flags.json:
            rows, times = [row_of(one) for one in seen.members], msgspec.to_builtins(seen.timetable)
            screen.document(
                {"counts": seen.counts, "paused_queues": seen.paused_queues, "sessions": rows, "timetable": times}
            )
            return 0
        screen.data(", ".join(f"{number:,} {state}" for state, number in seen.counts.items()))
        if seen.paused_queues:
            screen.data(f"Paused queues: {', '.join(seen.paused_queues)}")
        if seen.members:
            show_members(screen, server, seen.members)
        for one in seen.timetable:
            screen.data(
                one_line(f"{short(one.schedule_id)} by {one.cron}, next {stamp(one.next_at)}, {one.queue}: {one.title}")
            )
    return 0


@click.command(cls=Command, name="parked")
@LIMIT
@click.pass_obj
def parked(flags: Flags, *, limit: int) -> int:
    """Sessions that need a person, and what they need."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        members = server.members(["parked"], limit)
        if flags.json:
            screen.document([row_of(one) for one in members])
            return 0
        if not members:
            screen.line("No session needs a person.")
            return 0
        show_members(screen, server, members)
    for one in members:
        screen.line(f"{short(one.session_id)}: {one_line(way_of(one).as_command())}")
    return 0


@click.command(cls=Command, name="workers")
@click.pass_obj
def workers(flags: Flags) -> int:
    """The workers, what they serve, and when they were last heard of."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        found, now = workers_seen(server), server.clock()
    if flags.json:
        screen.document(
            [
                {**one, "started_at": one["started_at"].isoformat(), "seen_at": one["seen_at"].isoformat()}
                for one in found
            ]
        )
        return 0
    if not found:
        screen.line("No worker is known. Start one: acode worker")
        return 0
    cells = [
        (
            one["name"],
            state_of_worker(one),
            f"{one['running']}/{one['slots']}",
            ",".join(one["queues"]),
            ",".join(one["labels"]) or "-",
            ago_short(one["seen_at"], now),
            one["host"],
        )
        for one in found
    ]
    show_table(screen, ("NAME", "STATE", "SLOTS", "QUEUES", "LABELS", "SEEN", "HOST"), cells)
    return 0


@click.command(cls=Command, name="pause")
@click.argument("queue", metavar="QUEUE")
@click.pass_obj
def pause_queue(flags: Flags, *, queue: str) -> int:
    """Take no more sessions from a queue; those that run continue."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        server.pause_queue(queue)
    return said(screen, f"Queue {queue} is paused.", queue=queue, paused=True)


@click.command(cls=Command, name="resume")
@click.argument("queue", metavar="QUEUE")
@click.pass_obj
def resume_queue(flags: Flags, *, queue: str) -> int:
    """Take sessions from a queue again."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        was = server.resume_queue(queue)
    sentence = f"Queue {queue} is served again." if was else f"Queue {queue} was not paused."
    return said(screen, sentence, queue=queue, paused=False)


@click.command(cls=Command, name="drain")
@click.argument("worker", metavar="WORKER")
@click.pass_obj
def drain(flags: Flags, *, worker: str) -> int:
    """Ask a worker, by its name or number, to hand its sessions back and end."""
    world, screen = begin(flags)
    with opened_fleet(world) as server:
        asked = server.drain(worker)
    if not asked:
        raise NotInFleet(f"there is no worker {worker}", hint="See: acode fleet workers")
    return said(screen, f"{count(asked, 'worker')} named {worker} will hand back and end.", worker=worker, asked=asked)


@click.command(cls=Command, name="retry")
@ID
@click.option("--force", is_flag=True, help="Past limit, changed files and a restored server, once; audited.")
@reason_option()
@click.pass_obj
def retry_session(flags: Flags, *, session: str, force: bool, reason: str) -> int:
    """Try a parked session again: your decision, recorded with the attempt."""
    world, screen = begin(flags)
    given = world.redactor.text(reason) or "none given"
    member = answers.retry(world, session, force=given if force else None)
    name = short(member.session_id)
    return said(screen, f"Session {name} is queued again.", session_id=member.session_id, short_id=name, queued=True)


@click.command(cls=Command, name="cancel")
@ID
@reason_option()
@click.pass_obj
def cancel_session(flags: Flags, *, session: str, reason: str) -> int:
    """End a session of the fleet, or a plan that is submitted by a cron expression. What it did stays."""
    world, screen = begin(flags)
    if (entry := remove_entry(world, session)) is not None:
        sentence = f"“{entry.title}” is not submitted any more; sessions that it made continue."
        return said(screen, sentence, schedule_id=entry.schedule_id, ended=True)
    words = world.redactor.text(reason)

    def end(there: World, name: str) -> Session:
        return session_commands.end(there, name, cancelled=True, reason=words)

    member, ended = answers.cancel(world, session, words, end)
    name = short(member.session_id)
    sentence = f"Session {name} is CANCELLED." if ended is not None else f"The worker of session {name} will end it."
    return said(screen, sentence, session_id=member.session_id, short_id=name, ended=ended is not None)


def said(screen: Screen, sentence: str, **document: Any) -> int:
    if screen.flags.json:
        screen.document(document)
    else:
        screen.data(one_line(sentence))
    return 0

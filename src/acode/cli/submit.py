"""acode submit: hand a plan to the fleet."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click
import msgspec

from acode.cli.candidates import plan_files
from acode.cli.flags import Command, Flags
from acode.cli.plan_argument import read_plan
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.engine.world import World, short
from acode.errors import Usage
from acode.text import one_line

if TYPE_CHECKING:
    from acode.fleet.submit import Wanted
    from acode.planfile import PlanFile


@click.command(cls=Command, name="submit")
@click.argument("plan", metavar="PLAN", shell_complete=plan_files)
@click.option("--queue", metavar="NAME", help="The queue that workers take it from.")
@click.option("--priority", type=int, metavar="N", help="Higher ones are taken first.")
@click.option("--labels", metavar="L,…", help="Only a worker that has all of these takes it.")
@click.option("--key", metavar="NAME", help="Of sessions with the same key, one runs at a time.")
@click.option("--at", "at", metavar="TIME", help="Not before; for example 2027-01-31T06:00:00+01:00.")
@click.option("--cron", metavar="EXPR", help="Again and again, by minute hour day month weekday, in UTC.")
@click.option("--source", metavar="SOURCE", help="The workspace: git+URL@COMMIT, or a directory to upload.")
@click.option("--yes", is_flag=True, help="Trust the workspace's configuration.")
@click.pass_obj
def command(
    flags: Flags,
    *,
    plan: str,
    queue: str | None,
    priority: int | None,
    labels: str | None,
    key: str | None,
    at: str | None,
    cron: str | None,
    source: str | None,
    yes: bool,
) -> int:
    """Hand a plan to the fleet: some worker runs it, and another continues it when that one dies."""
    given = {
        "fleet.queue": queue,
        "fleet.priority": priority,
        "fleet.labels": labels,
        "fleet.key": key,
        "fleet.source": source,
    }
    world = build_world(flags, yes=yes, wants_trust=True, settings=given)
    screen = Screen(flags, world.env)
    planfile = read_plan(world, plan)
    from acode.fleet.sources import read_source
    from acode.fleet.submit import Wanted, submit

    fleet = world.config.settings.fleet
    wanted = Wanted(
        queue=fleet.queue,
        priority=fleet.priority,
        labels=fleet.labels,
        key=fleet.key,
        source=read_source(fleet.source),
        due_at=time_of(at),
    )
    if cron is not None:
        return submit_by_cron(world, screen, planfile, wanted, cron)
    submitted = submit(world, planfile, wanted)
    name = short(submitted.session_id)
    if flags.json:
        screen.document(
            {
                "session_id": submitted.session_id,
                "short_id": name,
                "title": submitted.title,
                "queue": wanted.queue,
                "priority": wanted.priority,
                "labels": list(wanted.labels),
                "key": wanted.key,
                "due_at": wanted.due_at.isoformat() if wanted.due_at else None,
            }
        )
    else:
        screen.data(one_line(f"Session {name} “{submitted.title}” is queued in {wanted.queue}."))
        screen.line("See how it does: acode fleet status")
    return 0


def submit_by_cron(world: World, screen: Screen, planfile: PlanFile, wanted: Wanted, cron: str) -> int:
    if wanted.due_at is not None:
        raise Usage("--at and --cron exclude each other")
    from acode.fleet.cron import read_cron
    from acode.fleet.timetable import add_entry

    try:
        read_cron(cron)
    except ValueError as error:
        raise Usage(
            f"--cron {cron}: {error}", hint='For example, every day at 6:30 UTC: --cron "30 6 * * *"'
        ) from error
    entry = add_entry(world, planfile, wanted, cron)
    name = short(entry.schedule_id)
    if screen.flags.json:
        screen.document({**msgspec.to_builtins(entry), "short_id": name})
    else:
        screen.data(one_line(f"“{entry.title}” is submitted by {cron}, first at {entry.next_at.isoformat()}."))
        screen.line(f"To end that: acode fleet cancel {name}")
    return 0


def time_of(text: str | None) -> datetime | None:
    """A time with its offset; without one it is this machine's."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise Usage(f"--at {text}: expected a time such as 2027-01-31T06:00:00+01:00") from error

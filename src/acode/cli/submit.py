"""acode submit: hand a plan to the fleet."""

from __future__ import annotations

from datetime import datetime

import click

from acode.cli.candidates import plan_files
from acode.cli.flags import Command, Flags
from acode.cli.plan_argument import read_plan
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.engine.world import short
from acode.errors import Usage
from acode.text import one_line


@click.command(cls=Command, name="submit")
@click.argument("plan", metavar="PLAN", shell_complete=plan_files)
@click.option("--queue", metavar="NAME", help="The queue that workers take it from.")
@click.option("--priority", type=int, metavar="N", help="Higher ones are taken first.")
@click.option("--labels", metavar="L,…", help="Only a worker that has all of these takes it.")
@click.option("--key", metavar="NAME", help="Of sessions with the same key, one runs at a time.")
@click.option("--at", "at", metavar="TIME", help="Not before; for example 2027-01-31T06:00:00+01:00.")
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


def time_of(text: str | None) -> datetime | None:
    """A time with its offset; without one it is this machine's."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise Usage(f"--at {text}: expected a time such as 2027-01-31T06:00:00+01:00") from error

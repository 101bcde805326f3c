"""acode worker: take sessions from the fleet's queue and move them on."""

from __future__ import annotations

from pathlib import Path

import click

from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen
from acode.cli.world import build_world
from acode.config.rules import LABEL
from acode.errors import Usage
from acode.lock import host_name
from acode.text import one_line
from acode.text.durations import count

SLOTS_MAX = 256


@click.command(cls=Command, name="worker")
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Serve this queue; may be given again.")
@click.option("--slots", type=click.IntRange(1, SLOTS_MAX), default=1, show_default=True, help="Sessions at a time.")
@click.option("--labels", metavar="L,…", help="What this machine has; it takes sessions that ask for no more.")
@click.option("--root", metavar="DIR", type=click.Path(file_okay=False), help="Where the workspaces are made.")
@click.option("--name", metavar="NAME", help="Its name in lists; the host's by default.")
@click.pass_obj
def command(
    flags: Flags, *, queues: tuple[str, ...], slots: int, labels: str | None, root: str | None, name: str | None
) -> int:
    """Take sessions from the fleet's queue and move them on, until SIGTERM or `acode fleet drain`; then they are handed
    back, and it ends with 0.
    """
    world = build_world(flags, wants_trust=True, settings={"fleet.labels": labels})
    screen = Screen(flags, world.env)
    fleet = world.config.settings.fleet
    station_name = name or host_name()
    if not LABEL.fullmatch(station_name):
        raise Usage(f"--name {station_name}: expected letters, digits, dots, dashes and underscores")
    for queue in queues:
        if not LABEL.fullmatch(queue):
            raise Usage(f"--queue {queue}: expected letters, digits, dots, dashes and underscores")
    from acode.fleet.worker import Station, Worker

    station = Station(
        name=station_name,
        queues=queues or (fleet.queue,),
        labels=fleet.labels,
        slots=slots,
        root=Path(root) if root is not None else world.state_dir / "fleet" / station_name,
        lease_s=fleet.lease_seconds,
    )
    serves = f"{', '.join(station.queues)} with {count(slots, 'slot')}"
    screen.line(f"Worker {station.name} serves {serves}; workspaces in {station.root}")
    return Worker(world, station, lambda text: screen.line(one_line(text))).work()

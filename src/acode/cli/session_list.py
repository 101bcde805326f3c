"""acode session list: the sessions of this workspace, the most recently active first."""

from __future__ import annotations

import os

import click

from acode.cli import rows as listing
from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine.listing import Row, rows

ENDED_SHOWN_MAX = 20


@click.command(cls=Command, name="list")
@click.option("--resumable", is_flag=True, help="Only sessions that can be resumed.")
@click.option("--all", is_flag=True, help=f"Also ended sessions beyond the latest {ENDED_SHOWN_MAX}.")
@click.pass_obj
def command(flags: Flags, *, resumable: bool, all: bool) -> int:
    """List the sessions of this workspace, the most recently active first."""
    screen = Screen(flags, os.environ)
    world = build_world(flags)
    found = rows(world)
    shown = chosen(found, resumable=resumable, everything=all)
    if flags.json:
        screen.document([listing.as_json(row) for row in shown])
        return 0
    if shown:
        now = world.clock()
        show_table(screen, listing.HEADINGS, [listing.cells(row, now) for row in shown])
    else:
        screen.say("No resumable sessions here." if resumable and found else "No sessions here.")
    if hidden := (0 if resumable else len(found) - len(shown)):
        screen.say(f"{hidden} more ended sessions: acode session list --all")
    return 0


def chosen(found: list[Row], *, resumable: bool, everything: bool) -> list[Row]:
    """A damaged session is never left out: it may be the one that was looked for."""
    if everything and not resumable:
        return found
    ended_left = 0 if resumable else ENDED_SHOWN_MAX
    shown = []
    for row in found:
        if row.session is not None and row.session.terminal:
            ended_left -= 1
            if ended_left < 0:
                continue
        shown.append(row)
    return shown

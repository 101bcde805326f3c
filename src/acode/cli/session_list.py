"""acode session list: the sessions of this workspace, the most recently active first."""

from __future__ import annotations

import click

from acode.cli.flags import Command, Flags
from acode.cli.listing import ENDED_SHOWN_MAX, show_sessions


@click.command(cls=Command, name="list")
@click.option("--resumable", is_flag=True, help="Only sessions that can be resumed.")
@click.option("--all", is_flag=True, help=f"Also ended sessions beyond the latest {ENDED_SHOWN_MAX}.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most N sessions, the latest.")
@click.option("--all-workspaces", is_flag=True, help="The sessions of all workspaces of yours on this machine.")
@click.option("--remote", is_flag=True, help="The sessions that the server holds, of all machines.")
@click.pass_obj
def command(flags: Flags, *, resumable: bool, all: bool, limit: int | None, all_workspaces: bool, remote: bool) -> int:
    """List the sessions of this workspace, the most recently active first."""
    if all_workspaces:
        from acode.cli.all_workspaces import show_everywhere

        return show_everywhere(flags, resumable=resumable, everything=all, limit=limit)
    if remote:
        from acode.cli.pull import show_shared

        return show_shared(flags)
    return show_sessions(flags, resumable=resumable, everything=all, limit=limit)

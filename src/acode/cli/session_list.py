"""acode session list: the sessions of this workspace, the most recently active first."""

from __future__ import annotations

import click

from acode.cli.flags import Command, Flags
from acode.cli.listing import ENDED_SHOWN_MAX, show_sessions


@click.command(cls=Command, name="list")
@click.option("--resumable", is_flag=True, help="Only sessions that can be resumed.")
@click.option("--all", is_flag=True, help=f"Also ended sessions beyond the latest {ENDED_SHOWN_MAX}.")
@click.option("--remote", is_flag=True, help="The sessions that the server holds, of all machines.")
@click.pass_obj
def command(flags: Flags, *, resumable: bool, all: bool, remote: bool) -> int:
    """List the sessions of this workspace, the most recently active first."""
    if remote:
        from acode.cli.pull import show_shared

        return show_shared(flags)
    return show_sessions(flags, resumable=resumable, everything=all)

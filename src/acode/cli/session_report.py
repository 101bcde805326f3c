"""acode session report: one session as one HTML file."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen, is_terminal
from acode.cli.session_maintenance import ID, named, write_bundle
from acode.cli.world import build_world
from acode.engine.world import short
from acode.text import one_line


@click.command(cls=Command, name="report")
@ID
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write to FILE. Default: stdout, on a terminal acode-ID.html.",
)
@click.pass_obj
def command(flags: Flags, *, session: str | None, output: Path | None) -> int:
    """Write the session as one HTML file without script: summary, steps, changed files, decisions, audit.

    It opens offline and needs no server. Outputs and titles are redacted as on the terminal.
    """
    from acode.ui.report import make_report

    world = build_world(flags)
    screen = Screen(flags, world.env)
    made = make_report(world, named(world, screen, session))
    if output is None and is_terminal(sys.stdout):
        output = Path(f"acode-{short(made.session_id)}.html")
    if output is None:
        screen.data(made.html)
        return 0
    size = write_bundle(output, [made.html.encode()])
    if flags.json:
        screen.document({"session_id": made.session_id, "path": str(output), "bytes": size})
    else:
        screen.data(f"{one_line(str(output))}: {size:,} bytes")
    return 0

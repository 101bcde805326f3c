"""The list of sessions, told to a person or a program.

Prompts and status bars call it all the time, so nothing is loaded here that it can do without: no parser, no colours.
"""

from __future__ import annotations

import os

from acode.cli import rows as listing
from acode.cli.early_flags import Flags
from acode.cli.screen import Screen, one_line
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine.session_list import Row, rows
from acode.formats import present

ENDED_SHOWN_MAX = 20
QUICK_FLAGS = {"--json": "json", "--no-input": "no_input", "-q": "quiet", "--quiet": "quiet"}


def without_parser(words: list[str]) -> int | None:
    """`session list` in its plain forms. None: something else is meant, or it went wrong and the parser's way tells."""
    flags = Flags()
    chosen_by = {"--resumable": False, "--all": False}
    left = list(words)
    named = []
    while left:
        word = left.pop(0)
        if word in QUICK_FLAGS:
            setattr(flags, QUICK_FLAGS[word], True)
        elif word in chosen_by:
            chosen_by[word] = True
        elif word == "-C" and left:
            flags.directory = left.pop(0)
        else:
            named.append(word)
    if named != ["session", "list"]:
        return None
    try:
        return show_sessions(flags, resumable=chosen_by["--resumable"], everything=chosen_by["--all"])
    except BrokenPipeError:
        return 0
    except Exception:
        return None  # nothing was changed and little can have been said: the ordinary way says what is wrong


def show_sessions(flags: Flags, *, resumable: bool, everything: bool) -> int:
    screen = Screen(flags, os.environ)
    world = build_world(flags)
    found = rows(world)
    if present(world.workspace):
        from acode.cli import foreign_rows

        ended_max = None if everything else ENDED_SHOWN_MAX
        return foreign_rows.show(world, screen, found, resumable=resumable, ended_max=ended_max)
    shown = chosen(found, resumable=resumable, everything=everything)
    if flags.json:
        screen.document([listing.as_json(row) for row in shown])
        return 0
    if shown:
        now = world.clock()
        show_table(screen, listing.HEADINGS, [listing.cells(row, now) for row in shown])
    else:
        here = f"No sessions here, in {one_line(str(world.workspace))}."
        screen.line("No resumable sessions here." if resumable and found else here)
    if hidden := (0 if resumable else len(found) - len(shown)):
        screen.line(f"{hidden} more ended sessions: acode session list --all")
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

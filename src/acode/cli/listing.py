"""Print the list of sessions for a person or a program. Prompts and status bars call it all the time, so it loads
nothing that it can do without: no parser, no colors.
"""

from __future__ import annotations

import os

from acode.cli import rows as listing
from acode.cli.early_flags import Flags
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.engine.session_list import listed, rows
from acode.formats import present
from acode.text import one_line
from acode.text.durations import count

ENDED_SHOWN_MAX = 20
QUICK_FLAGS = {"--json": "json", "--no-input": "no_input", "-q": "quiet", "--quiet": "quiet"}


def without_parser(words: list[str]) -> int | None:
    """`session list` in its plain forms. None: other arguments, or an error that the parser's way reports."""
    flags = Flags()
    chosen_by = {"--resumable": False, "--all": False}
    limit: int | None = None
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
        elif word == "--limit" and left and left[0].isdecimal() and int(left[0]):
            limit = int(left.pop(0))
        else:
            named.append(word)
    if named != ["session", "list"]:
        return None
    try:
        return show_sessions(flags, resumable=chosen_by["--resumable"], everything=chosen_by["--all"], limit=limit)
    except BrokenPipeError:
        return 0
    except Exception:
        return None  # nothing was changed and little can have been said: the ordinary way says what is wrong


def show_sessions(flags: Flags, *, resumable: bool, everything: bool, limit: int | None = None) -> int:
    """`resumable`: none that has ended; `everything`: all that have; `limit`: no more rows than that."""
    screen = Screen(flags, os.environ)
    world = build_world(flags)
    ended_max = 0 if resumable else None if everything or limit is not None else ENDED_SHOWN_MAX
    if present(world.workspace):
        from acode.cli import foreign_rows

        return foreign_rows.show(world, screen, rows(world), resumable=resumable, ended_max=ended_max, limit=limit)
    found = listed(world, ended_max=ended_max, limit=limit)
    if flags.json:
        screen.document([listing.as_json(row) for row in found.rows])
        return 0
    if found.rows:
        now = world.clock()
        show_table(screen, listing.HEADINGS, [listing.cells(row, now) for row in found.rows])
    else:
        here = f"No sessions here, in {one_line(str(world.workspace))}."
        screen.line("No resumable sessions here." if resumable and found.total else here)
    if found.hidden and not resumable:
        some = count(found.hidden, "more session") if limit is not None else f"{found.hidden} more ended sessions"
        screen.line(f"{some}: acode session list --all")
    return 0

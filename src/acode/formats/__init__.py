"""Find, explain, repair and continue runs that other tools began, by the rules of those tools.

One package per format, and one table of them. They read foreign data: never trusted, never executed, always
bounded. A format is loaded when the workspace has something of it, so that other workspaces do not pay for it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from acode.formats.interface import Format, Located, Run

# Where the runs of each format lie below a workspace, and the module that knows them.
FORMATS = {
    "agent-memory": ((".agent-memory/runs",), "acode.formats.agent_memory.adapter"),
    "arc": ((".claude/arc", ".rune/arc"), "acode.formats.arc.adapter"),
}


def present(root: Path) -> tuple[str, ...]:
    """The formats that this workspace has a place for; a look at a few names, and nothing is loaded."""
    return tuple(source for source, (homes, _) in FORMATS.items() if any(_there(root / home) for home in homes))


def _there(place: Path) -> bool:
    """True also for a place that cannot be examined: its format reports why. `lexists` would call it absent."""
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def format_of(source: str) -> Format:
    import importlib

    return cast("Format", importlib.import_module(FORMATS[source][1]))


def locate(root: Path, source: str | None = None) -> Located:
    """All foreign runs of a workspace, or those of one format; the most recently active first."""
    from acode.formats.interface import Located

    found: list[Run] = []
    warnings: list[str] = []
    unread: list[str] = []
    for name in present(root):
        if source in (None, name):
            located = format_of(name).locate(root)
            found += located.runs
            warnings += located.warnings
            unread += located.unread
    found.sort(key=lambda run: run.updated_at.timestamp() if run.updated_at else 0.0, reverse=True)
    return Located(runs=tuple(found), warnings=tuple(warnings), unread=tuple(unread))

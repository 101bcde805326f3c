"""acode session list --all-workspaces: the sessions that the anchors of this user know, wherever they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from acode import seal
from acode.cli import rows as listing
from acode.cli.early_flags import Flags
from acode.cli.listing import ENDED_SHOWN_MAX
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.cli.world import build_world
from acode.config import load_config
from acode.engine.session_list import Row, listed
from acode.engine.workspace_store import has_database
from acode.engine.world import World, short
from acode.errors import AcodeError
from acode.text import one_line
from acode.text.durations import ago_short, stamp

GONE = "GONE"  # in place of a state: the workspace, or its database, is not where it was


def show_everywhere(flags: Flags, *, resumable: bool, everything: bool, limit: int | None = None) -> int:
    world = build_world(flags)
    screen = Screen(flags, os.environ)
    found: list[tuple[str, Row | seal.Anchor]] = []
    for workspace in seal.anchored_workspaces(world.state_dir):
        there = world_of(world, Path(workspace))
        if there is not None:
            ended_max = 0 if resumable else None if everything else ENDED_SHOWN_MAX
            found += [(workspace, row) for row in listed(there, ended_max=ended_max, limit=limit).rows]
        elif not resumable:
            directory = seal.anchor_directory(world.state_dir, Path(workspace))
            found += [(workspace, anchor) for anchor in seal.all_anchors(directory) if everything or not anchor.ended]
    found.sort(key=lambda one: active_at(one[1]), reverse=True)
    del found[limit or len(found) :]
    if flags.json:
        screen.document([as_json(workspace, one) for workspace, one in found])
    elif found:
        headings = (*listing.HEADINGS, "WORKSPACE")
        show_table(screen, headings, [(*cells(world, one), one_line(workspace)) for workspace, one in found])
    else:
        screen.line("No sessions in any workspace of yours on this machine.")
    return 0


def world_of(world: World, workspace: Path) -> World | None:
    """The world as it is there, with its own settings; None where no session can be looked at."""
    there = msgspec.structs.replace(world, workspace=workspace)
    try:
        if not has_database(there):
            return None
        return msgspec.structs.replace(there, config=load_config(workspace, world.env, {}))
    except (AcodeError, OSError):  # its settings are wrong, which its own commands tell
        return there if os.access(workspace, os.R_OK) else None


def active_at(one: Row | seal.Anchor) -> float:
    if isinstance(one, seal.Anchor):
        return one.at.timestamp()
    return one.session.updated_at.timestamp() if one.session is not None else 0.0


def as_json(workspace: str, one: Row | seal.Anchor) -> dict[str, Any]:
    if not isinstance(one, seal.Anchor):
        return {**listing.as_json(one), "workspace": workspace}
    nothing = dict.fromkeys(listing.FIELDS)
    known = {"session_id": one.session_id, "short_id": short(one.session_id), "source": "native", "title": one.title}
    when = {"updated_at": stamp(one.at), "resumable": False, "escalated": False}
    return {**nothing, **known, **when, "workspace": workspace}


def cells(world: World, one: Row | seal.Anchor) -> tuple[str, str, str, str]:
    if not isinstance(one, seal.Anchor):
        return listing.cells(one, world.clock())
    return short(one.session_id), GONE, ago_short(one.at, world.clock()), one_line(one.title)

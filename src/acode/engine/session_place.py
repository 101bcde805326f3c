"""Where a session belongs: the workspace that has its anchor, or one that was moved here.

A copied workspace has the log, the keys and the idempotency keys of the original: both would run the same steps, and
each log would look whole. So nothing is appended in a place without an anchor of its own while the anchored one still
has the session. Only the anchors of this session are looked at, never all.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from acode import seal
from acode.engine.world import World, short
from acode.errors import AcodeError, CopiedWorkspace
from acode.hints import BeginAgain, Command, Hint, ResumeElsewhere
from acode.seal import Anchor
from acode.store import database
from acode.store.store import DATABASE, refuse_unreadable

NO_ANCHOR = "no anchor of this session was known on this machine: a log that was cut short would not be noticed"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """This workspace as the place of a session: its anchor, which may be that of the place it was moved from."""

    anchor: Anchor | None
    own: bool
    original: Path | None = None  # a place that still has the session: this one is a copy
    moved_from: Path | None = None


def find_place(world: World, session_id: str) -> Place:
    anchor = seal.read_anchor(seal.anchor_directory(world.state_dir, world.workspace), session_id)
    if anchor is not None:
        return Place(anchor=anchor, own=True)
    known: Anchor | None = None
    moved_from: Path | None = None
    for other in seal.other_places(world.state_dir, world.workspace, session_id):
        there = seal.read_anchor(seal.anchor_directory(world.state_dir, other), session_id)
        standing = _session_at(other, world.agent_dir / DATABASE, session_id)
        if standing == "there":
            return Place(anchor=None, own=False, original=other)
        if there is not None and (known is None or there.seq > known.seq):
            known, moved_from = there, other if standing == "gone" else None
    return Place(anchor=known, own=False, moved_from=moved_from)


def _session_at(other: Path, own: Path, session_id: str) -> Literal["there", "gone", "here"]:
    """Whether the other place has a database of its own with the session. One that cannot be read may have it."""
    path = other / ".agent" / DATABASE
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "gone"
    except OSError:
        return "there"
    if os.path.samestat(found, os.stat(own)):
        return "here"  # the same workspace, mounted at another path
    if found.st_size == 0:
        return "gone"
    try:
        refuse_unreadable(path.parent)
        return "there" if database.has_session(path, session_id) else "gone"
    except (AcodeError, OSError):
        return "there"


def refuse_copy(world: World, session_id: str) -> Place:
    """The place of the session, if anything may be appended here."""
    place = find_place(world, session_id)
    if place.original is None:
        return place
    name, other = short(session_id), place.original
    taken = Hint("; or take it over here from the shared copy: {}", Command("resume SESSION --remote"))
    raise CopiedWorkspace(
        f"this workspace is a copy of {other}, which still has session {name}: both would run the same steps",
        hint=Hint(
            "Continue it there: {}. If this place is to have it, remove {}/.agent first{}. New work begins here with:"
            " {}",
            *(ResumeElsewhere(str(other)), str(other), taken if _is_shared(world) else "", BeginAgain("run --new")),
            of=name,
        ),
        original=str(other),
    )


def _is_shared(world: World) -> bool:
    return world.config.settings.sync.url is not None


def warnings_of(place: Place, session_id: str) -> list[str]:
    name = short(session_id)
    if place.original is not None:
        return [
            f"this workspace is a copy of {place.original}, which still has session {name}: it is not continued here"
        ]
    if place.moved_from is not None:
        return [f"session {name} was moved here from {place.moved_from}; its anchor follows"]
    if place.anchor is not None and place.anchor.arrived:
        return [f"session {name} came from the server: {NO_ANCHOR}"]
    if place.anchor is None:
        return [f"session {name} has no anchor here (new home, or moved): a rollback would go unseen"]
    return []


def follow_move(world: World, place: Place) -> None:
    """The anchor of the place that it was moved from counts here, before anything can be appended behind it."""
    if place.anchor is None or place.own:
        return
    session_id = place.anchor.session_id
    here = msgspec.structs.replace(place.anchor, workspace=str(world.workspace))
    seal.note_place(world.state_dir, world.workspace, session_id)
    seal.write_anchor(seal.anchor_directory(world.state_dir, world.workspace), here, durable=True)
    if place.moved_from is not None:
        seal.forget_anchor(world.state_dir, place.moved_from, session_id)

"""What a session changed in files, and the anchors that vouch for its log: read for the report and for the page."""

from __future__ import annotations

from acode import seal
from acode.engine.file_changes import file_changes
from acode.engine.world import World
from acode.errors import AcodeError
from acode.state import Session
from acode.store.store import Store
from acode.workspace import Root

DIFF_FILES_MAX = 50


def diff_of(world: World, store: Store, session: Session, step: str | None = None) -> str:
    """What the session or one of its steps changed in files, as `acode session diff` tells it; files that cannot be
    compared are named.
    """
    try:
        with Root(world.workspace) as root:
            changes = file_changes(store, root, session, step)
    except (AcodeError, OSError) as error:
        return f"The files cannot be compared: {error}"
    told = [one.text if one.compared else f"{one.path}: {one.change}; {one.text}" for one in changes[:DIFF_FILES_MAX]]
    if len(changes) > DIFF_FILES_MAX:
        told.append(f"and {len(changes) - DIFF_FILES_MAX:,} more files")
    return "\n".join(text.rstrip("\n") for text in told)


def anchors_of(world: World, session_id: str) -> tuple[str, ...]:
    """In words: how far the log had come when it was last anchored on this machine."""
    known = seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace))
    return tuple(f"event {one.seq}, code {one.head}" for one in known if one.session_id == session_id)

"""Open the workspace's store and name its sessions; all that a list of them needs, and nothing heavier.

A lost database is an error that says what was lost, never an empty workspace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from acode import seal
from acode.engine.world import World, short
from acode.errors import LogRolledBack, NoResumableSession
from acode.seal import Anchor
from acode.store.store import DATABASE, Store, find_session, refuse_unreadable


def has_database(world: World) -> bool:
    refuse_unreadable(world.agent_dir)
    return (world.agent_dir / DATABASE).exists()


@contextlib.contextmanager
def opened(world: World, *, look_only: bool, create: bool = False) -> Iterator[Store]:
    """The workspace's store; a lost database is an error that says what was lost, not an empty workspace."""
    if not has_database(world):
        lost = list(seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace)))
        if lost and not create:
            raise _lost(world.workspace, lost)
        if not create:
            raise NoResumableSession("there is no session in this workspace")
    if create:
        from acode.workspace import Root, ensure_agent_dir

        with Root(world.workspace) as root:
            ensure_agent_dir(root)
    keyring = seal.load_keyring(world.state_dir, world.env, create=not look_only)
    store = Store(world.agent_dir, keyring, clock=world.clock, new_id=world.new_id, look_only=look_only)
    with store:
        yield store


def _lost(workspace: Path, lost: list[Anchor]) -> LogRolledBack:
    what = "; ".join(f"{short(one.session_id)} “{one.title}” at event {one.seq}" for one in lost[:5])
    return LogRolledBack(
        f"the database of {workspace} is gone, but sessions were recorded here: {what}",
        hint="Bring .agent/ back from a backup, or let the sessions go: acode session repair --accept-rollback",
        sessions=[one.session_id for one in lost],
    )


def resolve_id(world: World, store: Store, text: str) -> str:
    """A session by id, prefix or suffix; one that only an anchor remembers was lost, and that is said."""
    ids = store.session_ids()
    known = list(seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace)))
    lost = [one for one in known if one.session_id not in ids and text in (one.session_id, short(one.session_id))]
    if lost:
        raise _lost(world.workspace, lost)
    return find_session(ids, text)

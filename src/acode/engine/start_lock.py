"""One start at a time: of two processes that both find no session for a plan, a key or a foreign run, each would begin
one, and the work would be done twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from acode import lock as locks
from acode.engine.world import World
from acode.errors import SessionLocked
from acode.hints import Hint
from acode.workspace import Root, ensure_agent_dir


@contextlib.contextmanager
def start_lock(world: World, name: str, *, wait_s: float, busy: str, hint: Hint | str) -> Iterator[None]:
    """Hold the lock of this name around looking for a session and beginning one; `busy` names the holder."""
    with Root(world.workspace) as root:
        directory = ensure_agent_dir(root)
    try:
        lock, _ = locks.acquire(directory / "locks", name, lambda: 1, wait_s=wait_s, now=world.clock)
    except SessionLocked as error:
        raise SessionLocked(busy + owner_of(error), hint=hint, **error.details) from error
    try:
        yield
    finally:
        lock.release()


def owner_of(error: SessionLocked) -> str:
    owner = error.details.get("owner", {})
    return f": pid {owner['pid']}" if owner else ""

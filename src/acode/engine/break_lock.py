"""Break the lock of a session: the transaction that fences its holder off also records that in the log. A kill between
two transactions would leave an owner fenced off without a record. The lock of the next generation is taken first, so
that no other process becomes the next owner meanwhile.
"""

from __future__ import annotations

from acode import lock as locks
from acode.engine.held_session import Held, load_verified
from acode.engine.lease_state import claim_here, confirm_ours, refuse_not_ours
from acode.engine.session_place import follow_move, refuse_copy
from acode.engine.workspace_store import OF_THE_DATABASE, opened
from acode.engine.world import World
from acode.errors import AcodeError, LockLost
from acode.events import types as ev
from acode.state import Session
from acode.store.fencing import fencing_journal
from acode.store.store import Store
from acode.workspace import Root, ensure_agent_dir

TRIES_MAX = 50  # a living owner may write on while its log is read


def break_lock(world: World, session_id: str, event: ev.LockBroken, *, claim: bool) -> Session:
    """The session as it stands then. `claim`: it also becomes this machine's, whatever another was last heard to do."""
    with opened(world, look_only=False) as store, Root(world.workspace) as root:
        if not claim:
            refuse_not_ours(store, session_id)
        ensure_agent_dir(root)
        following = event.generation + 1
        lock, _ = locks.acquire(world.agent_dir / "locks", session_id, lambda: following, now=world.clock)
        try:
            follow_move(world, refuse_copy(world, session_id))
            if claim:
                world.confirm_ownership(store, session_id, False)
            else:
                confirm_ours(world, store, session_id)
            session = _fence_off(world, store, root, lock, session_id=session_id, event=event)
            if claim:  # last: after a kill the person is asked for the same again, and it is said twice
                claim_here(store, session_id)
            return session
        finally:
            lock.release()


def _fence_off(
    world: World, store: Store, root: Root, lock: locks.Lock, *, session_id: str, event: ev.LockBroken
) -> Session:
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            loaded, _ = load_verified(world, store, session_id)
        except OF_THE_DATABASE:  # it may be read in the next moment: nobody is fenced off unsaid
            raise
        except AcodeError:  # nothing can be said in a log that cannot be read; its owner must not write there either
            store.raise_generation(session_id, event.generation)
            raise
        if loaded.session.terminal:  # nothing is said behind its end
            store.raise_generation(session_id, event.generation)
            return loaded.session
        run = Held(world, store, fencing_journal(store, loaded, event.generation), root, lock)
        try:
            run.append(event, actor="user")
        except LockLost:
            if not tries_left or store.generation(session_id) != event.generation:
                raise
            continue
        return run.session
    raise AssertionError("the last try has raised")

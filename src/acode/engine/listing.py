"""All sessions of a workspace at a glance: position and counters, how each ended, and what the policy would say.

Reads the newest checkpoint and the few events after it, no plan and no workspace, so that a list is quick.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from acode import lock as locks
from acode import seal
from acode.engine.opening import lost_error, opened
from acode.engine.world import World
from acode.errors import AcodeError, NoResumableSession
from acode.lock import Seen
from acode.policy import Decision, Facts, decide
from acode.resume import Interruption, classify, half_undone
from acode.state import Session
from acode.store.store import Store


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list; `error` where its log cannot be trusted."""

    session_id: str
    session: Session | None
    interruption: Interruption | None
    decision: Decision | None
    lock: Seen | None
    error: AcodeError | None = None


def rows(world: World) -> list[Row]:
    """All native sessions, the most recently active first; one that cannot be trusted is shown, not left out."""
    try:
        with opened(world, look_only=True) as store:
            ids = store.session_ids()
            found = [*(row(world, store, session_id) for session_id in ids), *lost_rows(world, ids)]
    except NoResumableSession:
        return []
    return sorted(found, key=lambda one: one.session.updated_at if one.session else world.clock(), reverse=True)


def lost_rows(world: World, ids: list[str]) -> Iterator[Row]:
    """Sessions whose rows were removed, of which only the anchor is left; those that had ended are nobody's loss."""
    for anchor in seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace)):
        if anchor.session_id not in ids and not anchor.ended:
            error = lost_error(world, [anchor])
            yield Row(
                session_id=anchor.session_id, session=None, interruption=None, decision=None, lock=None, error=error
            )


def row(world: World, store: Store, session_id: str) -> Row:
    try:
        session, _ = store.peek(session_id)
        seen = lock_seen(world, session_id, store.generation(session_id))
        if session.terminal:
            return Row(session_id=session_id, session=session, interruption=None, decision=None, lock=seen)
        interruption = classify(session, lock_touched_at=seen.touched_at)
        decision = decide(
            session, interruption, world.limits, now=world.clock(), actor="system", facts=quick_facts(session)
        )
        return Row(session_id=session_id, session=session, interruption=interruption, decision=decision, lock=seen)
    except AcodeError as error:
        return Row(session_id=session_id, session=None, interruption=None, decision=None, lock=None, error=error)


def quick_facts(session: Session) -> Facts:
    """What a position alone can tell: a settlement that found no evidence binds everyone, an open rollback too."""
    if session.undoing is not None:
        return Facts(unknown_step=session.undoing.step, unsafe_because=half_undone(session.undoing))
    unknown = next((step for step, flight in session.in_flight.items() if flight.unknown is not None), None)
    evidence = session.in_flight[unknown].unknown if unknown else ""
    return Facts(unknown_step=unknown, unsafe_because=evidence or "")


def resumable(world: World) -> list[Row]:
    """Sessions that a resume could carry on, escalated ones included."""
    return [one for one in rows(world) if one.session is not None and not one.session.terminal]


def lock_seen(world: World, session_id: str, generation: int) -> locks.Seen:
    """The lock of this generation, or of the one before: whoever broke a lock may never have held the new one."""
    seen = locks.look(world.agent_dir / "locks", session_id, generation)
    if seen.touched_at is None and generation > 1:
        return locks.look(world.agent_dir / "locks", session_id, generation - 1)
    return seen

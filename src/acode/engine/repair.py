"""Repair a log that cannot be trusted, audited. Damaged events are set aside, not removed; the steps that they may
concern are opened; losses are reported. Every repair is one recorded event by a person, with a backup made before.
Nothing here executes a step, and nothing is repaired in silence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from acode import lock as locks
from acode import seal
from acode.engine import notices
from acode.engine.held_session import Held
from acode.engine.lease_state import confirm_ours, refuse_not_ours
from acode.engine.salvage import Salvaged, counts_without, may_have_begun, open_again, salvage
from acode.engine.session_place import follow_move, refuse_copy
from acode.engine.workspace_store import has_database, opened, resolve_id
from acode.engine.world import World, short
from acode.errors import ACCEPT_ROLLBACK, AcodeError, BeyondRepair, HistoryDiverged, LogRolledBack, UnknownSession
from acode.events import types as ev
from acode.hints import Command, Hint
from acode.seal import Anchor
from acode.state import Session, State
from acode.store.checkpoint_tail import Tail
from acode.store.journal import Journal
from acode.store.schema import SEQ_SPAN
from acode.store.session_index import find_session, is_named_by
from acode.store.store import Store
from acode.store.verification import Problem
from acode.workspace import Root, ensure_agent_dir

Kind = Literal["nothing", "checkpoints", "quarantine", "rollback", "lost_key", "forgotten"]


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of a repair, done or planned."""

    kind: Kind
    done: bool  # False: only looked
    session_id: str | None = None
    state: State | None = None
    quarantined: tuple[int, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    lost: tuple[int, int] | None = None
    accepted_through: int = 0
    steps: tuple[str, ...] = ()  # open now: evidence, or a person, settles them
    approvals_dropped: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()  # damage that a repair cannot undo
    forgotten: tuple[Anchor, ...] = ()
    backup: str | None = None
    seq: int | None = None  # the event that records it


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """The damage of one session, before a repair."""

    saved: Salvaged
    kind: Kind
    lost: tuple[int, int] | None
    problems: tuple[str, ...]
    remaining: tuple[str, ...]
    steps: tuple[str, ...]
    ended: bool  # an anchor says that it had ended


def repair(
    world: World,
    text: str | None,
    *,
    accept_rollback: bool = False,
    accept_lost_key: bool = False,
    reason: str = "",
    dry_run: bool = False,
) -> Repaired:
    """Make the session named `text` usable again, or say why it cannot be. Without a database: let its anchors go."""
    gone = lost_sessions(world, text)
    if gone:
        return forget(world, gone, accept_rollback=accept_rollback, dry_run=dry_run)
    if text is None:
        raise UnknownSession("which session is to be repaired?")
    if dry_run:
        with opened(world, look_only=True) as store:
            session_id = resolve_id(world, store, text)
            damage = assess(world, store, session_id, accept_rollback=accept_rollback, accept_lost_key=accept_lost_key)
            return report(damage, done=False)
    with opened(world, look_only=False) as store, Root(world.workspace) as root:
        session_id = resolve_id(world, store, text)
        ensure_agent_dir(root)
        with locked(world, store, session_id) as generation:
            follow_move(world, refuse_copy(world, session_id))
            refuse_others(world, store, session_id, accept_rollback=accept_rollback)
            damage = assess(world, store, session_id, accept_rollback=accept_rollback, accept_lost_key=accept_lost_key)
            if damage.kind == "nothing":
                return report(damage, done=True)
            backup = store.back_up()
            return apply_repair(world, store, root, damage, generation=generation, reason=reason, backup=backup)


@contextlib.contextmanager
def locked(world: World, store: Store, session_id: str) -> Iterator[int]:
    directory = world.agent_dir / "locks"
    lock, generation = locks.acquire(directory, session_id, lambda: store.generation(session_id), now=world.clock)
    try:
        yield generation
    finally:
        lock.release()


def refuse_others(world: World, store: Store, session_id: str, *, accept_rollback: bool) -> None:
    """A session that another machine has is repaired there. A diverged history may be repaired before one side is
    chosen. Where the server has the events that are lost here, they can be pulled; a person may also accept the loss.
    """
    with contextlib.suppress(HistoryDiverged):
        refuse_not_ours(store, session_id)
    try:
        confirm_ours(world, store, session_id)
    except HistoryDiverged:
        return
    except LogRolledBack:
        if not accept_rollback:
            raise


# Looking.


def assess(world: World, store: Store, session_id: str, *, accept_rollback: bool, accept_lost_key: bool) -> Damage:
    """The whole damage, or a refusal where its repair needs a flag that was not given."""
    with store.one_view():
        saved = salvage(store, session_id, accept_lost_key=accept_lost_key)
        verified = store.verify(session_id)
    anchor = seal.read_anchor(seal.anchor_directory(world.state_dir, world.workspace), session_id)
    lost, replaced = against_anchor(store, saved, anchor)
    if (lost or replaced) and not accept_rollback:
        assert anchor is not None
        raise rolled_back(saved.session, anchor, replaced=replaced)
    if saved.session.seq >= SEQ_SPAN - 2:
        raise BeyondRepair(f"session {short(session_id)} has an event with the number {saved.session.seq:,}: planted")
    mendable, remaining = sorted_out(verified.problems)
    usable = mendable or lost or replaced or saved.damaged or unloadable(store, session_id)
    return Damage(
        saved=saved,
        kind=kind_of_damage(saved, rolled=bool(lost or replaced)) if usable else "nothing",
        lost=lost,
        problems=(*saved.problems, *(one for one in mendable if one not in saved.problems)),
        remaining=remaining,
        steps=steps_in_doubt(saved, lost),
        ended=anchor is not None and anchor.ended,
    )


def kind_of_damage(saved: Salvaged, *, rolled: bool) -> Kind:
    if saved.through:
        return "lost_key"
    if rolled:
        return "rollback"
    return "quarantine" if saved.seqs or saved.gaps else "checkpoints"


def sorted_out(problems: tuple[Problem, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Separate the damage that a repair can undo from the rest: lost bytes are not made again."""
    blobs = "ACODE-LOG-008"
    mendable = tuple(one.message for one in problems if one.code != blobs)
    return mendable, tuple(one.message for one in problems if one.code == blobs)


def unloadable(store: Store, session_id: str) -> bool:
    """A checkpoint row that is missing leaves no trace of its own: only a load notices."""
    try:
        store.load(session_id)
        store.peek(session_id)
    except AcodeError:
        return True
    return False


def against_anchor(store: Store, saved: Salvaged, anchor: Anchor | None) -> tuple[tuple[int, int] | None, bool]:
    """The events that the anchor knew and the log has not; and whether the event it knew is another one now."""
    session = saved.session
    if anchor is None:
        return None, False
    if anchor.seq > session.seq:
        return (session.seq + 1, anchor.seq), False
    found = next(
        (mac for seq, _, _, mac in store.stored(session.session_id, anchor.seq - 1, 1) if seq == anchor.seq), b""
    )
    set_aside = anchor.seq in saved.seqs or any(first <= anchor.seq <= last for first, last in saved.gaps)
    replaced = found.hex() != anchor.head and not set_aside
    return ((anchor.seq, anchor.seq) if replaced else None), replaced


def rolled_back(session: Session, anchor: Anchor, *, replaced: bool) -> LogRolledBack:
    name = short(session.session_id)
    if replaced:
        message = f"event {anchor.seq} of session {name} is not the one that was recorded outside the database"
    else:
        message = f"session {name} ends at event {session.seq}, but it was at {anchor.seq} already: events were lost"
    return LogRolledBack(
        message,
        hint=Hint(
            "If you restored a backup yourself: {}. The steps done in between are unknown then.",
            Command("session repair SESSION --accept-rollback"),
            of=name,
        ),
        seq=session.seq,
        anchor=anchor.seq,
    )


def steps_in_doubt(saved: Salvaged, lost: tuple[int, int] | None) -> tuple[str, ...]:
    """Steps that are open afterwards: those of damaged events, and those that the lost ones may have begun."""
    session = saved.session
    if session.terminal:
        return ()
    doubted = dict.fromkeys(saved.doubted)
    if saved.through or lost:
        doubted.update(dict.fromkeys(session.in_flight))
    if lost:
        doubted.update(dict.fromkeys(may_have_begun(session, lost[1] - lost[0] + 1)))
    return tuple(doubted)


# Doing.


def apply_repair(
    world: World, store: Store, root: Root, damage: Damage, *, generation: int, reason: str, backup: Path
) -> Repaired:
    """One transaction: the record of the repair, the state it leaves, and a sealed snapshot to begin from."""
    saved, session = damage.saved, damage.saved.session
    dropped = tuple(session.records.approvals) if session.records is not None else ()
    opened_again = open_again(session, list(damage.steps))
    words = world.redactor.text(reason) or "none given"
    event = ev.Quarantined(
        seqs=saved.seqs,
        reason=f"the log was repaired ({damage.kind.replace('_', ' ')}): {words}",
        steps=damage.steps,
        gaps=saved.gaps,
        heads=saved.heads,
        lost=damage.lost,
        opened=opened_again,
        counts=counts_without(session, opened_again) if saved.damaged or damage.lost else None,
        through=saved.through,
        first_sha256=saved.first_sha256,
        past_sha256=saved.past_sha256,
        problems=damage.problems[:20],
        backup=backup.name,
    )
    journal = Journal(store, generation=generation, session=session, head=saved.head, tail=Tail(None))
    run = Held(world, store, journal, root, None)
    said = run.append(event, *afterwards(session, damage), actor="user")
    repaired = notices.Repaired(kind=damage.kind, quarantined=list(saved.seqs), backup=str(backup))
    run.emit(repaired, seq=said[0].seq)
    done = report(damage, done=True)
    return msgspec.structs.replace(
        done,
        state=run.session.state,
        approvals_dropped=dropped if damage.kind != "checkpoints" else (),
        backup=str(backup),
        seq=said[0].seq,
    )


def afterwards(session: Session, damage: Damage) -> tuple[ev.Known, ...]:
    """A session that had ended stays ended; any other waits for a person, who looks before it continues."""
    if session.terminal or damage.kind == "checkpoints":
        return ()
    if damage.ended:
        return (ev.SessionCancelled(reason="it had ended, and the event that said how was damaged"),)
    if session.state is State.PAUSED:
        return ()
    return (ev.SessionPaused(reason="error", message="its log was damaged and was repaired"),)


def report(damage: Damage, *, done: bool) -> Repaired:
    saved = damage.saved
    return Repaired(
        kind=damage.kind,
        done=done,
        session_id=saved.session.session_id,
        state=saved.session.state,
        quarantined=saved.seqs,
        gaps=saved.gaps,
        lost=damage.lost,
        accepted_through=saved.through,
        steps=damage.steps,
        problems=damage.problems,
        remaining=damage.remaining,
    )


# Sessions of which only the anchor is left.


def lost_sessions(world: World, text: str | None) -> tuple[Anchor, ...]:
    """Anchors of sessions that no database has any more: all of them, or the one that was named."""
    anchors = list(seal.all_anchors(seal.anchor_directory(world.state_dir, world.workspace)))
    if has_database(world):
        with opened(world, look_only=True) as store:
            here = frozenset(store.session_ids())
        anchors = [one for one in anchors if one.session_id not in here]
        if text is not None and any(is_named_by(one, text) for one in here):
            return ()
    if text is None or not anchors:
        return tuple(anchors)
    try:
        named = find_session([one.session_id for one in anchors], text)
    except UnknownSession:
        return ()
    return tuple(one for one in anchors if one.session_id == named)


def forget(world: World, gone: tuple[Anchor, ...], *, accept_rollback: bool, dry_run: bool) -> Repaired:
    names = "; ".join(f"{short(one.session_id)} “{one.title}” at event {one.seq}" for one in gone[:5])
    if not accept_rollback:
        raise LogRolledBack(
            f"nothing is left of {len(gone)} recorded sessions: {names}",
            hint=Hint("Bring .agent/ back from a backup, or let them go: {}", ACCEPT_ROLLBACK),
            sessions=[one.session_id for one in gone],
        )
    if not dry_run:
        for one in gone:
            seal.forget_anchor(world.state_dir, world.workspace, one.session_id)
    return Repaired(kind="forgotten", done=not dry_run, forgotten=gone)

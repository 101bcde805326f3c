"""All sessions of a workspace at a glance: position and counters, how each ended, and what the policy would say.

Of an ended or running session the newest checkpoint and the few events after it are read, of a stopped one its log and
plan too. Only where a step was cut off, or failed for a person to see, it is looked at as closely as `status` does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from acode import lock as locks
from acode import seal
from acode.engine.workspace_store import OF_THE_DATABASE, known_anchors, lost_error, may_be, opened
from acode.engine.world import Options, World, short
from acode.errors import AcodeError, KeyMissing, LogRolledBack, NoResumableSession
from acode.events import types as ev
from acode.lock import Seen
from acode.plan import repeatable
from acode.policy import Decision, Facts, decide, refused_by_lock
from acode.resume_point import Interruption, classify, half_undone, still_running
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
        interruption, decision = judged(world, store, session, seen)
        return Row(session_id=session_id, session=session, interruption=interruption, decision=decision, lock=seen)
    except AcodeError as error:
        return Row(session_id=session_id, session=None, interruption=None, decision=None, lock=None, error=error)


def judged(world: World, store: Store, session: Session, seen: Seen) -> tuple[Interruption, Decision]:
    """How it ended and what an automatic attempt would get, as `status` says it."""
    if seen.held:
        interruption = still_running(session)
        return interruption, refused_by_lock(decided(world, session, interruption, Facts()))
    try:
        return looked_into(world, store, session, seen)
    except (AcodeError, OSError):  # what cannot be looked into is listed all the same, and a closer look says why
        interruption = classify(session, lock_touched_at=seen.touched_at)
        return interruption, decided(world, session, interruption, quick_facts(session))


def looked_into(world: World, store: Store, session: Session, seen: Seen) -> tuple[Interruption, Decision]:
    whole = store.load(session.session_id).session
    if not stands_clear(store, whole):
        return surveyed(world, store, whole, seen)
    interruption = classify(whole, lock_touched_at=seen.touched_at)
    return interruption, decided(world, whole, interruption, Facts())


def stands_clear(store: Store, session: Session) -> bool:
    """Whether nothing binds a decision but the log: what it needs is there, and nothing was cut off or failed that may
    not simply be done again."""
    if session.in_flight or session.undoing is not None or session.plan is None or session.records is None:
        return False
    outputs = (output.blob for output in session.records.outputs.values() if output.blob is not None)
    if not all(store.has_blob(session.session_id, blob) for blob in outputs):
        return False
    last = session.record(session.last_attempted) if session.last_attempted is not None else None
    if last is None or last.status != "failed":
        return True
    return any(step.id == session.last_attempted and repeatable(step) for step in session.steps())


def surveyed(world: World, store: Store, session: Session, seen: Seen) -> tuple[Interruption, Decision]:
    """As `status` does it; what it takes to look at evidence is loaded only here."""
    from acode.engine.held_session import make_site
    from acode.engine.survey import missing_artifacts, survey
    from acode.workspace import Root

    with Root(world.workspace) as root:
        site = make_site(world, store, root, session, probes=False)
        options, missing = Options(actor="system"), missing_artifacts(store, session)
        found = survey(world, session, site, options, lock_touched_at=seen.touched_at, artifacts_missing=missing)
    return found.interruption, found.decision


def decided(world: World, session: Session, interruption: Interruption, facts: Facts) -> Decision:
    return decide(session, interruption, world.limits, now=world.clock(), actor="system", facts=facts)


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


def unfinished(world: World) -> tuple[Row, ...]:
    """Sessions that may not have ended: those that a resume could carry on, and those that cannot be trusted.

    Of the latter an anchor may know that they had ended: they are nobody's unfinished work.
    """
    ended = {one.session_id for one in known_anchors(world) if one.ended}
    return tuple(
        one for one in rows(world) if (one.session_id not in ended if one.session is None else not one.session.terminal)
    )


def unfinished_of(
    world: World, among: Iterable[Row], fits: Callable[[ev.SessionCreated], bool], what: str
) -> Session | None:
    """The most recent of these sessions whose creation fits; `what`: a plan, or a task.

    Where none does, one that cannot be trusted and may be it is refused: a session begun beside it would repeat what it
    has done.
    """
    with contextlib.ExitStack() as stack:
        store: Store | None = None
        doubtful = list[Row]()
        for one in among:
            store = store or stack.enter_context(opened(world, look_only=True))
            if not may_be(store, one.session_id, fits):
                continue
            first = trouble_of(store, one)
            if first is None:
                return one.session
            doubtful.append(msgspec.structs.replace(one, error=first))
    for one in doubtful:
        raise beside_doubtful(one, what)
    return None


def trouble_of(store: Store, one: Row) -> AcodeError | None:
    """Why it cannot be trusted; also where the newest checkpoint hides that its first event cannot."""
    if one.error is not None:
        return one.error
    try:
        next(iter(store.events(one.session_id)))
    except AcodeError as error:
        return error
    return None


def beside_doubtful(one: Row, what: str) -> AcodeError:
    assert one.error is not None
    if isinstance(one.error, OF_THE_DATABASE):  # it says nothing of the session, which may be read in the next moment
        return one.error
    ways = [one.error.hint] if isinstance(one.error, LogRolledBack | KeyMissing) else []
    ways += [f"Repair it: acode session repair {short(one.session_id)}"]
    hint = f"{'; '.join(ways)}; or begin anew beside it: acode run --new {what.upper()}"
    message = f"session {short(one.session_id)} may be an unfinished one of this {what}, and cannot be trusted: "
    details = {"session_id": one.session_id, **one.error.details}
    details.pop("detail_code", None)
    return type(one.error)(message + one.error.message, hint=hint, **details)


def lock_seen(world: World, session_id: str, generation: int) -> locks.Seen:
    """The lock of this generation, or of the one before: whoever broke a lock may never have held the new one."""
    seen = locks.look(world.agent_dir / "locks", session_id, generation)
    if seen.touched_at is None and generation > 1:
        return locks.look(world.agent_dir / "locks", session_id, generation - 1)
    return seen

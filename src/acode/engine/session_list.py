"""All sessions of a workspace at a glance: position and counters, the end of each, and the policy's decision.

The newest checkpoint and the few events after it are read of an ended or running session, its log and plan too of a
stopped one. Only where a step was cut off, or failed for a person to see, it is looked at as closely as `status` does.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from acode import lock as locks
from acode import seal
from acode.attention import Attention, attention_of
from acode.engine.refused_changes import was_refused
from acode.engine.workspace_store import OF_THE_DATABASE, anchor_of, lost_anchors, lost_error, may_be, opened
from acode.engine.world import Options, World, short
from acode.errors import AcodeError, KeyMissing, LogRolledBack, NoResumableSession
from acode.events import types as ev
from acode.hints import BeginAgain, Command, Hint
from acode.lock import Seen
from acode.plan import repeatable
from acode.policy import Decision, Facts, decide, refused_by_lock
from acode.resume_point import Interruption, classify, half_undone, still_running
from acode.seal import Anchor
from acode.state import Session, State
from acode.store import session_index
from acode.store.session_index import Entry
from acode.store.store import Store


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One session in a list; `error` where its log cannot be trusted."""

    session_id: str
    session: Session | None
    interruption: Interruption | None
    decision: Decision | None
    lock: Seen | None
    error: AcodeError | None = None
    changed: bool = False  # a resume was refused, or somebody has looked: files are not what the session left

    @property
    def running(self) -> bool:
        return self.lock is not None and self.lock.held

    @property
    def attention(self) -> Attention | None:
        if self.session is None:
            return None
        return attention_of(self.session, self.decision, running=self.running, changed=self.changed)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Rows, the most recently active first, and how many sessions there are in all."""

    rows: list[Row]
    total: int = 0

    @property
    def hidden(self) -> int:
        return self.total - len(self.rows)


def rows(world: World) -> list[Row]:
    """All native sessions, the most recently active first; one that cannot be trusted is shown, not left out."""
    return listed(world).rows


def listed(world: World, *, ended_max: int | None = None, limit: int | None = None) -> Listed:
    """Unfinished sessions, and the latest ended ones; at most `ended_max` of those, and at most `limit` rows.

    The index says which sessions these are; each is verified before it is shown. One that cannot be trusted is left out
    only where the index counts it among the ended sessions that are left out.
    """
    try:
        with opened(world, look_only=True) as store:
            known = open_sessions(world, store)
            found = [lost_row(world, anchor) for anchor in known.lost]
            total = session_index.count(store) + len(found)
            ended = itertools.islice(session_index.ended(store), ended_max)
            ended_left, seen = ended_max, set[str]()
            for entry in heapq.merge(known.entries, ended, reverse=True):
                if limit is not None and len(found) >= limit:
                    break
                if entry.session_id in seen:  # it has ended, and was killed before its anchor said so
                    continue
                seen.add(entry.session_id)
                one = row(world, store, entry.session_id)
                if ended_left is not None and one.session is not None and one.session.terminal:
                    ended_left -= 1
                    if ended_left < 0:
                        continue
                found.append(one)
    except NoResumableSession:
        return Listed(rows=[])
    now = world.clock()
    found.sort(key=lambda one: one.session.updated_at if one.session else now, reverse=True)
    return Listed(rows=found, total=total)


class OpenSessions(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions that may not have ended, the most recently active first, and anchors of those whose rows are gone."""

    entries: list[Entry]
    lost: list[Anchor]


def open_sessions(world: World, store: Store) -> OpenSessions:
    """By the index and by the anchors: a changed database cannot hide one that an anchor knows as open."""
    entries = session_index.unfinished(store)
    known = {entry.session_id for entry in entries}
    anchored = seal.open_anchors(seal.anchor_directory(world.state_dir, world.workspace))
    others = [one for one in anchored if one not in known]
    entries += [Entry(0, one) for one in others if store.has(one)]
    lost = [anchor for anchor in lost_anchors(world, store, others) if not anchor.ended]
    return OpenSessions(entries=entries, lost=lost)


def lost_row(world: World, anchor: Anchor) -> Row:
    """A session whose rows were removed, of which only the anchor is left; one that had ended is nobody's loss."""
    error = lost_error(world, [anchor])
    return Row(session_id=anchor.session_id, session=None, interruption=None, decision=None, lock=None, error=error)


def glance(store: Store, session_id: str) -> Row:
    """Position and counters alone: neither the lock nor the evidence is looked at."""
    try:
        session, _ = store.peek(session_id)
    except AcodeError as error:
        return Row(session_id=session_id, session=None, interruption=None, decision=None, lock=None, error=error)
    return Row(session_id=session_id, session=session, interruption=None, decision=None, lock=None)


def unfinished_glances(world: World) -> list[Row]:
    """Sessions that have not ended, and those that cannot be trusted; the most recently active first."""
    try:
        with opened(world, look_only=True) as store:
            known = open_sessions(world, store)
            found = [glance(store, entry.session_id) for entry in known.entries]
    except NoResumableSession:
        return []
    lost = [lost_row(world, anchor) for anchor in known.lost]
    return [*lost, *(one for one in found if one.session is None or not one.session.terminal)]


def most_recent(world: World, *, unfinished: bool = False) -> tuple[Session | None, list[Row]]:
    """The unfinished session that was active last, else (unless only those are wanted) the ended one; and the rows met
    before it that cannot be trusted. A foreign run is chosen as a run, not as the session that carries it."""
    damaged = list[Row]()
    try:
        with opened(world, look_only=True) as store:
            known = open_sessions(world, store)
            damaged += [lost_row(world, anchor) for anchor in known.lost]
            for entry in known.entries:
                one = glance(store, entry.session_id)
                if one.session is None:
                    damaged.append(one)
                elif not one.session.terminal and not one.session.steps_from.carries_run:
                    return one.session, damaged
            for entry in () if unfinished else session_index.newest(store):
                one = glance(store, entry.session_id)
                if one.session is not None and not one.session.steps_from.carries_run:
                    return one.session, damaged
                if one.session is None and one.session_id not in {other.session_id for other in damaged}:
                    damaged.append(one)
    except NoResumableSession:
        return None, []
    return None, damaged


def row(world: World, store: Store, session_id: str) -> Row:
    try:
        session, _ = store.peek(session_id)
        seen = with_agent(lock_seen(world, session_id, store.generation(session_id)), session)
        if session.terminal:
            return Row(session_id=session_id, session=session, interruption=None, decision=None, lock=seen)
        interruption, decision = judged(world, store, session, seen)
        return Row(
            session_id=session_id,
            session=session,
            interruption=interruption,
            decision=decision,
            lock=seen,
            changed=was_refused(world.agent_dir, session),
        )
    except AcodeError as error:
        return Row(session_id=session_id, session=None, interruption=None, decision=None, lock=None, error=error)


def judged(world: World, store: Store, session: Session, seen: Seen) -> tuple[Interruption, Decision]:
    """How it ended and what an automatic attempt would get, as `status` says it."""
    if seen.held:
        interruption = still_running(session)
        return interruption, refused_by_lock(decided(world, session, interruption, Facts()))
    try:
        return looked_into(world, store, session, seen)
    except (AcodeError, OSError):  # an unreadable session is listed too, and a closer look reports why
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
    failed = {step for step, record in session.records.steps.items() if record.status == "failed"}
    if session.steps_from.asked:  # what failed before, its program has handled
        failed &= {session.last_attempted or ""}
    return failed <= {step.id for step in session.steps() if repeatable(step)} if failed else True


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
    """The facts of a position alone: a settlement that found no evidence binds everyone, an open rollback too."""
    if session.undoing is not None:
        return Facts(unknown_step=session.undoing.step, unsafe_because=half_undone(session.undoing))
    unknown = next((step for step, flight in session.in_flight.items() if flight.unknown is not None), None)
    evidence = session.in_flight[unknown].unknown if unknown else ""
    return Facts(unknown_step=unknown, unsafe_because=evidence or "")


def resumable(world: World) -> list[Row]:
    """Sessions that could be resumed, escalated ones included."""
    return [one for one in listed(world, ended_max=0).rows if one.session is not None]


def unfinished(world: World) -> tuple[Row, ...]:
    """Sessions that may not have ended: those that could be resumed, and those that cannot be trusted, unless their
    anchor shows that they had ended.
    """
    return tuple(one for one in unfinished_glances(world) if one.error is None or not has_ended(world, one.session_id))


def active_since(world: World, since: datetime) -> list[Session]:
    """Sessions that have had an event since then and can be trusted, the most recently active first."""
    try:
        with opened(world, look_only=True) as store:
            found = [glance(store, one).session for one in session_index.active_since(store, since)]
    except NoResumableSession:
        return []
    known = [one for one in found if one is not None and one.updated_at >= since]
    return sorted(known, key=lambda one: one.updated_at, reverse=True)


def has_ended(world: World, session_id: str) -> bool:
    anchor = anchor_of(world, session_id)
    return anchor is not None and anchor.ended


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
            if not may_be(store, one.session_id, functools.partial(follows, one, fits=fits)):
                continue
            first = first_error(store, one)
            if first is None:
                return one.session
            doubtful.append(msgspec.structs.replace(one, error=first))
    for one in doubtful:
        raise beside_doubtful(one, what)
    return None


def follows(one: Row, created: ev.SessionCreated, fits: Callable[[ev.SessionCreated], bool]) -> bool:
    """Whether the creation fits, or would fit had it been with the plan that a person has put in its place."""
    now = one.session.plan_replaced_by if one.session is not None else None
    if fits(created) or now is None:
        return fits(created)
    return fits(msgspec.structs.replace(created, plan_path=now.path, plan_digest=now.digest, plan_sha256=now.sha256))


def first_error(store: Store, one: Row) -> AcodeError | None:
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
    restored = isinstance(one.error, LogRolledBack | KeyMissing)
    hint = Hint(
        "{}Repair it: {}; or begin another one beside it: {}",
        Hint("{}; ", one.error.unrendered_hint) if restored else "",
        Command("session repair SESSION"),
        BeginAgain(f"run --new {what.upper()}"),
        of=short(one.session_id),
    )
    message = f"session {short(one.session_id)} may be an unfinished one of this {what}, and cannot be trusted: "
    details = {"session_id": one.session_id, **one.error.details}
    details.pop("detail_code", None)
    return type(one.error)(message + one.error.message, hint=hint, **details)


def lock_seen(world: World, session_id: str, generation: int) -> locks.Seen:
    """The lock of this generation, or of the one before: a process that broke a lock may never have held the new
    one.
    """
    seen = locks.look(world.agent_dir / "locks", session_id, generation)
    if seen.touched_at is None and generation > 1:
        return locks.look(world.agent_dir / "locks", session_id, generation - 1)
    return seen


def with_agent(seen: Seen, session: Session) -> Seen:
    """An observed agent in the middle of its work holds no lock between two appends: it is shown as the owner."""
    who = session.performer
    if seen.held or who is None or not is_at_work(session):
        return seen
    holder = locks.Holder(
        pid=who.pid,
        started=who.started,
        boot_id=who.boot_id,
        host=locks.host_name(),
        user=locks.user_name(),
        command=who.name,
        since=session.updated_at,
        pid_namespace=who.pid_namespace,
    )
    return Seen(held=True, holder=holder, touched_at=seen.touched_at)


def is_at_work(session: Session) -> bool:
    """Whether the observed agent that began the last step of the session lives, and is in the middle of its work."""
    working = session.steps_from.observed and session.state is State.EXECUTING
    return working and session.performer is not None and locks.alive(session.performer)

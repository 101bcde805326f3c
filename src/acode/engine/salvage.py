"""Salvage: fold the believable events of a damaged log, and name the steps that the others may concern. Nothing is
written here. Events that cannot be verified are left out, and so are events that contradict the log without them. A
step that a lost or damaged event may have started or ended is doubted: afterwards it is open, and evidence or a person
settles it.
"""

from __future__ import annotations

import hashlib

import msgspec

from acode.engine.world import begin_again
from acode.errors import AcodeError, BeyondRepair, KeyMissing
from acode.events import Envelope, make_key
from acode.events import types as ev
from acode.events.definition import Approve, Call, Step, Write, definition_digest, execution_order
from acode.hints import Command, Hint
from acode.seal import GENESIS
from acode.state import Session, advance, begin
from acode.store import checkpoints as ck
from acode.store.flights import salvage_flights
from acode.store.row_check import Gap, Judged, Past
from acode.store.store import Store
from acode.store.verification import as_error, judged, noted_of

QUARANTINED_MAX = 50_000
PROBLEMS_KEPT_MAX = 20


class Salvaged(msgspec.Struct, frozen=True, kw_only=True):
    """A session as far as it can be believed, and what was left out."""

    session: Session
    head: bytes
    seqs: tuple[int, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    heads: tuple[tuple[int, str], ...] = ()
    doubted: dict[str, int] = {}  # step, and the last event that may have been about it
    problems: tuple[str, ...] = ()
    through: int = 0
    first_sha256: str = ""
    past_sha256: str = ""

    @property
    def damaged(self) -> bool:
        return bool(self.seqs or self.gaps or self.through)


def salvage(store: Store, session_id: str, *, accept_lost_key: bool) -> Salvaged:
    """All rows, from the newest snapshot that its seal proves, or from the first."""
    work = _Salvage(store, session_id, _unsigned_runs(store, session_id) if accept_lost_key else [])
    for item in judged(store, session_id):
        work.take(item)
    return work.result()


class _Salvage:
    """The fold in the making."""

    def __init__(self, store: Store, session_id: str, unsigned: list[range]) -> None:
        self.store = store
        self.session_id = session_id
        self.unsigned = unsigned
        self.noted = noted_of(store, session_id)
        self.sealed, self.sealed_seq, unread = _newest_sealed(store, session_id)
        self.session: Session | None = None
        self.created: ev.SessionCreated | None = None
        self.head = b""
        self.last = 0
        self.seqs: list[int] = []
        self.gaps: list[tuple[int, int]] = []
        self.heads: list[tuple[int, str]] = []
        self.doubted: dict[str, int] = dict.fromkeys(unread, self.sealed_seq)
        self.unread = 0  # events in a row that could not be believed, and the last of them
        self.unread_last = 0
        self.problems: list[str] = []
        self.through = 0
        self.first_sha256 = ""
        self.past = Past()

    def take(self, item: Judged | Gap) -> None:
        if isinstance(item, Gap):
            self._gap(item)
            return
        if item.proved_by is not None and item.proved_by != (self.head or GENESIS):
            self.heads.append((item.seq - 1, item.proved_by.hex()))
        self.head, self.last = item.mac, item.seq
        envelope = self._believed(item)
        if item.seq == 1:
            self._begin(item, envelope)
        elif envelope is None or not self._advance(envelope):
            self._set_aside(item)

    def _believed(self, item: Judged) -> Envelope | None:
        if item.envelope is not None:
            return item.envelope
        chosen = any(item.seq in run for run in self.unsigned) or self.noted.accepts(item)
        if not item.key_is_missing or not chosen or item.claimed is None:
            return None
        if (item.claimed.session_id, item.claimed.seq) != (self.session_id, item.seq):
            return None
        self.through = item.seq
        self.past.add(item)
        return item.claimed

    def _begin(self, item: Judged, envelope: Envelope | None) -> None:
        if envelope is None or not isinstance(envelope.event, ev.SessionCreated):
            raise nothing_to_stand_on(self.session_id, item)
        self.created = envelope.event
        if item.envelope is None:
            self.first_sha256 = hashlib.sha256(item.body).hexdigest()
        self.session = self.sealed or begin(envelope)
        self.session.created = envelope.event
        self.session.plan = self.store.plan_of(self.session)

    def _gap(self, gap: Gap) -> None:
        if self.session is None:
            raise nothing_to_stand_on(self.session_id, gap)
        if not self.noted.covers(gap):
            self.gaps.append((gap.first, gap.last))
            self.problems.append(as_error(gap, self.session_id).message)
        if gap.last > self.sealed_seq:
            self._doubt((), gap.first, gap.last)

    def _advance(self, envelope: Envelope) -> bool:
        """Fold one event; False where it contradicts the rest of the log."""
        assert self.session is not None
        if envelope.seq <= self.sealed_seq:
            return True
        self.session.seq = envelope.seq - 1
        try:
            advance(self.session, envelope)
        except AcodeError:
            return False
        if isinstance(envelope.event, ev.PlanChanged | ev.PlanReplaced):
            self.session.plan = self.store.plan_of(self.session)
        if isinstance(envelope.event, ev.Quarantined):
            # An earlier repair has judged the events before it; its decision is signed, and stands.
            self.seqs = [seq for seq in self.seqs if seq not in envelope.event.seqs]
            self.gaps = [gap for gap in self.gaps if gap not in envelope.event.gaps]
            self.doubted.clear()
        return True

    def _set_aside(self, item: Judged) -> None:
        if not self.noted.covers(item):
            self.seqs.append(item.seq)
            why = item.error.message if item.error else f"event {item.seq} contradicts the rest of the log"
            self.problems.append(why)
        if item.seq > self.sealed_seq:
            assert self.session is not None
            self.session.seq = item.seq
            self._doubt(steps_named(item.claimed), item.seq, item.seq)
        if len(self.seqs) > QUARANTINED_MAX:
            raise BeyondRepair(
                f"over {QUARANTINED_MAX:,} events of session {self.session_id[-8:]} are damaged",
            )

    def _doubt(self, named: tuple[str, ...], first: int, last: int) -> None:
        """The steps that the events up to here may concern: one it names, one in flight, the next in line."""
        assert self.session is not None
        if self.session.steps_from.asked and not named:
            who = "model" if self.session.steps_from.follows_model else "program"
            raise BeyondRepair(
                f"events {first} to {last} of session {self.session_id[-8:]} cannot be read, and only its {who} knew"
                " which steps they may have been about",
                hint=Hint("Restore .agent/ from a backup, or begin again: {}", begin_again(self.session)),
            )
        self.unread = (self.unread if self.unread_last == first - 1 else 0) + last - first + 1
        self.unread_last = last
        for step in (*named, *self.session.in_flight, *may_have_begun(self.session, self.unread)):
            self.doubted[step] = last

    def result(self) -> Salvaged:
        if self.session is None:
            raise nothing_to_stand_on(self.session_id, None)
        if self.last < self.sealed_seq:  # the tail is gone, but a sealed snapshot knows where it had led
            self._gap(Gap(first=self.last + 1, last=self.sealed_seq))
            self.session.seq = self.sealed_seq
        return Salvaged(
            session=self.session,
            head=self.head,
            seqs=tuple(self.seqs),
            gaps=tuple(self.gaps),
            heads=tuple(self.heads),
            doubted={step: seq for step, seq in self.doubted.items() if still_open(self.session, step, seq)},
            problems=tuple(self.problems[:PROBLEMS_KEPT_MAX]),
            through=self.through,
            first_sha256=self.first_sha256,
            past_sha256=self.past.sha256 if self.through else "",
        )


def _newest_sealed(store: Store, session_id: str) -> tuple[Session | None, int, tuple[str, ...]]:
    """The newest full snapshot whose hash stands under a good seal: what it says needs no event before it, but for the
    starts of steps in flight. Steps whose starts cannot be believed are named."""
    for seq, body, mac in reversed(store.checkpoint_rows(session_id)):
        try:
            ref = ck.open_checkpoint(session_id, seq, body, mac, store.keyring).snapshot
            if ref is not None:
                stored = ck.open_snapshot(ref, store.snapshot_body(session_id, ref.seq))
                session, lost = salvage_flights(store, stored)
                return session, ref.seq, tuple(lost)
        except AcodeError:
            continue
    return None, 0, ()


def _unsigned_runs(store: Store, session_id: str) -> list[range]:
    """Rows of a lost key: a run from the first event, or up to the last. One in the middle was edited."""
    first, last, run = 0, 0, 0
    for item in judged(store, session_id):
        if isinstance(item, Gap):
            continue
        if item.key_is_missing:
            first = item.seq if first == item.seq - 1 else first
            run = run or item.seq
        else:
            run = 0
        last = item.seq
    return [range(1, first + 1), range(run, last + 1) if run else range(0)]


def steps_named(claimed: Envelope | None) -> tuple[str, ...]:
    if claimed is None:
        return ()
    one, several = getattr(claimed.event, "step", None), getattr(claimed.event, "steps", ())
    return (*([one] if isinstance(one, str) else []), *(several if isinstance(several, tuple) else ()))


def in_order(session: Session) -> list[Step]:
    """The steps that the plan prescribes. A program asks for its own one by one; the plan of an agent is words."""
    if session.plan is None or session.steps_from.asked:
        return []
    return [step for task in execution_order(session.plan) for step in task.steps]


def may_have_begun(session: Session, events: int) -> list[str]:
    """Steps that so many unknown events may have started, in the plan's order.

    A start is one event, an end another, and a gate is passed by one at least. A gate itself is simply asked again.
    Where tasks run at the same time, a step waits only for those of its own task and of the tasks that this needs.
    """
    if session.plan is None or session.steps_from.asked:
        return []
    begun: list[str] = []
    together = session.plan.parallel > 1
    needed, events_of = dict[str, frozenset[str]](), dict[str, int]()
    for task in execution_order(session.plan):
        needed[task.id] = frozenset(task.needs).union(*(needed[one] for one in task.needs))
        before = sum(events_of[one] for one in (needed[task.id] if together else events_of))
        events_of[task.id] = 0
        for step in task.steps:
            if step.id in session.in_flight or session.done(step.id):
                continue
            is_gate = isinstance(step.action, Approve)
            if not is_gate and before + events_of[task.id] < events:
                begun.append(step.id)
            events_of[task.id] += 1 if is_gate else 2
    return begun


def still_open(session: Session, step: str, seq: int) -> bool:
    """Whether nothing that can be believed was said of the step after the doubtful event."""
    if step in session.in_flight:
        return session.in_flight[step].seq <= seq
    record = session.record(step)
    known = session.steps_from.asked or any(
        one.id == step and not isinstance(one.action, Approve) for one in in_order(session)
    )
    return known and (record is None or record.seq <= seq)


def open_again(session: Session, steps: list[str]) -> tuple[ev.StepStarted, ...]:
    """Starts for steps that may have run: with them the steps are settled like any that was found in flight.

    Without a boot id nothing can be concluded from a command that left no trace.
    """
    if session.steps_from.asked:
        calls = (Step(id=step, action=Call(function="")) for step in steps if step not in session.in_flight)
        return tuple(_as_started(session, step) for step in calls)
    return tuple(
        _as_started(session, step)
        for step in in_order(session)
        if step.id in steps and step.id not in session.in_flight
    )


def _as_started(session: Session, step: Step) -> ev.StepStarted:
    record = session.record(step.id)
    attempt = record.attempt if record is not None and record.status == "completed" else session.next_attempt(step.id)
    content = step.action.content.encode() if isinstance(step.action, Write) else None
    return ev.StepStarted(
        step=step.id,
        task=step.task,
        kind=step.kind,
        attempt=attempt,
        key=make_key(session.session_id, step.id, attempt),
        action_digest=definition_digest(step),
        idempotent=step.idempotent,
        before_complete=False,
        after_sha256=hashlib.sha256(content).hexdigest() if content is not None else None,
        after_mode=int(step.action.mode, 8) if isinstance(step.action, Write) and step.action.mode else None,
    )


def counts_without(session: Session, opened: tuple[ev.StepStarted, ...]) -> ev.Counts | None:
    """Counted from the steps themselves, because the events that used to be counted are not all there."""
    if session.plan is None or session.steps_from.asked:
        return None
    gone = {one.step for one in opened}
    done = {step.id for step in in_order(session) if session.done(step.id)} - gone
    tasks = session.plan.tasks
    return ev.Counts(
        steps_done=len(done),
        steps_total=sum(len(task.steps) for task in tasks),
        tasks_done=sum(all(step.id in done for step in task.steps) for task in tasks),
        tasks_total=len(tasks),
    )


def nothing_to_stand_on(session_id: str, item: Judged | Gap | None) -> AcodeError:
    short = session_id[-8:]
    if isinstance(item, Judged) and isinstance(item.error, KeyMissing):
        return KeyMissing(
            item.error.message,
            hint=Hint(
                "If the session is yours, bring its key: {}. If the key is lost for good, and you know this log: {}",
                Command("key import FILE"),
                Command("session repair SESSION --accept-lost-key"),
                of=short,
            ),
            **item.error.details,
        )
    why = as_error(item, session_id).message if item is not None else "it has no events"
    return BeyondRepair(
        f"session {short} cannot be repaired, its creation and with it the plan cannot be believed: {why}",
        session_id=session_id,
    )

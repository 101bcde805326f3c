"""Hold a session: its lock, its verified log, and the journal that writes it on.

Opening and holding is the same for every command that changes a session, and every start goes through here: the log is
read, verified and folded, the anchor compared. There is no recovery mode beside it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from acode import lock as locks
from acode import seal
from acode.engine import notices, owed_decisions
from acode.engine.lease_state import ensure_ours
from acode.engine.session_place import NO_ANCHOR, Place, find_place, refuse_copy, warnings_of
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World, begin_again, short
from acode.errors import AcodeError, LogRolledBack, SessionLocked, TerminalState, UnknownEventType
from acode.events import Envelope
from acode.events import types as ev
from acode.hints import Hint, Subject
from acode.seal import Anchor
from acode.state import Session
from acode.state.source import PROGRAM
from acode.steps.declared_secrets import declared_values
from acode.steps.interface import SHARE_BYTES_MAX, Site
from acode.steps.shared_contents import STEP_BYTES_MAX
from acode.store.journal import Blob, Journal
from acode.store.removal import holds_preimages
from acode.store.store import DATABASE, Loaded, Store
from acode.workspace import Root, ensure_agent_dir

if TYPE_CHECKING:
    from acode.engine.source import Source

ANCHOR_EVERY_S = 1.0
IMAGES_IN_EVENT_MAX = 500  # with paths of a thousand characters still below the limit of an event
ALONE = contextlib.nullcontext()  # for a holder that shares the store with no other thread
ENDINGS = frozenset({ev.SessionCompleted, ev.SessionFailed, ev.SessionCancelled})
ANCHORED_AT_ONCE = ENDINGS | {
    ev.SessionCreated,
    ev.ApprovalGranted,
    ev.ApprovalDenied,
    ev.SessionAwaitingApproval,
    ev.SessionPaused,
    ev.StepSettled,
    ev.UndoSettled,
    ev.ResumeStarted,
    ev.PlanReplaced,
    ev.StepsRolledBack,
    ev.Quarantined,
}


class Recorded(msgspec.Struct, frozen=True):
    """What was appended without waiting: up to which event, whether it must be synced, and then anchored at once."""

    seq: int
    durable: bool = True
    anchored: bool = False


class Held:
    """A session in our hands: append, emit, anchor."""

    def __init__(self, world: World, store: Store, journal: Journal, root: Root, lock: locks.Lock | None) -> None:
        self.world = world
        self.store = store
        self.journal = journal
        self.root = root
        self.lock = lock
        self.warnings: list[str] = []
        self.owner_seen_at: datetime | None = None  # the last sign of life of the process that held the lock before
        self.database: str = os.fspath(world.agent_dir / DATABASE)  # looked for after every step
        self.executed = 0
        self.changed_before: dict[str, str | None] = {}  # by others, and unseen: a person skipped the validation
        self.begun: dict[str, ev.StepStarted] = {}  # reads whose start was recorded with the completion before them
        self.loop_commits: object = None  # of the event loop whose tasks perform steps
        self._site: Site | None = None
        self._anchors = seal.anchor_directory(world.state_dir, world.workspace)
        self._anchored_at = world.monotonic()
        # Whether the listener promises anything; a turn that is taken to tell nobody is felt by a step's threads.
        self._tells_what_is_durable: bool = getattr(world.listener, "promises", True)
        # Notices that nobody listens to: a step is over so quickly that one would be felt.
        self.unheard: frozenset[type] = frozenset(getattr(world.listener, "unheard", ()))
        if lock is not None:
            world.stop.requested = lock.asked_to_pause
        if world.lease is not None:
            journal.before_effect = self._confirm_lease

    def _confirm_lease(self) -> None:
        """In a fleet, directly before an effect: the lease still runs, and the server knows that the step began. A
        machine that takes over from a dead one knows only what the server does; it would repeat the step."""
        self.flush()
        self.world.before_act(self.journal.durable_seq)

    @property
    def turn(self) -> threading.RLock:
        """A program may work on several steps at once; the log has one writer."""
        return self.journal.turn

    @property
    def session(self) -> Session:
        return self.journal.session

    def append(
        self,
        *events: ev.Known,
        actor: str = "system",
        durable: bool = True,
        blobs: dict[str, Blob] | None = None,
        wait: bool = True,
    ) -> list[Envelope]:
        """Append in one transaction, and let it be known once it cannot be lost any more. `wait`: see `record`."""
        if not wait:
            return self.journal.append(*events, actor=actor, durable=durable, blobs=blobs, wait=False)
        with self.journal.turn:
            envelopes = self.journal.append(*events, actor=actor, durable=durable, blobs=blobs)
            kinds = set(map(type, events))
            if durable:
                self.acknowledge(at_once=not ANCHORED_AT_ONCE.isdisjoint(kinds))
            if not ENDINGS.isdisjoint(kinds):
                self._forget()
            return envelopes

    def record(
        self, *events: ev.Known, actor: str = "system", durable: bool = True, blobs: dict[str, Blob] | None = None
    ) -> Recorded:
        """Append without waiting: what other steps record meanwhile shares the transaction and the sync.

        Nothing may rest on it before `settle` was given what this returns; and none of it is the session's end.
        """
        envelopes = self.append(*events, actor=actor, durable=durable, blobs=blobs, wait=False)
        anchored = durable and not ANCHORED_AT_ONCE.isdisjoint(map(type, events))
        return Recorded(envelopes[-1].seq, durable, anchored)

    def settle(self, recorded: Recorded) -> None:
        """Wait until what was recorded is committed, and synced if it must be. The turn is nobody's meanwhile."""
        durable = recorded.durable
        self.journal.settle(recorded.seq, durable=durable, patient=True)
        if not durable:
            return
        anchored_s = self.world.monotonic() - self._anchored_at  # as in `_is_anchor_due`, without the call
        if recorded.anchored or self._tells_what_is_durable or anchored_s >= ANCHOR_EVERY_S:
            with self.journal.turn:
                self.acknowledge(at_once=recorded.anchored)

    def _forget(self) -> None:
        """It has ended: what stood in the user's files before, secrets and the keepers' notes are kept no longer."""
        self.store.forget_preimages(self.session.session_id)
        if not self.session.in_flight:  # a command that lives on still writes there; it is collected later
            for directory in (self.world.agent_dir / "run").glob(f"{self.session.session_id}*"):
                from shutil import rmtree

                rmtree(directory, ignore_errors=True)

    def acknowledge(self, *, at_once: bool) -> None:
        """The database is synced: only now may the anchor and the outside world hear of it."""
        if at_once or self._is_anchor_due():
            self.anchor(durable=at_once)
        self.world.listener.durable(self.journal.durable_seq)

    def _is_anchor_due(self) -> bool:
        return self.world.monotonic() - self._anchored_at >= ANCHOR_EVERY_S

    def anchor(self, *, durable: bool) -> None:
        """What is on the disk, and no event more: an anchor ahead of its log looks like a log that was rolled back."""
        session, reached = self.session, self.journal.durable
        anchor = Anchor(
            session_id=session.session_id,
            seq=reached.seq,
            head=reached.head.hex(),
            title=session.title,
            workspace=str(self.world.workspace),
            at=reached.at or session.updated_at,
            ended=session.terminal and reached.seq == session.seq,
        )
        seal.note_place(self.world.state_dir, self.world.workspace, session.session_id)
        with self.journal.while_ours():  # or one that slept since its commit would set its successor's anchor back
            seal.write_anchor(self._anchors, anchor, durable=durable)
        self._anchored_at = self.world.monotonic()

    def flush(self) -> None:
        """Make what was committed power-safe; called while waiting, so that it is never over a second behind."""
        if self.journal.durable_seq < self.session.seq:
            self.journal.flush()
            with self.turn:
                self.acknowledge(at_once=False)

    def emit(
        self, body: notices.Body, *, seq: int | None = None, step: str | None = None, task: str | None = None
    ) -> None:
        with self.turn:  # listeners are told one thing at a time
            session = self.session
            self.world.listener.emit(
                notices.Notice(
                    body=body,
                    at=self.world.clock(),
                    session_id=session.session_id,
                    seq=seq if seq is not None else session.seq,
                    task=task if task is not None or step is None else step.partition(".")[0],
                    step=step,
                    session=session,
                )
            )

    def warn(self, message: str) -> None:
        self.warnings.append(message)
        self.emit(notices.RunWarning(message=message))

    @cached_property
    def source(self) -> Source:
        """Where its steps come from; the kind of a session never changes."""
        from acode.engine.source import source_of

        return source_of(self)

    def site(self, *, probes: bool = True) -> Site:
        """Where steps work; made once, because all of it but the manifest's content stays the same."""
        if self._site is None or self._site.probes != probes or self._site.store is not self.store:
            self._site = make_site(
                *(self.world, self.store, self.root, self.session),
                probes=probes,
                idle=self.flush,
                keeping=self.keep_saved,
                turn=self.turn,
            )
        return self._site

    def keep_saved(self, event: ev.RollbackStarted) -> None:
        """Before a rollback changes anything, the log names the bytes it is going to replace.

        They may be a person's only copy, and outlive the session until it is collected; a secret does not. A rollback
        that replaces none is recorded too: interrupted, it must not look like a change by others.
        """
        starts = range(0, max(1, len(event.saved)), IMAGES_IN_EVENT_MAX)
        pieces = [msgspec.structs.replace(event, saved=event.saved[at : at + IMAGES_IN_EVENT_MAX]) for at in starts]
        files = [image for image in event.saved if image.kind == "file" and image.blob]
        blobs: dict[str, Blob] = {str(image.blob): ("sensitive" if image.secret else "saved", None) for image in files}
        self.append(*pieces, blobs=blobs)


def make_site(
    world: World,
    store: Store,
    root: Root,
    session: Session,
    *,
    probes: bool,
    idle: Callable[[], None] = lambda: None,
    keeping: Callable[[ev.RollbackStarted], None] = lambda event: None,
    turn: contextlib.AbstractContextManager[object] = ALONE,
) -> Site:
    def show(step: str, piece: bytes) -> None:
        notice = notices.Notice(
            body=notices.StepOutput(text=piece.decode("utf-8", "replace")),
            at=world.clock(),
            session_id=session.session_id,
            task=step.partition(".")[0],
            step=step,
        )
        with turn:
            world.listener.emit(notice)

    assert session.records is not None
    settings = world.config.settings
    return Site(
        root=root,
        agent_dir=world.agent_dir,
        session_id=session.session_id,
        store=store,
        env=world.env,
        redactor=world.redactor,
        manifest=session.records.manifest,
        stop=world.stop,
        show=show,
        keeping=keeping,
        idle=idle,
        output_limit_bytes=settings.steps.output_limit_bytes,
        timeout_s=settings.steps.timeout_seconds,
        probes=probes,
        boot_id=locks.boot_id(),
        strict_redaction=settings.redaction.strict,
        lease=world.lease,
        share_bytes_max=SHARE_BYTES_MAX if settings.fleet.store is None else STEP_BYTES_MAX,
        turn=turn,
    )


# Opening.


def load_verified(world: World, store: Store, session_id: str) -> tuple[Loaded, list[str]]:
    """The session from the verified log, compared with its anchor; and the warnings.

    The anchor is read first: the log only grows, so one that is read later cannot be behind it. The other way round, a
    writer that appended in between would look like a database that was rolled back.
    """
    place = find_place(world, session_id)
    loaded = store.load(session_id)
    learn_secrets(world, loaded.session)
    check_anchor(store, loaded, place.anchor)
    return loaded, warnings_of(place, session_id)


def learn_secrets(world: World, session: Session) -> None:
    """A secret that any step of the session declares is masked in all of them, and on the screen."""
    steps = [] if session.plan is None else [step for task in session.plan.tasks for step in task.steps]
    if values := declared_values(steps, world.env, session.secret_env):
        world.redactor.learn(values)


def check_anchor(store: Store, loaded: Loaded, anchor: Anchor | None) -> None:
    session = loaded.session
    if anchor is None:
        return
    if anchor.seq > session.seq:
        raise LogRolledBack(
            f"session {short(session.session_id)} ends at event {session.seq}, but it was at {anchor.seq} already:"
            " the database was rolled back to an older state",
            seq=session.seq,
            anchor=anchor.seq,
        )
    found = (
        loaded.head
        if anchor.seq == session.seq
        else next((mac for seq, _, mac in store.rows(session.session_id, anchor.seq - 1, 1)), b"")
    )
    if found.hex() != anchor.head:
        raise LogRolledBack(
            f"event {anchor.seq} of session {short(session.session_id)} is not the one that was recorded outside the"
            " database: the log was replaced",
            seq=anchor.seq,
        )


def refuse_unknown_events(session: Session) -> None:
    """An event this version does not know may be a revocation: nothing is executed past it."""
    if session.unknown_types:
        seq, kind = next(iter(session.unknown_types.items()))
        raise UnknownEventType(
            f"event {seq} of session {short(session.session_id)} has the type {kind}, which this acode does not know"
        )


@contextlib.contextmanager
def held(
    world: World, text: str, *, wait: bool = False, ended_ok: bool = False, doing: str = "resume", brief: bool = False
) -> Iterator[Held]:
    """Lock, verify, fold: the session named `text`, ready to be continued. `doing`: the caller's purpose.

    `brief`: for one append; a resume that comes meanwhile waits for it instead of being refused.
    """
    with opened(world, look_only=False) as store, Root(world.workspace) as root:
        session_id = resolve_id(world, store, text)
        peeked, _ = store.peek(session_id)
        if peeked.terminal and not ended_ok:
            forget_secrets(store, session_id)
            peeked.created = created_by(store, peeked)  # it says how more of its kind is begun
            raise ended(peeked, doing)
        ensure_agent_dir(root)
        seen = locks.look(world.agent_dir / "locks", session_id, store.generation(session_id))
        wait_s = world.config.settings.session.lock_timeout_seconds if wait else 0.0
        try:
            lock, generation = locks.acquire(
                *(world.agent_dir / "locks", session_id, lambda: store.generation(session_id)),
                wait_s=wait_s,
                brief=brief,
                now=world.clock,
            )
        except SessionLocked as error:
            raise for_its_program(error, store, peeked) from None
        try:
            place = refuse_copy(world, session_id)
            ensure_ours(world, store, session_id)
            loaded, warnings = load_verified(world, store, session_id)
            if loaded.session.terminal and not ended_ok:
                raise ended(loaded.session, doing)
            in_hand = Held(world, store, store.journal(loaded, generation), root, lock)
            in_hand.warnings.extend(warnings)
            in_hand.owner_seen_at = seen.touched_at
            settle_place(in_hand, place)  # first: every event makes the anchor one of our own
            owed_decisions.append_owed(in_hand)
            if doing != "resume":  # a resume shows them behind its first line
                for warning in in_hand.warnings:
                    in_hand.emit(notices.RunWarning(message=warning))
            yield in_hand
        finally:
            lock.release()


def created_by(store: Store, session: Session) -> ev.SessionCreated | None:
    created = store.first_event(session.session_id, session)[0].event
    return created if isinstance(created, ev.SessionCreated) else None


def for_its_program(error: SessionLocked, store: Store, session: Session) -> SessionLocked:
    """A program without an entry point is run again; no command of acode can wait in its place."""
    created = created_by(store, session) if session.kind == PROGRAM.kind else None
    if created is not None and created.entry is None:
        subject = Subject(short(session.session_id), session.run_id or session.title, only_by_program=True)
        error.give_hint(locks.hint_to_wait(subject))
    return error


def settle_place(run: Held, place: Place) -> None:
    """A place without an anchor of its own gets one, and the log says why there was none. One that was made from the
    server's rows proves nothing: this place counts as one without.
    """
    arrived = place.anchor is not None and place.anchor.arrived
    if place.own and not arrived:
        seal.note_place(run.world.state_dir, run.world.workspace, run.session.session_id)
        return
    if not run.session.terminal:  # nothing is said behind its end
        data = {"from": str(place.moved_from)} if place.moved_from is not None else {}
        what = "moved here from another directory" if place.moved_from is not None else NO_ANCHOR
        if place.moved_from is not None or place.anchor is None or arrived:
            run.append(ev.Noted(what=what, data=data))
    run.anchor(durable=True)
    if place.moved_from is not None:
        seal.forget_anchor(run.world.state_dir, place.moved_from, run.session.session_id)


@contextlib.contextmanager
def created(world: World, event: ev.SessionCreated, *others: ev.Known, blobs: dict[str, Blob]) -> Iterator[Held]:
    """A new session, locked before anybody can see it."""
    with opened(world, look_only=False, create=True) as store, Root(world.workspace) as root:
        session_id = world.new_id()
        lock, _ = locks.acquire(world.agent_dir / "locks", session_id, lambda: 1, now=world.clock)
        try:
            journal = store.create(session_id)
            in_hand = Held(world, store, journal, root, lock)
            journal.append(event, *others, actor="user", blobs=blobs)
            in_hand.acknowledge(at_once=True)
            yield in_hand
        finally:
            lock.release()


def forget_secrets(store: Store, session_id: str) -> None:
    """A crash right behind the end may have kept pre-images and secrets from being removed: it is done now."""
    if holds_preimages(store, session_id):
        store.forget_preimages(session_id)


def ended(session: Session, doing: str = "resume") -> AcodeError:
    stays = "are not resumed" if doing == "resume" else "stay as they are"
    return TerminalState(
        f"Cannot {doing} {session.state} session {short(session.session_id)}: “{session.title}” has ended",
        hint=Hint("COMPLETED, FAILED and CANCELLED sessions {} Start a new one: {}", f"{stays}.", begin_again(session)),
        state=str(session.state),
        session_id=session.session_id,
    )

"""The journal: the one place where a session's log grows.

An append is one transaction: fence, rows, checkpoint, blobs. The session is folded on as it is said, so what the engine
sees is what the log is going to say. Appends that need not wait for each other share a transaction, and all that was
committed shares a sync: a caller continues when the commit, or the sync, that holds its own events is done. After a
failed one the journal is dead: the pages may already be marked clean, so nothing is tried again; the next start derives
the state from the log.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import apsw
import msgspec

from acode import forked, seal
from acode.errors import AcodeError, LockLost, WriteFailed
from acode.events import ENVELOPE_VERSION, Envelope, covered, encode, encode_short
from acode.events import types as ev
from acode.events.lean_steps import PlainEnd, PlainStart
from acode.state import Session, State, advance, advance_plain, begin
from acode.store import checkpoints as ck
from acode.store import database, session_index
from acode.store.blobs import INLINE_BYTES_MAX
from acode.store.checkpoint_tail import Tail
from acode.store.database import FULL, NORMAL
from acode.store.schema import SEQ_SPAN

if TYPE_CHECKING:
    from acode.store.store import Store

TOUCH = """
BEGIN IMMEDIATE;
UPDATE sessions SET created_at = created_at || ' ' WHERE session_id = :session_id;
UPDATE sessions SET created_at = rtrim(created_at) WHERE session_id = :session_id;
COMMIT;
"""
INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
# The same with the fence in it: an event whose session has another generation by now is given no session, which the
# table refuses. One statement is a transaction by itself, at a third of the cost of four.
INSERT_IF_OURS = (
    "INSERT INTO events VALUES (?1, (SELECT ?2 FROM sessions WHERE number = ?6 AND generation = ?7), ?3, ?4, ?5)"
)
INSERT_CHECKPOINT = "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)"
INSERT_SNAPSHOT = "INSERT INTO snapshots VALUES (?, ?, ?, ?)"
INSERT_BLOB = "INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?)"
GENERATION = "SELECT generation FROM sessions WHERE number = ?"
INSERT_FINISHED = "INSERT OR REPLACE INTO finished VALUES (?, ?, ?)"
ONE_TICK = timedelta(microseconds=1)
WAKE_S_MAX = 1.0  # the thread that syncs may be interrupted before it wakes the others

Short = PlainStart | PlainEnd
Plain = ev.StepStarted | ev.StepCompleted
Execute = Callable[..., apsw.Cursor]
Rows = tuple[str, Any]  # a statement, with the values of one row in a tuple, or those of many in a list
Blob = tuple[str, bytes | None]  # purpose, and the bytes unless they were brought as a file already


class Position(msgspec.Struct, frozen=True):
    """How far the log has come: an event, its code and its time."""

    seq: int
    head: bytes
    at: datetime | None


NOWHERE = Position(0, b"", None)


class Journal:
    """The writing end of one session's log, held by the process that holds its lock.

    session: folded on in place with every event; before the first one there is none.
    """

    session: Session
    enters_by_fence: bool = True  # False: more than the fence comes first in each of its transactions

    def __init__(
        self,
        store: Store,
        *,
        generation: int,
        session: Session | None,
        head: bytes,
        tail: Tail,
        bytes_since_snapshot: int = 0,
        session_id: str | None = None,
        keeps_checkpoints: bool = True,
    ) -> None:
        self._store = store
        self.generation = generation
        self._new_session_id = session_id
        self._exists = session is not None
        if session is not None:
            self.session = session
        self._head = head
        self._tail = tail
        self.unindexed: dict[str, int] = tail.unindexed  # a program's finished steps that the index does not know yet
        self._indexing: list[tuple[str, int]] = []  # and those that it is told of with the next commit
        self._keeps_checkpoints = keeps_checkpoints  # False: some are gone, and a new one would hide that
        self._bytes_since_snapshot = bytes_since_snapshot
        self._key_id = store.keyring.current
        self._key = store.keyring.key(self._key_id)
        self._first_key = store.keys_of(session.session_id).first_id if session else self._key_id
        cursor = store.db.cursor()  # one for all appends: making one costs as much as its row
        self._execute, self._execute_many = cursor.execute, cursor.executemany
        self._dead = False
        self._dead_disk = False  # a sync has failed
        self._failed = False  # dead because of a named error; else Ctrl+C, or the end of the stack, cut a write off
        self._begun = False  # whether the transaction is open already: the first event of a session needs its number
        self._rows: list[Rows] = []  # what waits to be committed, in order
        self._files: list[str] = []  # and the blobs that get their places with it
        self._checkpoint_for: ev.Known | ev.Unknown | None = None
        self.turn: threading.RLock = threading.RLock()  # the log has one writer, however many steps are worked on
        self.before_effect: Callable[[], None] | None = None  # asked with the fence, by those who need more than it
        self._make_sync_lock()
        self._syncing = False
        self._sync_number = 0
        self._lost_to: tuple[str, int | None] | None = None  # the session and the generation that another process has
        self._base = store.base(session.session_id) if session else 0
        store.blobs.writer = session.session_id if session else session_id or ""
        self._standing = ""  # as the index of sessions was last told; nothing yet
        self._noted_as: State | None = None  # the state of which it needs to be told nothing more
        self.committed: Position = Position(session.seq, head, session.updated_at) if session else NOWHERE
        self.durable: Position = self.committed  # what a power cut cannot take; the anchor names no more than that
        self.durable_seq: int = self.committed.seq
        forked.own(self, Journal._disown)

    def _disown(self) -> None:
        """A lock that another thread of the parent held at the fork would be waited for forever."""
        self.turn = threading.RLock()
        self._make_sync_lock()

    def _make_sync_lock(self) -> None:
        """The bare lock is what a thread takes that waits for nobody: a condition is several times slower."""
        self._sync_lock = threading.Lock()
        self._synced = threading.Condition(self._sync_lock)
        self._waiting = 0  # threads that the one that syncs has to wake

    @property
    def head(self) -> bytes:
        return self._head

    @property
    def checkpoint_id(self) -> int:
        return self._tail.checkpoint_id

    def _forget_indexed(self) -> None:
        """Only behind the commit: a step must be found at any time, here or in the index."""
        for step, seq in self._indexing:
            if self.unindexed.get(step) == seq:
                del self.unindexed[step]
        self._indexing = []

    def append(
        self,
        *events: ev.Known,
        actor: str = "system",
        durable: bool = True,
        blobs: Mapping[str, Blob] | None = None,
        wait: bool = True,
        short: Short | None = None,
        together: bool = False,
    ) -> list[Envelope]:
        """All events in one transaction. `durable` False: safe from kill -9 now, from power loss with the next one.

        `wait` False: they are written with whatever else waits, and nothing may rest on them before `settle`.
        `short`: the stored form of the one event, of a plain step, that was given. It is committed at once, because
        most such steps come alone, unless it must wait for a sync while somebody syncs, or `together` says that others
        come with it.
        """
        with self.turn:
            if self._dead:
                raise self._refusal()
            self._dead = True  # until it has succeeded: an error anywhere in between leaves memory ahead of the log
            try:
                if short is not None:
                    event: Plain = events[0]  # type: ignore[assignment]  # nothing else has such a form
                    envelopes = [self._append_plain(event, short, durable=durable, together=together)]
                else:
                    envelopes = self._prepare(events, actor, blobs)
                    if wait or self._begun:
                        self._commit(full=durable and not self._store.wal.usable)
            except BaseException as error:
                self._roll_back(error)
            self._dead = False
        if wait and durable:
            self.settle(envelopes[-1].seq, durable=True)
        return envelopes

    def settle(self, seq: int, *, durable: bool, patient: bool = False) -> None:
        """Return once event `seq` is committed; `durable`: and cannot be lost to a power cut any more.

        Whatever waits is committed in one transaction, and one sync serves all that was committed before it began.
        `patient`: while another thread syncs, let more come together, and commit when it is done.
        """
        if not durable and self.committed.seq >= seq:
            return
        if patient and self._syncing:
            self._wait_for_one_sync()
        while self.durable_seq < seq:
            apart = self._store.wal.usable
            if not apart or self.committed.seq < seq:
                with self.turn:
                    self._commit_through(seq, durable=durable, apart=apart)
            if not durable:
                return
            if apart:
                self._sync_through(seq)

    def _commit_through(self, seq: int, *, durable: bool, apart: bool) -> None:
        """`apart`: the sync follows; otherwise the commit of what is durable is a full one."""
        if self.committed.seq < seq:
            if self._dead:
                raise self._refusal()
            self._dead = True
            try:
                self._commit(full=durable and not apart)
            except BaseException as error:
                self._roll_back(error)
            self._dead = False
        elif durable and not apart and self.durable_seq < seq:
            self._commit_again()

    def flush(self) -> None:
        """Make all that was said so far survive a power cut."""
        if self._exists:
            self.settle(self.session.seq, durable=True)

    def _commit(self, *, full: bool) -> None:
        """One transaction: the fence, all rows that wait, a checkpoint for them."""
        if self._checkpoint_for is not None:
            self._write_checkpoint(self._checkpoint_for)
        rows, self._rows = self._rows, []
        accompanied = len(rows) != 1 or self._files or rows[0][0] is not INSERT_EVENT
        if not (accompanied or self._begun or self._store.room.is_wanted) and self.enters_by_fence:
            self._insert_alone(rows[0][1], full=full)
        else:
            self._insert_together(rows, full=full)
        self.committed = Position(self.session.seq, self._head, self.session.updated_at)
        if full:
            self._note_durable(self.committed)

    def _insert_alone(self, row: tuple[Any, ...], *, full: bool) -> None:
        """One event that needs nothing in its transaction but the fence, as most steps record theirs: SQLite takes the
        write lock, looks at the generation and commits in one statement."""
        if (FULL if full else NORMAL) != self._store.synchronous:
            self._set_synchronous(FULL if full else NORMAL)
        try:
            self._execute(INSERT_IF_OURS, (*row, self._base // SEQ_SPAN, self.generation))
        except apsw.ConstraintError as error:
            self._fence(self.session.session_id, self._execute)
            raise self._fenced(self.session.session_id, None) from error  # its number is somebody else's

    def _insert_together(self, rows: list[Rows], *, full: bool) -> None:
        if not self._begun:
            self._begin(FULL if full else NORMAL)
            self._enter()
        try:
            for query, values in rows:
                (self._execute if type(values) is tuple else self._execute_many)(query, values)
        except apsw.ConstraintError as error:
            if query is INSERT_EVENT:  # somebody else has written this number already
                raise self._fenced(self.session.session_id, None) from error
            raise
        if self._files:
            self._store.blobs.place(self._files)
            self._files = []
        self._store.room.ahead()
        self._execute("COMMIT")
        self._begun = False
        if self._indexing:
            self._forget_indexed()

    def _begin(self, level: int) -> None:
        if level != self._store.synchronous:
            self._set_synchronous(level)
        self._execute("BEGIN IMMEDIATE")
        self._begun = True

    def _roll_back(self, error: BaseException) -> NoReturn:
        """Nothing of what failed is in the log, and nothing is tried again."""
        self._failed = isinstance(error, (AcodeError, *database.NAMED))
        with database.translated(self._store.path):
            if self._store.db.in_transaction:
                self._store.db.execute("ROLLBACK")
            raise error

    def _enter(self) -> None:
        """The first thing in every transaction of a session that exists."""
        self._fence(self.session.session_id, self._execute)

    def _commit_again(self) -> None:
        """A full commit syncs every frame before it. It must write a page: SQLite leaves out an update that changes
        nothing, and with it the sync."""
        if self._dead:
            raise self._refusal()
        self._dead = True
        reached = self.committed
        try:
            if self._store.synchronous != FULL:
                self._set_synchronous(FULL)
            self._store.db.execute(TOUCH, {"session_id": self.session.session_id})
        except BaseException as error:
            self._roll_back(error)
        self._dead = False
        self._note_durable(reached)

    def _wait_for_one_sync(self) -> None:
        with self._sync_lock:
            number = self._sync_number
            while self._syncing and self._sync_number == number:
                self._wait_for_sync()

    def _wait_for_sync(self) -> None:
        self._waiting += 1
        try:
            self._synced.wait(WAKE_S_MAX)
        finally:
            self._waiting -= 1

    def _sync_through(self, seq: int) -> None:
        """Sync for all that wait, or wait for the thread that does; in vain where the sync is left to SQLite. Ctrl+C
        raises at any moment: `_syncing` that was left set would make all wait forever."""
        syncs, reached, synced = False, self.committed, False
        try:
            with self._sync_lock:
                while self._syncing:
                    self._wait_for_sync()
                    if self.durable_seq >= seq:
                        return
                if self._dead_disk:
                    raise self._refusal()
                syncs = self._syncing = True
            reached = self.committed
            synced = self._store.wal.sync()
        except (AcodeError, *database.NAMED) as error:
            if not syncs:
                raise
            self._dead = self._dead_disk = True
            database.leave_wal_alone(self._store.db)
            raise error if isinstance(error, AcodeError) else database.named(error, self._store.path) from error
        finally:
            if syncs:
                self._syncing = False
                with self._sync_lock:
                    self._sync_number += 1
                    if synced:
                        self._note_durable(reached)
                    if self._waiting:
                        self._synced.notify_all()

    def _note_durable(self, reached: Position) -> None:
        if reached.seq > self.durable_seq:
            self.durable, self.durable_seq = reached, reached.seq

    def refuse_if_fenced(self) -> None:
        """Ask before an effect: the process may have slept since its last append."""
        with self.turn:
            try:
                self._fence(self.session.session_id, self._execute)
            except database.NAMED as error:
                raise database.named(error, self._store.path) from error
        if self.before_effect is not None:
            self.before_effect()

    @contextlib.contextmanager
    def while_ours(self) -> Iterator[None]:
        """Nobody takes the session over while this lasts: that needs the database's write lock, which is held here."""
        execute = self._store.db.execute
        with self.turn, database.translated(self._store.path):
            execute("BEGIN IMMEDIATE")
            try:
                self._fence(self.session.session_id, execute)
                yield
            finally:
                execute("ROLLBACK")

    def _set_synchronous(self, level: int) -> None:
        """Remembered with the connection, because several journals of one store share it."""
        database.set_synchronous(self._store.db, level)
        self._store.synchronous = level

    def _next(self, event: ev.Known, actor: str) -> Envelope:
        """The envelope of the next event; time never stands still or goes back within a session."""
        session, store = self.session if self._exists else None, self._store
        at = store.clock()
        if session is not None and at <= session.updated_at:
            at = session.updated_at + ONE_TICK
        session_id = session.session_id if session else self._new_session_id or store.new_id()
        seq = session.seq + 1 if session else 1
        envelope = Envelope(
            v=ENVELOPE_VERSION,
            session_id=session_id,
            seq=seq,
            at=at,
            actor=actor,
            key_id=self._key_id,
            event=event,
        )
        if session is None:
            self.session, self._exists = begin(envelope), True
        else:
            advance(session, envelope)
        return envelope

    def _prepare(self, events: tuple[ev.Known, ...], actor: str, blobs: Mapping[str, Blob] | None) -> list[Envelope]:
        """Fold and seal. The checkpoint stands before a step that begins in the same append, never inside it."""
        envelopes: list[Envelope] = []
        due = False
        for event in events:
            if due and isinstance(event, ev.StepStarted):
                self._write_checkpoint(envelopes[-1].event)
                due = False
            envelope = self._next(event, actor)
            envelopes.append(envelope)
            due = self._write_event(envelope) or due
            if isinstance(event, ev.Quarantined):
                self._begin_again()
        if blobs:
            self._insert_blobs(blobs)
        if (due or (not self.session.in_flight and self._tail.is_due)) and self._keeps_checkpoints:
            self._checkpoint_for = envelopes[-1].event
        if self.session.state is not self._noted_as:
            self._note_standing()
        return envelopes

    def _append_plain(self, event: Plain, short: Short, *, durable: bool, together: bool) -> Envelope:
        """The same for the start or the completion of a plain step, which nothing accompanies: fold, seal and commit
        it, unless it waits. In one piece: this runs twice in each step, and behind a sync the caches are cold."""
        session, store, key_id = self.session, self._store, self._key_id
        at, session_id, seq = store.clock(), session.session_id, session.seq + 1
        if at <= session.updated_at:
            at = session.updated_at + ONE_TICK
        advance_plain(session, event, seq, at)
        body = encode_short(short, at, "" if key_id == self._first_key else key_id)
        head = self._head = seal.code(self._key, self._head, covered(ENVELOPE_VERSION, session_id, seq, body))
        size = len(body)
        self._bytes_since_snapshot += size
        row = (self._base + seq, session_id, seq, body.decode(), head)
        due = self._tail.add(event, seq, size, len(session.in_flight)) and self._keeps_checkpoints
        waits, full = together or (durable and self._syncing), durable and not store.wal.usable
        accompanied = due or self._rows or self._files or session.state is not self._noted_as
        if waits or accompanied or self._begun or store.room.is_wanted or not self.enters_by_fence:
            self._rows.append((INSERT_EVENT, row))
            if due:
                self._checkpoint_for = event
            if session.state is not self._noted_as:
                self._note_standing()
            if self._begun or not waits:
                self._commit(full=full)
        else:
            self._insert_alone(row, full=full)
            self.committed = Position(seq, head, at)
            if full:
                self._note_durable(self.committed)
        return Envelope(
            v=ENVELOPE_VERSION,
            session_id=session_id,
            seq=seq,
            at=at,
            actor="system",
            key_id=key_id,
            event=event,
        )

    def _write_event(self, envelope: Envelope) -> bool:
        """Whether a checkpoint row is due with it."""
        seq, session_id = envelope.seq, envelope.session_id
        if seq == 1:
            self._insert_session(envelope)
        body = encode(envelope, first_key=self._first_key, boot_id=self.session.boot_id)
        head = self._head = seal.code(self._key, self._head, covered(envelope.v, session_id, seq, body))
        size = len(body)
        self._bytes_since_snapshot += size
        self._rows.append((INSERT_EVENT, (self._base + seq, session_id, seq, body.decode(), head)))
        return self._tail.add(envelope.event, seq, size, len(self.session.in_flight))

    def _insert_blobs(self, blobs: Mapping[str, Blob]) -> None:
        """The rows, and the files they name in their places: a session that ends sees both or neither.

        A secret never stands in a row: rows are copied by backups, and linger in the WAL.
        """
        for sha256, (purpose, data) in blobs.items():
            row = data
            if data is not None and (purpose == "sensitive" or len(data) > INLINE_BYTES_MAX):
                self._store.blobs.bring([data], sensitive=purpose == "sensitive")
                row = None
            if row is None:
                self._files.append(sha256)
            self._rows.append((INSERT_BLOB, (self.session.session_id, sha256, purpose, row)))

    def _begin_again(self) -> None:
        """After a repair no checkpoint that stood there is needed: the next one holds a full snapshot."""
        for query in (
            "DELETE FROM checkpoints WHERE id > ? AND id < ?",
            "DELETE FROM snapshots WHERE id > ? AND id < ?",
        ):
            self._rows.append((query, (self._base, self._base + SEQ_SPAN)))
        self._tail = Tail(None, self.unindexed)
        self._bytes_since_snapshot = max(self._bytes_since_snapshot, ck.SNAPSHOT_BYTES_MIN)

    def _insert_session(self, envelope: Envelope) -> None:
        """Now, because the rows are filed under the number that it gets; the events follow in the same transaction."""
        row = (envelope.session_id, stamp(envelope.at), self.generation, session_index.key_of(envelope.event))
        self._begin(NORMAL if self._store.wal.usable else FULL)
        self._execute(session_index.INSERT, row)
        self._base = self._store.base(envelope.session_id)

    def _note_standing(self) -> None:
        """For lists of sessions. Once while it runs: another page in the commit of every step would cost too much."""
        standing = session_index.standing_of(self.session)
        self._noted_as = self.session.state if standing == session_index.RUNNING else None
        if standing == session_index.RUNNING == self._standing:
            return
        active_us = session_index.microseconds(self.session.updated_at)
        self._rows.append((session_index.NOTE, (standing, active_us, self._base // SEQ_SPAN)))
        self._standing = standing

    def _fence(self, session_id: str, execute: Execute) -> None:
        """A process whose lock was broken while it slept finds another generation, and must not write."""
        # To the end of the rows, or the shared cursor would keep reading, and the connection its old view of the log.
        found = execute(GENERATION, (self._base // SEQ_SPAN,)).get
        if found != self.generation:
            raise self._fenced(session_id, found)

    def _fenced(self, session_id: str, found: int | None) -> LockLost:
        self._lost_to = (session_id, found)
        return LockLost(
            f"session {session_id[-8:]} was taken over by another process: this one is fenced off",
            generation=self.generation,
            found=found,
        )

    def is_cut_off(self) -> bool:
        return self._dead and not (self._failed or self._dead_disk)

    def _refusal(self) -> AcodeError:
        """Why nothing more is taken after a failed write; a lost lock is not to be mistaken for a broken disk."""
        if self._lost_to is not None:
            return self._fenced(*self._lost_to)
        what = "was cut off" if self.is_cut_off() else "failed"
        return WriteFailed(f"an earlier write {what}: this process must not write to the log any more")

    def _write_checkpoint(self, last: ev.Known | ev.Unknown) -> None:
        """A row; with it the index is told of the steps that were finished since the one before."""
        session, tail = self.session, self._tail
        checkpoint = ck.Checkpoint(
            v=ck.CHECKPOINT_VERSION,
            id=tail.next_id(),
            session_id=session.session_id,
            seq=session.seq,
            head=self._head.hex(),
            key_id=self._key_id,
            at=session.updated_at,
            session=ck.by_position(ck.small(session)),
            label=last.label if isinstance(last, ev.CheckpointCreated) else "",
            snapshot=self._snapshot(),
            row=tail.row.row_number + 1 if tail.row is not None else 0,
        )
        body, mac = ck.encode_checkpoint(checkpoint, self._store.keyring)
        row = (self._base + session.seq, session.session_id, session.seq, body.decode(), mac)
        self._rows.append((INSERT_CHECKPOINT, row))
        self._indexing = sorted(self.unindexed.items())
        if session.steps_from.asked:
            number = self._base // SEQ_SPAN
            self._rows.append((INSERT_FINISHED, [(number, step, seq) for step, seq in self._indexing]))
        self._tail = Tail(msgspec.structs.replace(checkpoint, size=len(body)), self.unindexed)
        self._checkpoint_for = None

    def _snapshot(self) -> ck.SnapshotRef | None:
        """The last snapshot, or a new one once the log has grown by as much as the last one holds."""
        ref = self._tail.row.snapshot if self._tail.row is not None else None
        if ref is not None and self._bytes_since_snapshot < max(ref.size, ck.SNAPSHOT_BYTES_MIN):
            return ref
        if ref is None and self._bytes_since_snapshot < ck.SNAPSHOT_BYTES_MIN:
            return None
        session = self.session
        body = ck.encode_snapshot(session)
        row = (self._base + session.seq, session.session_id, session.seq, body)
        self._rows.append((INSERT_SNAPSHOT, row))
        self._bytes_since_snapshot = 0
        sha256 = hashlib.sha256(body).hexdigest()
        return ck.SnapshotRef(seq=session.seq, sha256=sha256, head=self._head.hex(), size=len(body))


def stamp(at: datetime) -> str:
    text: str = msgspec.to_builtins(at)
    return text


Clock = Callable[[], datetime]
NewId = Callable[[], str]

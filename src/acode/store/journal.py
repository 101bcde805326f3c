"""The journal: the one place where a session's log grows.

An append is one transaction: fence, rows, checkpoint, blobs. The session is folded on as it is written, so what the
engine sees is what the log says. After a failed commit the journal is dead: the pages may already be marked clean, so
nothing is tried again; the next start derives the state from the log.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import apsw
import msgspec

from acode import seal
from acode.errors import AcodeError, LockLost, WriteFailed
from acode.events import ENVELOPE_VERSION, Envelope, encode
from acode.events import types as ev
from acode.state import Session, advance, begin
from acode.store import checkpoints as ck
from acode.store import database
from acode.store.blobs import INLINE_BYTES_MAX
from acode.store.schema import SEQ_SPAN

if TYPE_CHECKING:
    from acode.store.store import Store

TAIL_EVENTS_MAX = 64  # a quiet session that collects refused decisions gets a checkpoint after so many
CHECKPOINTED = (
    ev.SessionCreated,
    ev.StepCompleted,
    ev.CheckpointCreated,
    ev.StepsRolledBack,
    ev.SessionCompleted,
    ev.Quarantined,
)
TOUCH = """
BEGIN IMMEDIATE;
UPDATE sessions SET created_at = created_at || ' ' WHERE session_id = :session_id;
UPDATE sessions SET created_at = rtrim(created_at) WHERE session_id = :session_id;
COMMIT;
"""
INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?)"
GENERATION = "SELECT generation FROM sessions WHERE number = ?"
INSERT_FINISHED = "INSERT OR REPLACE INTO finished VALUES (?, ?, ?)"
ONE_TICK = timedelta(microseconds=1)

Execute = Callable[..., apsw.Cursor]
Blob = tuple[str, bytes | None]  # purpose, and the bytes unless they were brought as a file already


class Journal:
    """The writing end of one session's log, held by the process that holds its lock.

    session: folded on in place with every event; before the first one there is none.
    """

    session: Session

    def __init__(
        self,
        store: Store,
        *,
        generation: int,
        session: Session | None,
        head: bytes,
        last: ck.Checkpoint | None,
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
        self._last = last
        self._keeps_checkpoints = keeps_checkpoints  # False: some are gone, and a new one would hide that
        self._bytes_since_snapshot = bytes_since_snapshot
        self._key_id = store.keyring.current
        self._key = store.keyring.key(self._key_id)
        self._execute = store.db.cursor().execute  # one cursor for all appends: making one costs as much as its row
        self._dead = False
        self._lost_to: tuple[str, int | None] | None = None  # the session and the generation that another process has
        self._base = store.base(session.session_id) if session else 0
        store.blobs.writer = session.session_id if session else session_id or ""
        self.durable_seq: int = session.seq if session else 0

    @property
    def head(self) -> bytes:
        return self._head

    @property
    def checkpoint(self) -> ck.Checkpoint | None:
        return self._last

    def append(
        self, *events: ev.Known, actor: str = "system", durable: bool = True, blobs: Mapping[str, Blob] | None = None
    ) -> list[Envelope]:
        """All events in one transaction. `durable` False: safe from kill -9 now, from power loss with the next one."""
        if self._dead:
            raise self._refusal()
        self._dead = True  # until the commit has succeeded: an error anywhere in between leaves memory ahead of the log
        db = self._store.db
        try:
            self._set_synchronous(database.FULL if durable else database.NORMAL)
            self._execute("BEGIN IMMEDIATE")
            envelopes = self._write(events, actor, blobs)
            self._store.room.ahead()
            self._execute("COMMIT")
        except BaseException:
            with database.translated(self._store.path):
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        self._dead = False
        if durable:
            self.durable_seq = envelopes[-1].seq
        return envelopes

    def flush(self) -> None:
        """Make all that was committed survive a power cut: a full commit syncs every frame before it.

        The commit must write a page: SQLite leaves out an update that changes nothing, and with it the sync.
        """
        if not self._exists or self.durable_seq == self.session.seq:
            return
        if self._dead:
            raise self._refusal()
        self._dead = True
        with database.translated(self._store.path):
            self._set_synchronous(database.FULL)
            try:
                self._store.db.execute(TOUCH, {"session_id": self.session.session_id})
            except BaseException:
                if self._store.db.in_transaction:
                    self._store.db.execute("ROLLBACK")
                raise
        self._dead = False
        self.durable_seq = self.session.seq

    def refuse_if_fenced(self) -> None:
        """For whoever is about to do something in the world: it may have slept since its last word."""
        with database.translated(self._store.path):
            self._fence(self.session.session_id, self._store.db.execute)

    @contextlib.contextmanager
    def while_ours(self) -> Iterator[None]:
        """Nobody takes the session over while this lasts: that needs the database's write lock, which is held here."""
        execute = self._store.db.execute
        with database.translated(self._store.path):
            execute("BEGIN IMMEDIATE")
            try:
                self._fence(self.session.session_id, execute)
                yield
            finally:
                execute("ROLLBACK")

    def _set_synchronous(self, level: int) -> None:
        """Remembered with the connection, because several journals of one store share it."""
        if level != self._store.synchronous:
            database.set_synchronous(self._store.db, level)
            self._store.synchronous = level

    def _next(self, event: ev.Known, actor: str) -> Envelope:
        """The envelope of the next event; time never stands still or goes back within a session."""
        session, store = self.session if self._exists else None, self._store
        at = store.clock()
        if session is not None and at <= session.updated_at:
            at = session.updated_at + ONE_TICK
        envelope = Envelope(
            v=ENVELOPE_VERSION,
            session_id=session.session_id if session else self._new_session_id or store.new_id(),
            seq=session.seq + 1 if session else 1,
            event_id=store.new_id(),
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

    def _write(self, events: tuple[ev.Known, ...], actor: str, blobs: Mapping[str, Blob] | None) -> list[Envelope]:
        """Rows in order; the checkpoint stands before a step that begins in the same transaction, never inside it."""
        envelopes = list[Envelope]()
        if self._exists:
            self._fence(self.session.session_id, self._execute)
        due = False
        for event in events:
            if due and isinstance(event, ev.StepStarted):
                self._write_checkpoint(envelopes[-1].event)
                due = False
            envelopes.append(self._write_event(self._next(event, actor)))
            due = due or isinstance(event, CHECKPOINTED)
            if isinstance(event, ev.Quarantined):
                self._begin_anew()
        if blobs:
            self._insert_blobs(blobs)
        if self._keeps_checkpoints and (due or self._overdue()):
            self._write_checkpoint(envelopes[-1].event)
        return envelopes

    def _write_event(self, envelope: Envelope) -> Envelope:
        seq, session_id, event = envelope.seq, envelope.session_id, envelope.event
        if seq == 1:
            self._insert_session(envelope)
        body = encode(envelope)
        self._head = seal.code(self._key, self._head, body)
        self._bytes_since_snapshot += len(body)
        try:
            self._execute(INSERT_EVENT, (self._base + seq, session_id, seq, body.decode(), self._head))
        except apsw.ConstraintError as error:  # somebody else has written this number already
            raise self._fenced(session_id, None) from error
        if isinstance(event, ev.StepCompleted) and self.session.steps_from.asked:
            self._execute(INSERT_FINISHED, (self._base // SEQ_SPAN, event.step, seq))
        return envelope

    def _insert_blobs(self, blobs: Mapping[str, Blob]) -> None:
        """The rows, and the files they name in their places: a session that ends sees both or neither.

        A secret never stands in a row: rows are copied by backups, and linger in the WAL.
        """
        files = list[str]()
        for sha256, (purpose, data) in blobs.items():
            row = data
            if data is not None and (purpose == "sensitive" or len(data) > INLINE_BYTES_MAX):
                self._store.blobs.bring([data], sensitive=purpose == "sensitive")
                row = None
            if row is None:
                files.append(sha256)
            self._store.db.execute(
                "INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?)", (self.session.session_id, sha256, purpose, row)
            )
        self._store.blobs.place(files)

    def _begin_anew(self) -> None:
        """After a repair no checkpoint that stood there is needed: the next one carries a full snapshot."""
        for query in (
            "DELETE FROM checkpoints WHERE id > ? AND id < ?",
            "DELETE FROM snapshots WHERE id > ? AND id < ?",
        ):
            self._store.db.execute(query, (self._base, self._base + SEQ_SPAN))
        self._last = None
        self._bytes_since_snapshot = max(self._bytes_since_snapshot, ck.SNAPSHOT_BYTES_MIN)

    def _insert_session(self, envelope: Envelope) -> None:
        row = (envelope.session_id, stamp(envelope.at), self.generation)
        self._store.db.execute("INSERT INTO sessions(session_id, created_at, generation) VALUES (?, ?, ?)", row)
        self._base = self._store.base(envelope.session_id)

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

    def _refusal(self) -> AcodeError:
        """Why nothing more is taken after a failed write; a lost lock is not to be mistaken for a broken disk."""
        if self._lost_to is not None:
            return self._fenced(*self._lost_to)
        return WriteFailed("an earlier write failed: this process must not write to the log any more")

    def _overdue(self) -> bool:
        behind = self.session.seq - (self._last.seq if self._last else 0)
        return behind >= TAIL_EVENTS_MAX and not self.session.in_flight  # never in the middle of a step

    def _write_checkpoint(self, last: ev.Known | ev.Unknown) -> None:
        session = self.session
        checkpoint = ck.Checkpoint(
            v=ck.CHECKPOINT_VERSION,
            id=self._last.id + 1 if self._last else 0,
            session_id=session.session_id,
            seq=session.seq,
            head=self._head.hex(),
            key_id=self._key_id,
            at=session.updated_at,
            session=ck.small(session),
            label=last.label if isinstance(last, ev.CheckpointCreated) else "",
            snapshot=self._snapshot(),
        )
        body, mac = ck.encode_checkpoint(checkpoint, self._store.keyring)
        row = (self._base + session.seq, session.session_id, session.seq, body.decode(), mac)
        self._execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", row)
        self._last = checkpoint

    def _snapshot(self) -> ck.SnapshotRef | None:
        """The last snapshot, or a new one once the log has grown by as much as the last one holds."""
        ref = self._last.snapshot if self._last else None
        if ref is not None and self._bytes_since_snapshot < max(ref.size, ck.SNAPSHOT_BYTES_MIN):
            return ref
        if ref is None and self._bytes_since_snapshot < ck.SNAPSHOT_BYTES_MIN:
            return None
        session = self.session
        body = ck.encode_snapshot(session)
        row = (self._base + session.seq, session.session_id, session.seq, body)
        self._store.db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", row)
        self._bytes_since_snapshot = 0
        sha256 = hashlib.sha256(body).hexdigest()
        return ck.SnapshotRef(seq=session.seq, sha256=sha256, head=self._head.hex(), size=len(body))


def stamp(at: datetime) -> str:
    text: str = msgspec.to_builtins(at)
    return text


Clock = Callable[[], datetime]
NewId = Callable[[], str]

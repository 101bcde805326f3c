"""The store: all reading of the log, and the making of journals; all SQL of the workspace lives in this package.

Nothing is returned that was not verified. A missing, torn or foreign row is an error by name; an empty answer only
ever means that there is nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import apsw
import msgspec

from acode import forked, seal
from acode.disk.own_files import open_own
from acode.errors import (
    BlobDamaged,
    ChainBroken,
    CheckpointMissing,
    NotWritable,
    SequenceGap,
    UnknownSession,
    UnreadableEvent,
)
from acode.events import Envelope, covered, decode
from acode.events import types as ev
from acode.events.definition import Plan
from acode.seal import GENESIS, Keyring
from acode.state import Session, advance, begin
from acode.store import checkpoints as ck
from acode.store import database, removal
from acode.store.blobs import INLINE_BYTES_MAX, Blobs
from acode.store.checkpoint_tail import Tail
from acode.store.flights import with_flights
from acode.store.inherited import Inherited, file_of
from acode.store.journal import Clock, Journal, NewId, stamp
from acode.store.row_check import Keys, SessionKeys, Stored
from acode.store.schema import SEQ_SPAN
from acode.store.verification import Verified, believed, verify
from acode.store.wal_preallocation import Room
from acode.store.wal_sync import WalSync

DATABASE = "workspace.db"
BLOB_BYTES_MAX = 256 * 1_048_576  # what is read into memory at once; larger pre-images are streamed


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A session as the verified log says it is, with the values that a journal needs to continue from there."""

    session: Session
    head: bytes
    checkpoint: ck.Checkpoint | None  # the newest; None: it was folded from the log alone
    tail: Tail
    first_seq: int
    bytes_since_snapshot: int


class Store:
    """One connection to one workspace's database."""

    def __init__(
        self, agent_dir: Path, keyring: Keyring, *, clock: Clock, new_id: NewId, look_only: bool = False
    ) -> None:
        self.path: Path = agent_dir / DATABASE
        self.keyring = keyring
        self.clock = clock
        self.new_id = new_id
        self.blobs: Blobs = Blobs(agent_dir / "blobs")
        self.synchronous: int = database.FULL
        self.db: apsw.Connection = (
            database.connect_to_look(self.path) if look_only else database.connect(self.path, stamp(clock()))
        )
        self.room: Room = Room(f"{self.path}-wal")
        self.wal: WalSync = WalSync(self.db, f"{self.path}-wal", look_only=look_only)
        self._file = file_of(self.path)
        self._keys: SessionKeys | None = None
        self._inherited = False
        self._closed = False
        forked.own(self, Store._disown)

    def _disown(self) -> None:
        """The connection belongs to the parent, and so does whatever waits to be named by it."""
        connection: Any = Inherited(self.db, self.path, self._file)
        self.db, self._inherited = connection, True

    @property
    def usable(self) -> bool:
        """Whether it is open, and was opened by this process."""
        return not self._closed and not self._inherited

    def close(self) -> None:
        self._closed = True
        if self._inherited:
            return
        forked.give_back(self)
        self.room.close()
        self.wal.close()
        self.blobs.let_go()
        with database.translated(self.path):
            self.db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        # A read that met a sick disk has no name yet; what changes something is named where it happens.
        if isinstance(error, apsw.Error):
            raise database.named(error, self.path) from error

    @contextlib.contextmanager
    def lent(self) -> Iterator[Store]:
        """For a block that does not close it, and in which errors have the names that they have at its end."""
        try:
            yield self
        except apsw.Error as error:
            raise database.named(error, self.path) from error

    # Sessions.

    def session_ids(self) -> list[str]:
        """All sessions, the oldest first."""
        with database.translated(self.path):
            return [row[0] for row in self.db.execute("SELECT session_id FROM sessions ORDER BY created_at, number")]

    def has(self, session_id: str) -> bool:
        """Whether there is a session of exactly this id."""
        with database.translated(self.path):
            return self.db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).get is not None

    def base(self, session_id: str) -> int:
        """The rows of a session have the ids from here on, by their seq."""
        row = self.db.execute("SELECT number FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        if row is None:
            raise UnknownSession(f"there is no session {session_id}")
        return int(row[0]) * SEQ_SPAN

    def create(self, session_id: str | None = None) -> Journal:
        """The journal of a session that does not exist yet; its first event makes it, under the id it was given."""
        return Journal(self, generation=1, session=None, head=GENESIS, tail=Tail(None), session_id=session_id)

    def journal(self, loaded: Loaded, generation: int, *, keeps_checkpoints: bool = True) -> Journal:
        return Journal(
            self,
            generation=generation,
            session=loaded.session,
            head=loaded.head,
            tail=loaded.tail,
            bytes_since_snapshot=loaded.bytes_since_snapshot,
            keeps_checkpoints=keeps_checkpoints,
        )

    def generation(self, session_id: str) -> int:
        with database.translated(self.path):
            row = self.db.execute("SELECT generation FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        if row is None:
            raise UnknownSession(f"there is no session {session_id}")
        return int(row[0])

    def raise_generation(self, session_id: str, found: int) -> int:
        """Fence off the holder of the lock of generation `found`; from now on its appends are refused."""
        with database.translated(self.path):
            database.set_synchronous(self.db, database.FULL)
            self.synchronous = database.FULL
            self.db.execute(
                "UPDATE sessions SET generation = ? WHERE session_id = ? AND generation = ?",
                (found + 1, session_id, found),
            )
        return self.generation(session_id)

    # Reading.

    def keys_of(self, session_id: str) -> SessionKeys:
        """The keys of the session's rows; remembered for the one that was asked for last."""
        if self._keys is None or self._keys.session_id != session_id:
            first = lambda: next((body for _, _, body, _ in self.stored(session_id, 0, 1)), None)  # noqa: E731
            self._keys = SessionKeys(self.keyring, session_id, first)
        return self._keys

    def stored(self, session_id: str, after: int = 0, limit: int = -1) -> Iterator[Stored]:
        """Rows as stored, each with the session under which it is filed.

        The body comes as bytes: damage can make it text that cannot be decoded.
        """
        with database.translated(self.path):
            base = self.base(session_id)
            query = (
                "SELECT seq, session_id, CAST(body AS BLOB), mac FROM events"
                " WHERE id > ? AND id < ? ORDER BY id LIMIT ?"
            )
            yield from self.db.execute(query, (base + after, base + SEQ_SPAN, limit))

    def rows(self, session_id: str, after: int = 0, limit: int = -1) -> Iterator[tuple[int, bytes, bytes]]:
        for seq, owner, body, mac in self.stored(session_id, after, limit):
            if owner != session_id:
                raise ChainBroken(f"event {seq} of session {session_id[-8:]} is filed under {owner}", seq=seq)
            yield seq, body, mac

    def events(self, session_id: str, after: int = 0, head: bytes = GENESIS) -> Iterator[tuple[Envelope, bytes, int]]:
        """Verified envelopes with their codes and sizes; stops at the first gap, break or unreadable row.

        From the first event on, what a repair has set aside is left out; behind a checkpoint there is nothing of it.
        """
        if after == 0:
            yield from believed(self, session_id)
            return
        expected, keys = after + 1, self.keys_of(session_id)
        for seq, body, mac in self.rows(session_id, after):
            if seq != expected:
                raise SequenceGap(
                    f"session {session_id[-8:]}: event {expected} is missing, the log continues with {seq}",
                    seq=expected,
                )
            yield verify_row(session_id, seq, body, mac=mac, head=head, keys=keys), mac, len(body)
            head, expected = mac, seq + 1

    def load(self, session_id: str) -> Loaded:
        """The whole session: newest checkpoint, its snapshot, and the verified tail."""
        with self.one_view(), named_checkpoint(session_id):
            return self._load(session_id)

    def load_log(self, session_id: str) -> Loaded:
        """The whole session from its verified events alone, where checkpoints are gone."""
        with self.one_view():
            events = self.events(session_id)
            first, head, size = next(events)
            session = begin(first)
            for envelope, mac, length in events:
                advance(session, envelope)
                head, size = mac, size + length
            assert isinstance(first.event, ev.SessionCreated)
            session.created = first.event
            session.plan = self.plan_of(session)
        nothing = Tail(None)
        return Loaded(session=session, head=head, checkpoint=None, tail=nothing, first_seq=1, bytes_since_snapshot=size)

    @contextlib.contextmanager
    def one_view(self) -> Iterator[None]:
        """All reads within see one state of the database.

        Without it a writer could complete a step between the look at the newest checkpoint and the look at the tail,
        and the new completion would seem to have lost its checkpoint.
        """
        with database.translated(self.path):
            if self.db.in_transaction:
                yield
                return
            self.db.execute("BEGIN")
            try:
                yield
            finally:
                self.db.execute("ROLLBACK")

    def _load(self, session_id: str) -> Loaded:
        checkpoint = self.last_checkpoint(session_id)
        tail = Tail(checkpoint)
        created, first_mac = self.first_event(session_id, checkpoint.session)
        ref = checkpoint.snapshot
        if ref is not None:
            session = with_flights(self, ck.open_snapshot(ref, self.snapshot_body(session_id, ref.seq)))
            head, start = bytes.fromhex(ref.head), ref.seq
        else:
            session, head, start = begin(created), first_mac, 1
        size = 0
        _expect_head(checkpoint, start, head)
        for envelope, mac, length in self.events(session_id, start, head):
            advance(session, envelope)
            if envelope.seq > checkpoint.seq:
                tail.read(envelope, mac, length, session)
            else:
                _expect_head(checkpoint, envelope.seq, mac)
            head = mac
            size += length
        if session.seq < checkpoint.seq:
            raise SequenceGap(
                f"session {session_id[-8:]}: the log ends at event {session.seq}, before checkpoint {checkpoint.seq}",
                seq=session.seq + 1,
            )
        assert isinstance(created.event, ev.SessionCreated)
        session.created = created.event
        session.plan = self.plan_of(session)
        return Loaded(
            session=session, head=head, checkpoint=tail.newest, tail=tail, first_seq=start, bytes_since_snapshot=size
        )

    def peek(self, session_id: str) -> tuple[Session, ck.Checkpoint]:
        """Position and counters only: the newest checkpoint and the few events after it."""
        with self.one_view(), named_checkpoint(session_id):
            checkpoint = self.last_checkpoint(session_id)
            self._expect_row(session_id, checkpoint)
            session, head = with_flights(self, ck.small(checkpoint.session)), bytes.fromhex(checkpoint.head)
            tail = Tail(checkpoint)
            for envelope, mac, length in self.events(session_id, checkpoint.seq, head):
                advance(session, envelope)
                tail.read(envelope, mac, length, session)
        return session, tail.newest or checkpoint

    def _expect_row(self, session_id: str, checkpoint: ck.Checkpoint) -> None:
        """The event that a checkpoint was made for is still there: a log cut behind it would look whole."""
        for seq, _, mac in self.rows(session_id, checkpoint.seq - 1, 1):
            if seq == checkpoint.seq:
                return _expect_head(checkpoint, seq, mac)
        raise SequenceGap(
            f"session {session_id[-8:]}: event {checkpoint.seq} is missing, and a checkpoint was made for it",
            seq=checkpoint.seq,
        )

    def last_checkpoint(self, session_id: str) -> ck.Checkpoint:
        base = self.base(session_id)
        query = "SELECT seq, CAST(body AS BLOB), mac FROM checkpoints WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1"
        row = self.db.execute(query, (base, base + SEQ_SPAN)).fetchone()
        if row is not None:
            return ck.open_checkpoint(session_id, row[0], row[1], row[2], self.keyring)
        if next(self.rows(session_id, 0, 1), None) is None:
            raise SequenceGap(f"session {session_id[-8:]} has no events: its log is gone", seq=1)
        raise CheckpointMissing(f"session {session_id[-8:]} has events but no checkpoint")

    def checkpoints(self, session_id: str) -> Iterator[ck.Checkpoint]:
        for seq, body, mac in self.checkpoint_rows(session_id):
            yield ck.open_checkpoint(session_id, seq, body, mac, self.keyring)

    def checkpoint_rows(self, session_id: str) -> list[tuple[int, bytes, bytes]]:
        with database.translated(self.path):
            base = self.base(session_id)
            query = "SELECT seq, CAST(body AS BLOB), mac FROM checkpoints WHERE id > ? AND id < ? ORDER BY id"
            return list(self.db.execute(query, (base, base + SEQ_SPAN)))

    def checkpoint_row(self, session_id: str, seq: int) -> tuple[bytes, bytes] | None:
        query = "SELECT CAST(body AS BLOB), mac FROM checkpoints WHERE id = ?"
        with database.translated(self.path):
            row = self.db.execute(query, (self.base(session_id) + seq,)).fetchone()
        return (row[0], row[1]) if row is not None else None

    def first_event(self, session_id: str, trusted: Session) -> tuple[Envelope, bytes]:
        """The creation; where its key is lost, the one that a person accepted, and no other."""
        for seq, body, mac in self.rows(session_id, 0, 1):
            if seq != 1:
                break
            accepted = trusted.accepted
            if accepted is not None and hashlib.sha256(body).hexdigest() == accepted.first_sha256:
                return decode(body, session_id, seq), mac
            return verify_row(session_id, seq, body, mac=mac, head=GENESIS, keys=self.keyring), mac
        raise SequenceGap(f"session {session_id[-8:]}: event 1 is missing", seq=1)

    def snapshot_body(self, session_id: str, seq: int) -> bytes | None:
        row = self.db.execute("SELECT body FROM snapshots WHERE id = ?", (self.base(session_id) + seq,)).fetchone()
        return row[0] if row else None

    def snapshots(self, session_id: str) -> list[tuple[int, bytes]]:
        with database.translated(self.path):
            base = self.base(session_id)
            query = "SELECT seq, body FROM snapshots WHERE id > ? AND id < ? ORDER BY id"
            return list(self.db.execute(query, (base, base + SEQ_SPAN)))

    def plan_of(self, session: Session) -> Plan | None:
        """The plan the session follows now: the latest one named, else the one it was created with."""
        assert session.created is not None
        name = session.plan_blob or session.created.plan_blob
        if name is None:
            return session.created.plan
        if not self.has_blob(session.session_id, name):
            return None  # gone with its session's end, or lost: a context that nobody can restore
        return msgspec.json.decode(self.blob(session.session_id, name), type=Plan)

    # Blobs.

    def keep(self, data: bytes, purpose: str) -> tuple[str, tuple[str, bytes | None]]:
        """Bytes for the next append: small ones go with its transaction, large ones are a synced file before it."""
        sha256 = hashlib.sha256(data).hexdigest()
        if len(data) <= INLINE_BYTES_MAX:
            return sha256, (purpose, data)
        self.blobs.bring([data], sensitive=purpose == "sensitive")
        return sha256, (purpose, None)

    def blob(self, session_id: str, sha256: str) -> bytes:
        data = self._blob_in_row(session_id, sha256)
        return self.blobs.read(sha256, bytes_max=BLOB_BYTES_MAX) if data is None else data

    def blob_in_pieces(self, session_id: str, sha256: str) -> Iterable[bytes]:
        """However large it is. Only when the last piece has come without an error are they known to be good."""
        data = self._blob_in_row(session_id, sha256)
        return self.blobs.stream(sha256) if data is None else (data,)

    def _blob_in_row(self, session_id: str, sha256: str) -> bytes | None:
        with database.translated(self.path):
            row = self.db.execute(
                "SELECT data FROM blobs WHERE session_id = ? AND sha256 = ? AND data IS NOT NULL", (session_id, sha256)
            ).fetchone()
        if row is None:
            return None
        if hashlib.sha256(row[0]).hexdigest() != sha256:
            raise BlobDamaged(
                f"blob {sha256[:12]} of session {session_id[-8:]} was changed outside acode", sha256=sha256
            )
        return bytes(row[0])

    def blob_names(self, session_id: str) -> list[str]:
        query = "SELECT DISTINCT sha256 FROM blobs WHERE session_id = ? ORDER BY sha256"
        with database.translated(self.path):
            return [row[0] for row in self.db.execute(query, (session_id,))]

    def blob_purposes(self, session_id: str) -> list[tuple[str, str]]:
        query = "SELECT sha256, purpose FROM blobs WHERE session_id = ? ORDER BY sha256, purpose"
        with database.translated(self.path):
            return list(self.db.execute(query, (session_id,)))

    def file_blobs(self, session_id: str) -> list[str]:
        query = "SELECT DISTINCT sha256 FROM blobs WHERE session_id = ? AND data IS NULL"
        with database.translated(self.path):
            return [row[0] for row in self.db.execute(query, (session_id,))]

    def has_blob(self, session_id: str, sha256: str) -> bool:
        query = "SELECT data IS NOT NULL FROM blobs WHERE session_id = ? AND sha256 = ? LIMIT 1"
        with database.translated(self.path):
            row = self.db.execute(query, (session_id, sha256)).fetchone()
        return row is not None and (bool(row[0]) or self.blobs.has(sha256))

    def forget_preimages(self, session_id: str) -> None:
        """A finished session needs no way back: what stood in the user's files before is not kept a day longer."""
        removal.forget(self, session_id)
        with database.translated(self.path):
            self.truncate_wal()

    def back_up(self) -> Path:
        """A copy of the whole database beside it, by SQLite's own means: it is consistent while others write."""
        target = self.path.with_name(f"{self.path.name}.{self.clock():%Y%m%dT%H%M%S}.bak")
        os.close(open_own(target, os.O_WRONLY | os.O_CREAT))
        with database.translated(target):
            copy = apsw.Connection(os.fspath(target))
            with copy.backup("main", self.db, "main") as work:
                while not work.done:
                    work.step(1_000)
            copy.close()
        return target

    def truncate_wal(self) -> None:
        """Deleted rows stay readable in the WAL until it is cut; an active reader delays that."""
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return

    # Verification of everything.

    def verify(self, session_id: str) -> Verified:
        with self.one_view():
            return verify(self, session_id)


def verify_row(session_id: str, seq: int, body: bytes, *, mac: bytes, head: bytes, keys: Keys) -> Envelope:
    """A row that is used is a row verified: its code, and that it stands where it says."""
    try:
        envelope = decode(body, session_id, seq)
    except UnreadableEvent as error:
        raise UnreadableEvent(f"event {seq} of session {session_id[-8:]}: {error.message}", seq=seq) from error
    expected = seal.code(keys.key(envelope.key_id), head, covered(envelope.v, session_id, seq, body))
    if not seal.same(mac, expected) or (envelope.session_id, envelope.seq) != (session_id, seq):
        raise ChainBroken(
            f"event {seq} of session {session_id[-8:]} does not match its code: it, or the one before it, was changed"
            " outside acode",
            seq=seq,
            session_id=session_id,
        )
    return envelope


@contextlib.contextmanager
def named_checkpoint(session_id: str) -> Iterator[None]:
    """A missing checkpoint names its session, so that the refusal can be recorded there."""
    try:
        yield
    except CheckpointMissing as error:
        error.details.setdefault("session_id", session_id)
        raise


def _expect_head(checkpoint: ck.Checkpoint, seq: int, mac: bytes) -> None:
    if seq == checkpoint.seq and mac.hex() != checkpoint.head:
        raise ChainBroken(f"event {seq} is not the one that the checkpoint at {seq} was made for", seq=seq)


def refuse_unreadable(agent_dir: Path) -> None:
    """An unreadable workspace is an error, never an empty one."""
    if agent_dir.exists() and not os.access(agent_dir, os.R_OK | os.X_OK):
        raise NotWritable(f"{agent_dir} cannot be read", hint="Check the permissions.")


def moment(text: str) -> datetime:
    return msgspec.convert(text, datetime)

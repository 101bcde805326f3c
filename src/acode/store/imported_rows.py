"""Rows that another machine wrote come in: as they were stored there, all of them or none, and verified before.

The log grows here beside the journal, and only so: one transaction holds the rows, the check of everything and the
cursor. A row that cannot be proved with the keys that are here rolls all of it back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import msgspec

from acode.errors import (
    VERIFY,
    AcodeError,
    BlobDamaged,
    ChainBroken,
    KeyMissing,
    NewerSchema,
    StaysAtHome,
    UnreadableEvent,
)
from acode.events import decode
from acode.hints import Command, Hint
from acode.store import database, session_index, sync_cursor
from acode.store.blobs import INLINE_BYTES_MAX
from acode.store.journal import stamp
from acode.store.schema import SEQ_SPAN
from acode.store.store import Store
from acode.store.verification import Problem, verify

Row = tuple[int, bytes, bytes]


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to import, after the event `after` that both have."""

    session_id: str
    after: int
    events: Iterable[Row]
    checkpoints: Iterable[Row]
    snapshots: Iterable[Row]
    blobs: Iterable[tuple[str, str, bytes]]


def take_in(store: Store, arrival: Arrival, cursor: Callable[[int], sync_cursor.Cursor]) -> int:
    """The last event there is afterwards; `cursor` makes the session's cursor for it."""
    blobs = [keep_blob(store, *blob) for blob in arrival.blobs]  # files first: a row never names what is not there
    with database.translated(store.path):
        database.set_synchronous(store.db, database.FULL)
        store.synchronous = database.FULL
        store.db.execute("BEGIN IMMEDIATE")
        try:
            last = _insert(store, arrival, blobs)
            sync_cursor.keep_cursor(store, cursor(last))
            refuse_unproved(store, arrival.session_id)
            session_index.note(store, store.peek(arrival.session_id)[0])
            store.db.execute("COMMIT")
        except BaseException:
            if store.db.in_transaction:
                store.db.execute("ROLLBACK")
            raise
    return last


def keep_blob(store: Store, sha256: str, purpose: str, data: bytes) -> tuple[str, str, bytes | None]:
    assert hashlib.sha256(data).hexdigest() == sha256
    if len(data) <= INLINE_BYTES_MAX:
        return sha256, purpose, data
    store.blobs.bring([data])
    return sha256, purpose, None


def _insert(store: Store, arrival: Arrival, blobs: list[tuple[str, str, bytes | None]]) -> int:
    session_id, last = arrival.session_id, arrival.after
    base = _forget_tail(store, session_id, arrival.after) if store.has(session_id) else None
    for seq, body, mac in arrival.events:
        if base is None:
            base = _new_session(store, session_id, body)
        store.db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (base + seq, session_id, seq, _text(body), mac))
        last = seq
    if base is None:
        raise ChainBroken(f"session {session_id[-8:]} has no events in the shared copy", seq=1)
    for seq, body, mac in arrival.checkpoints:
        row = (base + seq, session_id, seq, _text(body), mac)
        store.db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)", row)
    for seq, body, _ in arrival.snapshots:
        store.db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (base + seq, session_id, seq, body))
    for sha256, purpose, data in blobs:
        store.db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?, ?)", (session_id, sha256, purpose, data))
    store.blobs.place([sha256 for sha256, _, data in blobs if data is None])
    return last


def _new_session(store: Store, session_id: str, first: bytes) -> int:
    created = decode(first, session_id, 1)
    row = (session_id, stamp(created.at), 1, session_index.key_of(created.event))
    store.db.execute(session_index.INSERT, row)
    return store.base(session_id)


def _forget_tail(store: Store, session_id: str, after: int) -> int:
    """Remove the events written here after the common past; the caller has made a backup and asked a person."""
    base = store.base(session_id)
    for table in ("events", "checkpoints", "snapshots"):
        store.db.execute(f"DELETE FROM {table} WHERE id > ? AND id < ?", (base + after, base + SEQ_SPAN))
    return base


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise UnreadableEvent(f"a row of the shared copy is not text: {error}") from error


def refuse_unproved(store: Store, session_id: str) -> None:
    """A row that is used is a row verified: chain, seals, snapshots, blobs, with the keys of this machine."""
    problems = verify(store, session_id).problems
    if not problems:
        return
    missing = next((one for one in problems if one.code == KeyMissing.code), None)
    if missing is not None:
        raise KeyMissing(
            f"{missing.message}: nothing was brought here",
            hint=Hint(
                "On the machine that has it: (umask 077; {}); here: {}. Or set the same ACODE_CHECKPOINT_SECRET on"
                " both.",
                Command("key export > FILE"),
                Command("key import FILE"),
            ),
        )
    if all(one.code == BlobDamaged.code for one in problems):
        raise StaysAtHome(
            f"session {session_id[-8:]} cannot be brought here: what it needs was not shared, because it holds secrets"
            f" ({problems[0].message})",
            hint="Resume it where it was begun.",
        )
    raise unproved(session_id, problems[0])


def unproved(session_id: str, problem: Problem) -> AcodeError:
    if problem.code == NewerSchema.code:
        return NewerSchema(
            f"session {session_id[-8:]} of the shared copy was continued by a newer acode, nothing was brought here:"
            f" {problem.message}",
            seq=problem.seq,
        )
    return ChainBroken(
        f"session {session_id[-8:]} of the shared copy cannot be proved, nothing was brought here: {problem.message}",
        hint=Hint("Somebody has changed the shared copy, or the machine that wrote it. Look there: {}", VERIFY),
        seq=problem.seq,
    )

"""The sync cursor of each session, and its pending rows as they stand.

A cursor only holds the server's last answer, for people and for a start without a network. The server
itself is asked before anything is sent, so a cursor that is wrong costs a question and never an event. Its rows are
not durable by themselves and need not be. Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from acode.store import database
from acode.store.journal import stamp
from acode.store.row_check import Stored
from acode.store.schema import SEQ_SPAN

if TYPE_CHECKING:
    from acode.store.store import Store

# owner: this workspace may write on. released: it gave the lease back. copy: brought here to be looked at. fenced:
# another machine has taken the session over. diverged: both have written, and a person must choose.
Standing = Literal["owner", "released", "copy", "fenced", "diverged"]
HOLDERS: tuple[Standing, ...] = ("owner", "released")  # no other machine is known to have had the session since
# What acode made, and in a fleet what steps left; what stood in the user's files before, or is secret, stays.
SHARED = ("plan", "output")
TOUCH = """
BEGIN IMMEDIATE;
UPDATE sessions SET created_at = created_at || ' ' WHERE number = (SELECT min(number) FROM sessions);
UPDATE sessions SET created_at = rtrim(created_at) WHERE number = (SELECT min(number) FROM sessions);
COMMIT;
"""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """The local knowledge about a session's shared copy."""

    session_id: str
    server: str = ""
    pushed_seq: int = 0
    taken_seq: int = 0
    generation: int = 0  # of the newest lease that was held here, or that refused us; a copy was told of none
    standing: Standing = "owner"
    holder: str = ""
    attempted_at: datetime | None = None
    retry_at: datetime | None = None
    reason: str | None = None
    unsaid: str | None = None  # decisions that the log does not say yet; `engine.owed_decisions` reads them


_FIELDS = Cursor.__struct_fields__
_NAMES = ", ".join(_FIELDS)


def cursor_of(store: Store, session_id: str) -> Cursor:
    """A session that was never pushed has the cursor of one that owes everything."""
    with database.translated(store.path):
        row = store.db.execute(f"SELECT {_NAMES} FROM sync_cursor WHERE session_id = ?", (session_id,)).fetchone()
    return (
        Cursor(session_id=session_id) if row is None else msgspec.convert(dict(zip(_FIELDS, row, strict=True)), Cursor)
    )


def as_seen_by(cursor: Cursor, server: str) -> Cursor:
    """The answer of another server does not concern this one; but another owner stays, and so does a session that
    was given back: a machine that took it there would be invisible here.
    """
    if cursor.server in ("", server):
        return msgspec.structs.replace(cursor, server=server)
    at = cursor.attempted_at if cursor.standing == "released" else None
    return msgspec.structs.replace(cursor, server=server, pushed_seq=0, attempted_at=at, retry_at=None, reason=None)


def is_lease_elsewhere(cursor: Cursor, server: str) -> bool:
    """Whether only another server knows the session's owner now."""
    return cursor.standing != "owner" and cursor.server not in ("", server)


def keep_cursor(store: Store, cursor: Cursor) -> None:
    """Without a sync: it may be lost to a power cut, and a step never waits for it."""
    values = tuple(stamp(value) if isinstance(value, datetime) else value for value in msgspec.structs.astuple(cursor))
    marks = ", ".join("?" * len(_FIELDS))
    with database.translated(store.path):
        if store.synchronous != database.NORMAL and not store.db.in_transaction:
            database.set_synchronous(store.db, database.NORMAL)
            store.synchronous = database.NORMAL
        store.db.execute(f"INSERT OR REPLACE INTO sync_cursor({_NAMES}) VALUES ({marks})", values)


def change_cursor(store: Store, session_id: str, **changes: Any) -> Cursor:
    return revise_cursor(store, session_id, lambda cursor: msgspec.structs.replace(cursor, **changes))


def revise_cursor(store: Store, session_id: str, revised: Callable[[Cursor], Cursor]) -> Cursor:
    """One after the other: two connections that change different fields must not undo each other."""
    with database.translated(store.path):
        inside = store.db.in_transaction
        if not inside:
            store.db.execute("BEGIN IMMEDIATE")
        try:
            cursor = revised(cursor_of(store, session_id))
            keep_cursor(store, cursor)
            if not inside:
                store.db.execute("COMMIT")
        except BaseException:
            if not inside and store.db.in_transaction:
                store.db.execute("ROLLBACK")
            raise
    return cursor


def make_durable(store: Store) -> None:
    """All that was committed before, by whatever process, survives a power cut: only then may others hear of it.

    The commit must write a page, because SQLite leaves out an update that changes nothing, and with it the sync.
    """
    with database.translated(store.path):
        database.set_synchronous(store.db, database.FULL)
        store.synchronous = database.FULL
        store.db.execute(TOUCH)


def last_seq(store: Store, session_id: str) -> int:
    with database.translated(store.path):
        base = store.base(session_id)
        row = store.db.execute(
            "SELECT seq FROM events WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1", (base, base + SEQ_SPAN)
        ).fetchone()
    return int(row[0]) if row else 0


def code_at(store: Store, session_id: str, seq: int) -> bytes | None:
    with database.translated(store.path):
        row = store.db.execute("SELECT mac FROM events WHERE id = ?", (store.base(session_id) + seq,)).fetchone()
    return bytes(row[0]) if row else None


def owed(store: Store, session_id: str, after: int, through: int, rows_max: int) -> Iterator[Stored]:
    """The next events past `after`, as they stand."""
    for row in store.stored(session_id, after, rows_max):
        if row[0] > through:
            return
        yield row


def sealed_rows(store: Store, table: str, session_id: str, after: int, through: int) -> list[tuple[int, bytes, bytes]]:
    """Checkpoints or snapshots made for the events past `after`; a snapshot has no seal of its own."""
    assert table in ("checkpoints", "snapshots")
    seal = "mac" if table == "checkpoints" else "x''"
    base = store.base(session_id)
    query = f"SELECT seq, CAST(body AS BLOB), {seal} FROM {table} WHERE id > ? AND id <= ? ORDER BY id"
    with database.translated(store.path):
        return list(store.db.execute(query, (base + after, base + through)))


def shared_blobs(store: Store, session_id: str) -> list[tuple[str, str]]:
    """Blobs that go along, with their purposes; what is a secret under any name stays."""
    query = """
SELECT sha256, purpose FROM blobs b WHERE session_id = ? AND purpose IN (?, ?)
AND NOT EXISTS (SELECT 1 FROM blobs s WHERE s.sha256 = b.sha256 AND s.purpose = 'sensitive') ORDER BY sha256, purpose"""
    with database.translated(store.path):
        return list(store.db.execute(query, (session_id, *SHARED)))

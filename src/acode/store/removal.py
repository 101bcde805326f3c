"""Remove an ended session's rows: the one place where the log becomes shorter. The engine decides which, and when.

What was deleted is overwritten (secure_delete) and the WAL is cut, so that its bytes do not linger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from acode.store import database
from acode.store.schema import SEQ_SPAN

if TYPE_CHECKING:
    from acode.store.store import Store

TABLES = ("events", "checkpoints", "snapshots")
BYTES = """
SELECT (SELECT coalesce(sum(length(body)), 0) FROM events WHERE id > :first AND id < :last)
     + (SELECT coalesce(sum(length(body)), 0) FROM checkpoints WHERE id > :first AND id < :last)
     + (SELECT coalesce(sum(length(body)), 0) FROM snapshots WHERE id > :first AND id < :last)
     + (SELECT coalesce(sum(length(data)), 0) FROM blobs WHERE session_id = :session_id)
"""


def bytes_of(store: Store, session_id: str) -> int:
    """How much the session's rows hold, without the pages around them."""
    with database.translated(store.path):
        first = store.base(session_id)
        found = store.db.execute(BYTES, {"first": first, "last": first + SEQ_SPAN, "session_id": session_id}).fetchone()
        return int(found[0]) if found else 0


def remove_session(store: Store, session_id: str) -> None:
    """All rows of one session in one transaction: a crash leaves all of them or none."""
    with database.translated(store.path):
        first = store.base(session_id)
        store.db.execute("BEGIN IMMEDIATE")
        try:
            for table in TABLES:
                store.db.execute(f"DELETE FROM {table} WHERE id > ? AND id < ?", (first, first + SEQ_SPAN))
            for table in ("blobs", "sync_cursor"):
                store.db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            store.db.execute("DELETE FROM finished WHERE session = ?", (first // SEQ_SPAN,))
            store.db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
            store.db.execute("COMMIT")
        except BaseException:
            if store.db.in_transaction:
                store.db.execute("ROLLBACK")
            raise


def files_wanted(store: Store) -> set[str]:
    """Blobs that are files and that some session still names."""
    with database.translated(store.path):
        return {row[0] for row in store.db.execute("SELECT DISTINCT sha256 FROM blobs WHERE data IS NULL")}


def holds_preimages(store: Store, session_id: str) -> bool:
    """Whether anything of the user's is still kept for the session."""
    query = "SELECT 1 FROM blobs WHERE session_id = ? AND purpose IN ('preimage', 'sensitive') LIMIT 1"
    with database.translated(store.path):
        return store.db.execute(query, (session_id,)).fetchone() is not None


def shrink(store: Store) -> None:
    """Give the room back to the disk; somebody who reads puts it off, and the room is used again instead."""
    with database.translated(store.path):
        try:
            store.db.execute("VACUUM")
        except (apsw.BusyError, apsw.LockedError):
            return
        finally:
            store.truncate_wal()

"""Remove an ended session's rows: the one place where the log becomes shorter. The engine decides which, and when.

Deleted rows are overwritten (secure_delete) and the WAL is cut, so that its bytes do not linger. A blob's file goes
under the database's write lock, where no row of any session names it: a process that is about to name it waits for that
lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import apsw
import msgspec

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


def remove_sessions(store: Store, session_ids: Sequence[str]) -> None:
    """All rows of these sessions in one transaction: a crash leaves all of them or none."""
    with database.translated(store.path), _writing_alone(store):
        for session_id in session_ids:
            first = store.base(session_id)
            for table in TABLES:
                store.db.execute(f"DELETE FROM {table} WHERE id > ? AND id < ?", (first, first + SEQ_SPAN))
            for table in ("blobs", "sync_cursor"):
                store.db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            store.db.execute("DELETE FROM finished WHERE session = ?", (first // SEQ_SPAN,))
            store.db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))


# Blobs.

FILES_AT_ONCE_MAX = 500  # for so many the write lock is held: others wait for some milliseconds
GO_WITH_THE_END = ("preimage", "sensitive")
_GOING = "session_id = ? AND purpose IN ('preimage', 'sensitive')"
_AMONG = "sha256 IN (SELECT value FROM json_each(?))"
FILES_OF = f"SELECT DISTINCT sha256 FROM blobs WHERE {_GOING} AND data IS NULL LIMIT ?"
FORGET = f"DELETE FROM blobs WHERE {_GOING}"
NAMED = f"SELECT DISTINCT sha256 FROM blobs WHERE data IS NULL AND {_AMONG}"


def forget(store: Store, session_id: str) -> None:
    """Remove pre-images and secrets: files first, then the rows that name them.

    The other way round, a crash in between would leave a secret that nothing names until the next collection.
    """
    with database.translated(store.path):
        while files := [row[0] for row in store.db.execute(FILES_OF, (session_id, FILES_AT_ONCE_MAX))]:
            with _writing_alone(store):
                some = msgspec.json.encode(files).decode()
                # Its own rows of other purposes count as well: an output, say, may have the bytes of a pre-image.
                others = store.db.execute(f"{NAMED} AND NOT ({_GOING})", (some, session_id))
                named = {row[0] for row in others}
                for sha256 in files:
                    if sha256 not in named:
                        store.blobs.remove(sha256)
                store.db.execute(f"{FORGET} AND {_AMONG}", (session_id, some))
        store.db.execute(FORGET, (session_id,))
        store.blobs.remove_brought_by(session_id)


def nobodys(store: Store, names: Sequence[str]) -> Iterator[list[str]]:
    """Some at a time, the files among these that no row names; until the next are asked for, nobody can name them."""
    for at in range(0, len(names), FILES_AT_ONCE_MAX):
        some = names[at : at + FILES_AT_ONCE_MAX]
        with database.translated(store.path), _writing_alone(store):
            named = {row[0] for row in store.db.execute(NAMED, (msgspec.json.encode(some).decode(),))}
            yield [sha256 for sha256 in some if sha256 not in named]


@contextlib.contextmanager
def _writing_alone(store: Store) -> Iterator[None]:
    store.db.execute("BEGIN IMMEDIATE")
    try:
        yield
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

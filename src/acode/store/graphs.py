"""Checkpoints of graphs that another framework runs, kept beside the sessions: sealed rows, and values stored once.

A checkpoint names its values by their hashes under its own seal, so a changed byte anywhere is found before it is used.
A value that did not change is not written again. Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from acode import seal
from acode.errors import BlobDamaged, ChainBroken
from acode.store import database

if TYPE_CHECKING:
    from acode.store.store import Store

PURPOSE = b"graph"
_FIELDS = "thread, space, checkpoint, parent, run, body, key_id, mac"
_WRITE_FIELDS = "thread, space, checkpoint, task, place, body, key_id, mac"
TABLES = ("graph_checkpoints", "graph_values", "graph_writes")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint as it was put."""

    thread: str
    space: str
    checkpoint: str
    parent: str | None
    run: str | None
    body: bytes


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write of one task, waiting for the next checkpoint."""

    task: str
    place: int
    body: bytes


Names = Callable[[bytes], Iterable[bytes]]  # the values that a checkpoint's body, or a value, names


class Graphs:
    """All graphs of one workspace."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # Putting.

    def put(self, kept: Kept, values: dict[bytes, bytes]) -> None:
        """A checkpoint and those of its values that are not there yet, durably and in one transaction."""
        with self._transaction() as execute:
            for sha256, data in values.items():
                row = (kept.thread, sha256, data)
                execute("INSERT OR IGNORE INTO graph_values(thread, sha256, data) VALUES (?, ?, ?)", row)
            self._insert(execute, kept)

    def put_writes(self, thread: str, space: str, checkpoint: str, writes: Sequence[Write]) -> None:
        """Writes of a task; one that is there already stays, but for those that are one of a kind."""
        with self._transaction() as execute:
            for write in writes:
                how = "REPLACE" if write.place < 0 else "IGNORE"
                named = (thread, space, checkpoint, write.task, write.place, write.body)
                row = (*named, self._store.keyring.current, self._mac(self._store.keyring.current, *named))
                execute(f"INSERT OR {how} INTO graph_writes({_WRITE_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _insert(self, execute: Any, kept: Kept) -> None:
        named = msgspec.structs.astuple(kept)
        row = (*named, self._store.keyring.current, self._mac(self._store.keyring.current, *named))
        execute(f"INSERT OR REPLACE INTO graph_checkpoints({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    # Reading.

    def find(self, thread: str, space: str, checkpoint: str | None) -> Kept | None:
        """The checkpoint, or the latest one of its space."""
        return next(self.checkpoints(thread, space, checkpoint=checkpoint, limit=1), None)

    def checkpoints(
        self,
        thread: str | None = None,
        space: str | None = None,
        *,
        checkpoint: str | None = None,
        before: str | None = None,
        limit: int = -1,
    ) -> Iterator[Kept]:
        """Checkpoints, the latest first; each is verified before it is given away."""
        wanted = {"thread": thread, "space": space, "checkpoint": checkpoint}
        rules = [f"{name} = ?" for name, value in wanted.items() if value is not None]
        given: list[Any] = [value for value in wanted.values() if value is not None]
        if before is not None:
            rules.append("checkpoint < ?")
            given.append(before)
        where = f" WHERE {' AND '.join(rules)}" if rules else ""
        query = f"SELECT {_FIELDS} FROM graph_checkpoints{where} ORDER BY checkpoint DESC LIMIT ?"
        with database.translated(self._store.path):
            rows = self._store.db.execute(query, (*given, limit)).fetchall()
        for row in rows:
            yield self._kept(row)

    def writes(self, thread: str, space: str, checkpoint: str) -> list[Write]:
        query = f"SELECT {_WRITE_FIELDS} FROM graph_writes WHERE thread = ? AND space = ? AND checkpoint = ?"
        with database.translated(self._store.path):
            rows: list[Any] = self._store.db.execute(query, (thread, space, checkpoint)).fetchall()
        for row in rows:
            self._verify(row, f"a write of task {row[3]}")
        return [Write(task=row[3], place=row[4], body=row[5]) for row in rows]

    def value(self, thread: str, sha256: bytes) -> bytes:
        """A value by its hash, which stands under a seal."""
        query = "SELECT data FROM graph_values WHERE thread = ? AND sha256 = ?"
        with database.translated(self._store.path):
            row: Any = self._store.db.execute(query, (thread, sha256)).fetchone()
        if row is None or hashlib.sha256(row[0]).digest() != sha256:
            what = "is gone" if row is None else "was changed outside acode"
            raise BlobDamaged(f"a value of the graph thread {thread} {what}", sha256=sha256.hex())
        return bytes(row[0])

    def has(self, thread: str, sha256: bytes) -> bool:
        query = "SELECT 1 FROM graph_values WHERE thread = ? AND sha256 = ?"
        with database.translated(self._store.path):
            return self._store.db.execute(query, (thread, sha256)).fetchone() is not None

    # Removing and copying.

    def delete_thread(self, thread: str) -> None:
        with self._transaction() as execute:
            for table in TABLES:
                execute(f"DELETE FROM {table} WHERE thread = ?", (thread,))

    def keep_only(self, thread: str, keep: Callable[[Kept], bool], names: Names) -> None:
        """Remove the checkpoints of a thread that are not kept, with their writes and the values nobody names."""
        kept, gone = list[Kept](), list[Kept]()
        for one in self.checkpoints(thread):
            (kept if keep(one) else gone).append(one)
        if not gone:
            return
        wanted = self._reachable(thread, (sha256 for one in kept for sha256 in names(one.body)), names)
        with self._transaction() as execute:
            for one in gone:
                place = (one.thread, one.space, one.checkpoint)
                for table in ("graph_checkpoints", "graph_writes"):
                    execute(f"DELETE FROM {table} WHERE thread = ? AND space = ? AND checkpoint = ?", place)
            for (sha256,) in execute("SELECT sha256 FROM graph_values WHERE thread = ?", (thread,)).fetchall():
                if sha256 not in wanted:
                    execute("DELETE FROM graph_values WHERE thread = ? AND sha256 = ?", (thread, sha256))

    def _reachable(self, thread: str, first: Iterable[bytes], names: Names) -> set[bytes]:
        """Values that are named, and those that they name in turn."""
        found, waiting = set[bytes](), list(first)
        while waiting:
            sha256 = waiting.pop()
            if sha256 not in found:
                found.add(sha256)
                waiting.extend(names(self.value(thread, sha256)))
        return found

    def threads_of_runs(self, runs: Sequence[str]) -> list[str]:
        marks = ", ".join("?" * len(runs))
        query = f"SELECT DISTINCT thread FROM graph_checkpoints WHERE run IN ({marks})"
        with database.translated(self._store.path):
            return [str(row[0]) for row in self._store.db.execute(query, tuple(runs)).fetchall()]

    def copy_thread(self, source: str, target: str) -> None:
        """Copy a thread under another name; every row gets a new seal, because the seal holds the name."""
        checkpoints = list(self.checkpoints(source))
        with self._transaction() as execute:
            for one in checkpoints:
                self._insert(execute, msgspec.structs.replace(one, thread=target))
                for write in self.writes(source, one.space, one.checkpoint):
                    named = (target, one.space, one.checkpoint, write.task, write.place, write.body)
                    row = (*named, self._store.keyring.current, self._mac(self._store.keyring.current, *named))
                    execute(f"INSERT OR IGNORE INTO graph_writes({_WRITE_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            execute(
                "INSERT OR IGNORE INTO graph_values(thread, sha256, data)"
                " SELECT ?, sha256, data FROM graph_values WHERE thread = ?",
                (target, source),
            )

    # Seals.

    def _mac(self, key_id: str, *named: Any) -> bytes:
        return seal.seal(self._store.keyring.key(key_id), PURPOSE, msgspec.msgpack.encode(named))

    def _verify(self, row: Any, what: str) -> None:
        *named, key_id, mac = row
        if not seal.same(mac, self._mac(key_id, *named)):
            raise ChainBroken(
                f"{what} of the graph thread {row[0]} was changed outside acode",
                hint="Bring .agent/ back from a backup, or delete the thread.",
                thread=row[0],
            )

    def _kept(self, row: Any) -> Kept:
        self._verify(row, f"checkpoint {row[2]}")
        return Kept(thread=row[0], space=row[1], checkpoint=row[2], parent=row[3], run=row[4], body=row[5])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        db = self._store.db
        with database.translated(self._store.path):
            database.set_synchronous(db, database.FULL)
            self._store.synchronous = database.FULL
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db.execute
                self._store.room.ahead()
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

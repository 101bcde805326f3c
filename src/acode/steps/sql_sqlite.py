"""A SQLite file as the target of a sql step.

The file is found beneath the workspace's root, never through a link, and never is acode's own database. It is checked
by stat alone: opening and closing it here would drop the locks of every connection that this process has to it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import apsw

from acode.disk.path_names import bytes_of, parent_of, visible
from acode.disk.write_errors import refusing_write_errors
from acode.errors import AcodeError, DiskFull, NotWritable, UnsafePath, WriteFailed
from acode.steps.sql_scanner import PRAGMAS_ALLOWED, line_of, statements
from acode.steps.sql_target import COLUMNS, TABLE, WAIT_FOR_OTHERS_S, Applied, Order, Refused, Unreachable
from acode.store.database import set_full_sync
from acode.workspace import Root, look

BUSY_TIMEOUT_S = 30.0
BUSY_EVERY_S = 0.01
EXTRA = 3

_MAKE_TABLE = f"""
CREATE TABLE IF NOT EXISTS main.{TABLE} (
    key TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL,
    step TEXT NOT NULL,
    file TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    applied_at TEXT NOT NULL
)"""
_HAS_TABLE = f"SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = '{TABLE}'"
_FIND = f"SELECT key, sha256 FROM main.{TABLE} WHERE session_id = ? AND step = ?"
_RECORD = f"INSERT INTO main.{TABLE} ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_STILL_RECORDED = f"SELECT 1 FROM main.{TABLE} WHERE key = ? AND sha256 = ?"

FORBIDDEN = frozenset({apsw.SQLITE_TRANSACTION, apsw.SQLITE_ATTACH, apsw.SQLITE_DETACH})


def open_file(root: Root, rel: str, own_database: Path, *, timeout_s: float) -> Sqlite:
    """The database for applying; made where it does not exist, with the directories above it."""
    refuse_own(root, rel, own_database)
    with refusing_write_errors(f"{visible(rel)} cannot be made"):
        root.make_directories(parent_of(rel))
    return connect(root, rel, busy_s=min(BUSY_TIMEOUT_S, timeout_s), flags=apsw.SQLITE_OPEN_CREATE)


def open_to_look(root: Root, rel: str, own_database: Path) -> Sqlite | None:
    """The database for asking about a key; None where there is no file, and none is made."""
    refuse_own(root, rel, own_database)
    return connect(root, rel, busy_s=WAIT_FOR_OTHERS_S) if look(root, rel) is not None else None


def refuse_own(root: Root, rel: str, own_database: Path) -> None:
    found = look(root, rel)
    if found is None:
        return
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(f"{visible(rel)} is no file, or a link to one", path=rel)
    with contextlib.suppress(FileNotFoundError):
        own = os.stat(own_database)
        if (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino):  # under another name, by a hard link
            raise UnsafePath(f"{visible(rel)} is acode's own database", path=rel)


def connect(root: Root, rel: str, *, busy_s: float, flags: int = 0) -> Sqlite:
    """SQLite resolves the path itself and refuses links; that it met the file beneath the root is checked around it."""
    path = os.path.join(root.path, os.fsdecode(bytes_of(rel)))
    flags |= apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_NOFOLLOW if sys.platform != "win32" else 0)
    before = look(root, rel)
    with translated(rel):
        opened = Sqlite(apsw.Connection(path, flags=flags), rel, busy_s)
    try:
        opened.be_careful()
        after = look(root, rel)
        same = after is not None and (before is None or (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino))
        if not same:
            raise UnsafePath(f"{visible(rel)} was replaced while it was opened", path=rel)
    except BaseException:
        opened.close()
        raise
    return opened


class Sqlite:
    """One connection to the file."""

    def __init__(self, db: apsw.Connection, rel: str, busy_s: float) -> None:
        self._db = db
        self._rel = rel
        self._stopped = False
        self._busy_until = time.monotonic() + busy_s
        db.set_busy_handler(self._wait)

    def _wait(self, _times: int) -> bool:
        """Somebody else has the file: wait, unless there is a wish to stop, which SQLite's own waiting never hears."""
        time.sleep(BUSY_EVERY_S)
        return not self._stopped and time.monotonic() < self._busy_until

    def be_careful(self) -> None:
        """More than FULL: with a rollback journal, FULL does not sync the removal of the journal, and a power cut would
        restore it and undo a commit that SQLite had reported.
        """
        with translated(self._rel):
            self._db.execute(f"PRAGMA synchronous={EXTRA}")
            set_full_sync(self._db)
            self._db.execute("PRAGMA schema_version").fetchone()  # only now does SQLite open the file

    def make_table(self) -> None:
        with translated(self._rel):
            if self._db.execute(_HAS_TABLE).fetchone() is None:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(_MAKE_TABLE)
                self._db.execute("COMMIT")

    def begin(self, order: Order, timeout_s: float) -> None:
        with translated(self._rel):
            self._db.execute("BEGIN IMMEDIATE")

    def applied(self, session_id: str, step: str) -> list[Applied]:
        """Outside a transaction of its own it waits for the writer: what that one commits is seen."""
        with translated(self._rel):
            alone = self._db.get_autocommit()
            if alone and self._db.execute(_HAS_TABLE).fetchone() is None:
                return []
            if alone:
                self._db.execute("BEGIN IMMEDIATE")
            rows = [Applied(*row) for row in self._db.execute(_FIND, (session_id, step))]
            if alone:
                self._db.execute("ROLLBACK")
            return rows

    def record(self, order: Order) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with translated(self._rel):
            self._db.execute(_RECORD, (order.key, order.session_id, order.step, order.file, order.sha256, now))

    def run(self, text: str) -> None:
        self._db.authorizer = authorize
        try:
            for statement in statements(text, "sqlite"):
                if self._stopped:
                    raise Refused("it was stopped")
                with translated(self._rel, at=f"line {line_of(text, statement.start)}"):
                    for _ in self._db.execute(text[statement.start : statement.end]):
                        pass
        finally:
            self._db.authorizer = None

    def commit(self, order: Order) -> None:
        with translated(self._rel):
            recorded = self._db.execute(_STILL_RECORDED, (order.key, order.sha256)).fetchone()
            if self._db.get_autocommit() or recorded is None:
                raise Refused(f"the file ended the transaction or removed acode's record from {TABLE}")
            if self._stopped:
                raise Refused("it was stopped")
            self._db.execute("COMMIT")

    def interrupt(self, *, patience_over: bool) -> None:
        self._stopped = True
        with contextlib.suppress(apsw.Error):
            self._db.interrupt()

    def close(self) -> None:
        with contextlib.suppress(apsw.Error):
            if not self._db.get_autocommit():
                self._db.execute("ROLLBACK")
        with contextlib.suppress(apsw.Error):
            self._db.close()


def authorize(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    """SQLite's own word on what a statement does, should the scanner have misread it."""
    if action in FORBIDDEN:
        return apsw.SQLITE_DENY
    # Full-text and spatial tables read some pragmas themselves; only setting one can break the promise.
    if action == apsw.SQLITE_PRAGMA and second is not None and str(first).upper() not in PRAGMAS_ALLOWED:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


@contextlib.contextmanager
def translated(rel: str, *, at: str | None = None) -> Iterator[None]:
    """SQLite's errors as what they mean for the step. A failing disk is not the step's failure: the run stops."""
    where = f"{at}: " if at else ""
    try:
        yield
    except apsw.FullError as error:
        raise DiskFull(f"the disk is full: {visible(rel)} cannot grow") from error
    except apsw.IOError as error:
        raise WriteFailed(f"{visible(rel)}: {error}") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise Refused(f"{where}{visible(rel)} is in use by another process") from error
    except apsw.Error as error:
        raise Refused(f"{where}{error}") from error


@contextlib.contextmanager
def unreachable_where_refused() -> Iterator[None]:
    """While looking, every error means the same: it cannot be asked."""
    try:
        yield
    except (Refused, DiskFull, WriteFailed, NotWritable) as error:
        raise Unreachable(error.message if isinstance(error, AcodeError) else str(error)) from error

"""One connection to the workspace's database that keeps its promises or is refused.

WAL and `synchronous` are read back, not assumed: one I/O error while switching makes SQLite answer `delete` and
continue in a mode that loses acknowledged commits. After an I/O error nothing is retried on the same connection.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from types import TracebackType

import apsw

from acode.disk.own_files import open_own
from acode.errors import (
    AcodeError,
    DatabaseCorrupt,
    DiskFull,
    NewerSchema,
    NotWritable,
    OldSqlite,
    StoreBusy,
    StoreUnusable,
    WriteFailed,
)
from acode.store import schema
from acode.store.inherited import refuse_inherited
from acode.store.strange_files import refuse_strange_files

SQLITE_MIN = (3, 51, 3)  # earlier ones can corrupt a WAL when two connections write and checkpoint at once
BUSY_TIMEOUT_MS = 10_000
WAL_RETRY_S = 0.005
FULL, NORMAL = 2, 1
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "9p", "fuse.sshfs", "ceph", "glusterfs"}
)


def connect(path: Path, at: str) -> apsw.Connection:
    """Open for writing, make or migrate the tables, check everything."""
    refuse_old_sqlite()
    refuse_network_file_system(path.parent)
    with translated(path):
        refuse_inherited(path)
        refuse_strange_files(path)
        _make_private(path)
        db = apsw.Connection(_without_links(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        # QLite also opens a file that it may not write, and only the first write would show that
        if db.readonly("main"):
            raise NotWritable(f"{path} is on a read-only disk or may not be written", hint="Check the permissions.")
        refuse_newer(db, path)
        mode = _switch_to_wal(db)
        if str(mode).lower() != "wal":
            raise StoreUnusable(f"{path} is in journal mode {mode}, not WAL: commits would not be durable")
        db.pragma("secure_delete", True)
        set_synchronous(db, FULL)
        set_full_sync(db)
        schema.migrate(db, at)
        schema.check(db)
        harden(db)
    return db


def _switch_to_wal(db: apsw.Connection) -> object:
    """The journal mode that the database answers with.

    SQLite does not wait here: of two processes that make the database at once, the second would find it locked and
    give up at once. So the wait that every other statement has is made here, and a timeout is reported as one.
    """
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1_000
    while True:
        try:
            return db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(WAL_RETRY_S)


def connect_to_look(path: Path) -> apsw.Connection:
    """Open without changing anything; for previews, beside a writer."""
    refuse_old_sqlite()
    with translated(path):
        refuse_inherited(path)
        refuse_strange_files(path)
        db = _open_to_look(path)
        db.set_busy_timeout(BUSY_TIMEOUT_MS)
        refuse_newer(db, path)
        if int(db.pragma("user_version")) < schema.VERSION:
            db = _migrated_copy(db)
        db.pragma("query_only", True)
        schema.check(db)
        harden(db)
        if _size(path.with_name(f"{path.name}-wal")):
            # To move what a writer left there is a writer's work: looking changes nothing, and does not wait for it.
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return db


def _open_to_look(path: Path) -> apsw.Connection:
    place = _without_links(path)
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return apsw.Connection(place, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    # A read-only disk has no place for a shared-memory file. Without frames in a WAL the file is all there is, and is
    # read as it stands; with some, SQLite finds them only if the dead writer left its shared memory behind.
    wal = path.with_name(f"{path.name}-wal")
    standing = "" if _size(wal) else "?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    return apsw.Connection(Path(place).as_uri() + standing, flags=flags)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _without_links(path: Path) -> str:
    """The database's real place; SQLite itself follows no link in it."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def _migrated_copy(db: apsw.Connection) -> apsw.Connection:
    """An older database as today's code reads it, in memory: looking changes nothing on the disk."""
    copy = apsw.Connection(":memory:")
    with copy.backup("main", db, "main") as work:
        work.step()
    db.close()
    schema.migrate(copy, "")
    return copy


def harden(db: apsw.Connection) -> None:
    """After the schema check: nothing that a file could have planted is executed on this connection."""
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    db.pragma("cell_size_check", True)


def set_synchronous(db: apsw.Connection, level: int) -> None:
    """FULL is read back, because a promise rests on it; if NORMAL were not taken, a commit would only be slower."""
    if level == NORMAL:
        db.execute("PRAGMA synchronous=NORMAL")
        return
    found = db.execute("PRAGMA synchronous=FULL; PRAGMA synchronous").fetchone()
    if found is None or found[0] != FULL:
        raise StoreUnusable(f"the database answers synchronous={found} where {FULL} was set")


def set_full_sync(db: apsw.Connection, *, platform: str = sys.platform) -> None:
    """On macOS a sync leaves the bytes in the drive's cache unless SQLite empties that too, as `fsync` does.

    Read back, because a promise rests on it: without it a power cut loses acknowledged commits.
    """
    if platform != "darwin":
        return
    for name in ("fullfsync", "checkpoint_fullfsync"):
        found = db.execute(f"PRAGMA {name}=ON; PRAGMA {name}").fetchone()
        if found is None or found[0] != 1:
            raise StoreUnusable(f"the database answers {name}={found} where 1 was set")


def refuse_old_sqlite() -> None:
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < SQLITE_MIN:
        raise OldSqlite(
            f"SQLite {apsw.sqlite_lib_version()} is too old, at least {'.'.join(map(str, SQLITE_MIN))} is needed"
        )


def refuse_newer(db: apsw.Connection, path: Path) -> None:
    version = int(db.pragma("user_version"))
    if not 0 <= version <= schema.VERSION:
        raise NewerSchema(f"{path} has schema version {version}, this acode knows {schema.VERSION}")


def _make_private(path: Path) -> None:
    """Made by us with mode 0600 before SQLite sees it: WAL and shared memory inherit that mode."""
    with contextlib.suppress(FileExistsError):
        os.close(open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))


def refuse_network_file_system(directory: Path) -> None:
    kind = file_system(directory)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreUnusable(
            f"{directory} is on a network file system ({kind}), where SQLite's log cannot be shared safely",
            hint="Use a workspace on a local disk.",
        )


def file_system(directory: Path) -> str:
    """The type of the file system a directory is on, or "unknown"."""
    if sys.platform != "linux":
        return _file_system_elsewhere(directory)
    try:
        device = os.stat(directory).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                left, _, right = line.partition(" - ")
                if left.split()[2] == wanted:
                    return right.split()[0]
    except (OSError, IndexError):
        pass
    return "unknown"


def _file_system_elsewhere(directory: Path) -> str:
    import psutil

    best = max(
        (part for part in psutil.disk_partitions(all=True) if os.fspath(directory).startswith(part.mountpoint)),
        key=lambda part: len(part.mountpoint),
        default=None,
    )
    return best.fstype.lower() if best is not None else "unknown"


NAMED = (apsw.Error, OSError, UnicodeDecodeError)


class translated:  # noqa: N801 - used like a function, a class because it stands around every append
    """SQLite's errors under the names users know. A class, because it stands around every append."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and isinstance(error, NAMED):
            raise named(error, self._path) from error


def named(error: apsw.Error | OSError | UnicodeDecodeError, path: Path) -> AcodeError:
    """The named error, with its hint."""
    match error:
        case apsw.FullError():
            return DiskFull(f"the disk is full: {path} cannot grow")
        case apsw.NotADBError() | apsw.CorruptError() | UnicodeDecodeError():
            # SQLite has one code for wrong bytes and for bytes that the disk does not return.
            hint = (
                "Nothing was changed. Check that the disk can be read, and try again; if it can, restore"
                " a backup, or move the file away to start again."
            )
            return DatabaseCorrupt(f"{path} is damaged, or its disk does not give it: {error}", hint=hint)
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"another process has kept {path} locked for over {BUSY_TIMEOUT_MS // 1000} s")
        case apsw.CantOpenError() | apsw.ReadOnlyError() | apsw.PermissionsError():
            hint = "Check the permissions and the disk."
            return NotWritable(f"{path} cannot be opened or written: {error}", hint=hint)
        case PermissionError():
            return NotWritable(f"{path} cannot be written: {error.strerror}", hint="Check the permissions.")
        case OSError():
            return WriteFailed(f"{path}: {error.strerror}")
        case _:
            hint = "The run stops here. Check the disk, then resume: the state comes from the log."
            return WriteFailed(f"{path}: {error}", hint=hint)


def has_session(path: Path, session_id: str) -> bool:
    """Whether another workspace's database has the session; nothing there is changed."""
    db = connect_to_look(path)
    try:
        with translated(path):
            return db.execute("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)).fetchone() is not None
    finally:
        db.close()


def leave_wal_alone(db: apsw.Connection) -> None:
    """Write nothing of the WAL file into the database any more, not even when the connection is closed.

    After a failed sync the commits of this process may be in memory only. Their pages, written into the database before
    a power cut takes the WAL file, would leave it torn.
    """
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.wal_autocheckpoint(0)

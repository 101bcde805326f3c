"""A SQLite database of somebody else, read where it lies without a byte written beside it.

Opening a database in WAL mode read-only still makes its -shm file, takes locks that its owner sees, and on closing may
carry the WAL over and delete it. A copy would cost its size in disk or memory. So SQLite is given files that only read:
locking is answered without a lock, writing is refused, and in exclusive mode the index of the WAL is kept in memory. A
writer at work meanwhile can make a page look torn; then SQLite reports damage, and the caller reads again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acode.observed.transcript import NotRegular
from acode.store.own_files import kind_in_words

if TYPE_CHECKING:
    import apsw

VFS_NAME = "acode-only-reads"
SECONDS_MAX = 30.0
PROGRESS_STEPS = 100_000


@contextmanager
def open_to_read(path: Path) -> Iterator[apsw.Connection]:
    """A connection that cannot change anything. Raises apsw.Error where it is no database."""
    import apsw

    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))):
        if os.path.lexists(each) and not stat.S_ISREG((found := os.lstat(each)).st_mode):
            raise NotRegular(0, f"it is {kind_in_words(found.st_mode)}", os.fspath(each))
    _register()
    connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=VFS_NAME)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the first read: no -shm file is made then
        connection.execute("PRAGMA mmap_size = 0")
        connection.execute("PRAGMA cache_size = -8192")
        until = time.monotonic() + SECONDS_MAX
        # A table may be a view that never ends.
        connection.set_progress_handler(lambda: time.monotonic() > until, PROGRESS_STEPS)
        yield connection
    finally:
        connection.close()


_registered: list[Any] = []


def _register() -> None:
    """Once per process; apsw is loaded only when a database is really looked at."""
    if _registered:
        return
    import apsw

    class OnlyReadingFile(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            changing = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_DELETEONCLOSE
            flags[0] = (flags[0] & ~changing) | apsw.SQLITE_OPEN_READONLY
            super().__init__("", name, flags)

        def xLock(self, level: int) -> None:  # noqa: N802
            """Its owner must not have to wait because somebody looks."""

        def xUnlock(self, level: int) -> None:  # noqa: N802
            pass

        def xCheckReservedLock(self) -> bool:  # noqa: N802
            return True  # whatever journal lies there is its owner's business, and is not rolled back from here

        def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
            raise apsw.ReadOnlyError("only reading")

        def xTruncate(self, newsize: int) -> None:  # noqa: N802
            raise apsw.ReadOnlyError("only reading")

        def xSync(self, flags: int) -> None:  # noqa: N802
            pass

    class OnlyReading(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(VFS_NAME, "")

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            return OnlyReadingFile(name, flags)

        def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
            pass

    _registered.append(OnlyReading())

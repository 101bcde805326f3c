"""Read a SQLite database of another program in its place, without a byte written beside it.

Opening a database in WAL mode read-only still makes its -shm file, takes locks that its owner sees, and on closing may
carry the WAL over and delete it. A copy would cost its size in disk or memory. So SQLite is given files that only read:
locking is answered without a lock, writing is refused, and in exclusive mode the index of the WAL is kept in memory. A
writer at work meanwhile can make a page look torn; then SQLite reports damage, and the caller reads again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acode.observed.transcript import open_regular

if TYPE_CHECKING:
    import apsw

VFS_NAME = "acode-only-reads"
SECONDS_MAX = 30.0
PROGRESS_STEPS = 100_000


@contextmanager
def open_to_read(path: Path) -> Iterator[apsw.Connection]:
    """A connection that cannot change anything. Raises apsw.Error where it is no database."""
    import apsw

    _register()
    # A database that was closed in order has no WAL, and SQLite would make one: it gets a flag that nothing writes.
    closed = not os.path.lexists(path.with_name(f"{path.name}-wal"))
    name = f"{path.absolute().as_uri()}?immutable=1" if closed else os.fspath(path)
    flags = apsw.SQLITE_OPEN_READONLY | (apsw.SQLITE_OPEN_URI if closed else 0)
    connection = apsw.Connection(name, flags=flags, vfs=VFS_NAME)
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


class _ReadFile:
    """The file methods of SQLite over a descriptor of our own. SQLite's would give the WAL to the database's owner."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        os.lseek(self._file.fileno(), offset, os.SEEK_SET)  # one thread reads; Windows has no pread
        return os.read(self._file.fileno(), amount)

    def xFileSize(self) -> int:  # noqa: N802
        return os.fstat(self._file.fileno()).st_size

    def xClose(self) -> None:  # noqa: N802
        self._file.close()

    def xLock(self, level: int) -> None:  # noqa: N802
        """Its owner must not have to wait because somebody looks."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return True  # whatever journal lies there is its owner's business, and is not rolled back from here

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        raise OSError("only reading")

    xTruncate = xWrite  # noqa: N815

    def xSync(self, flags: int) -> None:  # noqa: N802
        pass

    def xFileControl(self, _op: int, _pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0


_registered: list[Any] = []


def _register() -> None:
    """Once per process; apsw is loaded only when a database is really looked at."""
    if _registered:
        return
    import apsw

    class OnlyReading(apsw.VFS):
        def __init__(self) -> None:
            super().__init__(VFS_NAME, "")

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
            flags[1] = apsw.SQLITE_OPEN_READONLY
            path = name.filename() if isinstance(name, apsw.URIFilename) else name
            return _ReadFile(Path(path or ""))  # type: ignore[return-value]

        def xDelete(self, filename: str, _sync: bool) -> None:  # noqa: N802
            pass

    _registered.append(OnlyReading())

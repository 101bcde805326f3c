"""The log's own sync: one fdatasync of the WAL file makes all that was committed to it survive a power cut.

It is what SQLite does at the end of a FULL commit, but apart from the commit: no lock is held while the disk works, and
one sync serves whatever was committed until it began. The descriptor is our own, on the file that SQLite writes. Where
that cannot be said for certain, `usable` is False and the commits themselves are FULL: on macOS, whose sync needs more;
on Windows; with another file layer than SQLite's own; where the name leads to another file before the first sync.

Nothing is tried again: after a failed sync the pages may be marked clean, and a second one would lie.
"""

from __future__ import annotations

import os
import sys

import apsw

from acode.disk.fsync import sync_directory
from acode.disk.own_files import open_own

SQLITES_OWN_LAYER = "unix"


class WalSync:
    """The WAL file of one connection, opened right behind it: while that lives, SQLite keeps to the same file, and so
    does this, whatever becomes of the name."""

    def __init__(self, db: apsw.Connection, wal: str, *, look_only: bool = False, platform: str = sys.platform) -> None:
        self._wal = wal
        self._file: int | None = None
        self.usable: bool = False  # asked at every commit
        self._opened = (0, 0)
        self._is_known = False  # whether it is the file in use, and its name, which may be new, is on the disk
        if platform == "linux" and not look_only and db.open_vfs == SQLITES_OWN_LAYER:
            try:
                self._file = open_own(wal, os.O_WRONLY)
                found = os.fstat(self._file)
                self._opened = found.st_dev, found.st_ino
                self.usable = True
            except OSError:  # there is none, or no descriptor left
                self._file = None

    def sync(self) -> bool:
        """Whether all that was committed before is on the disk now. False: it must be synced by SQLite."""
        descriptor = self._file
        if descriptor is None or not (self._is_known or self._is_in_use()):
            self.close()
            return False
        if sys.platform != "linux":  # elsewhere none was opened
            raise NotImplementedError
        os.fdatasync(descriptor)
        if not self._is_known:
            sync_directory(os.path.dirname(self._wal))
            self._is_known = True
        return True

    def _is_in_use(self) -> bool:
        """The name still leads to the file that was opened with the connection."""
        try:
            named = os.stat(self._wal, follow_symlinks=False)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == self._opened

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self.usable = False

"""Preallocate the WAL: the file is lengthened with zeros before a commit needs the space.

A commit that lengthens the file makes its sync write down the new length as well, and then costs nearly twice as much.
Zeros are no frame to SQLite, so what reads the file stops in front of them. They are only ever put behind the last byte
of the file, by the holder of the database's write lock: no other process can write there at that time.

Making room must never sync (an error would be swallowed here that belongs to a commit before), and never fail: a commit
does not need it.
"""

from __future__ import annotations

import os
import sys

from acode.disk.own_files import open_own

APPENDS_BEFORE = 32  # a short session does without
PIECE_BYTES = 64 * 4_120  # frames of the WAL; synced together with the next commit, in less than a millisecond
LENGTH_BYTES_MAX = 1_000 * 4_120  # where SQLite moves the frames into the database and begins at the front again


class Room:
    """The WAL file of one connection; `ahead` is called in every append, inside its transaction."""

    def __init__(self, wal: str) -> None:
        self._wal = wal
        self._appends = 0
        self._file: int | None = None
        self._length_bytes = 0
        self.is_wanted: bool = True  # False: the file is long enough, or cannot be lengthened

    def ahead(self) -> None:
        """Lengthen the file, if SQLite has outgrown it since the last look."""
        self._appends += 1
        if not self.is_wanted or self._appends < APPENDS_BEFORE:
            return
        try:
            self.is_wanted = self._lengthen()
        except OSError:  # no space, no descriptor, a limit: the commit continues without
            self.is_wanted = False

    def _lengthen(self) -> bool:
        """Whether it is worth while to ask again."""
        if sys.platform == "win32":  # without pwrite, and with its own rules for a file that is open twice
            return False
        if self._file is None:
            self._file = open_own(self._wal, os.O_WRONLY)
        length = os.fstat(self._file).st_size
        if length >= LENGTH_BYTES_MAX:
            return False
        if length == self._length_bytes:
            return True
        written = os.pwrite(self._file, bytes(PIECE_BYTES), length)
        if written < PIECE_BYTES:  # the last of the disk is not ours to take
            os.ftruncate(self._file, length)
            return False
        self._length_bytes = length + written
        return True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

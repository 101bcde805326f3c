"""The files and directories of acode's own in a workspace, looked at before SQLite opens them.

A process that can write `.agent` could place a FIFO there, which blocks its opener forever, or a hard link, through
which acode would write into a file elsewhere. SQLite checks neither.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from acode.disk.own_files import describe_kind
from acode.errors import DatabaseCorrupt

DIRECTORIES = ("locks", "blobs", "run", "logs")
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")


def refuse_strange_files(database: Path) -> None:
    """Raise if one of the database's files, or of the directories beside it, is something that acode does not make."""
    for place in (database.with_name(database.name + suffix) for suffix in DATABASE_SUFFIXES):
        found = _found(place)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise _strange(place, describe_kind(found.st_mode), "a file")
        if found is not None and found.st_nlink > 1 and sys.platform != "win32":
            raise _strange(place, "a hard link: it has other names", "a file of its own")
    for place in (database.with_name(name) for name in DIRECTORIES):
        found = _found(place)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise _strange(place, describe_kind(found.st_mode), "a directory")


def _found(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _strange(path: Path, kind: str, wanted: str) -> DatabaseCorrupt:
    hint = (
        "Nothing was opened. Look who made it, and move it away; a database with two names: copy it, and use the copy."
    )
    return DatabaseCorrupt(f"{path} is {kind}, and must be {wanted}: refused", hint=hint)

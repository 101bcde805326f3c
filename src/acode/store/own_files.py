"""The files and directories of acode's own in a workspace: each is what acode makes, or it is not opened.

Whoever can write `.agent` could place a FIFO there, which blocks whoever opens it for ever, or a hard link, through
which acode would write into a file elsewhere. SQLite checks neither, so its files are looked at before it opens them.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from acode.errors import DatabaseCorrupt

DIRECTORIES = ("locks", "blobs", "run", "logs")
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")

_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_in_words(mode: int) -> str:
    return next((words for test, words in _KINDS if test(mode)), "a file")


def refuse_strange_files(database: Path) -> None:
    """Raise if one of the database's files, or of the directories beside it, is something that acode does not make."""
    for place in (database.with_name(database.name + suffix) for suffix in DATABASE_SUFFIXES):
        found = _found(place)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise _strange(place, kind_in_words(found.st_mode), "a file")
        if found is not None and found.st_nlink > 1 and sys.platform != "win32":
            raise _strange(place, "a hard link: it has other names", "a file of its own")
    for place in (database.with_name(name) for name in DIRECTORIES):
        found = _found(place)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            raise _strange(place, kind_in_words(found.st_mode), "a directory")


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file without other names. Anything else is an OSError, and is not waited for."""
    descriptor = os.open(path, flags | _CAREFUL, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (found.st_nlink <= 1 or sys.platform == "win32"):
        return descriptor
    os.close(descriptor)
    kind = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
    raise OSError(kind, "it is no file that acode made", os.fspath(path))


def read_own(path: str | os.PathLike[str]) -> bytes:
    with open(open_own(path, os.O_RDONLY | getattr(os, "O_BINARY", 0)), "rb") as file:
        return file.read()


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

"""Opening a file that acode made: a regular one with one name, or it is not opened.

A process that can write `.agent` could place a FIFO there, which blocks its opener forever, a link, or a hard link,
through which acode would write into a file elsewhere. The check uses the same descriptor as the caller.
"""

from __future__ import annotations

import errno
import os
import stat
import sys

# No link is followed, no pipe waited for, no line end changed, and no child gets it. A missing flag is 0.
SAFE_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def describe_kind(mode: int) -> str:
    return next((words for test, words in _KINDS if test(mode)), "a file")


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a regular file without other names. Anything else is an OSError, and is not waited for."""
    descriptor = os.open(path, flags | SAFE_FLAGS, 0o600)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (found.st_nlink <= 1 or sys.platform == "win32"):
        return descriptor
    os.close(descriptor)
    kind = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
    raise OSError(kind, "it is no file that acode made", os.fspath(path))


def read_own(path: str | os.PathLike[str]) -> bytes:
    with open(open_own(path, os.O_RDONLY), "rb") as file:
        return file.read()


def is_ours_alone(found: os.stat_result) -> bool:
    """Whether only this user can read it. Windows keeps others out by the access list of the profile directory."""
    if sys.platform == "win32":
        return True
    return found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077 == 0

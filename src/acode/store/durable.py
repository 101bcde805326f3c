"""Bytes that survive a power cut: syncing files and directories, and naming what kept them from the disk.

Nothing here retries. After a failed sync the kernel may have marked the pages clean, so a second one would lie.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from acode.errors import DiskFull, NotWritable, WriteFailed

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})


def sync_file(descriptor: int) -> None:
    """The file's bytes are on the disk, not only in its cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            # fsync on macOS leaves the bytes in the drive's cache; only this call empties it.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)  # network volumes know only this one
    else:
        os.fsync(descriptor)


def sync_directory(path: str | bytes | os.PathLike[str]) -> None:
    """The directory's entries are on the disk: without it a rename may be undone by a power cut."""
    if sys.platform != "win32":  # Windows offers no way to sync a directory; NTFS journals renames
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_entries(descriptor)
        finally:
            os.close(descriptor)


def sync_entries(descriptor: int) -> None:
    """The same for a directory that is open already."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and shared file systems know no sync of directories; that is no failure of this one.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def write_all(descriptor: int, data: bytes) -> None:
    """Every byte is handed over: a write may take only a part, as it does when a signal comes or the disk fills."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def naming_what_failed(what: str) -> Iterator[None]:
    """A system error while writing becomes the refusal that tells the user what to do about it."""
    try:
        yield
    except OSError as error:
        reason = f"{what}: {error.strerror or error}"
        if error.errno in _NO_ROOM:
            raise DiskFull(reason) from error
        if error.errno in _NOT_ALLOWED:
            raise NotWritable(reason) from error
        raise WriteFailed(reason) from error

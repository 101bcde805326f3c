"""Bytes that survive a power cut: files and directories synced as each platform needs it.

Nothing here retries. After a failed sync the kernel may have marked the pages clean, so a second one would lie.
"""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # the front of an agent's command loads this, and nothing that costs
if TYPE_CHECKING:
    from collections.abc import Callable

    FullSync = Callable[[int], object]
# The errors of a volume without full sync, such as a network volume. Any other error is one of the disk.
_NO_FULL_SYNC = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)

FULL_SYNC: FullSync | None = None  # None: fsync itself empties the cache of the drive
if sys.platform == "darwin":
    import fcntl

    def _full_sync(descriptor: int) -> None:
        """fsync on macOS leaves the bytes in the drive's cache; only this call empties it."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

    FULL_SYNC = _full_sync


def sync_file(descriptor: int, *, full_sync: FullSync | None = FULL_SYNC) -> None:
    """The file's bytes are on the disk, not only in its cache."""
    if full_sync is None:
        os.fsync(descriptor)
        return
    try:
        full_sync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(descriptor)


def hand_over(descriptor: int) -> None:
    """The file's bytes are with the drive. Where there is a `FULL_SYNC`, one `sync_file` must follow the last file."""
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
    """The same for a directory that is open already. On macOS the log's next commit empties the drive's cache."""
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

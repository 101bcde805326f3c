"""An open directory: every name is looked up in this very directory, not along a path, and no link is followed.

Held by its descriptor while its entries are used, so that nobody can swap a link in between the look and the use.
Windows has no such descriptors; there every name is looked at just before it is used, which is weaker.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import sys
from types import TracebackType
from typing import Self

from acode.disk.fsync import sync_entries
from acode.disk.own_files import SAFE_FLAGS
from acode.errors import UnsafePath

DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_MODE_NEW_DIRECTORY = 0o777  # less the umask
_CLOSED = -1  # no call takes it; None would have them use the path, which a closed directory must not
_PERHAPS_A_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)  # the kernels disagree on what a link there is


def descriptor_of(path: str) -> int | None:
    """The descriptor of a directory that the caller named, which may be a link; None where the platform has none."""
    if sys.platform == "win32":
        return None
    else:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


class OpenDirectory:
    """The operations in an open directory; subclasses define the spelling of names and the refusal of links."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path: str = path
        self._fd = descriptor  # None on Windows, where the path stands in

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._fd is not None and self._fd != _CLOSED:
            os.close(self._fd)
            self._fd = _CLOSED

    def _at(self, name: str) -> str | bytes:
        """The name as the system calls of this directory take it."""
        return name if self._fd is not None else os.path.join(self.path, name)

    def link_refusal(self, name: str, error: OSError) -> Exception:
        return UnsafePath(f"{os.path.join(self.path, name)} is a link; links are not followed.")

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor, without waiting; what it is of (a file, a FIFO, a device) is for the caller to ask."""
        if sys.platform == "win32" and self.is_link(name):
            raise self.link_refusal(name, OSError(errno.ELOOP, os.strerror(errno.ELOOP), name))
        try:
            return os.open(self._at(name), flags | SAFE_FLAGS, mode, dir_fd=self._fd)
        except OSError as error:
            if error.errno in _PERHAPS_A_LINK and self.is_link(name):
                raise self.link_refusal(name, error) from error
            raise

    def open_below(self, name: str) -> int | None:
        """The descriptor of the directory of this name; None where the platform has none."""
        if sys.platform == "win32":
            found = self.stat(name)
            if found is None or not (stat.S_ISDIR(found.st_mode) or self.is_link(name)):
                number = errno.ENOENT if found is None else errno.ENOTDIR
                raise OSError(number, os.strerror(number), os.path.join(self.path, name))
            if self.is_link(name):
                raise self.link_refusal(name, OSError(errno.ELOOP, os.strerror(errno.ELOOP), name))
            return None
        else:
            return self.open(name, DIRECTORY_FLAGS)

    def stat(self, name: str) -> os.stat_result | None:
        """The status of the entry, links not followed; None: there is none."""
        try:
            return os.stat(self._at(name), dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def is_link(self, name: str) -> bool:
        """A symbolic link, or one of Windows' other kinds."""
        found = self.stat(name)
        return found is not None and is_link(found)

    def names(self, count_max: int | None = None) -> list[str]:
        """The names, sorted; one more than `count_max` means that there are more."""
        with os.scandir(self.path if self._fd is None else self._fd) as entries:
            some = entries if count_max is None else itertools.islice(entries, count_max + 1)
            return sorted(entry.name for entry in some)

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._fd)

    def rmdir(self, name: str) -> None:
        os.rmdir(self._at(name), dir_fd=self._fd)

    def mkdir(self, name: str, mode: int = _MODE_NEW_DIRECTORY) -> None:
        os.mkdir(self._at(name), mode, dir_fd=self._fd)

    def rename(self, old: str, new: str) -> None:
        """Atomic, replacing what stands at `new`; a link there is replaced, not followed."""
        os.replace(self._at(old), self._at(new), src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def sync(self) -> None:
        """The directory's entries are on the disk."""
        if self._fd is not None:
            sync_entries(self._fd)


def is_link(found: os.stat_result) -> bool:
    attributes = getattr(found, "st_file_attributes", 0)
    return stat.S_ISLNK(found.st_mode) or bool(attributes & getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0))

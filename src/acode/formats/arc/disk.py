"""Files of a foreign run, reached from one root, component by component, never through a link.

A directory is held by its descriptor while its entries are used, so that nobody can swap a link in between the look
and the use. Windows has no such descriptors; there every component is looked at just before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

import psutil

from acode.disk.fsync import sync_entries, sync_file
from acode.disk.own_files import SAFE_FLAGS
from acode.errors import AcodeError, DiskFull, NotWritable, UnsafePath, WriteFailed

Kind = Literal["absent", "file", "directory", "link", "other"]

CHUNK_BYTES: Final = 1024 * 1024
TREE_DEPTH_MAX: Final = 64
LEFTOVER_ENTRIES_MAX: Final = 10_000
TEMPORARY_END: Final = ".acode-tmp"
TEMPORARY: Final = re.compile(r"\..+\.([0-9]{1,9})\.acode-tmp")
WINDOWS_JUNCTION: Final = 0xA0000003


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory: every name is looked up in this very directory, not along a path."""

    path: str
    fd: int | None  # None only where the platform cannot open directories

    def _at(self, name: str) -> str:
        return name if self.fd is not None else os.path.join(self.path, name)

    def kind(self, name: str) -> Kind:
        try:
            status = os.stat(self._at(name), dir_fd=self.fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return "absent"
        if stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == WINDOWS_JUNCTION:
            return "link"
        if stat.S_ISDIR(status.st_mode):
            return "directory"
        return "file" if stat.S_ISREG(status.st_mode) else "other"

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor of a regular file; UnsafePath for a link or anything else."""
        if self.kind(name) == "link":
            raise UnsafePath(f"{os.path.join(self.path, name)} is a link; links are not followed.")
        fd = os.open(self._at(name), flags | SAFE_FLAGS, mode, dir_fd=self.fd)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnsafePath(f"{os.path.join(self.path, name)} is no regular file.")
        except BaseException:
            os.close(fd)
            raise
        return fd

    def names(self, count_max: int) -> list[str]:
        """Up to count_max names, sorted; one more than the limit tells the caller that there are more."""
        with os.scandir(self.fd if self.fd is not None else self.path) as listing:
            return sorted(entry.name for entry in itertools.islice(listing, count_max + 1))

    def replace(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new), src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self.fd)

    def rmdir(self, name: str) -> None:
        os.rmdir(self._at(name), dir_fd=self.fd)

    def sync(self) -> None:
        if self.fd is not None:
            sync_entries(self.fd)

    def below(self, name: str) -> Directory:
        """The directory of this name inside this one; the caller closes it."""
        kind = self.kind(name)
        path = os.path.join(self.path, name)
        if kind == "link":
            raise UnsafePath(f"{path} is a link; links are not followed.")
        if kind == "absent":
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        if kind != "directory":
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        if self.fd is None:
            return Directory(path, None)
        # Between the look above and this open a link may have been swapped in: O_NOFOLLOW refuses it.
        return Directory(path, os.open(name, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | SAFE_FLAGS, dir_fd=self.fd))

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)


def parts_of(relative: str) -> tuple[str, ...]:
    """The components of a path below a root; UnsafePath for anything that could leave it."""
    if not relative or "\0" in relative or os.path.isabs(relative) or (os.sep != "/" and os.sep in relative):
        raise UnsafePath(f"{relative[:200]!r} is no path below the workspace.")
    parts = tuple(part for part in relative.split("/") if part not in ("", "."))
    if not parts or ".." in parts or (sys.platform == "win32" and ":" in relative):
        raise UnsafePath(f"{relative[:200]!r} leaves the workspace.")
    return parts


@contextmanager
def directory(root: str | os.PathLike[str], *parts: str) -> Iterator[Directory]:
    """The directory root/parts…, each part opened in its parent. The root itself is the caller's and may be a link."""
    current = _root(os.fspath(root))
    try:
        for part in parts:
            inner = current.below(part)
            current.close()
            current = inner
        yield current
    finally:
        current.close()


def _root(path: str) -> Directory:
    if sys.platform == "win32":
        return Directory(path, None)
    return Directory(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


@contextmanager
def parent_of(root: str | os.PathLike[str], relative: str) -> Iterator[tuple[Directory, str]]:
    """The directory that holds a file, and the file's name in it."""
    *above, name = parts_of(relative)
    with directory(root, *above) as holder:
        yield holder, name


def read_bounded(holder: Directory, name: str, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """The content, at most one byte over the limit so that the caller can tell, and the file's status."""
    with os.fdopen(holder.open(name, os.O_RDONLY), "rb") as file:
        return file.read(bytes_max + 1), os.fstat(file.fileno())


def digest(holder: Directory, name: str, bytes_max: int) -> tuple[str | None, os.stat_result]:
    """The SHA-256 of a file's bytes, or None when it is over the limit; and the file's status."""
    hasher = hashlib.sha256()
    left = bytes_max
    with os.fdopen(holder.open(name, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())  # before the bytes: a writer in between makes the status too old, not too new
        while chunk := file.read(CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                return None, status
            hasher.update(chunk)
    return hasher.hexdigest(), status


def put(holder: Directory, name: str, data: bytes, *, mode: int) -> None:
    """Replace a file as a whole: a crash at any point leaves the old content or the new, never a mixture."""
    temporary = f".{name}.{os.getpid()}{TEMPORARY_END}"
    with translated(os.path.join(holder.path, name)):
        _forget_leftovers(holder)
        try:
            _write_synced(holder, temporary, data, mode)
            if read_bounded(holder, temporary, len(data))[0] != data:
                raise WriteFailed(f"{name} was read back with other content than was written; the old file stands.")
            holder.replace(temporary, name)
            holder.sync()
        except BaseException:
            with suppress(OSError):
                holder.unlink(temporary)
            raise


def _forget_leftovers(holder: Directory) -> None:
    """Half-written files of writers that were killed. The name tells the writer: a living one keeps its file."""
    for name in holder.names(LEFTOVER_ENTRIES_MAX):
        match = TEMPORARY.fullmatch(name)
        if match and (int(match[1]) == os.getpid() or not psutil.pid_exists(int(match[1]))):
            with suppress(OSError):
                holder.unlink(name)


def _write_synced(holder: Directory, name: str, data: bytes, mode: int) -> None:
    with os.fdopen(holder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if sys.platform != "win32":
            os.fchmod(file.fileno(), mode)  # the umask must not take away what the old file granted
        file.write(data)
        file.flush()
        sync_file(file.fileno())


def remove_tree(holder: Directory, name: str, *, depth_max: int = TREE_DEPTH_MAX) -> None:
    """Remove a directory and all below it. Links inside are removed as links; what they point to is not touched."""
    if depth_max == 0:
        raise UnsafePath(f"{holder.path} is nested deeper than {TREE_DEPTH_MAX} directories.")
    inner = holder.below(name)
    try:
        while names := inner.names(1000):
            for entry in names:
                if inner.kind(entry) == "directory":
                    remove_tree(inner, entry, depth_max=depth_max - 1)
                else:
                    inner.unlink(entry)
    finally:
        inner.close()
    holder.rmdir(name)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Errors of the operating system as errors of acode, naming the file."""
    try:
        yield
    except AcodeError:
        raise
    except OSError as problem:
        reason = problem.strerror or str(problem)
        if problem.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"{what} cannot be written: {reason}.") from problem
        if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise NotWritable(f"{what} cannot be written: {reason}.") from problem
        raise WriteFailed(f"{what} cannot be written: {reason}.") from problem

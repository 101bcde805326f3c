"""Files of a foreign run, reached from one root, component by component, never through a link.

A directory is held by its descriptor while its entries are used, so that nobody can swap a link in between the look
and the use. Windows has no such descriptors; there every component is looked at just before it is used.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, Literal

from acode.disk.fsync import sync_file
from acode.disk.leftovers import create_temporary, forget_leftovers
from acode.disk.open_directory import OpenDirectory, descriptor_of, is_link
from acode.errors import AcodeError, DiskFull, NotWritable, UnsafePath, WriteFailed

Kind = Literal["absent", "file", "directory", "link", "other"]

CHUNK_BYTES: Final = 1024 * 1024
TREE_DEPTH_MAX: Final = 64


class Directory(OpenDirectory):
    """An open directory of a run, or above one."""

    __slots__ = ()

    def kind(self, name: str) -> Kind:
        try:
            found = self.stat(name)
        except NotADirectoryError:
            return "absent"
        if found is None:
            return "absent"
        if is_link(found):
            return "link"
        if stat.S_ISDIR(found.st_mode):
            return "directory"
        return "file" if stat.S_ISREG(found.st_mode) else "other"

    def open_file(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor of a regular file; UnsafePath for a link or anything else."""
        fd = self.open(name, flags, mode)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnsafePath(f"{os.path.join(self.path, name)} is no regular file.")
        except BaseException:
            os.close(fd)
            raise
        return fd

    def below(self, name: str) -> Directory:
        """The directory of this name inside this one; the caller closes it."""
        return Directory(os.path.join(self.path, name), self.open_below(name))


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
    current = Directory(os.fspath(root), descriptor_of(os.fspath(root)))
    try:
        for part in parts:
            inner = current.below(part)
            current.close()
            current = inner
        yield current
    finally:
        current.close()


@contextmanager
def parent_of(root: str | os.PathLike[str], relative: str) -> Iterator[tuple[Directory, str]]:
    """The directory that holds a file, and the file's name in it."""
    *above, name = parts_of(relative)
    with directory(root, *above) as holder:
        yield holder, name


def read_bounded(holder: Directory, name: str, bytes_max: int) -> tuple[bytes, os.stat_result]:
    """The content, at most one byte over the limit so that the caller can tell, and the file's status."""
    with os.fdopen(holder.open_file(name, os.O_RDONLY), "rb") as file:
        return file.read(bytes_max + 1), os.fstat(file.fileno())


def digest(holder: Directory, name: str, bytes_max: int) -> tuple[str | None, os.stat_result]:
    """The SHA-256 of a file's bytes, or None when it is over the limit; and the file's status."""
    hasher = hashlib.sha256()
    left = bytes_max
    with os.fdopen(holder.open_file(name, os.O_RDONLY), "rb") as file:
        status = os.fstat(file.fileno())  # before the bytes: a writer in between makes the status too old, not too new
        while chunk := file.read(CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                return None, status
            hasher.update(chunk)
    return hasher.hexdigest(), status


def put(holder: Directory, name: str, data: bytes, *, mode: int) -> None:
    """Replace a file as a whole: a crash at any point leaves the old content or the new, never a mixture."""
    with translated(os.path.join(holder.path, name)):
        forget_leftovers(holder)
        temporary, fd = create_temporary(holder, name, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                _write_synced(file, data, mode)
                if read_bounded(holder, temporary, len(data))[0] != data:
                    raise WriteFailed(f"{name} was read back with other content than was written; the old file stands.")
                if sys.platform == "win32":
                    file.close()  # Windows renames no file that is open
                holder.rename(temporary, name)
            holder.sync()
        except BaseException:
            with suppress(OSError):
                holder.unlink(temporary)
            raise


def _write_synced(file: BinaryIO, data: bytes, mode: int) -> None:
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

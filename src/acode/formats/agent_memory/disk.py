"""Look at a foreign run on disk: folders and files opened one below the other, never through a link, never blocking.

A folder is held by its descriptor, so that an attacker who swaps a component for a link between the look and the use
changes nothing. Must never write; `record` does that.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from acode.errors import UnsafePath
from acode.formats.agent_memory.values import NAME_CHARS_MAX

READ_CHUNK_BYTES = 256 * 1024
FOLDER_ENTRIES_MAX = 100_000


class Entry(msgspec.Struct, frozen=True):
    name: str
    is_folder: bool
    is_file: bool
    is_link: bool


class Folder:
    """A folder held open. On Windows, which has no descriptors for folders, a path that was checked for links."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def at(cls, path: str) -> Folder:
        """The place a caller named himself; only what lies below it is held to the no-links rule."""
        return cls(path, _open_folder(path, parent=None, follow=True))

    def below(self, name: str) -> Folder:
        _check_name(name)
        path = os.path.join(self.path, name)
        if sys.platform == "win32":
            return Folder(path, _open_folder(path, parent=None, follow=False))
        return Folder(path, _open_folder(name, parent=self._descriptor, follow=False))

    def entries(self) -> list[Entry]:
        """What lies in it, by name. More than FOLDER_ENTRIES_MAX are cut: the caller has lower limits and says so."""
        found: list[Entry] = []
        with os.scandir(self.path if sys.platform == "win32" else self._descriptor) as scan:
            for item in scan:
                if len(found) >= FOLDER_ENTRIES_MAX:
                    break
                link = item.is_symlink() or _is_junction(item)
                found.append(
                    Entry(
                        item.name,
                        not link and item.is_dir(follow_symlinks=False),
                        not link and item.is_file(follow_symlinks=False),
                        link,
                    )
                )
        found.sort(key=lambda entry: entry.name)
        return found

    def open_file(self, name: str) -> OpenFile:
        _check_name(name)
        path = os.path.join(self.path, name)
        if sys.platform == "win32":
            if os.path.islink(path):
                raise UnsafePath(f"{path} is a link; links are not followed")
            descriptor = os.open(path, os.O_RDONLY | os.O_BINARY)
        else:
            # Without O_NONBLOCK a planted named pipe would hold acode up for ever.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafePath(f"{path} is no regular file")
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, status.st_size, status.st_mtime_ns // 1000)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class OpenFile:
    """A regular file opened for reading; its size is taken once: a living writer cannot hold a reader for ever."""

    def __init__(self, descriptor: int, size_bytes: int, touched_us: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = size_bytes
        self.touched_us = touched_us

    def head(self, bytes_max: int) -> bytes:
        return b"".join(self.chunks(bytes_max=bytes_max))

    def tail(self, bytes_max: int) -> bytes:
        start = max(0, self.size_bytes - bytes_max)
        os.lseek(self._descriptor, start, os.SEEK_SET)
        return self.head(bytes_max)

    def chunks(self, *, bytes_max: int | None = None) -> Iterator[bytes]:
        left = self.size_bytes if bytes_max is None else min(self.size_bytes, bytes_max)
        while left > 0:
            chunk = os.read(self._descriptor, min(READ_CHUNK_BYTES, left))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


def lines(file: OpenFile, *, line_bytes_max: int) -> Iterator[tuple[bytes | None, bool]]:
    """Each line without its end, and whether it had one. A line over the limit is None and is never held in memory."""
    held: list[bytes] = []
    held_bytes = 0
    for chunk in file.chunks():
        parts = chunk.split(b"\n")
        for part in parts[:-1]:
            if held_bytes:
                whole = None if held_bytes + len(part) > line_bytes_max else b"".join((*held, part))
                held, held_bytes = [], 0
                yield whole, True
            else:
                yield (None if len(part) > line_bytes_max else part), True
        rest = parts[-1]
        held_bytes += len(rest)
        if held_bytes > line_bytes_max:
            held = []
        elif rest:
            held.append(rest)
    if held_bytes:
        yield (None if held_bytes > line_bytes_max else b"".join(held)), False


def _open_folder(path: str, *, parent: int | None, follow: bool) -> int:
    if sys.platform == "win32":
        if not follow and os.path.islink(path):
            raise UnsafePath(f"{path} is a link; links are not followed")
        if not os.path.isdir(path):
            raise NotADirectoryError(path)
        return -1
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    return os.open(path, flags, dir_fd=parent)


def _is_junction(item: os.DirEntry[str]) -> bool:
    """Windows' other kind of link; Python names it from 3.12 on, the reparse attribute says it in 3.11 too."""
    if sys.platform == "win32":
        attributes = item.stat(follow_symlinks=False).st_file_attributes
        return bool(attributes & stat.FILE_ATTRIBUTE_REPARSE_POINT)
    return False


def _check_name(name: str) -> None:
    if name in {"", ".", ".."} or len(name) > NAME_CHARS_MAX or any(char in name for char in "/\\\0"):
        raise UnsafePath(f"{name[:NAME_CHARS_MAX]!r} is no name of a file in a run")

"""Look at a foreign run on disk: folders and files opened one below the other, never through a link, never blocking.

A folder is held by its descriptor, so that an attacker who swaps a component for a link between the look and the use
changes nothing. Only `own_events` writes.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import BytesIO
from types import TracebackType
from typing import Self

import msgspec

from acode.disk.open_directory import OpenDirectory, descriptor_of, is_link
from acode.errors import UnsafePath
from acode.formats.agent_memory.values import NAME_CHARS_MAX

READ_CHUNK_BYTES = 128 * 1024
FOLDER_ENTRIES_MAX = 100_000


class Entry(msgspec.Struct, frozen=True):
    name: str
    is_folder: bool
    is_file: bool
    is_link: bool


class Folder(OpenDirectory):
    """A folder of a run, or above one, held open."""

    __slots__ = ()

    @classmethod
    def at(cls, path: str) -> Folder:
        """The place a caller named himself; only what lies below it is held to the no-links rule."""
        if sys.platform == "win32" and not os.path.isdir(path):
            raise NotADirectoryError(path)
        return cls(path, descriptor_of(path))

    def link_refusal(self, name: str, error: OSError) -> Exception:
        if sys.platform == "win32":
            return UnsafePath(f"{os.path.join(self.path, name)} is a link; links are not followed")
        return OSError(error.errno, error.strerror, error.filename)

    def below(self, name: str) -> Folder:
        _check_name(name)
        return Folder(os.path.join(self.path, name), self.open_below(name))

    def make_below(self, name: str) -> Folder:
        with suppress(FileExistsError):
            self.mkdir(name)
        return self.below(name)

    def entries(self) -> list[Entry]:
        """Its entries, by name. More than FOLDER_ENTRIES_MAX are cut: the caller has lower limits and reports them."""
        found: list[Entry] = []
        with os.scandir(self.path if self._fd is None else self._fd) as scan:
            for item in scan:
                if len(found) >= FOLDER_ENTRIES_MAX:
                    break
                link = is_link(item.stat(follow_symlinks=False)) if sys.platform == "win32" else item.is_symlink()
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
        descriptor = self.open(name, os.O_RDONLY)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafePath(f"{os.path.join(self.path, name)} is no regular file")
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, status.st_size, status.st_mtime_ns // 1000)


class OpenFile:
    """A regular file opened for reading; its size is taken once: a live writer cannot hold a reader forever."""

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

    def part(self, start: int, length: int) -> bytes:
        """These bytes of the file; `chunks` continues where it was."""
        before = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(self._descriptor, start, os.SEEK_SET)
            return os.read(self._descriptor, length)
        finally:
            os.lseek(self._descriptor, before, os.SEEK_SET)

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
    for block, ended in blocks_of_lines(file.chunks(), line_bytes_max=line_bytes_max):
        if isinstance(block, int):
            yield None, ended
            continue
        for line in lines_of(block):
            yield line.removesuffix(b"\n"), ended


def blocks_of_lines(chunks: Iterable[bytes], *, line_bytes_max: int) -> Iterator[tuple[bytes | int, bool]]:
    """The same with many lines at a time: as many whole ones as were read at once, each with its end. In place of a
    line over the limit its length.
    """
    held: list[bytes] = []
    held_bytes = 0
    for chunk in chunks:
        start, end = 0, chunk.rfind(b"\n") + 1
        if end:
            first_bytes = held_bytes + chunk.find(b"\n")
            if first_bytes > line_bytes_max:
                yield first_bytes + 1, True
                held, start = [], chunk.find(b"\n") + 1
            yield from _within_limit(b"".join((*held, memoryview(chunk)[start:end])), line_bytes_max)
            held, held_bytes = [], 0
        rest = chunk[end:]
        held_bytes += len(rest)
        if held_bytes > line_bytes_max:
            held = []
        elif rest:
            held.append(rest)
    if held_bytes:
        yield held_bytes if held_bytes > line_bytes_max else b"".join(held), False


def _within_limit(block: bytes, line_bytes_max: int) -> Iterator[tuple[bytes | int, bool]]:
    if len(block) > line_bytes_max:
        for line in BytesIO(block):
            yield len(line) if len(line) > line_bytes_max + 1 else line, True
    elif block:
        yield block, True


def lines_of(block: bytes) -> list[bytes]:
    """The lines of a block, each with its end."""
    return BytesIO(block).readlines() or [block]


def _check_name(name: str) -> None:
    if name in {"", ".", ".."} or len(name) > NAME_CHARS_MAX or any(char in name for char in "/\\\0"):
        raise UnsafePath(f"{name[:NAME_CHARS_MAX]!r} is no name of a file in a run")

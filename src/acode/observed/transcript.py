"""Read the files of other agents: bounded, without following links, and without an error for an unreadable part.

A transcript may have a gigabyte, end in a torn line, or be no file at all: a FIFO would never open, a device may answer
forever. So a file is opened without waiting and only if it is regular; lines are read one at a time up to a length; and
JSON is decoded a level at a time, so that the parts nobody asks for are never built in memory.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from acode.disk.own_files import describe_kind

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
HEAD_BYTES: Final = 64 * 1024
FILES_MAX: Final = 100_000
ID_CHARS_MAX: Final = 200
EPOCH_MS_MAX: Final = 253_402_300_799_000  # the last second of the year 9999

_CAREFUL = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOCTTY", 0)
)


class NotRegular(OSError):
    """The path is no regular file."""


def open_regular(path: Path) -> BinaryIO:
    """The file, open for reading. A link is not followed, and nothing is waited for."""
    found = os.lstat(path)  # before it is opened: opening some devices does something
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(0, f"it is {describe_kind(found.st_mode)}", os.fspath(path))
    descriptor = os.open(path, _CAREFUL)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(0, "it is no regular file", os.fspath(path))
    return open(descriptor, "rb")


def read_head(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read(HEAD_BYTES)


def read_document(path: Path) -> bytes:
    """A whole file, where its format cannot be read in pieces."""
    with open_regular(path) as file:
        data = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise NotRegular(0, f"it is larger than {DOCUMENT_BYTES_MAX // 1_048_576} MiB", os.fspath(path))
    return data


def modified_at(path: Path) -> datetime:
    return datetime.fromtimestamp(os.lstat(path).st_mtime, UTC)


# Lines.


@dataclass(slots=True)
class LineCounts:
    """Counts of the lines left out; each of them may have been the result of a call."""

    lines: int = 0
    too_long: int = 0
    not_json: int = 0
    torn_bytes: int = 0

    def notes(self) -> tuple[str, ...]:
        """The sentences that a reader of the result needs."""
        found = []
        if self.torn_bytes:
            found.append(
                f"The last line is torn after {self.torn_bytes:,} bytes: a call or a result may have stood in it."
            )
        if self.too_long:
            found.append(
                f"{self.too_long:,} of {self.lines:,} lines are longer than {LINE_BYTES_MAX // 1_048_576} MiB and were"
                " not read: a call shown as in flight may have ended there."
            )
        if self.not_json:
            found.append(f"{self.not_json:,} of {self.lines:,} lines are not JSON and were not read.")
        return tuple(found)


def objects(file: BinaryIO, counts: LineCounts) -> Iterator[tuple[int, Fields]]:
    """Each line that is a JSON object, with its number; the rest is counted."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        counts.lines += 1
        ended = line.endswith(b"\n")
        if not ended and len(line) > LINE_BYTES_MAX:
            counts.too_long += 1
            while line and not line.endswith(b"\n"):
                line = file.readline(LINE_BYTES_MAX)
            continue
        if not line.strip():
            continue
        found = decode(line)
        if found is not None:
            yield counts.lines, found
        elif ended:
            counts.not_json += 1
        else:
            counts.torn_bytes = len(line)


# JSON, a level at a time.

Fields = dict[str, msgspec.Raw]
_OBJECT = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError)


def decode(data: bytes | msgspec.Raw | None) -> Fields | None:
    """The fields of an object, each still undecoded; None if it is none."""
    if data is None:
        return None
    with contextlib.suppress(*_BAD):
        return _OBJECT.decode(data)
    return None


def object_of(raw: msgspec.Raw | None) -> Fields:
    return decode(raw) or {}


def list_of(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    if raw is not None:
        with contextlib.suppress(*_BAD):
            return _LIST.decode(raw)
    return []


def text_of(raw: msgspec.Raw | None) -> str:
    """The text, or nothing where it is no text. A lone surrogate is none."""
    if raw is not None:
        with contextlib.suppress(*_BAD):
            return msgspec.json.decode(raw, type=str)
    return ""


def number_of(raw: msgspec.Raw | None) -> float | None:
    if raw is not None:
        with contextlib.suppress(*_BAD):
            return float(msgspec.json.decode(raw, type=float | int))
    return None


def is_true(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(raw).strip() == b"true"


def is_text(raw: msgspec.Raw | None) -> bool:
    return raw is not None and bytes(memoryview(raw)[:1]) == b'"'


def id_of(raw: msgspec.Raw | None) -> str:
    """An id, or nothing where it is too long to be one."""
    found = text_of(raw)
    return found if len(found) <= ID_CHARS_MAX else ""


def time_of(raw: msgspec.Raw | None) -> datetime | None:
    """ISO 8601 text, or a number of milliseconds; None for anything else."""
    try:
        if is_text(raw):
            text = text_of(raw)
            parsed = datetime.fromisoformat(text) if len(text) <= 64 else None
            return parsed and (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
        number = number_of(raw)
        return (
            datetime.fromtimestamp(number / 1000, UTC) if number is not None and 0 <= number <= EPOCH_MS_MAX else None
        )
    except (ValueError, OverflowError, OSError):
        return None


# Directories.


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that could not be looked at, and why."""

    path: Path
    message: str


@dataclass(slots=True)
class Listing:
    """The transcripts that were found, each with the time of its last change, and what stood in their place."""

    files: list[tuple[float, Path]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, entry: os.DirEntry[str]) -> None:
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            self.files.append((found.st_mtime, Path(entry.path)))
        else:
            message = f"It is {describe_kind(found.st_mode)} where a transcript is expected: not opened."
            self.problems.append(Problem(path=Path(entry.path), message=message))


def config_above(transcript: Path, *patterns: str) -> Path | None:
    """The directory above these levels, if the transcript lies below such ones."""
    names = transcript.parts[-len(patterns) - 1 : -1]
    fits = len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
    return transcript.parents[len(patterns)] if fits else None


def find_files(root: Path, *patterns: str) -> Listing:
    """The files whose path below `root` fits the patterns, one for each level. Links are not followed."""
    listing = Listing()
    _find(root, patterns, listing)
    return listing


def _find(directory: Path, patterns: tuple[str, ...], listing: Listing) -> None:
    first, *rest = patterns
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(listing.files) >= FILES_MAX or not fnmatchcase(entry.name, first):
                    continue
                if not rest:
                    with contextlib.suppress(FileNotFoundError):
                        listing.add(entry)
                elif entry.is_dir(follow_symlinks=False):
                    _find(Path(entry.path), tuple(rest), listing)
    except (FileNotFoundError, NotADirectoryError):
        return  # the agent was never used here
    except OSError as error:
        message = f"It cannot be listed: {error.strerror or error}."
        listing.problems.append(Problem(path=directory, message=message))

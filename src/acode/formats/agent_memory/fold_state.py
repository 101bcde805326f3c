"""What a fold of event files keeps from line to line, as values that can be written down and continued from.

Pure. A `FoldState` stands for exact bytes: of each file so many from its beginning, whole lines, with their SHA-256. It
holds no text that an event has in its details (a title, the reason of a failure), because secrets may stand there: it
says where the event's line is, and a fold that continues reads the text from the log again.
"""

from __future__ import annotations

import msgspec

from acode.formats.agent_memory.values import SKIPPED_RANGES_MAX, Ending, PhaseMark

Order = tuple[int, str, str, str, int]
Point = tuple[Order, str, int | None]
"""Sort key, folded type, own time: what becomes a Mark if it is still the latest at the end."""
Span = tuple[int, int]
"""Where a line stands in its file: offset and length in bytes."""


class FileState(msgspec.Struct, array_like=True):
    """How far one event file is folded, and what can be said of it only when all of it is."""

    file: str
    place: Order
    """Where the last event stands in the order of all."""
    folded_bytes: int = 0
    lines: int = 0
    untimed: int = 0
    first_untimed: int = 0
    skipped: list[tuple[int, int, str]] = []
    """First line, last line, reason."""


class Skipped(msgspec.Struct, array_like=True):
    """How many lines were skipped, and how many ranges of them are told by number."""

    lines: int = 0
    ranges: int = 0
    untold: int = 0

    def skip(self, file: FileState, number: int, reason: str) -> None:
        self.lines += 1
        last = file.skipped[-1] if file.skipped else None
        if last and last[1] == number - 1 and last[2] == reason:
            file.skipped[-1] = (last[0], number, reason)
        elif not self.full:
            file.skipped.append((number, number, reason))
            self.ranges += 1
        else:
            self.untold += 1

    @property
    def full(self) -> bool:
        return self.ranges >= SKIPPED_RANGES_MAX


class FoldState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A fold as it stands after whole lines."""

    files: list[FileState]
    digests: list[bytes]
    """For each file the SHA-256 of the bytes that were folded."""
    tasks: dict[str, dict[str, Point]]
    titles: dict[str, tuple[Order, Span]]
    failures: dict[str, tuple[Order, Span]]
    latest: dict[str, Point]
    phases: dict[str, tuple[Point, PhaseMark]]
    gates: dict[int, Point]
    newer: bool
    approval: tuple[Point, dict[str, str]] | None
    ending: Ending
    made: set[str]
    newest_task_us: int
    unknown_task_types: set[str]
    completed_by_others: set[str]
    last_activity_us: int | None
    tasks_refused: int
    events_read: int
    skipped: Skipped
    limited_from: tuple[str, ...]
    """For each limit the file that was the last one when it was reached; empty: it was not."""

    @property
    def folded_bytes(self) -> int:
        return sum(file.folded_bytes for file in self.files)


_states = msgspec.msgpack.Decoder(FoldState)


def encode_state(state: FoldState) -> bytes:
    """A ValueError where the name of a file, or whatever else, is no text that can be encoded."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes | memoryview) -> FoldState | None:
    try:
        return _states.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None

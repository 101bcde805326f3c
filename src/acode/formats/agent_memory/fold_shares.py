"""Fold a long log in two shares at the same time: one half here, and what is after it in a forked process.

A share ends with a file, or within one where whole files would make uneven shares. What one process alone would find
is found: shares that cannot be merged, and those of a worker that failed, are folded here as well.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import msgspec

from acode.formats.agent_memory.disk import Folder
from acode.formats.agent_memory.event_files import EventFile, Notes, opened_files
from acode.formats.agent_memory.fold_merge import LaterFiles
from acode.formats.agent_memory.fold_worker import Worker, can_fork
from acode.formats.agent_memory.look import Cut, Look
from acode.formats.agent_memory.values import EVENT_BYTES_PER_RUN_MAX, EVENT_LINE_BYTES_MAX

SHARE_BYTES_MIN = 8 * 1024 * 1024
"""Below it a worker costs as much as it saves."""
SCAN_COST = 0.2
"""What it costs to read, hash and count the lines before a cut, as a part of what it costs to fold them."""
UNEVEN_MAX = 1.05
"""Shares of whole files need no such scan, so they may be a little less alike."""
FILES_MAX = 1_000

_answers = msgspec.msgpack.Decoder(LaterFiles)


class Shares(msgspec.Struct, frozen=True):
    """Of the files so many are folded here whole; the next one perhaps in part, and the rest in the worker."""

    whole: int
    cut_at: int = 0

    def cut(self, files: tuple[EventFile, ...], *, later: bool) -> Cut | None:
        return Cut(files[self.whole], self.cut_at, later) if self.cut_at else None


def fold_in_shares(run: Folder, files: tuple[EventFile, ...], look: Look) -> bool:
    """All files of a look that begins; False: they cannot be folded in this way."""
    shares = _shares(run, files)
    if shares is None:
        return look.fold_files(run, files)
    first, rest = files[: shares.whole + bool(shares.cut_at)], files[shares.whole :]
    with Worker(lambda: _later_share(run, rest, shares.cut(files, later=True))) as worker:
        if not look.fold_files(run, first, shares.cut(files, later=False)):
            return False
        later = _decoded(worker.answer())
        joined = later is not None and look.join(later)  # while the worker ends
    return joined or look.fold_files(run, rest)


def _shares(run: Folder, files: tuple[EventFile, ...]) -> Shares | None:
    """Where to cut, so that both are done at the same time; None: one process is as fast."""
    if not 0 < len(files) <= FILES_MAX or not can_fork():
        return None
    ends = list(accumulate(file.size_bytes for _, file in opened_files(run, files, Notes())))
    if len(ends) < len(files) or not 2 * SHARE_BYTES_MIN <= ends[-1] <= EVENT_BYTES_PER_RUN_MAX:
        return None
    total, starts = ends[-1], [0, *ends]
    whole = min(range(len(files)), key=lambda count: max(starts[count], total - starts[count]))
    for number, (start, end) in enumerate(pairwise(starts)):
        aim = int((total - SCAN_COST * start) / (2 - SCAN_COST))
        if start < aim < end and max(starts[whole], total - starts[whole]) > aim * UNEVEN_MAX:
            cut_at = _end_of_line(run, files[number], aim - start)
            if 0 < cut_at < end - start:
                return Shares(number, cut_at)
    return Shares(whole) if SHARE_BYTES_MIN <= starts[whole] <= total - SHARE_BYTES_MIN else None


def _end_of_line(run: Folder, file: EventFile, at: int) -> int:
    """Where the line ends that stands there; 0 where it does not end soon."""
    for _, opened in opened_files(run, (file,), Notes()):
        length = opened.part(at, EVENT_LINE_BYTES_MAX).find(b"\n") + 1
        return at + length if length else 0
    return 0


def _later_share(run: Folder, files: tuple[EventFile, ...], cut: Cut | None) -> bytes:
    """In the worker."""
    look = Look(files)
    return msgspec.msgpack.encode(look.as_later()) if look.fold_files(run, files, cut) else b""


def _decoded(answer: bytes | None) -> LaterFiles | None:
    try:
        return _answers.decode(answer) if answer else None
    except (msgspec.MsgspecError, ValueError):
        return None

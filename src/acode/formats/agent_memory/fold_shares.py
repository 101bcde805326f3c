"""Fold a long log in two shares at the same time: the first files here, those after them in a forked process.

What one process alone would find is found: shares that cannot be merged, and those of a worker that failed, are folded
here as well.
"""

from __future__ import annotations

from itertools import accumulate

import msgspec

from acode.formats.agent_memory.disk import Folder
from acode.formats.agent_memory.event_files import EventFile, Notes, opened_files
from acode.formats.agent_memory.fold_merge import LaterFiles
from acode.formats.agent_memory.fold_worker import Worker, can_fork
from acode.formats.agent_memory.look import Look

SHARE_BYTES_MIN = 8 * 1024 * 1024
"""Below it a worker costs as much as it saves."""
FILES_MAX = 1_000

_answers = msgspec.msgpack.Decoder(LaterFiles)


def fold_in_shares(run: Folder, files: tuple[EventFile, ...], look: Look) -> bool:
    """All files of a look that begins; False: they cannot be folded in this way."""
    first = _first_share(run, files)
    if first == len(files):
        return look.fold_files(run, files)
    with Worker(lambda: _later_share(run, files[first:])) as worker:
        if not look.fold_files(run, files[:first]):
            return False
        later = _decoded(worker.answer())
        joined = later is not None and look.join(later)  # while the worker ends
    return joined or look.fold_files(run, files[first:])


def _first_share(run: Folder, files: tuple[EventFile, ...]) -> int:
    """How many files to fold here: about half of the bytes, or all."""
    if not 1 < len(files) <= FILES_MAX or not can_fork():
        return len(files)
    sizes = [file.size_bytes for _, file in opened_files(run, files, Notes())]
    before = list(accumulate(sizes))
    if len(sizes) < len(files) or before[-1] < 2 * SHARE_BYTES_MIN:
        return len(files)
    first = min(range(1, len(files)), key=lambda count: max(before[count - 1], before[-1] - before[count - 1]))
    smaller = min(before[first - 1], before[-1] - before[first - 1])
    return first if smaller >= SHARE_BYTES_MIN else len(files)


def _later_share(run: Folder, files: tuple[EventFile, ...]) -> bytes:
    """In the worker."""
    look = Look(files)
    return msgspec.msgpack.encode(look.as_later()) if look.fold_files(run, files) else b""


def _decoded(answer: bytes | None) -> LaterFiles | None:
    try:
        return _answers.decode(answer) if answer else None
    except (msgspec.MsgspecError, ValueError):
        return None

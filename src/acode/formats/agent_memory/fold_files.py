"""Fold the event files of a run from disk; with a cache, only what was appended since the last look.

A cached state is used if every byte that it stands for is still there: the same files in the same order, and of each as
many bytes with the same SHA-256. All files are opened and read to their ends, as without a cache, with the same limits
and errors; what is saved is the decoding. Anything else than more lines at the ends of files, or new files, means a
fold from the beginning, and so does any file that the machine refuses.
"""

from __future__ import annotations

from acode.formats.agent_memory.disk import Folder, blocks_of_lines
from acode.formats.agent_memory.event_files import EventFile, Notes, weighed_files
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.fold_cache import FoldCache
from acode.formats.agent_memory.fold_shares import fold_in_shares
from acode.formats.agent_memory.fold_state import FoldState
from acode.formats.agent_memory.look import Look
from acode.formats.agent_memory.values import EVENT_LINE_BYTES_MAX


def fold_events(
    run: Folder, files: tuple[EventFile, ...], notes: Notes, touched_us: list[int], cache: FoldCache | None
) -> EventFold:
    if cache is not None and files:
        kept = cache.read(run.path)
        look = _look(run, files, kept, cache) if kept is not None else None
        look = look or _look(run, files, None, cache)
        if look is not None and look.fold_torn_lines():
            touched_us.extend(look.touched_us)
            return look.fold
    fold = EventFold()
    fold_all(run, files, fold, notes, touched_us)
    return fold


def fold_all(run: Folder, files: tuple[EventFile, ...], fold: EventFold, notes: Notes, touched_us: list[int]) -> None:
    """Stream every event file into the fold."""
    for item, file in weighed_files(run, files, notes):
        touched_us.append(file.touched_us)
        try:
            blocks = blocks_of_lines(file.chunks(), line_bytes_max=EVENT_LINE_BYTES_MAX)
            fold.fold_blocks(item.shown_as, item.actor, blocks)
        except OSError as error:
            notes.cannot_read(item.shown_as, error)


def _look(run: Folder, files: tuple[EventFile, ...], kept: FoldState | None, cache: FoldCache) -> Look | None:
    """One pass over all files; None: it must be made without this state, or without a cache."""
    look = Look(files, kept)
    if not look.same_order():
        return None
    folded = look.fold_files(run, files) if kept is not None else fold_in_shares(run, files, look)
    if not folded:
        return None
    look.keep(run.path, cache)
    return look

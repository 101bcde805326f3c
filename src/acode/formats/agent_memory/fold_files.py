"""Fold the event files of a run from disk; with a cache, only what was appended since the last look.

A cached state is used if every byte that it stands for is still there: the same files in the same order, and of each as
many bytes with the same SHA-256. All files are opened and read to their ends, as without a cache, with the same limits
and errors; what is saved is the decoding. Anything else than more lines at the ends of files, or new files, means a
fold from the beginning, and so does any file that the machine refuses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from acode.formats.agent_memory.disk import Folder, OpenFile, blocks_of_lines
from acode.formats.agent_memory.event_files import EventFile, Notes, weighed_files
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.fold_cache import FoldCache
from acode.formats.agent_memory.fold_state import FoldState
from acode.formats.agent_memory.values import EVENT_LINE_BYTES_MAX

TORN_BYTES_MAX = 16 * 1024 * 1024


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


def _look(run: Folder, files: tuple[EventFile, ...], kept: FoldState | None, cache: FoldCache) -> _Look | None:
    """One pass over all files; None: it must be made without this state, or without a cache."""
    look, notes = _Look(files, kept), Notes()
    if not look.same_order():
        return None
    try:
        for item, file in weighed_files(run, files, notes):
            if not look.fold_whole_lines(item, file):
                return None
    except OSError:
        return None
    if notes.warnings:
        return None
    look.keep(run.path, cache)
    return look


class _Look:
    """A fold that continues from a state. Last lines without an end are folded after all others: they are in no state,
    because they may become longer.
    """

    def __init__(self, files: tuple[EventFile, ...], kept: FoldState | None) -> None:
        self._names = [item.shown_as for item in files]
        self._known: dict[str, tuple[int, bytes]] = {}
        if kept is not None:
            pairs = zip(kept.files, kept.digests, strict=True)
            self._known = {file.file: (file.folded_bytes, digest) for file, digest in pairs}
        self._kept_bytes = kept.folded_bytes if kept is not None else 0
        self._digests: dict[str, bytes] = {}
        self._torn: list[tuple[EventFile, bytes | int]] = []
        self._torn_bytes = 0
        self.fold = EventFold.over([(item.shown_as, item.actor) for item in files], kept)
        self.touched_us: list[int] = []

    def same_order(self) -> bool:
        """Whether all files of the state are here, in the order in which they were folded."""
        return [name for name in self._names if name in self._known] == list(self._known)

    def fold_whole_lines(self, item: EventFile, file: OpenFile) -> bool:
        """The lines of the file that are not in the state yet; False: the state does not stand for the others."""
        name = item.shown_as
        known_bytes, digest = self._known.get(name, (0, b""))
        seen = _Seen()
        for chunk in file.chunks(bytes_max=known_bytes):
            seen.hash.update(chunk)
        if name in self._known and seen.hash.digest() != digest:
            return False
        if not self.fold.read_texts(name, lambda span: file.part(*span)):
            return False
        self.touched_us.append(file.touched_us)
        chunks = seen.follow(file.chunks(bytes_max=max(0, file.size_bytes - known_bytes)))
        blocks = blocks_of_lines(chunks, line_bytes_max=EVENT_LINE_BYTES_MAX)
        self.fold.fold_blocks(name, item.actor, self._whole(item, blocks))
        self._digests[name] = seen.whole_lines
        return self._torn_bytes <= TORN_BYTES_MAX and self.fold.in_order

    def _whole(self, item: EventFile, blocks: Iterable[tuple[bytes | int, bool]]) -> Iterator[tuple[bytes | int, bool]]:
        for block, ended in blocks:
            if ended:
                yield block, True
            else:
                self._torn.append((item, block))
                self._torn_bytes += len(block) if isinstance(block, bytes) else 0

    def keep(self, run_path: str, cache: FoldCache) -> None:
        log_bytes = self.fold.folded_bytes
        if cache.wants(log_bytes=log_bytes, new_bytes=log_bytes - self._kept_bytes):
            cache.write(run_path, self.fold.state(self._digests))

    def fold_torn_lines(self) -> bool:
        for item, block in self._torn:
            self.fold.fold_blocks(item.shown_as, item.actor, [(block, False)])
        return self.fold.in_order


class _Seen:
    """The hash of what was read of a file, and of it up to the end of the last whole line."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()  # with the processor's help twice as fast as BLAKE2, and what the house uses
        self._whole = self.hash

    def follow(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        self._whole = self.hash.copy()
        for chunk in chunks:
            end = chunk.rfind(b"\n") + 1
            self.hash.update(memoryview(chunk)[:end])
            if end:
                self._whole = self.hash.copy()
            self.hash.update(memoryview(chunk)[end:])
            yield chunk

    @property
    def whole_lines(self) -> bytes:
        return self._whole.digest()

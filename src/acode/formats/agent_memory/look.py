"""One pass over the event files of a run that keeps the hash of what it folded, so that a later one can continue it.

Last lines without an end are folded after all others: they are in no state, because they may become longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from acode.formats.agent_memory.disk import Folder, OpenFile, blocks_of_lines
from acode.formats.agent_memory.event_files import EventFile, Notes, weighed_files
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.fold_cache import FoldCache
from acode.formats.agent_memory.fold_merge import LaterFiles, PassedOver, merged
from acode.formats.agent_memory.fold_state import FoldState
from acode.formats.agent_memory.values import EVENT_LINE_BYTES_MAX

TORN_BYTES_MAX = 16 * 1024 * 1024


class Cut(msgspec.Struct, frozen=True):
    """A file of which one process folds the first bytes, whole lines, and another one the rest."""

    file: EventFile
    at: int
    later: bool


class Look:
    """A fold that continues from a state, or begins."""

    def __init__(self, files: tuple[EventFile, ...], kept: FoldState | None = None) -> None:
        self._files = [(item.shown_as, item.actor) for item in files]
        self._known: dict[str, tuple[int, bytes]] = {}
        if kept is not None:
            pairs = zip(kept.files, kept.digests, strict=True)
            self._known = {file.file: (file.folded_bytes, digest) for file, digest in pairs}
        self._kept_bytes = kept.folded_bytes if kept is not None else 0
        self._digests: dict[str, bytes] = {}
        self._torn: list[tuple[str, str, bytes | int]] = []
        self._torn_bytes = 0
        self.fold = EventFold.over(self._files, kept)
        self._passed_over: PassedOver | None = None
        self.touched_us: list[int] = []

    def same_order(self) -> bool:
        """Whether all files of the state are here, in the order in which they were folded."""
        return [name for name, _ in self._files if name in self._known] == list(self._known)

    def fold_files(self, run: Folder, files: tuple[EventFile, ...], cut: Cut | None = None) -> bool:
        """These files, the next ones, of that with a cut what lies on this side of it; False: they cannot be folded in
        this way.
        """
        notes = Notes()
        try:
            for item, file in weighed_files(run, files, notes):
                if not self._fold_whole_lines(item, file, cut if cut is not None and cut.file == item else None):
                    return False
        except OSError:
            return False
        return not notes.warnings

    def _fold_whole_lines(self, item: EventFile, file: OpenFile, cut: Cut | None) -> bool:
        """The lines of the file that are not in the state yet; False: the state does not stand for the others."""
        name, end = item.shown_as, file.size_bytes
        begin, digest = self._known.get(name, (0, None))
        seen = _Seen()
        if cut is not None and cut.later:
            begin = cut.at
            self._pass_over(item, file, begin, seen)
        else:
            for chunk in file.chunks(bytes_max=begin):
                seen.hash.update(chunk)
            if digest is not None and seen.hash.digest() != digest:
                return False
            end = min(end, cut.at) if cut is not None else end
        if not self.fold.read_texts(name, lambda span: file.part(*span)):
            return False
        self.touched_us.append(file.touched_us)
        chunks = seen.follow(file.chunks(bytes_max=max(0, end - begin)))
        blocks = blocks_of_lines(chunks, line_bytes_max=EVENT_LINE_BYTES_MAX)
        self.fold.fold_blocks(name, item.actor, self._whole(item, blocks))
        self._digests[name] = seen.whole_lines
        if cut is not None and not cut.later:
            self._known[name] = (cut.at, seen.whole_lines)  # from where the rest is folded, if nobody else does it
        return self._torn_bytes <= TORN_BYTES_MAX and self.fold.in_order

    def _pass_over(self, item: EventFile, file: OpenFile, end: int, seen: _Seen) -> None:
        """The lines that are folded elsewhere are hashed, because the hash of a file is one, and counted."""
        lines = 0
        for chunk in file.chunks(bytes_max=end):
            seen.hash.update(chunk)
            lines += chunk.count(b"\n")
        self._passed_over = PassedOver(item.shown_as, lines, seen.hash.digest())
        self.fold.begin_within(item.shown_as, item.actor, lines=lines, folded_bytes=end)

    def _whole(self, item: EventFile, blocks: Iterable[tuple[bytes | int, bool]]) -> Iterator[tuple[bytes | int, bool]]:
        for block, ended in blocks:
            if ended:
                yield block, True
            else:
                self._torn.append((item.shown_as, item.actor, block))
                self._torn_bytes += len(block) if isinstance(block, bytes) else 0

    def keep(self, run_path: str, cache: FoldCache) -> None:
        log_bytes = self.fold.folded_bytes
        if cache.wants(log_bytes=log_bytes, new_bytes=log_bytes - self._kept_bytes):
            cache.write(run_path, self.fold.state(self._digests))

    def as_later(self) -> LaterFiles:
        """For a look at the files before these."""
        return LaterFiles(
            state=self.fold.state(self._digests),
            texts=list(self.fold.texts().items()),
            torn=self._torn,
            torn_bytes=self._torn_bytes,
            touched_us=self.touched_us,
            passed_over=self._passed_over,
        )

    def join(self, later: LaterFiles) -> bool:
        """Continue with what was found in the files after these; False: they are to be folded, and nothing changed."""
        over = later.passed_over
        if over is not None and (self.fold.lines_folded(over.file), self._digests[over.file]) != (
            over.lines,
            over.digest,
        ):
            return False  # the file is not the same any more
        earlier = self.fold.state(self._digests)
        texts = self.fold.texts() | dict(later.texts)
        both = merged(earlier, later.state) if self._torn_bytes + later.torn_bytes <= TORN_BYTES_MAX else None
        if both is None:
            return False
        self.fold = EventFold.over(self._files, both, texts=texts)
        self._digests = dict(zip((file.file for file in both.files), both.digests, strict=True))
        self._torn += later.torn
        self._torn_bytes += later.torn_bytes
        self.touched_us += later.touched_us
        return True

    def fold_torn_lines(self) -> bool:
        for name, actor, block in self._torn:
            self.fold.fold_blocks(name, actor, [(block, False)])
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

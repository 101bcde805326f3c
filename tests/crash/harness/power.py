"""What may be on the disk after a power cut: every state that the promises of the file system allow, or a fair choice.

Data: any subset of a file's writes since its last fsync, each torn at sector boundaries, and on request garbage in a
sector that was in flight. Names, in two models: `ordered`, a journal that keeps the order of all changes and that any
fsync makes durable (ext4, xfs, btrfs); `strict`, where only fsync of a directory keeps its names (all that POSIX says).
A kill leaves what the kernel was given, so tests with kills cannot see a missing fsync; these states show it.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.crash.harness.recording import ROOT, Op, Recording
from tests.crash.harness.snapshots import Entry, Snapshot

Metadata = Literal["ordered", "strict"]
ZERO_SECTORS_MAX = 64  # that arrive together or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How many of the legal states are looked at. Where there are few, all of them."""

    metadata: Metadata = "ordered"
    sector_bytes: int = 512
    exhaustive_pieces_max: int = 6
    random_choices: int = 4
    name_choices_max: int = 64
    garbage: bool = False
    seed: int = 1
    every_op: int = 1  # a cut behind every so many operations
    first_op: int = 0
    window: range | None = None  # a cut behind these operations only
    every_state: int = 1  # of the states behind those, every so many; the others are not even made


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCut:
    """One legal state: the cut came after this operation, and this had been heard by then."""

    after: int
    op: Op
    heard: bytes
    disk: Snapshot


USUAL = Search()


def power_cuts(recording: Recording, search: Search = USUAL) -> Iterator[PowerCut]:
    """The distinct states after a cut behind each operation. A state counts again when more has been heard."""
    disk = _Disk.holding(recording.before, search.metadata)
    dice = random.Random(search.seed)
    heard, seen = b"", set[tuple[bytes, int]]()
    for index, op in enumerate(recording.ops):
        heard += op.data if op.kind == "heard" else b""
        disk.feed(op)
        if index % search.every_op != search.first_op or (search.window is not None and index not in search.window):
            continue
        for state in disk.states(search, dice, len(heard)):
            key = (state.digest, len(heard))
            if key not in seen:
                seen.add(key)
                yield PowerCut(after=index, op=op, heard=heard, disk=state)


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def onto(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.offset + len(self.data) - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, sector_bytes: int) -> Iterator[_Write]:
        """Sector by sector; in a long run of zeros less often, because only its length can be told."""
        start = 0
        while start < len(self.data):
            end = start + sector_bytes - (self.offset + start) % sector_bytes
            zeros = end + (ZERO_SECTORS_MAX - 1) * sector_bytes
            if len(self.data) >= zeros and not any(self.data[start:zeros]):
                end = zeros
            yield _Write(self.offset + start, self.data[start:end])
            start = end


@dataclass(frozen=True, slots=True)
class _Resize:
    size: int

    def onto(self, content: bytearray) -> None:
        content.extend(bytes(max(0, self.size - len(content))))
        del content[self.size :]

    def torn(self, _sector_bytes: int) -> Iterator[_Resize]:
        yield self


_Change = _Write | _Resize
_Choice = tuple[int, int, tuple[tuple[int, int], ...]]


@dataclass(slots=True, kw_only=True, eq=False)
class _Inode:
    kind: Literal["file", "directory", "link"]
    mode: int
    durable: bytes = b""
    pending: list[_Change] = field(default_factory=list)
    version: int = 0  # grows with every change of what is durable
    _torn: list[list[_Change]] = field(default_factory=list)  # the pieces of each pending change
    _at_rest: Entry | None = None  # kept, because most files of most states are as they were

    def entry(self, arrived: list[_Change] | None) -> Entry:
        if arrived:
            return Entry(kind=self.kind, mode=self.mode, content=self.with_changes(arrived))
        kept = self._at_rest
        if kept is None or kept.content is not self.durable or kept.mode != self.mode:
            kept = self._at_rest = Entry(kind=self.kind, mode=self.mode, content=self.durable)
        return kept

    def pieces(self, sector_bytes: int) -> Iterator[_Change]:
        for change in self.pending[len(self._torn) :]:
            self._torn.append(list(change.torn(sector_bytes)))
        yield from itertools.chain(*self._torn)

    def lose(self) -> None:
        self.pending, self._torn, self.version = [], [], self.version + 1

    def with_changes(self, changes: Iterable[_Change]) -> bytes:
        content = bytearray(self.durable)
        for change in changes:
            change.onto(content)
        return bytes(content)

    def sync(self) -> None:
        if self.pending:
            self.durable = self.with_changes(self.pending)
            self.lose()


_Names = dict[str, _Inode]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NameChange:
    """`path` gets a name for the inode, loses it, or hands it to `to`."""

    path: str
    inode: _Inode | None
    to: str = ""

    def onto(self, names: _Names) -> None:
        if self.inode is None:
            names.pop(self.path, None)
        elif not self.to:
            names[self.path] = self.inode
        else:
            names.pop(self.path, None)
            names[self.to] = self.inode
            for below in [name for name in names if name.startswith(f"{self.path}/")]:
                names[self.to + below[len(self.path) :]] = names.pop(below)

    def directories(self) -> set[str]:
        return {os.path.dirname(path) or ROOT for path in (self.path, self.to) if path}


@dataclass(slots=True, kw_only=True)
class _Disk:
    metadata: Metadata
    names: _Names
    durable: _Names
    pending: list[_NameChange] = field(default_factory=list)
    met: set[_Choice] = field(default_factory=set)  # states that need not be made again to see that they are the same

    @classmethod
    def holding(cls, before: Snapshot, metadata: Metadata) -> _Disk:
        inodes = {
            path: _Inode(kind=entry.kind, mode=entry.mode, durable=entry.content)
            for path, entry in before.entries.items()
        }
        return cls(metadata=metadata, names=dict(inodes), durable=dict(inodes))

    def feed(self, op: Op) -> None:
        inode = self.names.get(op.path)
        match op.kind:
            case "create":
                self._name(_NameChange(path=op.path, inode=_Inode(kind="file", mode=op.mode)))
            case "directory":
                self._name(_NameChange(path=op.path, inode=_Inode(kind="directory", mode=op.mode)))
            case "symlink":
                self._name(_NameChange(path=op.path, inode=_Inode(kind="link", mode=0o777, durable=op.data)))
            case "remove":
                self._name(_NameChange(path=op.path, inode=None))
            case "rename":
                self._name(_NameChange(path=op.path, inode=inode, to=op.to))
            case "link":
                self._name(_NameChange(path=op.to, inode=inode))
            case "sync_directory":
                self._commit(lambda change: self.metadata == "ordered" or op.path in change.directories())
            case "sync_all":
                for each in self.names.values():
                    each.sync()
                self._commit(lambda _change: True)
            case _ if inode is not None:  # a file without a name any more has nothing to lose
                self._change_file(inode, op)

    def _change_file(self, inode: _Inode, op: Op) -> None:
        match op.kind:
            case "write":
                inode.pending.append(_Write(op.offset, op.data))
            case "resize":
                inode.pending.append(_Resize(op.size))
            case "mode":
                inode.mode, inode.version = op.mode, inode.version + 1
            case "sync_lost":
                inode.lose()
            case "sync":
                inode.sync()
                self._commit(lambda _change: self.metadata == "ordered")

    def _name(self, change: _NameChange) -> None:
        change.onto(self.names)
        self.pending.append(change)

    def _commit(self, chosen: Callable[[_NameChange], bool]) -> None:
        rest = []
        for change in self.pending:
            if chosen(change):
                change.onto(self.durable)
            else:
                rest.append(change)
        self.pending = rest

    def states(self, search: Search, dice: random.Random, heard_bytes: int) -> Iterator[Snapshot]:
        for changes in self._name_choices(search):
            names = dict(self.durable)
            for change in changes:
                change.onto(names)
            reached = {path: inode for path, inode in names.items() if _reachable(path, names)}
            still = hash(tuple((path, id(inode), inode.version) for path, inode in reached.items()))
            for pieces in _data_choices(reached, search, dice):
                choice = (heard_bytes, still, tuple((id(inode), id(piece)) for inode, piece in pieces))
                if choice in self.met:
                    continue
                if len(self.met) % search.every_state == 0:
                    yield _snapshot(reached, pieces)
                self.met.add(choice)

    def _name_choices(self, search: Search) -> Iterator[list[_NameChange]]:
        """Which of the un-synced changes of names arrived."""
        if self.metadata == "ordered":
            yield from (self.pending[:count] for count in range(len(self.pending) + 1))
            return
        groups: dict[str, list[_NameChange]] = {}
        for change in self.pending:
            groups.setdefault(os.path.dirname(change.path), []).append(change)
        prefixes = [[group[:count] for count in range(len(group) + 1)] for group in groups.values()]
        product = 1
        for choices in prefixes:
            product *= len(choices)
        if product <= search.name_choices_max:
            yield from (list(itertools.chain(*choice)) for choice in itertools.product(*prefixes))
            return
        for varied, choices in enumerate(prefixes):  # too many: one directory varies, the others have all or nothing
            for choice, others in itertools.product(choices, (0, -1)):
                rest = [other[others] for index, other in enumerate(prefixes) if index != varied]
                yield list(itertools.chain(choice, *rest))


def _data_choices(names: _Names, search: Search, dice: random.Random) -> Iterator[list[tuple[_Inode, _Change]]]:
    """Which of the un-synced writes arrived, for one set of names."""
    pieces = [(inode, piece) for inode in dict.fromkeys(names.values()) for piece in inode.pieces(search.sector_bytes)]
    for chosen in _subsets(len(pieces), search, dice):
        arrived = [pieces[index] for index in chosen]
        yield arrived
        if search.garbage and chosen:
            inode, piece = dice.choice(arrived)
            if isinstance(piece, _Write):
                yield [*arrived, (inode, _Write(piece.offset, dice.randbytes(len(piece.data))))]


def _subsets(count: int, search: Search, dice: random.Random) -> Iterator[tuple[int, ...]]:
    everything = range(count)
    if count <= search.exhaustive_pieces_max:
        for size in range(count + 1):
            yield from itertools.combinations(everything, size)
        return
    yield from (tuple(range(end)) for end in range(count + 1))
    yield from (tuple(index for index in everything if index != lost) for lost in everything)
    yield from ((index,) for index in everything)
    for _ in range(search.random_choices):
        share = dice.random()
        yield tuple(index for index in everything if dice.random() < share)


def _reachable(path: str, names: _Names) -> bool:
    """A file whose directory did not arrive is lost with it."""
    parent = os.path.dirname(path)
    return not parent or (parent in names and names[parent].kind == "directory" and _reachable(parent, names))


def _snapshot(names: _Names, pieces: list[tuple[_Inode, _Change]]) -> Snapshot:
    arrived: dict[_Inode, list[_Change]] = {}
    for inode, piece in pieces:
        arrived.setdefault(inode, []).append(piece)
    made = {inode: inode.entry(arrived.get(inode)) for inode in names.values()}
    return Snapshot(entries={path: made[inode] for path, inode in names.items()})

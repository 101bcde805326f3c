"""Everything a program does to the files below a directory, in order, as seen from outside.

What it wrote is read back from the file at the end of each call, so that every way of writing is one. A call that the
model of the disk does not know is an error: a recording with a hole would call lost what was kept, or the reverse.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tests.crash.harness import syscalls
from tests.crash.harness.ptracer import Ended, NeverReached, Stop, Work, trace
from tests.crash.harness.snapshots import REBUILT_SUFFIX, Snapshot

Kind = Literal[
    "create", "write", "resize", "mode", "rename", "link", "remove", "directory", "symlink",
    "sync", "sync_directory", "sync_all", "sync_lost", "heard",
]  # fmt: skip

WRITING = ("write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "copy_file_range")
RENAME_EXCHANGE = 2
FALLOCATE_KEEP_SIZE = 1
ROOT = "."


class Unmodelled(RuntimeError):
    """The program did something that the model of the disk has no rule for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One change, with paths relative to the recorded directory. What was `heard` has left the machine for good."""

    kind: Kind
    path: str = ""
    to: str = ""
    offset: int = 0
    size: int = 0
    mode: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A run: what was there before (taken to be on the disk), and each change in its order."""

    before: Snapshot
    ops: tuple[Op, ...]
    ended: Ended

    def syncs(self) -> list[int]:
        return [index for index, op in enumerate(self.ops) if op.kind in ("sync", "sync_directory", "sync_all")]

    def without(self, index: int) -> Recording:
        """The same run by a program that forgets this one."""
        return replace(self, ops=self.ops[:index] + self.ops[index + 1 :])


def record(
    work: Work,
    root: Path,
    *,
    heard: Path | None = None,
    lost_sync: int | None = None,
    ends_with: tuple[int, ...] = (0,),
    everything: bool = False,
    alone: bool = False,
) -> Recording:
    """Run the work; what it writes to the file `heard`, outside the directory, counts as told to somebody.

    everything: what the processes that it starts do to the files is recorded with it.
    The fsync with the number `lost_sync` fails, and what it should have kept is gone, although it can still be read:
    Linux marks pages clean that it could not write. Only then may the run end with an error.
    """
    recorder = _Recorder(
        root=os.path.realpath(root), heard=os.path.realpath(heard) if heard else "", syncs_until_loss=lost_sync
    )
    before = Snapshot.of(root)
    ended = trace(work, on_stop=recorder, everything=everything, alone=alone)
    if ended.exit_code not in ends_with and lost_sync is None:
        raise AssertionError(f"the recorded run ended with {ended.exit_code}:\n{ended.error}")
    if lost_sync is not None and not any(op.kind == "sync_lost" for op in recorder.ops):
        raise NeverReached(f"the run made no fsync with the number {lost_sync}\n{ended.error}")
    return Recording(before=before, ops=tuple(recorder.ops), ended=ended)


@dataclass(frozen=True, slots=True)
class _Before:
    """What only the moment before the call can tell."""

    path: str
    new_path: str
    existed: bool


@dataclass(slots=True, kw_only=True)
class _Recorder:
    root: str
    heard: str
    syncs_until_loss: int | None = None
    losing: bool = False
    ops: list[Op] = field(default_factory=list)
    before: dict[int, _Before] = field(default_factory=dict)

    def __call__(self, stop: Stop) -> None:
        if stop.phase == "entry":
            path, new_path = stop.path(), stop.new_path()
            self.before[stop.thread] = _Before(path, new_path, stop.name in syscalls.OPENING and os.path.lexists(path))
            self._lose_it_perhaps(stop, path)
            return
        before = self.before.pop(stop.thread)
        if self.losing:
            self.losing = False
            stop.answer(-errno.EIO)
            self.ops.append(Op(kind="sync_lost", path=self._relative(before.path)))
            return
        if stop.result is None or stop.result < 0:
            return
        if stop.name in WRITING and before.path == self.heard:
            self.ops.append(Op(kind="heard", data=_written(stop)[1]))
        elif stop.name in ("sync", "syncfs"):
            self.ops.append(Op(kind="sync_all"))
        elif self._inside(before.path) or self._inside(before.new_path):
            self.ops += self._changes(stop, before)

    def _lose_it_perhaps(self, stop: Stop, path: str) -> None:
        if self.syncs_until_loss is None or stop.name not in ("fsync", "fdatasync") or not self._inside(path):
            return
        if self.syncs_until_loss == 0:
            stop.skip()
            self.losing = True
        self.syncs_until_loss = self.syncs_until_loss - 1 if self.syncs_until_loss else None

    def _inside(self, path: str) -> bool:
        return (path == self.root or path.startswith(f"{self.root}/")) and not path.endswith(REBUILT_SUFFIX)

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def _changes(self, stop: Stop, before: _Before) -> list[Op]:
        path = self._relative(before.path)
        if stop.name in WRITING:
            offset, data = _written(stop)
            return [Op(kind="write", path=path, offset=offset, data=data)] if data else []
        if stop.name in syscalls.OPENING:
            return self._opened(stop, before)
        if stop.name in syscalls.NEW_PATHS:
            return [self._named_again(stop, before)]
        match stop.name:
            case "fsync" | "fdatasync":
                return [Op(kind="sync_directory" if os.path.isdir(before.path) else "sync", path=path)]
            case "ftruncate" | "truncate":
                return [Op(kind="resize", path=path, size=stop.args[1])]
            case "fallocate":
                return self._reserved(stop, before)
            case "unlink" | "unlinkat" | "rmdir":
                return [Op(kind="remove", path=path)]
            case "mkdir" | "mkdirat":
                return [Op(kind="directory", path=path, mode=_mode(before.path))]
            case "symlink" | "symlinkat":
                return [Op(kind="symlink", path=path, data=os.fsencode(stop.text(stop.args[0])))]
            case "chmod" | "fchmod" | "fchmodat" | "fchmodat2":
                return [Op(kind="mode", path=path, mode=_mode(before.path))]
        raise Unmodelled(f"{stop.name} of {before.path}")

    def _opened(self, stop: Stop, before: _Before) -> list[Op]:
        flags, path = stop.open_flags(), self._relative(before.path)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise Unmodelled(f"an unnamed file in {before.path}")
        if flags & os.O_CREAT and not before.existed:
            return [Op(kind="create", path=path, mode=_mode(before.path))]
        return [Op(kind="resize", path=path, size=0)] if flags & os.O_TRUNC else []

    def _named_again(self, stop: Stop, before: _Before) -> Op:
        if not (self._inside(before.path) and self._inside(before.new_path)):
            raise Unmodelled(f"{stop.name} over the border: {before.path} to {before.new_path}")
        if stop.name == "renameat2" and stop.args[4] & RENAME_EXCHANGE:
            raise Unmodelled(f"exchange of {before.path} and {before.new_path}")
        kind: Kind = "link" if stop.name.startswith("link") else "rename"
        return Op(kind=kind, path=self._relative(before.path), to=self._relative(before.new_path))

    def _reserved(self, stop: Stop, before: _Before) -> list[Op]:
        if stop.args[1] & ~FALLOCATE_KEEP_SIZE:
            raise Unmodelled(f"fallocate with mode {stop.args[1]} of {before.path}")
        size = os.stat(before.path).st_size
        return [] if stop.args[1] else [Op(kind="resize", path=self._relative(before.path), size=size)]


def _written(stop: Stop) -> tuple[int, bytes]:
    """Where the call wrote and what: looked up in the file, right after."""
    assert stop.result is not None
    descriptor = stop.args[syscalls.DESCRIPTORS[stop.name]]
    match stop.name:
        case "pwrite64" | "pwritev":
            offset = stop.args[3]
        case "copy_file_range" if stop.args[3]:
            offset = stop.word(stop.args[3]) - stop.result
        case _:
            offset = _position(stop, descriptor) - stop.result
    file = os.open(f"/proc/{stop.process}/fd/{descriptor}", os.O_RDONLY)
    try:
        return offset, os.pread(file, stop.result, offset)
    finally:
        os.close(file)


def _position(stop: Stop, descriptor: int) -> int:
    lines = Path(f"/proc/{stop.process}/fdinfo/{descriptor}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("pos:"))


def _mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)

"""The keeper's notes about one attempt: that it began, whether it lives, how it ended.

A command is repeated or adopted by this evidence. An absent note is evidence; a note that exists and cannot be read is
none, so it is an error of the machine and never taken for absent.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from acode import lock
from acode.disk import file_lock
from acode.disk.own_files import open_own, read_own
from acode.disk.write_errors import refusing_write_errors
from acode.errors import NotWritable
from acode.steps.keeper import CLAIM, TAIL_BYTES

if TYPE_CHECKING:
    from acode.redact import Redactor

_T = TypeVar("_T")
_STOPPED_BY = {"timeout": "its timeout", "lease": "its keeper, because the lease of the session ended"}
NAME_BYTES_MAX = 255  # of a file, on all common file systems
RAW_OUTPUT, RAW_TAIL = "output.raw", "output.tail.raw"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, as its keeper wrote it down."""

    exit: int | None
    sha256: str
    bytes: int
    kept: int
    began: float
    ended: float
    signal: str | None = None
    stopped: str | None = None
    unbegun: str | None = None  # why it could not be started; this is no output of the command
    inode: int = 0  # of this note itself: a copy of it says nothing about when files were changed here
    alone: bool | None = None  # whether nobody whom it had started lived on, to write to its outputs; None: not known
    synced: bool | None = None  # whether its outputs were on the disk before this was noted; None: nobody tried

    @property
    def by_itself(self) -> bool:
        """It began, and was not stopped or killed: one that answers that with status 0 has not done its work."""
        return self.stopped is None and self.exit is not None and self.unbegun is None

    @property
    def duration_ms(self) -> int:
        return max(0, int((self.ended - self.began) * 1000))


class EndOnDisk(msgspec.Struct, frozen=True, kw_only=True):
    """When a command's end was noted, by the clock of the file system that the note stands on."""

    device: int
    ctime_ns: int

    def is_before(self, found: os.stat_result, slack_ns: int) -> bool | None:
        """Whether the file at the path is younger; None where that is unknown.

        Only the time of the change counts, which nobody can set: a copy that keeps its times has a new one. Another
        file system has another clock, and Windows keeps no such time.
        """
        if sys.platform == "win32" or found.st_dev != self.device:
            return None
        return found.st_ctime_ns > self.ctime_ns + slack_ns


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    keeper: int
    since: float
    command: int | None = None
    command_started: float | None = None
    boot_id: str = ""  # empty in marks of 0.1, and then its pids are taken for pids of here
    pid_namespace: str = ""
    front: bool = False  # it was a front, under an agent's shell
    output: str = ""  # where the command's output went, if that was a file of the agent's


def run_directory(agent_dir: Path, key: str) -> Path:
    """The keeper's place for one attempt; characters that a file name cannot hold everywhere are replaced. The names of
    steps inside of steps add up: a name that is too long for a file gives way to its hash, behind the session's id."""
    name = "".join(char if char.isalnum() or char in "._-" else "+" for char in key)
    if len(os.fsencode(name)) > NAME_BYTES_MAX:
        name = f"{key.partition(':')[0]}+{hashlib.sha256(key.encode()).hexdigest()}"
    return agent_dir / "run" / name


def make_run_directory(agent_dir: Path, key: str) -> bool:
    """Where the keeper of an attempt makes its notes, before it is said that the attempt begins; True: it stands ready.

    So a place that is missing later was removed, and does not show that nothing ran.
    """
    directory = run_directory(agent_dir, key)
    try:
        with refusing_write_errors(f"{directory} cannot be made"):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(open_own(directory / "alive", os.O_RDWR | os.O_CREAT))
    except NotWritable:
        return False  # its start finds that too, and then the step has failed
    return True


def read_status(directory: Path) -> Status | None:
    return _read(directory / "status", Status)


def end_on_disk(directory: Path, status: Status) -> EndOnDisk | None:
    """None: the note was copied or restored, with the whole workspace perhaps, and so the times are of that."""
    try:
        found = os.stat(directory / "status")
    except FileNotFoundError:
        return None
    return EndOnDisk(device=found.st_dev, ctime_ns=found.st_ctime_ns) if found.st_ino == status.inode else None


def read_mark(directory: Path) -> Mark | None:
    return _read(directory / "started", Mark)


def _read(path: Path, kind: type[_T]) -> _T | None:
    """None where it is absent or incomplete. A note that exists and cannot be read is no evidence, and an error."""
    try:
        return msgspec.json.decode(read_own(path), type=kind)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def last_output(directory: Path) -> str:
    """The last lines that the command printed, as far as its keeper could note them; redacted already."""
    try:
        with open(open_own(directory / "output", os.O_RDONLY), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def never_began(directory: Path) -> bool:
    """No mark, not even a torn one: on the same boot, and with the place still there, the command was not started."""
    return not _stands(directory / "started")


def claimed(directory: Path) -> bool:
    """Whether a keeper or a front took the attempt. A directory: it was settled as never begun."""
    return (directory / CLAIM).is_file()


def read_unredacted(directory: Path, rules: Redactor) -> bytes:
    """What a front kept of the output, which no rule has seen yet: its beginning, and its end if there is more.

    Whole lines where something is left out between the two: no rule knows a secret that was cut in half.
    """
    head, tail = (_raw(directory / name) for name in (RAW_OUTPUT, RAW_TAIL))
    if tail:
        head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    return rules.text((head + tail).decode("utf-8", "replace")).encode("utf-8", "replace")


def _raw(path: Path) -> bytes:
    try:
        return read_own(path)
    except (FileNotFoundError, NotADirectoryError):
        return b""


def place_is_there(directory: Path) -> bool:
    """Whether the place of the notes is the one that was made: a process that removed it removed the notes too."""
    return _stands(directory / "alive")


def _stands(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def still_running(directory: Path, mark: Mark | None) -> str | None:
    """A description, if the keeper or its command lives; None if both are gone."""
    held = alive_lock_held(directory)
    if not held and (mark is None or not _command_lives(directory, mark)):
        return None
    if mark is None:
        return "the command is just being started"
    return f"still running, {named(mark)}"


def named(mark: Mark) -> str:
    """The pid and the start time of a command that was marked as started, as a text."""
    where = " of another container" if lock.is_in_another_container(mark) else ""
    since = time.strftime("%H:%M:%S UTC", time.gmtime(mark.since))
    return f"pid {mark.command or mark.keeper}{where}, since {since}"


def _command_lives(directory: Path, mark: Mark) -> bool:
    """Its keeper may have been killed alone: then only the process itself is evidence. From another container it is
    invisible. There the lock that it inherited shows it: a command that closes all files that it was given is not seen,
    so that a free lock proves nothing.
    """
    if mark.command is None or mark.command_started is None:
        return False
    if lock.is_in_another_container(mark):
        return _is_locked(directory / CLAIM)
    return pids_mean_the_same(mark) and lock.process_started(mark.command) == mark.command_started


def pids_mean_the_same(mark: Mark) -> bool:
    return not mark.boot_id or lock.is_judged_here(mark)


def how_it_was_lost(status: Status | None, mark: Mark | None, same_boot: bool) -> str:
    """A description of the outcome of a command that did not end by itself, or whose end may not count."""
    if status is not None and status.stopped is not None:
        return "the command was stopped by " + _STOPPED_BY.get(status.stopped, "a signal")
    if status is not None and status.exit == 0:
        return "the command ended with exit status 0, but its outputs may not have reached the disk"
    if status is not None:
        return f"the command was killed by {status.signal}"
    if not same_boot:
        return "the machine went down while the command may have run"
    if _may_live_unseen(mark):
        return "its keeper was killed in another container, where the command may have ended with it or still run"
    return "the command and its keeper were killed"


def _may_live_unseen(mark: Mark | None) -> bool:
    """Whether a command without a keeper may live where this process cannot see it."""
    return mark is not None and mark.command is not None and lock.is_in_another_container(mark)


def _open_to_lock(path: Path) -> int:
    """Where nothing can be written one can still look; elsewhere network file systems lock only what may be written."""
    try:
        return open_own(path, os.O_RDWR)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return open_own(path, os.O_RDONLY)


def alive_lock_held(directory: Path) -> bool:
    return _is_locked(directory / "alive")


def _is_locked(path: Path) -> bool:
    try:
        fd = _open_to_lock(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        if not file_lock.try_lock(fd):
            return True
        file_lock.unlock(fd)
        return False
    finally:
        os.close(fd)

"""The keeper: a tiny process that starts one command, keeps its output and its end, and lives on when acode dies.

It runs in a session of its own, so that neither Ctrl+C nor the death of a terminal reaches it. It writes the redacted
output as it comes and, as its last act, the exit status, synced: the settlement of the step reads this file first.
Started as a program with the request on its standard input; it must never import more than it needs, and never write
a byte of output that was not redacted.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

if __name__ == "__main__":  # started without the paths that acode is found on; behind the standard library's own
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

# Loaded before the command begins, because it may be one that replaces this very installation.
from acode.command_notes import (
    CLAIM,
    claim,
    how_it_ended,
    process_started,
    process_stat,
    take_room,
    write_end,
    write_note,
)
from acode.disk.fsync import sync_file
from acode.disk.own_files import open_own
from acode.steps.keeper_limits import KILL_AFTER_S, Limits, dies_with_parent, kill_bearers

READ_BYTES = 65_536
DRAIN_S = 0.2  # a background child may hold the pipe open forever; the command itself has ended
TAIL_BYTES = 2_000

__all__ = ["CLAIM", "KILL_AFTER_S", "keep"]


class Stream(Protocol):
    def feed(self, chunk: bytes) -> bytes: ...
    def finish(self) -> bytes: ...


class Capture:
    """The output file with its limit: what is beyond it is counted, not kept."""

    def __init__(self, path: str, limit_bytes: int, redacted: Stream, wake: int | None) -> None:
        self._fd = open_own(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(self._fd, 0)  # only now that it is known to be ours
        self._room = limit_bytes
        self._redacted = redacted
        self._wake = wake
        self._hash = hashlib.sha256()
        self.total = 0
        self.kept = 0

    def add(self, chunk: bytes) -> None:
        self._keep(self._redacted.feed(chunk))

    def _keep(self, text: bytes) -> None:
        self.total += len(text)
        part = text[: self._room]
        if part:
            kept = part[: self._written(part)]
            self._hash.update(kept)
            self._room -= len(kept)
            self.kept += len(kept)
            self._nudge()

    def _written(self, part: bytes) -> int:
        """How much of it the disk took. A full one takes no more words, and must not end the command that says them."""
        written = 0
        try:
            while written < len(part):
                written += os.write(self._fd, part[written:])
        except OSError:
            self._room = written  # what it has taken now is the last
        return written

    def _nudge(self) -> None:
        """Tell the acode that watches, if there still is one, that there is something to show."""
        if self._wake is not None:
            try:
                os.write(self._wake, b".")
            except BlockingIOError:
                pass
            except OSError:
                self._wake = None

    def close(self) -> str:
        self._keep(self._redacted.finish())
        with contextlib.suppress(OSError):  # how the command ended is worth more than what it said
            sync_file(self._fd)
        os.close(self._fd)
        return self._hash.hexdigest()


class Command:
    """The command in a process group of its own, so that the whole group can be stopped.

    `named` is told its pid before its first instruction, so that none runs of which nobody knows. It is told in the
    new process, which still holds the lock on `alive`: a keeper killed in between leaves no gap. The command alone
    holds `lock` then: without its keeper it is seen by that from containers that cannot see its pid.
    """

    def __init__(
        self, argv: list[str], cwd: str, named: Callable[[int], None], lock: int, *, kill_after_s: float = KILL_AFTER_S
    ) -> None:
        new_group: dict[str, Any] = {"process_group": 0} if sys.platform != "win32" else {}
        first: dict[str, Any] = {"preexec_fn": lambda: named(os.getpid())} if sys.platform != "win32" else {}
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,) if sys.platform != "win32" else (),
            **new_group,
            **first,
        )
        if sys.platform == "win32":
            named(self.process.pid)
        os.close(lock)
        self.stopping: str | None = None
        self._kill_at: float | None = None
        self._kill_after_s = kill_after_s

    def stop(self, why: str, now: float) -> None:
        """TERM to the group; KILL to the processes left after a grace period. One that has ended by itself was not
        stopped.
        """
        if self.stopping is None and self.process.poll() is None:
            self.stopping = why
            self._kill_at = now + self._kill_after_s
            self._signal(terminate=True)

    def kill_when_due(self, now: float) -> None:
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = now + self._kill_after_s
            self._signal(terminate=False)

    def end_group(self) -> None:
        """The command itself has ended; a process of its group that ignores the request to end gets no more time."""
        while self._kill_at is not None and self._group_lives():
            if time.monotonic() >= self._kill_at:
                self._signal(terminate=False)
                return
            time.sleep(0.05)

    def _group_lives(self) -> bool:
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return sys.platform != "linux" or _has_living_member(self.process.pid)

    def _signal(self, *, terminate: bool) -> None:
        try:
            if sys.platform == "win32":
                self.process.terminate() if terminate else self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGTERM if terminate else signal.SIGKILL)
        except ProcessLookupError:
            pass


def _has_living_member(group: int) -> bool:
    """Dead members that nobody has fetched still answer to signals; in a container without an init, forever."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = process_stat(int(name))
        if len(fields) > 2 and int(fields[2]) == group and fields[0] not in "ZX":
            return True
    return False


def keep(request: dict[str, Any], redacted: Stream) -> None:
    """Start the command, watch it to its end, write the status."""
    directory, began = request["directory"], time.time()
    claimed = claim(directory)
    if claimed is None:
        return
    wake = request.get("wake_fd")
    if wake is not None and sys.platform != "win32":
        os.set_blocking(wake, False)
    take_room(directory)
    capture = Capture(os.path.join(directory, "output"), request["output_limit_bytes"], redacted, wake)
    mark = {"keeper": os.getpid(), "since": began, **request["where"]}
    limits = Limits(request.get("timeout_s"), request.get("lease"))
    asked, command = False, None

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True
        if command is not None:
            command.stop("stopped", time.monotonic())

    # Before anybody can know our pid: the default would end the keeper and leave its command alone.
    signal.signal(signal.SIGTERM, stop)
    if sys.platform == "win32":
        write_note(directory, "started", mark)  # there the command cannot name itself before it begins
    if limits.passed() == "lease":
        _finish(directory, capture, {"exit": None, "began": began, "unbegun": "the lease of its session has ended"})
        return
    bind = dies_with_parent() if limits.in_fleet else lambda: None

    def named(pid: int) -> None:
        bind()
        _name(directory, mark, pid)

    try:
        command = Command(request["argv"], request["cwd"], named, claimed, kill_after_s=limits.kill_after_s)
    except (OSError, subprocess.SubprocessError) as error:  # the latter: the new process could not name itself
        why = error.strerror if isinstance(error, OSError) else "it could not be noted that it begins"
        capture.add(f"{request['argv'][0]}: {why}\n".encode())
        code = 127 if isinstance(error, FileNotFoundError) else 126
        unbegun = None if _of_the_command(error) else why
        _finish(directory, capture, {"exit": code, "began": began, "unbegun": unbegun})
        return
    if asked:
        stop()
    _watch(command, capture, limits)
    command.end_group()
    if command.stopping == "lease":
        kill_bearers(_own_key(), _environment)
    end = {
        **how_it_ended(command.process.returncode),
        "stopped": command.stopping,
        "began": began,
        "ended": time.time(),
    }
    if end["exit"] == 0 and command.stopping is None:
        places = request.get("outputs_in", ())
        end["alone"] = _left_nobody(command.process.pid) if places else None
        end["synced"] = _synced(places)
    _finish(directory, capture, end)


def _of_the_command(error: Exception) -> bool:
    """Whether the command could never be started like this; anything else is said of the machine, and may pass."""
    return isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError)) or (
        isinstance(error, OSError) and error.errno in (errno.ENOEXEC, errno.E2BIG, errno.ELOOP, errno.ENAMETOOLONG)
    )


def _left_nobody(group: int) -> bool | None:
    """Whether nobody whom the command started lives on: such a one may still write, and is no stranger.

    They are in its group or, if they have left that, bear its key.
    """
    if sys.platform != "linux":
        return None
    key = _own_key()
    try:
        others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
        return not _has_living_member(group) and not any(key in _environment(name) for name in others)
    except OSError:  # how the command ended is worth more than who lives on
        return None


def _own_key() -> bytes:
    if sys.platform == "win32":
        return b"?"
    return b"ACODE_IDEMPOTENCY_KEY=" + os.environb.get(b"ACODE_IDEMPOTENCY_KEY", b"?")


def _environment(pid: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or somebody else's
        return []


def _name(directory: str, mark: dict[str, Any], pid: int) -> None:
    """No mark and the same boot mean that the command never ran."""
    write_note(directory, "started", {**mark, "command": pid, "command_started": process_started(pid)})


def _watch(command: Command, capture: Capture, limits: Limits) -> None:
    """Read until the command has ended and its pipe is dry; stop it when its time is up."""
    pipe = command.process.stdout
    assert pipe is not None
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            _stop_when_due(command, limits)
            hurried = ended_at is not None or command.stopping is not None
            if selector.select(0.05 if hurried else limits.pause_s()):
                chunk = os.read(pipe.fileno(), READ_BYTES)
                if not chunk:
                    _reap(command, limits)
                    return
                capture.add(chunk)
            if ended_at is None and command.process.poll() is not None:
                ended_at = time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > DRAIN_S:
                return


def _stop_when_due(command: Command, limits: Limits) -> None:
    now, why = time.monotonic(), limits.passed()
    if why is not None:
        command.stop(why, now)
    command.kill_when_due(now)


def _reap(command: Command, limits: Limits) -> None:
    """The command closed its output but may still run: its end, not its silence, is what counts."""
    while True:
        _stop_when_due(command, limits)
        try:
            command.process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        return


def _synced(places: Sequence[str]) -> bool | None:
    """Whether the file systems that these lie on hold all that the command did; None where that cannot be asked for.

    Most commands sync nothing, so a note of their end would outlive a power cut that their outputs do not. One call
    brings bytes and names of any number of files to the disk.
    """
    if sys.platform != "linux" or not places:
        return None
    import ctypes

    done = set[int]()
    try:
        sync_file_system = ctypes.CDLL(None, use_errno=True).syncfs
        for place in map(_nearest_directory, places):
            fd = os.open(place, os.O_RDONLY)
            try:
                device = os.fstat(fd).st_dev
                if device not in done and sync_file_system(fd) != 0:
                    return None if ctypes.get_errno() in (errno.EINTR, errno.ENOSYS) else False
                done.add(device)
            finally:
                os.close(fd)
    except (OSError, AttributeError):  # how the command ended is worth more than who syncs what it made
        return None
    return True


def _nearest_directory(place: str) -> str:
    return place if os.path.isdir(place) else _nearest_directory(os.path.dirname(place))


def _finish(directory: str, capture: Capture, end: dict[str, Any]) -> None:
    sha256 = capture.close()
    status = {"ended": time.time(), **end, "sha256": sha256, "bytes": capture.total, "kept": capture.kept}
    write_end(directory, status)


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    sys.path[:] = request["path"]
    from acode.redact import redactor

    keep(request, redactor(request["secrets"], strict=request["strict"]).stream())


if __name__ == "__main__":
    main()

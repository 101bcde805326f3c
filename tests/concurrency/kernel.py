"""What stands between the lock's code and the kernel here: each call is the real one, announced to the conductor first.

Locks are real flocks on real files, taken through descriptors of their own, which exclude each other between threads as
between processes. Only time and identity are made up: waiting costs nothing, and each process has a pid of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from typing import Any

from tests.concurrency.conductor import Conductor, Process


class Files:
    """Which lock files there are, whose name stands in them, who has locked them, and who has them open."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.texts: dict[str, int] = {}
        self.locks: dict[str, int] = {}
        self.open: dict[int, tuple[int, str]] = {}

    def close_all_of(self, process: Process) -> None:
        for fd, (owner, name) in list(self.open.items()):
            if owner == process.number:
                self.forget(fd, name)
                with contextlib.suppress(OSError):
                    os.close(fd)

    def forget(self, fd: int, name: str) -> None:
        owner, _ = self.open.pop(fd)
        if self.locks.get(name) == owner and not any(other == (owner, name) for other in self.open.values()):
            del self.locks[name]

    def parts(self) -> tuple[object, ...]:
        return (
            frozenset(self.names),
            tuple(sorted(self.texts.items())),
            tuple(sorted(self.locks.items())),
        )

    def part(self, kind: str, name: str) -> object:
        match kind:
            case "exists":
                return name in self.names
            case "text":
                return self.texts.get(name)
            case _:
                return name in self.locks


class Os:
    """The operating system as the lock's module sees it."""

    def __init__(self, conductor: Conductor, files: Files) -> None:
        self._conductor = conductor
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        process = self._conductor.current()
        return process.pid if process else os.getpid()

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        process, name = self._conductor.current(), os.path.basename(path)
        self._conductor.pause("open", f"exists {name}")
        fd = os.open(path, flags, mode)
        self._files.names.add(name)
        if process is not None:
            self._files.open[fd] = (process.number, name)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._files.open:
            name = self._files.open[fd][1]
            process = self._conductor.current()
            if process is not None and self._files.locks.get(name) == process.number:
                self._conductor.pause("close", "nothing")
            self._files.forget(fd, name)
        os.close(fd)

    def ftruncate(self, fd: int, length: int) -> None:
        name = self._about(fd, "empty", "nothing")
        os.ftruncate(fd, length)
        self._files.texts.pop(name, None)

    def write(self, fd: int, data: bytes) -> int:
        process, name = self._conductor.current(), self._about(fd, "write", "nothing")
        written = os.write(fd, data)
        if process is not None:
            self._files.texts[name] = process.number
        return written

    def read(self, fd: int, count: int) -> bytes:
        self._about(fd, "read", "text")
        return os.read(fd, count)

    def unlink(self, path: Any) -> None:
        name = os.path.basename(path)
        self._conductor.pause("unlink", f"exists {name}")
        os.unlink(path)
        self._files.names.discard(name)
        self._files.texts.pop(name, None)

    def _about(self, fd: int, operation: str, part: str) -> str:
        name = self._files.open.get(fd, (0, ""))[1]
        if name:
            self._conductor.pause(operation, f"{part} {name}")
        return name


class Fcntl:
    """flock, and who has got it."""

    LOCK_EX, LOCK_SH, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_NB, fcntl.LOCK_UN

    def __init__(self, conductor: Conductor, files: Files) -> None:
        self._conductor = conductor
        self._files = files

    def flock(self, fd: int, operation: int) -> None:
        process, name = self._conductor.current(), self._files.open.get(fd, (0, ""))[1]
        if process is None or not name:
            fcntl.flock(fd, operation)
            return
        self._conductor.pause(*("unlock", "nothing") if operation == fcntl.LOCK_UN else ("lock", f"locked {name}"))
        fcntl.flock(fd, operation)
        if operation == fcntl.LOCK_UN:
            if self._files.locks.get(name) == process.number:
                del self._files.locks[name]
        elif operation & fcntl.LOCK_EX:
            self._files.locks[name] = process.number


class Time:
    """Waiting takes no time, and each process has its own idea of it; when it goes on is the conductor's decision."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def monotonic(self) -> float:
        process = self._conductor.current()
        return process.clock if process else time.monotonic()

    def sleep(self, seconds: float) -> None:
        process = self._conductor.current()
        if process is not None:
            process.clock += seconds
            process.seen = hash(
                (process.base, process.clock)
            )  # whoever waits begins anew, and keeps nothing but the time


class Threads:
    """The sign of life is no part of the protocol: nobody beats here, so that no order depends on it."""

    Event = threading.Event

    class Thread:
        def __init__(self, **_: object) -> None:
            pass

        def start(self) -> None:
            pass

        def join(self) -> None:
            pass

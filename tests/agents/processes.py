"""The processes of a trial: everything that has its mark in the environment, whoever its parent is by now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.agents.client import MARK

POLL_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    program: str  # what its executable is called
    line: str


def marked(home: Path) -> list[Process]:
    """All that live, zombies excepted: those have no environment any more."""
    return list(_marked(f"{MARK}={home}".encode()))


def _marked(mark: bytes) -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):
                place = Path("/proc") / entry
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    program = os.readlink(place / "exe").removesuffix(" (deleted)")
                    line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield Process(pid=int(entry), program=os.path.basename(program), line=line.strip())


def kill(found: list[Process]) -> None:
    """Stopped first and then killed, so that none of them sees another one die and acts on it."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for one in found:
            with suppress(ProcessLookupError):
                os.kill(one.pid, number)


def kill_all(home: Path) -> None:
    """Until none is left: one may have been started while the list was made."""
    while found := marked(home):
        kill(found)
        time.sleep(POLL_S)


def wait_until(happened: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not happened():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True

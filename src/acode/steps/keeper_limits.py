"""When a command must end: its own timeout, and in a fleet the lease of its session.

The keeper asks on every round. It outlives the worker, so it alone can stop a command whose worker is dead, frozen or
cut off, before another machine may have the session.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from acode.lease_file import boot_clock_s, read_deadline

KILL_AFTER_S = 5.0
LOOK_S_MAX = 0.5
_PR_SET_PDEATHSIG = 1


class Limits:
    """`lease`: the file with the deadline, and the seconds from the request to end to the kill."""

    def __init__(self, timeout_s: float | None, lease: dict[str, Any] | None) -> None:
        self._until = time.monotonic() + timeout_s if timeout_s else None
        self._lease = lease
        self.kill_after_s = float(lease["stop_s"]) if lease is not None else KILL_AFTER_S

    @property
    def in_fleet(self) -> bool:
        return self._lease is not None

    def passed(self) -> str | None:
        """Which of them has passed; the lease first, because it leaves less time."""
        if self._lease_left_s() <= 0:
            return "lease"
        return "timeout" if self._until is not None and time.monotonic() >= self._until else None

    def pause_s(self) -> float:
        """How long nobody needs to ask."""
        left = [LOOK_S_MAX, self._lease_left_s()]
        if self._until is not None:
            left.append(self._until - time.monotonic())
        return max(0.0, min(left))

    def _lease_left_s(self) -> float:
        if self._lease is None:
            return LOOK_S_MAX
        return read_deadline(self._lease["path"]) - boot_clock_s()


def dies_with_parent() -> Callable[[], object]:
    """For a new process: it is killed when its keeper is, because then nobody is left who would stop it in time."""
    if sys.platform != "linux":
        return lambda: None
    import ctypes

    change = ctypes.CDLL(None, use_errno=True).prctl  # loaded here: nothing may be loaded behind the fork
    return lambda: change(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def kill_bearers(key: bytes, environment: Callable[[str], list[bytes]]) -> None:
    """Kill what a command has started and what has left its group; each bears the key of the attempt. Again until
    none is found, because one of them may just have started another."""
    if sys.platform != "linux":
        return
    bearers: list[int] = [0]
    while bearers:
        names = (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())
        bearers = [int(name) for name in names if key in environment(name)]
        for pid in bearers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if bearers:
            time.sleep(0.01)

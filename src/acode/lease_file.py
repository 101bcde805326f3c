"""The end of a lease that expires, in a file: written by the worker that renews it, read by all who act under it.

A keeper outlives its worker, so a deadline in the worker's memory would stop nothing. The time is that of a clock that
also counts while the machine is suspended; every renewal is timed from before it was asked for, so that nobody here
acts any longer when the server lets somebody else have the session. The keeper imports this: nothing that costs is
imported here.
"""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

LEASE_VARIABLE = "ACODE_LEASE"  # how a worker names it to the commands that it starts: path, seconds, its name
STOP_S_MAX = 5.0
MARGIN_S_MAX = 1.0


def boot_clock_s() -> float:
    """Seconds on a clock that nobody sets and that counts suspended time; the same for all processes of a boot."""
    if sys.platform == "win32":
        return time.monotonic()
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def stop_s(lease_s: float) -> float:
    """From the request to end to the kill, so that a command is gone before its lease is."""
    return min(STOP_S_MAX, lease_s / 3)


def renew_every_s(lease_s: float) -> float:
    return lease_s / 6


def deadline_of(asked_at_s: float, lease_s: float) -> float:
    """When commands are asked to end, where nothing is heard after a renewal that was asked for at that time. The
    margin is for a process that is not woken at once, and for clocks that do not run alike."""
    return asked_at_s + lease_s - stop_s(lease_s) - min(MARGIN_S_MAX, lease_s / 20)


class Lease(NamedTuple):
    """A lease that expires, as the processes on this machine see it."""

    path: str
    seconds: float
    holder: str = ""  # the worker, in words

    @property
    def stop_s(self) -> float:
        return stop_s(self.seconds)

    def left_s(self) -> float:
        """Seconds in which something may still be done; a file that is missing or unreadable leaves none."""
        return read_deadline(self.path) - boot_clock_s()

    def expired(self) -> bool:
        return self.left_s() <= 0


def read_deadline(path: str) -> float:
    try:
        with open(path, encoding="ascii") as file:
            return float(file.read(64))
    except (OSError, ValueError):
        return 0.0


def write_deadline(path: str, deadline_s: float) -> None:
    """Whole or not at all; after a crash of the machine the old one is over anyway, so nothing is synced."""
    fresh = f"{path}.{os.getpid()}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, repr(deadline_s).encode("ascii"))
    finally:
        os.close(descriptor)
    os.replace(fresh, path)

"""Real processes that begin at the same moment, as far as a machine can do that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

UNEXPECTED = 99


def forked(work: Callable[[], int]) -> int:
    """The pid of a child that does this and ends with the status it returns."""
    pid = os.fork()
    if pid == 0:
        status = UNEXPECTED
        with contextlib.suppress(BaseException):
            status = work()
        os._exit(status)
    return pid


def together(*works: Callable[[], int]) -> list[int]:
    """All of them at once; their exit statuses."""
    read, write = os.pipe()

    def at_the_signal(work: Callable[[], int]) -> Callable[[], int]:
        def waiting() -> int:
            os.close(write)
            os.read(read, 1)
            return work()

        return waiting

    pids = [forked(at_the_signal(work)) for work in works]
    os.close(read)
    os.close(write)  # every reader sees the end at once
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]

"""A forked process that folds the later files of a long log meanwhile, on another core.

It is started where nothing can go wrong by it: on Linux, in a process without threads, with a second core. It returns
a value or ends without one: killed, out of memory, or after an error, and then its files are folded as if there had
been none. It writes nothing but its answer.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from acode.disk.fsync import write_all

ANSWER_WAIT_S_MAX = 30.0
_COMPLETE = b"."


def can_fork() -> bool:
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return False
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then its id may become another's before it is waited for
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class Worker:
    """Performs the work in a copy of this process. At the end of the block it is gone, whatever happened.

    Its answer lies in memory that both share: through a pipe alone it could write next to nothing before it is read.
    """

    _memory: int
    _reader: int
    _pid: int

    def __init__(self, work: Callable[[], bytes]) -> None:
        if sys.platform != "linux":  # `can_fork` has said no
            raise NotImplementedError
        self._memory = os.memfd_create("acode-fold")
        self._reader, writer = os.pipe()
        try:
            self._pid = os.fork()
        except OSError:
            self._pid = -1
        if self._pid == 0:
            _answer(work, self._memory, writer)
        os.close(writer)

    def answer(self) -> bytes | None:
        """What the work returned; None where it did not."""
        ended, _, _ = select.select([self._reader], [], [], ANSWER_WAIT_S_MAX)
        if not ended or os.read(self._reader, 1) != _COMPLETE:
            return None
        with open(self._memory, "rb", closefd=False) as file:
            file.seek(0)
            return file.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._reader)
        os.close(self._memory)
        if self._pid > 0:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self._pid, 0)


def _answer(work: Callable[[], bytes], memory: int, writer: int) -> None:
    """In the forked process: nothing of the program runs after it, no matter how the work ends."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        write_all(memory, work())
        os.write(writer, _COMPLETE)
    finally:
        os._exit(0)

"""Start a child process that no signal can make the caller lose, and end one with all that it has started.

A handler that raises, as Python's own does at Ctrl+C, can do so between the fork and the assignment of its result: the
process runs, and nobody has its number. Blocking the signal does not help: the kernel gives it to another thread, and
Python's handler runs in the main one all the same. So the handlers themselves wait.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import Any

# Those whose handlers programs let raise: a person's key, a request to end, a time limit.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGBREAK")
HELD = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class HeldSignals:
    """Signals that come meanwhile are handled at the end, each once. Of use in the main thread, where handlers run.

    It stands within the `try` that ends the process, and the process is assigned within it:

        process = None
        try:
            with HeldSignals():
                process = subprocess.Popen(...)
            process.wait()
        except BaseException:
            if process is not None: ...
    """

    def __init__(self) -> None:
        self._holding = True
        self._heard: dict[int, FrameType | None] = {}
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            for number in HELD:
                handler = signal.getsignal(number)
                if callable(handler):  # neither the default nor ignored, and not a handler in C
                    self._before[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:  # from the handler of a signal that was not held yet
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._holding = False  # from here on `_handle` does what each handler does
            self._restore()
        except BaseException:  # from such a handler
            self._restore()
            raise
        finally:
            self._deliver()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _deliver(self) -> None:
        if self._heard:
            number, frame = self._heard.popitem()
            try:
                self._before[number](number, frame)
            finally:
                self._deliver()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._heard[number] = frame
        else:
            self._before[number](number, frame)


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a child that leads a process group, with all of the group, and reap it. A second Ctrl+C waits meanwhile."""
    with HeldSignals():
        if process.returncode is not None:
            return
        if sys.platform == "win32":
            process.kill()
            process.wait()
        else:
            # Its own `wait` may never return: one that was interrupted can have left its lock taken. The child is not
            # reaped yet, so that its number is still that of the group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                _, status = os.waitpid(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)

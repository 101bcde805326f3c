"""Interrupt a function at each moment at which a signal can, and look what it leaves running.

Python handles signals between instructions of the main thread: behind a call, at the beginning of a function, at a jump
back. A trace function raises a real signal there, so that every moment is reached and no clock decides which.
"""

from __future__ import annotations

import ctypes
import dis
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
WAITED_S_MAX = 20.0
WAITS = (subprocess.Popen.wait.__code__, subprocess.Popen.communicate.__code__)
HANDLED_BEHIND = ("CALL", "RESUME", "JUMP_BACKWARD")

Act = Callable[[], Any]


class Moments:
    """Run something, and call a function at each moment of it."""

    def __init__(self, act: Act, at: Callable[[int, CodeType], None]) -> None:
        self._at = at
        self._count = 0
        self._behind: dict[FrameType, str] = {}
        sys.settrace(self._trace)
        try:
            act()
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            behind = self._behind.get(frame, "RESUME")
            self._behind[frame] = dis.opname[_instructions(frame.f_code)[frame.f_lasti]]
            if behind.startswith(HANDLED_BEHIND):
                self._count += 1
                self._at(self._count, frame.f_code)
        return self._trace


@cache
def _instructions(code: CodeType) -> bytes:
    return code.co_code


def faults(act: Act) -> Iterator[str]:
    """What is wrong after an interrupt at each moment of a start.

    `act` starts a process that does not end by itself and waits for it. Nothing else has children here.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what a child leaves behind becomes ours
    _moments_until_it_waits(act)  # what is done once in a process is done now
    for moment in range(1, _moments_until_it_waits(act) + 1):
        if not _interrupted(act, moment):
            yield f"{moment}: the interrupt did not arrive"
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield f"{moment}: {signal.getsignal(signal.SIGINT)} handles interrupts now"
        if left := _descendant_left():
            yield f"{moment}: {left} lives on"


def _moments_until_it_waits(act: Act) -> int:
    moments = 0

    def look(moment: int, code: CodeType) -> None:
        nonlocal moments
        if not moments and code in WAITS:
            moments = moment
            signal.raise_signal(signal.SIGINT)

    try:
        Moments(act, look)
    except KeyboardInterrupt:
        assert not _descendant_left()
    return moments


def _interrupted(act: Act, wanted: int) -> bool:
    def press(moment: int, _code: CodeType) -> None:
        if moment == wanted:
            signal.raise_signal(signal.SIGINT)

    try:
        Moments(act, press)
    except KeyboardInterrupt:
        return True
    return False


def _descendant_left() -> str:
    """The command line of one that still lives, and is ended now; those that were killed take a moment to end."""
    until = time.monotonic() + WAITED_S_MAX
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ""
        if not ended and time.monotonic() > until:
            return _end_one()
        time.sleep(0 if ended else 0.001)


def _end_one() -> str:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        pid = int(file.read().split()[0])
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        line = file.read().replace(b"\0", b" ").decode(errors="replace")
    os.kill(pid, signal.SIGKILL)
    return line


def faults_of(act: str, imports: str) -> list[str]:
    """The same in a process of its own, which has no other children; `act` is an expression."""
    code = f"from tests.interrupts import faults; {imports}\nfor fault in faults({act}): print(fault)"
    root = Path(__file__).resolve().parents[1]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()

"""Ctrl+C and its relatives: the first asks the run to pause after its step, the second stops the step's command.

Handlers run between any two instructions, so they write with one system call and otherwise only press a switch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from acode.cli.screen import showable
from acode.engine.world import StopSwitch

WATCHED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name))


class Signals:
    """While a session runs: signals press its switch. While a person is asked, or nothing runs yet, they interrupt."""

    def __init__(self, stop: StopSwitch, *, grace_s: float, waits_for: Callable[[], Sequence[str]]) -> None:
        self.stop = stop
        self.grace_s = grace_s
        self.waits_for = waits_for
        self.interrupts = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in WATCHED:
            # Somebody who ignores a signal for us (nohup, a shell's background job) means it.
            with contextlib.suppress(ValueError, OSError):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN:
                    self._before[number] = before
                    signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        again = self.stop.pressed
        self.stop.press(name)
        if self.interrupts:
            raise KeyboardInterrupt
        stops = self.stop.stops_at_once and self.stop.at_once()
        _write(self._stop_line(name, again=again, stops=stops))

    def _stop_line(self, name: str, *, again: bool, stops: bool) -> str:
        running = self.waits_for()
        steps = describe(running)
        them = "it" if len(running) == 1 else "them"
        if not running:
            return "" if again else "Pausing…"
        if stops and not again:
            return f"Stopping {steps} now ({name})…"
        if again:
            return f"Stopping {steps} now…" if name == "SIGINT" else ""
        if name == "SIGINT":
            return f"Pausing after {steps} … press Ctrl+C again to stop {them} now"
        takes = "it is stopped if it takes" if len(running) == 1 else "they are stopped if they take"
        return f"Pausing after {steps} ({name}); {takes} over {self.grace_s:g} s"

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """At a prompt a signal ends the waiting: Python would continue to read after the handler returned."""
        before, self.interrupts = self.interrupts, True
        try:
            yield
        finally:
            self.interrupts = before


def describe(steps: Sequence[str]) -> str:
    """“step a.1”, “steps a.1, b.2 and c.1”."""
    *others, last = steps or ("",)
    return f"steps {', '.join(others)} and {last}" if others else f"step {last}"


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if text:
            encoding = sys.stderr.encoding
            os.write(sys.stderr.fileno(), f"\n{showable(text, encoding)}\n".encode(encoding, "replace"))

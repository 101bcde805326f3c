"""Ctrl+C and its relatives: the first asks the run to pause after its step, the second stops the step's command.

Handlers run between any two instructions, so they write with one system call and otherwise only press a switch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from acode.cli.screen import showable
from acode.engine.world import StopSwitch

WATCHED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name))


class Signals:
    """While a session runs: signals press its switch. While a person is asked, or nothing runs yet, they interrupt."""

    def __init__(self, stop: StopSwitch, *, grace_s: float, waits_for: Callable[[], str | None]) -> None:
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
        _write(self._what_happens(name, again=again))

    def _what_happens(self, name: str, *, again: bool) -> str:
        step = self.waits_for()
        if again:
            return f"Stopping step {step} now…" if step and name == "SIGINT" else ""
        if step is None:
            return "Pausing…"
        if name == "SIGINT":
            return f"Pausing after step {step} … press Ctrl+C again to stop it now"
        return f"Pausing after step {step} ({name}); it is stopped if it takes over {self.grace_s:g} s"

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """At a prompt a signal ends the waiting: Python would go on reading after the handler returned."""
        before, self.interrupts = self.interrupts, True
        try:
            yield
        finally:
            self.interrupts = before


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if text:
            encoding = sys.stderr.encoding
            os.write(sys.stderr.fileno(), f"\n{showable(text, encoding)}\n".encode(encoding, "replace"))

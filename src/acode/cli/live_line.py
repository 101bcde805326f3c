"""The line of the step that runs: on a terminal it counts the seconds and is drawn over when the step ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

from acode.cli.durations import took
from acode.cli.screen import Screen

TICK_S = 1.0


class LiveLine:
    """At most one line is open. In a pipe a line is simply printed."""

    def __init__(self, screen: Screen, monotonic: Callable[[], float]) -> None:
        self.screen = screen
        self.monotonic = monotonic
        self._text: str | None = None
        self._began = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, text: str) -> None:
        self.close()
        if not self.screen.lively:
            self.screen.line(text)
            return
        with self._lock:
            self._text, self._began = text, self.monotonic()
            self._draw()
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, name="acode-live-line", daemon=True)
            self._thread.start()

    def close(self, final: str | None = None) -> None:
        """End the open line, in place where nothing was printed since; `final` stands for it."""
        with self._lock:
            if self._text is not None:
                self.screen.put("\r\x1b[2K")
                if final is None:
                    final = self._text
                self._text = None
            if final is not None:
                self.screen.line(final)

    def stop(self) -> None:
        self.close()
        self._done.set()

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            with self._lock:
                if self._text is not None:
                    self._draw()

    def _draw(self) -> None:
        assert self._text is not None
        elapsed = self.monotonic() - self._began
        suffix = f"  {took(elapsed * 1000)}" if elapsed >= TICK_S else ""
        room = self.screen.columns() - len(suffix) - 1
        text = self._text if len(self._text) <= room else f"{self._text[: max(room - 1, 0)]}…"
        self.screen.put(f"\r\x1b[2K{text}{suffix}")

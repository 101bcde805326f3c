"""The line of what runs: on a terminal it counts the seconds and is drawn over when a step ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

from acode.cli.screen import Screen
from acode.text.durations import took

TICK_S = 1.0
TEXT_COLUMNS_MIN = 30  # what stands beside the line gives way to it in a narrow terminal


class LiveLine:
    """At most one line is open: of the step that runs, or a summary of several. In a pipe a line is simply printed."""

    def __init__(self, screen: Screen, monotonic: Callable[[], float]) -> None:
        self.screen = screen
        self.monotonic = monotonic
        self._text: str | None = None
        self._began = 0.0
        self._summary: Callable[[], str] | None = None
        self.beside: Callable[[], str] | None = None  # stands behind the open line as long as that is open
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
        self._start_ticking()

    def summarize(self, summary: Callable[[], str] | None) -> None:
        """A line below all that is printed, made anew when it is drawn; None: no more. It is never left standing."""
        if not self.screen.lively:
            return
        with self._lock:
            self._erase()
            self._summary = summary
            self._draw()
        self._start_ticking()

    def close(self, final: str | None = None) -> None:
        """End the open line, in place where nothing was printed since; `final` stands for it."""
        with self._lock:
            self._erase()
            if final is None:
                final = self._text
            self._text = None
            if final is not None:
                self.screen.line(final)
            self._draw()

    def print_above(self, text: str) -> None:
        """A line of talk; what is open stays below it."""
        with self._lock:
            self._erase()
            self.screen.line(text)
            self._draw()

    def stop(self) -> None:
        self.summarize(None)
        self.close()
        self._done.set()

    def _start_ticking(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._tick, name="acode-live-line", daemon=True)
            self._thread.start()

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            with self._lock:
                self._draw()

    def _erase(self) -> None:
        if self._text is not None or self._summary is not None:
            self.screen.put("\r\x1b[2K")

    def _draw(self) -> None:
        suffix = ""
        if self._text is not None:
            elapsed = self.monotonic() - self._began
            suffix = f"  {took(elapsed * 1000)}" if elapsed >= TICK_S else ""
            beside = f"  {self.beside()}" if self.beside is not None else ""
            if self.screen.columns() - len(suffix + beside) >= TEXT_COLUMNS_MIN:
                suffix += beside
        shown = self._text if self._text is not None else self._summary() if self._summary is not None else None
        if shown is None:
            return
        room = self.screen.columns() - len(suffix) - 1
        text = shown if len(shown) <= room else f"{shown[: max(room - 1, 0)]}…"
        self.screen.put(f"\r\x1b[2K{text}{suffix}")

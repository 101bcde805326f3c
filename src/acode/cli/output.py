"""Show the output of a command: indented, dimmed, and without anything that steers the terminal."""

from __future__ import annotations

import re

from acode.cli.live_line import LiveLine
from acode.cli.screen import Screen
from acode.text import one_line

# Colors, cursor movements, titles and links that commands print for a terminal.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
LINE_CHARACTERS_MAX = 2_000
TAB_COLUMNS = 8
TAIL_LINES_MAX = 5


class OutputLines:
    """Pieces become lines; a half line waits for its end, so that an escape sequence is never cut in two.

    label: the task that prints, where several do at the same time.
    """

    def __init__(self, screen: Screen, line: LiveLine, label: str = "") -> None:
        self.screen = screen
        self.line = line
        self._lead = f"    {label} │" if label else "    │"
        self._rest = ""

    def feed(self, text: str) -> None:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._show(line)
        if len(self._rest) > LINE_CHARACTERS_MAX:
            self._show(self._rest)
            self._rest = ""

    def finish(self) -> None:
        if self._rest:
            self._show(self._rest)
            self._rest = ""

    def _show(self, line: str) -> None:
        if not self.screen.flags.quiet:
            self.line.close()
            self.line.print_above(self.screen.paint(f"{self._lead} {shown(line)}".rstrip(), "dim"))


def output_lines(tail: str) -> list[str]:
    """The last lines that a command printed, with a heading; none where it printed nothing."""
    lines = tail.rstrip().splitlines()[-TAIL_LINES_MAX:]
    return ["The last lines that it printed:", *(f"│ {shown(line)}" for line in lines)] if lines else []


def shown(line: str) -> str:
    """The line as a terminal would leave it: what a carriage return wrote over is gone."""
    last = line.rstrip("\r").rpartition("\r")[2]
    plain = _ESCAPES.sub("", last).expandtabs(TAB_COLUMNS)
    return one_line(plain[:LINE_CHARACTERS_MAX])

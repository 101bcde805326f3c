"""What a command prints, as it may be shown: indented, dimmed, and without anything that steers the terminal."""

from __future__ import annotations

import re

from acode.cli.live_line import LiveLine
from acode.cli.screen import Screen, one_line

# Colours, cursor movements, titles and links that commands print for a terminal they believe to have.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
LINE_CHARACTERS_MAX = 2_000
TAB_COLUMNS = 8


class OutputLines:
    """Pieces become lines; a half line waits for its end, so that an escape sequence is never cut in two."""

    def __init__(self, screen: Screen, line: LiveLine) -> None:
        self.screen = screen
        self.line = line
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
            self.screen.line(self.screen.paint(f"    │ {shown(line)}".rstrip(), "dim"))


def shown(line: str) -> str:
    """The line as a terminal would leave it: what a carriage return wrote over is gone."""
    last = line.rstrip("\r").rpartition("\r")[2]
    plain = _ESCAPES.sub("", last).expandtabs(TAB_COLUMNS)
    return one_line(plain[:LINE_CHARACTERS_MAX])

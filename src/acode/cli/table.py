"""Tables: aligned plain text in a pipe, fitted to the width on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from acode.cli.screen import Screen, is_terminal
from acode.text import one_line

GAP = "  "
LAST_COLUMNS_MIN = 4


def show_table(screen: Screen, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Cells hold text from elsewhere, of a plan, another tool or a server: nothing in one steers the terminal."""
    rows = [[one_line(cell) for cell in cells] for cells in rows]
    if is_terminal(sys.stdout):
        _fitted(screen, headings, rows)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    for cells in (headings, *rows):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        screen.data(GAP.join(padded).rstrip())


def _fitted(screen: Screen, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Only the last column gives way: what stands before it, an id above all, is typed again and is never cut."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    *widths, last = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    room = screen.columns(sys.stdout) - sum(width + len(GAP) for width in widths)
    last = min(last, max(room, LAST_COLUMNS_MIN))
    for number, (*cells, text) in enumerate((headings, *rows)):
        shown = Text(text)
        shown.truncate(last, overflow="ellipsis")
        padded = [set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True)]
        line = GAP.join([*padded, shown.plain]).rstrip()
        screen.data(screen.paint_data(line, "bold") if number == 0 else line)

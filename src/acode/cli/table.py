"""Tables: aligned plain text in a pipe, fitted to the width on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from acode.cli.screen import Screen, is_terminal

GAP = "  "


def show_table(screen: Screen, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if is_terminal(sys.stdout):
        _fitted(screen, headings, rows)
        return
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]
    for cells in (headings, *rows):
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        screen.data(GAP.join(padded).rstrip())


def _fitted(screen: Screen, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """By rich: it knows how wide every character is, and shortens the last column instead of breaking lines."""
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    coloured = screen.coloured(sys.stdout)
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for number, heading in enumerate(headings):
        last = number == len(headings) - 1
        table.add_column(heading, no_wrap=True, overflow="ellipsis", ratio=1 if last else None)
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    drawn = io.StringIO()
    width = screen.columns(sys.stdout)
    console = Console(file=drawn, width=width, force_terminal=coloured, no_color=not coloured, color_system="standard")
    console.print(table)
    for line in drawn.getvalue().splitlines():
        screen.data(line.rstrip())

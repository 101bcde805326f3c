"""The time axis of the waterfall: working time is linear, time in which nothing ran is a narrow hatched band.

Without that a session that was dead overnight would show its ten minutes of work as one pixel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

from acode.ui.timeline import Gap

WIDTH = 1000.0
GAP_WIDTH = 24.0
GAPS_WIDTH_MAX = 300.0
BAR_WIDTH_MIN = 2.0


class Axis:
    """From moments to positions between 0 and WIDTH."""

    def __init__(self, start: datetime, end: datetime, gaps: Sequence[Gap] = ()) -> None:
        self.start: datetime = start
        self.end: datetime = max(start, end)
        self.gaps: list[Gap] = sorted((one for one in gaps if one.end > one.start), key=lambda one: one.start)
        dead_s = sum((one.end - one.start).total_seconds() for one in self.gaps)
        self.work_s: float = max((self.end - self.start).total_seconds() - dead_s, 0.001)
        gap_width = min(GAP_WIDTH, GAPS_WIDTH_MAX / len(self.gaps)) if self.gaps else 0.0
        self._scale = (WIDTH - gap_width * len(self.gaps)) / self.work_s
        self._marks = self._edges(gap_width)
        self._moments = [moment for moment, _ in self._marks]

    def _edges(self, gap_width: float) -> list[tuple[datetime, float]]:
        """Both edges of every gap with their positions, from left to right."""
        marks, at, x = [(self.start, 0.0)], self.start, 0.0
        for gap in self.gaps:
            x += max((gap.start - at).total_seconds(), 0.0) * self._scale
            marks += [(gap.start, x), (gap.end, x + gap_width)]
            at, x = gap.end, x + gap_width
        marks.append((self.end, WIDTH))
        return marks

    def x(self, moment: datetime) -> float:
        """The position of a moment, by the two marks around it."""
        number = min(max(bisect_right(self._moments, moment) - 1, 0), len(self._marks) - 2)
        (left, x0), (right, x1) = self._marks[number], self._marks[number + 1]
        whole = (right - left).total_seconds()
        part = 0.0 if whole <= 0 else (moment - left).total_seconds() / whole
        return x0 + (x1 - x0) * min(max(part, 0.0), 1.0)

    def bar(self, start: datetime, end: datetime) -> tuple[float, float]:
        """Left edge and width; a bar is never too narrow to be seen, and never leaves the axis."""
        left = self.x(start)
        width = max(self.x(end) - left, BAR_WIDTH_MIN)
        return min(left, WIDTH - width), width

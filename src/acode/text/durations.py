"""Times, durations and counts as texts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

STEP_SHOWN_CHARS_MAX = 120


def ago(then: datetime, now: datetime) -> str:
    """“10 minutes ago”."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{count(seconds // size, unit)} ago"
    return "just now" if seconds < 5 else f"{seconds} seconds ago"


def ago_short(then: datetime, now: datetime) -> str:
    """“10m ago”, for a column."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def ago_brief(then: datetime, now: datetime) -> str:
    """“5 min ago”, inside a sentence."""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def took(milliseconds: float) -> str:
    """“0.2s”, “12s”, “1m 05s”, “1h 30m”."""
    seconds = milliseconds / 1000
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3_600}h {whole % 3_600 // 60:02d}m"


UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
SPAN_EXAMPLES = "30m, 2h, 7d or 2w"
SPAN = r"[0-9]{1,6} ?[smhdwSMHDW]"


def span(text: str) -> timedelta | None:
    """A duration as people type it: 90s, 30m, 2h, 7d, 2w; None where it is none."""
    plain = text.strip()
    if re.fullmatch(SPAN, plain) is None:
        return None
    return timedelta(seconds=int(plain[:-1]) * UNITS_S[plain[-1].lower()])


def shortened(text: str, chars_max: int = STEP_SHOWN_CHARS_MAX) -> str:
    """A long command by its two ends: the program, and its last arguments. Only for text that is redacted already."""
    if len(text) <= chars_max:
        return text
    tail = max((chars_max - 1) // 3, 0)
    return f"{text[: chars_max - 1 - tail]}…{text[len(text) - tail :]}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def attempt_of(attempt: int, attempts_max: int) -> str:
    """“attempt 2 of 3”; there is no fourth of three."""
    return f"attempt {attempt} of {attempts_max}" if attempt <= attempts_max else f"all {attempts_max} attempts used"


def stamp(moment: datetime) -> str:
    """RFC 3339 in UTC, for machines."""
    return moment.isoformat().replace("+00:00", "Z")

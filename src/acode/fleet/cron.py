"""Times by a cron expression: five fields, minute to weekday, as cron has them. Pure.

`*`, numbers, lists, ranges and steps; months and weekdays by number, Sunday as 0 or 7. Where both day fields are given,
one of them is enough, as in cron. Times are UTC: a plan that runs at two must not run twice when clocks are set back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
YEARS_AHEAD_MAX = 8  # 29 February, over a year that has none


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # Monday is 1, Sunday 7
    any_day: bool
    any_weekday: bool

    def fits_day(self, at: datetime) -> bool:
        day, weekday = at.day in self.days, at.isoweekday() in self.weekdays
        if at.month not in self.months:
            return False
        return (day and weekday) if self.any_day or self.any_weekday else (day or weekday)


def read_cron(text: str) -> Cron:
    """Raises ValueError with what is wrong."""
    words = text.split()
    if len(words) != len(FIELDS):
        raise ValueError(f"expected five fields, minute hour day month weekday, found {len(words)}")
    found = [_field(word, *field) for word, field in zip(words, FIELDS, strict=True)]
    weekdays = frozenset(7 if one == 0 else one for one in found[4])
    cron = Cron(
        minutes=found[0],
        hours=found[1],
        days=found[2],
        months=found[3],
        weekdays=weekdays,
        any_day=words[2] == "*",
        any_weekday=words[4] == "*",
    )
    next_time(cron, datetime(2024, 1, 1, tzinfo=UTC))  # one that never comes is refused
    return cron


def _field(word: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            begin, end = (low, high) if span == "*" else (int(first), int(last or (high if step else first)))
            every = int(step) if step else 1
        except ValueError:
            raise ValueError(f"{name}: {part!r} is neither *, a number, a range nor a step") from None
        if not (low <= begin <= end <= high) or every < 1:
            raise ValueError(f"{name}: {part!r} is not within {low} to {high}")
        found.update(range(begin, end + 1, every))
    return frozenset(found)


def next_time(cron: Cron, after: datetime) -> datetime:
    """The first time behind `after`."""
    at = after.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    until = at.year + YEARS_AHEAD_MAX
    while at.year <= until:
        if not cron.fits_day(at):
            at = (at + timedelta(days=1)).replace(hour=0, minute=0)
        elif at.hour not in cron.hours:
            at = (at + timedelta(hours=1)).replace(minute=0)
        elif at.minute not in cron.minutes:
            at += timedelta(minutes=1)
        else:
            return at
    raise ValueError("no such time comes in the next years")

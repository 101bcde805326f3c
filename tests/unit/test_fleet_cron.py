"""Times by a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acode.fleet.cron import next_time, read_cron


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:59", "2026-01-01T00:01"),
        ("30 6 * * *", "2026-01-01T06:30:00", "2026-01-02T06:30"),
        ("*/15 8-9 * * *", "2026-01-01T08:46:00", "2026-01-01T09:00"),
        ("*/15 8-9 * * *", "2026-01-01T09:45:00", "2026-01-02T08:00"),
        ("0 0 1 * *", "2026-01-31T12:00:00", "2026-02-01T00:00"),
        ("0 12 * * 1-5", "2026-11-20T12:00:00", "2026-11-23T12:00"),  # from a Friday to the Monday
        ("0 12 * * 0", "2026-11-20T12:00:00", "2026-11-22T12:00"),
        ("0 12 * * 7", "2026-11-20T12:00:00", "2026-11-22T12:00"),
        ("0 0 13 * 5", "2026-11-17T00:00:00", "2026-11-20T00:00"),  # the 13th, or a Friday
        ("0 0 29 2 *", "2026-03-01T00:00:00", "2028-02-29T00:00"),
        ("5,35 0 1 1 *", "2026-01-01T00:05:00", "2026-01-01T00:35"),
    ],
)
def test_the_next_time_is_that_of_cron(text: str, after: str, expected: str) -> None:
    found = next_time(read_cron(text), datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert found.isoformat()[:16] == expected


@pytest.mark.parametrize(
    "text", ["", "* * * *", "60 * * * *", "x * * * *", "5-1 * * * *", "*/0 * * * *", "0 0 31 2 *", "* * * * 8"]
)
def test_what_never_comes_or_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_cron(text)

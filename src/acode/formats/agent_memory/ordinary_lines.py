"""Read the ordinary lines of an event file many at a time: an event on each, in order of time.

A long log consists of nothing else, and of most of its events only the latest of a task and type counts. So they are
decoded by one call without their details, and `event_fold` reads those again that count. Lines of which this module
is not certain that `dialect.parse` takes each of them at the first attempt are left to it. Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import takewhile

import msgspec

from acode.formats.agent_memory.dialect import LAST_US, LineHead, since_epoch

AT_ONE_TIME = 64  # events at the same time are compared with each other: no more than twice as many
Moments = list[str] | list[datetime]

_decode_head = msgspec.json.Decoder(LineHead).decode
_USUAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_DATE_CHARS = len("2026-01-15")
_MINUTE_TENS, _SECOND_TENS = 14, 17


class Ordinary(msgspec.Struct, gc=False):
    """The events of lines that follow each other; none is earlier than the one before it."""

    heads: list[LineHead]
    moments: Moments
    """Their times: compared with each other they say which event is earlier."""
    first_us: int
    last_us: int


def read_ordinary(lines: list[bytes]) -> Ordinary | None:
    """The events on these lines; None unless each is an ordinary one."""
    try:
        heads = list(map(_decode_head, lines))
        stamps: list[str] = [head.timestamp for head in heads]  # type: ignore[misc]  # what is no text raises below
        moments = _in_order(stamps)
        first_us, last_us = _time_us(moments[0]), _time_us(moments[-1])
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    return Ordinary(heads, moments, first_us, last_us) if first_us >= 0 and last_us <= LAST_US else None


def first_events(read: Ordinary, tasks: set[str | None], spellings: set[str | None]) -> Iterator[int]:
    """The first event of each of these tasks with such a type, and the others of the task at the same time."""
    heads, moments = read.heads, read.moments
    first: dict[str | None, str | datetime] = {}
    for at in [at for at, head in enumerate(heads) if head.task_id in tasks]:
        head, moment = heads[at], moments[at]
        if (head.event_type or head.type) in spellings and first.setdefault(head.task_id, moment) == moment:
            yield at


def ties(read: Ordinary, latest: Iterable[int]) -> Iterator[int]:
    """Events at the same time, of which their lines do not say which is later: the others of the same type and task as
    one of the latest, and all at the end, where the next block may have more.
    """
    heads, moments = read.heads, read.moments
    end = len(moments) - 1
    yield from takewhile(lambda at: moments[at] == moments[end], range(end, -1, -1))
    for last in [at for at in latest if moments[at - 1] == moments[at]]:
        at = last - 1
        while at >= 0 and moments[at] == moments[last]:
            if heads[at].key == heads[last].key:
                yield from (at, last)
            at -= 1


def _in_order(stamps: list[str]) -> Moments:
    """The times; a ValueError unless all are times with a zone, none before another, and not too many the same."""
    moments: Moments = stamps if _written_alike(stamps) else [datetime.fromisoformat(stamp) for stamp in stamps]
    if sorted(moments) != moments:  # times with and without a zone raise
        raise ValueError("not in order of time")
    if any(moments[at] == moments[at + AT_ONE_TIME] for at in range(0, len(moments) - AT_ONE_TIME, AT_ONE_TIME)):
        raise ValueError("too many events at one time")
    return moments


def _written_alike(stamps: list[str]) -> bool:
    """Whether all are valid times of one form and one zone, so that as texts they compare as the times do.

    Their digits are checked for all of them at once, by position. Of each date the first and the last time are read:
    the hours of the others are between theirs.
    """
    form = _USUAL_TIME.fullmatch(stamps[0])
    if form is None:
        return False
    text = ("\n".join(stamps) + "\n").encode()
    each, zone = len(stamps[0]) + 1, (form[1] + "\n").encode()
    if text.translate(_DIGITS_ALIKE) != text[:each].translate(_DIGITS_ALIKE) * len(stamps):
        return False
    if text[_MINUTE_TENS::each].strip(b"012345") or text[_SECOND_TENS::each].strip(b"012345"):
        return False
    return (zone == b"Z\n" or text.count(zone) == len(stamps)) and _valid_dates(stamps)


def _valid_dates(stamps: list[str]) -> bool:
    """Whether each date, and the first and last hour of it, exists. Texts that are not in order are refused later."""
    at = 0
    while at < len(stamps):
        date = stamps[at][:_DATE_CHARS]
        after = bisect_right(stamps, date, at, key=lambda stamp: stamp[:_DATE_CHARS])
        for stamp in (stamps[at], stamps[after - 1]):
            datetime.fromisoformat(stamp)
            if stamp[_DATE_CHARS + 1 : _DATE_CHARS + 3] > "23":  # newer versions of Python take 24:00 for the next day
                return False
        at = after
    return True


def _time_us(moment: str | datetime) -> int:
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    if found.tzinfo is None:
        raise ValueError("a time without a zone")
    return since_epoch(found)

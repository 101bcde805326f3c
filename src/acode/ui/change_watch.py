"""Has anything been written? The marks of a workspace's files, compared ten times a second for the pages that follow.

A page carries the mark that was taken before it was read. Its stream begins with the comparison of the two, so that a
commit between the page and its stream is told like every other one, also after the connection was lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

from acode.store.store import DATABASE

WATCH_EVERY_S = 0.1
TICK_EVERY_S = 5.0
# Times of files advance in steps of some milliseconds: a second commit within the same one leaves no other mark. So a
# file that was written just now has a mark of its own, and is looked at once more when that time is over.
FRESH_NS = 20_000_000


class Watched(NamedTuple):
    """The files of one workspace that change with every commit, and those that change with a lock."""

    agent_dir: Path
    session: str = ""  # with it, the lock of this session: who begins or ends to work on it

    def mark(self) -> str:
        database = self.agent_dir / DATABASE
        paths = [database, database.with_name(f"{DATABASE}-wal")]
        if self.session:
            paths += sorted((self.agent_dir / "locks").glob(f"{self.session}.*"))
        return ",".join(_mark(path) for path in paths)


def _mark(path: Path) -> str:
    try:
        seen = os.stat(path)
    except OSError:
        return "-"
    if not seen.st_size:  # readers leave an empty log behind, and take it away again
        return "-"
    fresh = abs(time.time_ns() - seen.st_ctime_ns) < FRESH_NS
    # Not the time of the last write: who releases a lock restores the one that it found.
    return f"{seen.st_size}:{seen.st_ctime_ns}:{fresh:d}"


def mark_of(watched: Sequence[Watched]) -> str:
    return hashlib.sha256(";".join(one.mark() for one in watched).encode()).hexdigest()[:16]


async def changes(watched: Sequence[Watched], seen: str) -> AsyncIterator[str]:
    """Events for a page that was read at the mark `seen`: `change` when something was written, and now and then a
    `tick` that lets the page look who is alive. The mark is the event's id, which a browser sends when it comes back.
    """
    before, quiet_s = seen, 0.0
    yield "event: ready\ndata: 1\n\n"
    while True:
        now = mark_of(watched)
        if now != before or quiet_s >= TICK_EVERY_S:
            yield f"event: {'change' if now != before else 'tick'}\nid: {now}\ndata: 1\n\n"
            before, quiet_s = now, 0.0
        await asyncio.sleep(WATCH_EVERY_S)
        quiet_s += WATCH_EVERY_S

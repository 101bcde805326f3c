"""Has anything been written? The marks of a workspace's files, compared some times a second for the pages that follow.

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

from acode.disk.own_files import read_own
from acode.errors import AcodeError
from acode.store.store import DATABASE

WATCH_EVERY_S = 0.15
# A tick reads the session anew, which is nearly all that a page costs while nothing happens: only to notice a process
# that died without a word, and to renew "2 minutes ago". Commits and locks are told at once, by their files.
TICK_EVERY_S = 15.0
LIST_TICK_EVERY_S = 30.0  # a list reads many sessions
# Times of files advance in steps of some milliseconds: a second commit within the same one leaves no other mark. So a
# file that was written just now has a mark of its own, and is looked at once more when that time is over.
FRESH_NS = 20_000_000


class Watched:
    """The files of one workspace that change with every commit, and with a session the one that changes with its lock:
    who begins or ends to work on it.
    """

    def __init__(self, agent_dir: Path, session: str = "") -> None:
        database = agent_dir / DATABASE
        self._written = (os.fspath(database), f"{database}-wal")
        self._locks = os.fspath(agent_dir / "locks")
        self._session = session
        self._known: tuple[int, list[str]] = (-1, [])
        self._holders: dict[str, tuple[int, str]] = {}

    def mark(self) -> str:
        return ",".join((*map(_last_write, self._written), *map(self._holder, self._lock_files())))

    def _holder(self, path: str) -> str:
        """Who holds this lock, or held it. Its times tell less: the holder gives a sign of life every few seconds."""
        try:
            changed_ns = os.stat(path).st_ctime_ns
            known = self._holders.get(path)
            if known is not None and known[0] == changed_ns and not _is_fresh(changed_ns):
                return known[1]
            told = read_own(path)
        except (OSError, AcodeError):
            return "-"
        self._holders[path] = (changed_ns, hashlib.sha256(told).hexdigest()[:16])
        return self._holders[path][1]

    def _lock_files(self) -> list[str]:
        """One for each generation of the session's lock. The directory is read again only when it has changed."""
        if not self._session:
            return []
        try:
            changed_ns = os.stat(self._locks).st_mtime_ns
            if changed_ns != self._known[0]:
                names = [name for name in os.listdir(self._locks) if name.startswith(f"{self._session}.")]
                self._known = (changed_ns, [os.path.join(self._locks, name) for name in sorted(names)])
        except OSError:
            return []
        return self._known[1]


def _last_write(path: str) -> str:
    """Not its last change: SQLite sets the owner of its log when it opens it, also to read."""
    try:
        seen = os.stat(path)
    except OSError:
        return "-"
    # Readers leave an empty log behind, and take it away again.
    return f"{seen.st_size}:{seen.st_mtime_ns}:{_is_fresh(seen.st_mtime_ns):d}" if seen.st_size else "-"


def _is_fresh(at_ns: int) -> bool:
    return abs(time.time_ns() - at_ns) < FRESH_NS


def mark_of(watched: Sequence[Watched]) -> str:
    return hashlib.sha256(";".join(one.mark() for one in watched).encode()).hexdigest()[:16]


async def changes(watched: Sequence[Watched], seen: str, *, tick_s: float = TICK_EVERY_S) -> AsyncIterator[str]:
    """Events for a page that was read at the mark `seen`: `change` when something was written, and now and then a
    `tick` that lets the page look who is alive. The mark is the event's id, which a browser sends when it comes back.
    """
    before, quiet_s = seen, 0.0
    yield "event: ready\ndata: 1\n\n"
    while True:
        now = mark_of(watched)
        if now != before or quiet_s >= tick_s:
            yield f"event: {'change' if now != before else 'tick'}\nid: {now}\ndata: 1\n\n"
            before, quiet_s = now, 0.0
        await asyncio.sleep(WATCH_EVERY_S)
        quiet_s += WATCH_EVERY_S

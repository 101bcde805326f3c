"""Steps of asyncio tasks are committed together, and the event loop is not blocked while the disk works.

Whatever the tasks record in one turn of the loop goes into one transaction; one thread syncs, and a task continues when
the sync that covers its own record is done. A task that is alone in its loop waits in place: nobody would be blocked by
it, and a thread would be a detour.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from acode.engine.held_session import Held, Recorded

if TYPE_CHECKING:
    import asyncio

IDLE_S_MAX = 1.0  # a thread with nothing to sync ends after so long
LOOKS_SPARED = 64  # a loop with other tasks in it is not counted again at every step

Wait = tuple[Recorded, "asyncio.Future[None]"]


async def settle_async(run: Held, record: Recorded) -> None:
    """Continue once the record is committed, and synced where it must be."""
    import asyncio  # a command has no event loop, and would load this at every start

    loop = asyncio.get_running_loop()
    commits = run.loop_commits
    if not isinstance(commits, LoopCommits) or commits.loop is not loop:
        commits = run.loop_commits = LoopCommits(run, loop)
    if commits.is_alone():
        run.settle(record)
    else:
        await commits.settled(record)


class LoopCommits:
    """The waits of one event loop's tasks for one session."""

    def __init__(self, run: Held, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._run = run
        self._waiting: list[Wait] = []  # of this turn of the loop
        self._to_sync: list[Wait] = []
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._spare = 0

    def is_alone(self) -> bool:
        """Whether no other task could use the time."""
        if self._waiting or len(self._run.session.in_flight) > 1:
            return False
        if self._spare:
            self._spare -= 1
            return False
        from asyncio import all_tasks

        if len(all_tasks(self.loop)) > 1:
            self._spare = LOOKS_SPARED
            return False
        return True

    def settled(self, record: Recorded) -> asyncio.Future[None]:
        if not self._waiting:
            self.loop.call_soon(self._commit)
        wait = (record, self.loop.create_future())
        self._waiting.append(wait)
        return wait[1]

    def _commit(self) -> None:
        """One transaction for all that waits. It holds no sync; that is a thread's."""
        waiting, self._waiting = self._waiting, []
        try:
            self._run.journal.settle(waiting[-1][0].seq, durable=False)
        except BaseException as error:
            _end_waits(waiting, error)
            return
        durable = [wait for wait in waiting if wait[0].durable]
        _end_waits([wait for wait in waiting if not wait[0].durable], None)
        if durable:
            with self._wake:
                self._to_sync += durable
                if self._thread is None:
                    self._thread = threading.Thread(target=self._keep_syncing, name="acode-sync", daemon=True)
                    self._thread.start()
                self._wake.notify()

    def _keep_syncing(self) -> None:
        while True:
            with self._wake:
                if not self._wake.wait_for(lambda: self._to_sync, IDLE_S_MAX):
                    self._thread = None
                    return
                waiting, self._to_sync = self._to_sync, []
            failed: BaseException | None = None
            try:
                last = max(record.seq for record, _ in waiting)
                self._run.settle(Recorded(last, True, any(record.anchored for record, _ in waiting)))
            except BaseException as error:
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self.loop.call_soon_threadsafe(_end_waits, waiting, failed)


def _end_waits(waiting: list[Wait], failed: BaseException | None) -> None:
    """Each by itself: a signal may cancel a task between a look at its wait and the end of it, and the tasks behind it
    would wait forever."""
    for _, waited in waiting:
        try:
            if failed is None:
                waited.set_result(None)
            else:
                waited.set_exception(failed)
        except Exception:
            if not waited.done():  # it was cancelled
                raise

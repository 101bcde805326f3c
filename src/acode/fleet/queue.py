"""The queue engine, seen from acode: eight methods on one connection, whose transactions are the caller's.

An engine brings order, priority, times, wake-up and the list of its workers. It need not fence: a job is finished in a
transaction that finds it with its worker, and the lease, not the engine, decides who may act. `tests/fleet` has one
suite that every implementation must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

LABEL_SEPARATOR = "+"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to move a session on. `by`: who wants it; a person is not bound by the policy's advice."""

    session_id: str
    queue: str
    priority: int = 0
    due_at: datetime | None = None  # not before; None: now
    by: str = "system"
    force: str | None = None  # a person's reason to pass the limit or changed files, once


class Job(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    session_id: str
    queue: str
    worker: int | None  # that has taken it
    by: str = "system"
    force: str | None = None


class Queue(Protocol):
    def prepare(self) -> None: ...  # its tables, once for all workers
    def put(self, job: NewJob) -> int: ...  # at most one of a session waits: a second is the first again
    def take(self, worker: int, queues: Sequence[str]) -> Job | None: ...  # the first that is due; none is waited for
    def finish(self, job: int, worker: int | None) -> bool: ...  # False: it is not, or no longer, this worker's
    def wait(self, seconds: float) -> None: ...  # until a job may have come
    def beat(self, worker: int | None) -> int: ...  # a sign of life; its number, a new one where it had none
    def leave(self, worker: int) -> None: ...
    def stalled(self, seconds: float) -> list[Job]: ...  # taken by workers not heard of for so long; 0: all


def queue_name(queue: str, labels: Sequence[str]) -> str:
    """One queue of the engine for each set of labels: a worker looks at those that it can serve."""
    return LABEL_SEPARATOR.join([queue, *sorted(labels)])


def queue_names(queues: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Those of a worker with these labels: for every part of them, because a session may ask for fewer."""
    sets: list[tuple[str, ...]] = [()]
    for label in sorted(set(labels)):
        sets += [(*one, label) for one in sets]
    return [queue_name(queue, one) for queue in queues for one in sets]

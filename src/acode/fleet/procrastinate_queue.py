"""Procrastinate as the queue engine: its tables and statements, on a connection of acode's.

Its own worker is not used. That one finishes a job without asking whose it is by now, and holds its jobs in a
transaction of its own; here a job is put and finished in the transaction that changes the session.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from acode.errors import FleetUnsupported
from acode.fleet.queue import Job, NewJob

if TYPE_CHECKING:
    import psycopg

TASK = "acode.attempt"
CHANNEL = "procrastinate_any_queue_v1"
ADVISORY_LOCK = 7_227_046_511_402_202  # any number, the same for all clients


class ProcrastinateQueue:
    """The queue on one connection in autocommit mode."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        try:
            from procrastinate import sql
            from procrastinate.schema import SchemaManager
        except ImportError as error:
            raise FleetUnsupported("the queue of a fleet is not installed") from error
        self._connection = connection
        self._queries = sql.queries
        self._schema = SchemaManager.get_schema
        self._listens = False

    def prepare(self) -> None:
        if self._row("check_connection")[0] is not None:
            return
        with self._connection.transaction():
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
            if self._row("check_connection")[0] is None:
                self._connection.execute(self._schema().encode())

    def put(self, job: NewJob) -> int:
        there = self._connection.execute(
            "SELECT id FROM procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo'", (job.session_id,)
        ).fetchone()
        if there is not None:
            return int(there[0])
        from psycopg.types.json import Jsonb

        arguments = {"session_id": job.session_id, "by": job.by, "force": job.force}
        row = self._connection.execute(
            "SELECT unnest(procrastinate_defer_jobs_v1(ARRAY[ROW(%s, %s, %s, %s, %s, %s, %s)]"
            "::procrastinate_job_to_defer_v1[]))",
            (job.queue, TASK, job.priority, job.session_id, job.session_id, Jsonb(arguments), job.due_at),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def take(self, worker: int, queues: Sequence[str]) -> Job | None:
        id_, _, _, _, _, _, arguments, _, queue, _, taker = self._row(
            "fetch_job", queues=list(queues), worker_id=worker
        )
        return None if id_ is None else _job(id_, queue, taker, arguments)

    def finish(self, job: int, worker: int | None) -> bool:
        held = "status = 'todo'" if worker is None else "status = 'doing' AND worker_id = %(worker)s"
        found = self._connection.execute(
            f"SELECT 1 FROM procrastinate_jobs WHERE id = %(job)s AND {held} FOR UPDATE", {"job": job, "worker": worker}
        ).fetchone()
        if found is None:
            return False
        # Removed with its end: the outcome stands in the log of the session, and a queue that only grows gets slow.
        self._row("finish_job", job_id=job, status="succeeded", delete_job=True)
        return True

    def wait(self, seconds: float) -> None:
        if not self._listens:
            self._connection.add_notify_handler(lambda _: None)
            self._connection.execute(f"LISTEN {CHANNEL}".encode())
            self._listens = True
        select.select([self._connection.fileno()], [], [], seconds)
        self._connection.execute("SELECT 1")  # takes what has come off the line

    def beat(self, worker: int | None) -> int:
        if worker is not None:
            known = self._connection.execute(
                "UPDATE procrastinate_workers SET last_heartbeat = clock_timestamp() WHERE id = %s", (worker,)
            )
            if known.rowcount:
                return worker
        return int(self._row("register_worker")[0])

    def leave(self, worker: int) -> None:
        self._row("unregister_worker", worker_id=worker)

    def stalled(self, seconds: float) -> list[Job]:
        rows = self._connection.execute(
            self._queries["select_stalled_jobs_by_heartbeat"].encode(),
            {"seconds_since_heartbeat": seconds, "queue": None, "task_name": TASK},
        ).fetchall()
        return [_job(row[0], row[8], row[10], row[6]) for row in rows]

    def _row(self, query: str, **values: Any) -> tuple[Any, ...]:
        row = self._connection.execute(self._queries[query].encode(), values).fetchone()
        assert row is not None
        return tuple(row)


def _job(id_: int, queue: str, worker: int | None, arguments: dict[str, Any]) -> Job:
    return Job(
        id=id_,
        session_id=str(arguments.get("session_id", "")),
        queue=queue,
        worker=worker,
        by=str(arguments.get("by", "system")),
        force=arguments.get("force"),
    )

"""Absurd on PostgreSQL: one task with an idempotency key, steps with names of their own, an event for the answer.

Absurd has no steps at once inside a task; they are done one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers.faults.program import Program, Work
from benchmarks.peers.program import Place

QUEUE = "scenario"


class TaskEnded(Exception):
    """The task is over and will not be tried again."""


def run(place: Place, program: Program, work: Work) -> str:
    with client(place) as app:

        @app.register_task(name="steps")
        def steps(params: Any, ctx: Any) -> None:
            for item in program.items:
                if item == "ask":
                    ctx.await_event("answer")
                else:
                    for n in item if isinstance(item, list) else [item]:
                        ctx.step(f"step-{n}", lambda n=n: work(n))

        task = task_of(app, program)
        found = app.fetch_task_result(task)
        if program.again and found is not None and found.state == "failed":
            app.retry_task(task)
        while True:
            found = app.fetch_task_result(task)
            state = "" if found is None else found.state
            if state == "completed":
                return state
            if state in ("failed", "cancelled"):
                raise TaskEnded(f"{state}: {found}")
            if state == "sleeping" and "ask" in program.items and not answered(place):
                return "an event"
            app.work_batch(worker_id=program.executor, claim_timeout=program.claim_s)
            time.sleep(0.05)


def task_of(app: Absurd, program: Program) -> str:
    """The same one each time: its key is known."""
    return app.spawn("steps", {}, queue=QUEUE, max_attempts=program.attempts_max, idempotency_key="job")["task_id"]


@contextmanager
def client(place: Place) -> Iterator[Absurd]:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace('absurd')").fetchone() == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL)
        app = Absurd(connection, queue_name=QUEUE)
        app.create_queue(QUEUE)
        yield app


def answered(place: Place) -> bool:
    return (place.path / "answered").exists()


def answer(place: Place, program: Program, work: Work) -> str:
    with client(place) as app:
        app.emit_event("answer", "yes")
    (place.path / "answered").touch()  # a worker of a service would stay; this one must know whether to wait
    return "completed"


def stop(place: Place, program: Program, work: Work) -> str:
    with client(place) as app:
        app.cancel_task(task_of(app, program))
    return "completed"

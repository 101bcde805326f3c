"""Absurd: one task of steps on PostgreSQL.

Recovery is a worker that asks for tasks: one whose worker is gone is given out again when its claim has run out. The
claim is as short as Absurd allows when kills are counted, so that this is not what is waited for.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers.program import Place, Work

CLAIM_S = 1
CLAIM_WHEN_WAITING_S = 600  # contenders wait for each other; a claim must outlast that
CLAIM_AT_ONCE_S = 3  # sixteen threads on two cores: a claim must not run out while its worker lives
ATTEMPTS_MAX = 1_000


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace('absurd')").fetchone() == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL)
        app = Absurd(connection, queue_name="bench")
        app.create_queue("bench")

        (many_at_once if place.at_once > 1 else one_by_one)(app, place, count, work)
        names = ("fsync", "synchronous_commit", "wal_sync_method")
        return {name: str(connection.execute(f"SHOW {name}").fetchone()[0]) for name in names}  # type: ignore[index]


def one_by_one(app: Absurd, place: Place, count: int, work: Work) -> None:
    @app.register_task(name="steps")
    def steps(params: Any, ctx: Any) -> None:
        for n in range(params["count"]):
            ctx.step("work", lambda n=n: work(n))

    spawned = app.spawn("steps", {"count": count}, max_attempts=ATTEMPTS_MAX, idempotency_key="bench")
    claim_s = CLAIM_WHEN_WAITING_S if work.waits else CLAIM_S
    while not ended(app, spawned["task_id"]):
        app.work_batch(worker_id="bench", claim_timeout=claim_s)


def many_at_once(app: Absurd, place: Place, count: int, work: Work) -> None:
    """Absurd has no steps at once inside a task: one worker performs as many tasks, each with a share of the steps."""

    @app.register_task(name="steps")
    def steps(params: Any, ctx: Any) -> None:
        for n in range(params["first"], count, place.at_once):
            ctx.step(f"work-{n}", lambda n=n: work(n))

    spawned = [
        app.spawn("steps", {"first": first}, max_attempts=ATTEMPTS_MAX, idempotency_key=f"bench-{first}")["task_id"]
        for first in range(place.at_once)
    ]

    def stop_when_ended() -> None:
        with psycopg.connect(place.dsn, autocommit=True) as own:
            other = Absurd(own, queue_name="bench")
            while not all(ended(other, task_id) for task_id in spawned):
                pass
        app.stop_worker()

    threading.Thread(target=stop_when_ended, daemon=True).start()
    app.start_worker(claim_timeout=CLAIM_AT_ONCE_S, concurrency=place.at_once, poll_interval=0.05)


def ended(app: Absurd, task_id: str) -> bool:
    found = app.fetch_task_result(task_id)
    if found is not None and found.state in ("completed", "failed", "cancelled"):
        return True
    time.sleep(0.02)
    return False

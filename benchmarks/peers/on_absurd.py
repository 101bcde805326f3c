"""Absurd: one task of steps on PostgreSQL.

Recovery is a worker that asks for tasks: one whose worker is gone is given out again when its claim has run out. The
claim is as short as Absurd allows when kills are counted, so that this is not what is waited for.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.peers.program import Place, Work

CLAIM_S = 1
CLAIM_WHEN_WAITING_S = 600  # contenders wait for each other; a claim must outlast that
ATTEMPTS_MAX = 1_000


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace('absurd')").fetchone() == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL)
        app = Absurd(connection, queue_name="bench")
        app.create_queue("bench")

        @app.register_task(name="steps")
        def steps(params: Any, ctx: Any) -> None:
            for n in range(params["count"]):
                ctx.step("work", lambda n=n: work(n))

        spawned = app.spawn("steps", {"count": count}, max_attempts=ATTEMPTS_MAX, idempotency_key="bench")
        claim_s = CLAIM_WHEN_WAITING_S if work.waits else CLAIM_S
        while not ended(app, spawned["task_id"]):
            app.work_batch(worker_id="bench", claim_timeout=claim_s)
        names = ("fsync", "synchronous_commit", "wal_sync_method")
        return {name: str(connection.execute(f"SHOW {name}").fetchone()[0]) for name in names}  # type: ignore[index]


def ended(app: Absurd, task_id: str) -> bool:
    found = app.fetch_task_result(task_id)
    if found is not None and found.state in ("completed", "failed", "cancelled"):
        return True
    time.sleep(0.02)
    return False

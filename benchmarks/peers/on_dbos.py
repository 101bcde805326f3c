"""DBOS: one workflow of steps. Variants: `sqlite`, as it comes; `sqlite-wal`; `postgres`.

Recovery is what DBOS does when it is launched again: it looks for the pending workflows of this executor.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.peers.program import Place, Work

WORKFLOW = "bench"


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    file = place.path / "dbos.sqlite"
    if place.variant == "sqlite-wal":
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA journal_mode=WAL")  # a property of the file: DBOS's own connections follow it
    url = place.dsn.replace("postgresql://", "postgresql+psycopg://") if place.dsn else f"sqlite:///{file}"
    # Its version is given, because DBOS recovers only what the same version of the program has begun.
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
            "application_version": "1",
        }
    )

    steps = many_at_once(place, work) if place.at_once > 1 else one_by_one(work)
    DBOS.launch()
    if DBOS.get_workflow_status(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(steps, count)
    # Started again it would run beside the one that the launch recovers, and do every step of its own.
    DBOS.retrieve_workflow(WORKFLOW).get_result()
    return in_force()


def one_by_one(work: Work) -> Callable[[int], Any]:
    @DBOS.step(name="work")
    def step(n: int) -> str:
        return work(n)

    @DBOS.workflow(name="steps")
    def steps(total: int) -> None:
        for n in range(total):
            step(n)

    return steps


def many_at_once(place: Place, work: Work) -> Callable[[int], Any]:
    """The steps of a batch begin in the same order each time, as DBOS asks of a workflow."""
    pool = ThreadPoolExecutor(place.at_once)

    @DBOS.step(name="work")
    async def step(n: int) -> str:
        return await asyncio.get_running_loop().run_in_executor(pool, work, n)

    @DBOS.workflow(name="steps")
    async def steps(total: int) -> None:
        for batch in place.batches(total):
            await asyncio.gather(*(step(n) for n in batch))

    return steps


def in_force() -> dict[str, str]:
    """Asked of a connection of DBOS's own engine."""
    import sqlalchemy as sa
    from dbos._dbos import _get_dbos_instance

    engine = _get_dbos_instance()._sys_db.engine
    sqlite = engine.dialect.name == "sqlite"
    names = ("journal_mode", "synchronous") if sqlite else ("fsync", "synchronous_commit", "wal_sync_method")
    with engine.connect() as connection:
        return {
            name: str(connection.execute(sa.text(f"{'PRAGMA' if sqlite else 'SHOW'} {name}")).scalar())
            for name in names
        }

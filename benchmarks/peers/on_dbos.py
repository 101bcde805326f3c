"""DBOS: one workflow of steps. Variants: `sqlite`, as it comes; `sqlite-wal`; `postgres`.

Recovery is what DBOS does when it is launched again: it looks for the pending workflows of this executor.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

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

    @DBOS.step(name="work")
    def step(n: int) -> str:
        return work(n)

    @DBOS.workflow(name="steps")
    def steps(total: int) -> None:
        for n in range(total):
            step(n)

    DBOS.launch()
    if DBOS.get_workflow_status(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(steps, count)
    # Started again it would run beside the one that the launch recovers, and do every step of its own.
    DBOS.retrieve_workflow(WORKFLOW).get_result()
    return in_force()


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

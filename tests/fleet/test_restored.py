"""A server that was restored from a backup in mid-flight: what it has forgotten is not done again."""

from __future__ import annotations

import signal

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.fleets import Fleet
from tests.postgres import Server


def copy_database(server: Server, source: str, target: str) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)".encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s", (source,)
        )
        connection.execute(f"CREATE DATABASE {target} TEMPLATE {source}".encode())


def test_a_worker_that_knows_more_than_a_restored_server_repeats_nothing(fleet: Fleet, postgres_server: Server) -> None:
    plan = f"""
title: Restored
tasks:
  - title: Work
    steps:
      - run: "echo before >> {fleet.ledger}"
      - approve: Go on?
      - run: "echo behind >> {fleet.ledger}"
"""
    name = str(conninfo_to_dict(fleet.dsn)["dbname"])
    session_id = fleet.submit(plan)
    copy_database(postgres_server, name, f"{name}_backup")
    try:
        host = fleet.host("one")
        worker = host.work()
        fleet.wait(session_id, "parked")
        worker.signal(signal.SIGTERM)
        assert worker.finish().exit_code == 0
        copy_database(postgres_server, f"{name}_backup", name)
        assert fleet.row(session_id)["state"] == "queued", "the server has forgotten that it ran"
        host.work()
        row = fleet.wait(session_id, "parked")
        assert row["ended_with"] == 16 and "restored from an older backup" in row["reason"]
        assert fleet.lines() == ["before"]
        pushed = host("-C", host.workspace_of(session_id), "sync", "now", "--json")
        assert pushed.exit_code == 0, pushed
        retried = fleet.laptop("fleet", "retry", session_id, "--force", "--reason", "all have pushed")
        assert retried.exit_code == 0, retried
        fleet.until(lambda: fleet.row(session_id)["ended_with"] == 10, shown=lambda: str(fleet.row(session_id)))
        assert fleet.laptop("session", "approve", session_id).exit_code == 0
        fleet.wait(session_id, "done")
        assert fleet.lines() == ["before", "behind"]
    finally:
        with psycopg.connect(postgres_server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name}_backup WITH (FORCE)".encode())

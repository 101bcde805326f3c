"""Taking a session over by hand, and finding one among many."""

from __future__ import annotations

from pathlib import Path

import psycopg

from acode.events import types as ev
from tests.fleets import Fleet
from tests.machines import Machine, lease, url_of


def test_a_person_takes_over_what_a_dead_worker_left_and_the_session_leaves_the_fleet(fleet: Fleet) -> None:
    plan = f"""
title: Long
tasks:
  - title: Work
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
      - run: "echo begun >> {fleet.ledger}; [ $(wc -l < {fleet.ledger}) -gt 1 ] || sleep 60"
        idempotent: true
"""
    session_id = fleet.submit(plan)
    worker = fleet.host("one", ACODE_FLEET_LEASE_SECONDS="10").work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    refused = fleet.laptop("resume", session_id, "--take-over", "--yes", "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (16, "LOCK-006")
    assert "--take-over" in refused.json["error"]["hint"] and "--force" not in refused.json["error"]["hint"]
    forced = fleet.laptop("resume", session_id, "--take-over", "--force", "--reason", "x", "--yes", "--json")
    assert forced.exit_code == 16, "force has its other meanings alone"
    worker.kill_everything()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        connection.execute("UPDATE acode_sessions SET renewed_at = now() - interval '11 seconds'")
    fleet.until(lambda: up_s(fleet.dsn) > 10)
    taken = fleet.laptop("resume", session_id, "--take-over", "--yes")
    assert taken.exit_code == 0 and fleet.lines() == ["begun", "begun"], taken.stderr
    noted = [one.what for one in fleet.events(session_id, ev.Noted)]
    assert any(what.endswith("whose lease had ended") for what in noted)
    assert not fleet.events(session_id, ev.Forced)


def up_s(dsn: str) -> float:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8").fetchone()
    assert row is not None
    return float(row[0])


def test_outside_a_fleet_leases_never_end(machines: tuple[Machine, Machine], database: str) -> None:
    one, two = machines
    session_id = one.run("title: x\ntasks:\n  - title: A\n    steps:\n      - approve: Go on?\n")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE acode_sessions SET owner = 'another', renewed_at = now() - interval '1 year'")
    refused = two("resume", session_id, "--take-over", "--yes", "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (16, "LOCK-006")
    assert "--remote --force" in refused.json["error"]["hint"]
    assert lease(database, session_id)[1] == "another"


def test_a_session_is_found_by_its_id_without_reading_the_others(tmp_path: Path, database: str) -> None:
    machine = Machine(tmp_path / "one", url_of(database))
    session_id = machine.run("title: x\ntasks:\n  - title: A\n    steps:\n      - approve: Go on?\n")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO acode_sessions(session_id, generation, seq, head)"
            " SELECT gen_random_uuid(), 1, 0, '' FROM generate_series(1, 20000)"
        )
        connection.execute("ANALYZE acode_sessions")
        for column in ("session_id", "reverse(session_id)", "right(session_id, 8)"):
            query = f"EXPLAIN SELECT session_id FROM acode_sessions WHERE {column} LIKE 'abcdef12%'"
            plan = "\n".join(line for (line,) in connection.execute(query.encode()))
            assert "Index" in plan and "Seq Scan" not in plan
    other = Machine(tmp_path / "two", url_of(database))
    assert other("pull", session_id[-8:]).exit_code == 0
    assert other("pull", session_id[:18]).exit_code == 0
    assert other("pull", "ffff0000").exit_code == 14

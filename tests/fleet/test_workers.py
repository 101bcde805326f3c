"""Workers move sessions on: with a lease that ends, through kills, and without a person."""

from __future__ import annotations

import json
import signal
import time

import psutil
import psycopg
import pytest

from acode.events import types as ev
from acode.fleet.worker import RETRY_S
from tests.driver import freeze, thaw
from tests.fleets import Fleet, processes_of_sessions
from tests.postgres import Server

# Connections of this database on which a worker has just found no job, and waits for one.
LISTENERS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle'
AND (query LIKE 'LISTEN%' OR query LIKE '%procrastinate_fetch_job%')"""


def slow(fleet: Fleet, *, how: str = "") -> str:
    """A step that says in the ledger that it has begun and that it has ended, and waits for `go` in between."""
    wait = f"while [ ! -e {fleet.place}/go ]; do sleep 0.1; done"
    return f"""
title: Slow
tasks:
  - title: Work
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
      - run: "echo begun >> {fleet.ledger}; {wait}; echo ended >> {fleet.ledger}"
        {how}
      - run: "echo last >> {fleet.ledger}"
"""


def let_go(fleet: Fleet) -> None:
    (fleet.place / "go").touch()


def test_a_submitted_plan_is_run_by_a_worker_and_nothing_is_left_in_the_queue(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet))
    assert (fleet.row(session_id)["state"], fleet.jobs(), fleet.holder(session_id)) == ("queued", 1, None)
    let_go(fleet)
    worker = fleet.host("one").work()
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "ended", "last"]
    assert (fleet.jobs(), fleet.holder(session_id)) == (0, None)
    worker.signal(signal.SIGTERM)
    assert worker.finish().exit_code == 0
    with psycopg.connect(fleet.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM acode_fleet_workers").fetchone() == (0,)


def test_an_idle_worker_whose_line_breaks_again_and_again_stays_and_takes_the_next_session(fleet: Fleet) -> None:
    """An idle one waits for news of the queue, not inside a transaction."""
    let_go(fleet)
    worker = fleet.host("one").work()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        for _ in range(3):
            fleet.until(lambda: connection.execute(LISTENERS).rowcount > 0)
            connection.execute(LISTENERS.replace("pid", "pg_terminate_backend(pid)", 1))
    session_id = fleet.submit(slow(fleet))
    fleet.wait(session_id, "done")
    assert not worker.ended
    worker.signal(signal.SIGTERM)
    ended = worker.finish()
    assert ended.exit_code == 0
    assert "trying again" in ended.stderr


def test_an_idle_worker_asks_a_server_that_is_away_once_a_second(fleet: Fleet, postgres_server: Server) -> None:
    worker = fleet.host("one").work()
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        fleet.until(lambda: connection.execute(LISTENERS).rowcount > 0)
    postgres_server.kill()
    began = time.monotonic()
    worker.wait_for_line("trying again")
    time.sleep(2 * RETRY_S)
    worker.signal(signal.SIGTERM)
    told = worker.finish().stderr.count("trying again")
    postgres_server.restart()
    assert 1 <= told <= (time.monotonic() - began) / RETRY_S + 1


def test_a_worker_killed_with_its_commands_is_taken_over_and_the_unknown_step_waits_for_a_person(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet))
    worker = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    worker.kill_everything()
    fleet.host("two", hasty=True).work()
    parked = fleet.wait(session_id, "parked")
    assert (parked["ended_with"], parked["deaths"], fleet.holder(session_id)) == (19, 1, None)
    assert [one.what for one in fleet.events(session_id, ev.Noted)][-1].endswith("whose lease had ended")
    let_go(fleet)
    (row,) = fleet.laptop("fleet", "parked", "--json").json
    assert (row["session_id"], row["attention"], row["ended_with"]) == (session_id, "parked", 19)
    answered = fleet.laptop("session", "resolve", session_id[-8:], "work.2", "--retry", "--json")
    assert answered.exit_code == 0 and answered.json["queued"] is True, answered.stderr + answered.stdout
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "begun", "ended", "last"]
    fleet.assert_each_repeat_was_decided(session_id, "begun", "work.2")


def test_a_command_whose_worker_alone_was_killed_is_stopped_before_anybody_else_may_act(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet, how="idempotent: true"))
    worker = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    (command,) = [
        one for one in psutil.process_iter(["cmdline"]) if str(fleet.ledger) in " ".join(one.info["cmdline"] or ())
    ]
    processes = processes_of_sessions(worker)
    worker.kill()
    for one in processes:
        one.kill()
    fleet.host("two", hasty=True).work()
    fleet.until(lambda: fleet.lines().count("begun") == 2)
    assert not command.is_running() or command.status() == psutil.STATUS_ZOMBIE, "it was stopped before the take-over"
    let_go(fleet)
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "begun", "ended", "last"]


def test_a_worker_frozen_and_thawed_after_its_take_over_does_nothing_more(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet, how="idempotent: true"))
    frozen = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    stopped = freeze(frozen.pid)
    fleet.host("two", hasty=True).work()
    fleet.until(lambda: fleet.lines().count("begun") == 2)
    thaw(stopped)
    frozen.wait_for_line("another worker's by now")
    let_go(fleet)
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "begun", "ended", "last"]
    assert len(fleet.events(session_id, ev.SessionCompleted)) == 1


def deadly(fleet: Fleet, after: str) -> str:
    return f"""
title: Deadly
tasks:
  - title: Work
    steps:
      - run: {json.dumps(f"echo begun >> {fleet.ledger}; {after}")}
        idempotent: true
"""


def test_a_plan_that_kills_the_process_of_its_session_is_parked_and_not_begun_a_fourth_time(fleet: Fleet) -> None:
    """The command kills the process of its session, the parent of its keeper's server, then its own keeper; the worker
    lives on."""
    parent = "parent() { sed -n 's/^PPid:.//p' /proc/$1/status; }"
    session_id = fleet.submit(deadly(fleet, f"{parent}; kill -9 $(parent $(parent $PPID)) $PPID"))
    fleet.host("one").work()
    parked = fleet.wait(session_id, "parked")
    assert parked["ended_with"] == 18 and len(fleet.lines()) == 3
    assert "3 workers or their processes died with it" in parked["reason"]


@pytest.mark.release
def test_a_plan_that_kills_its_workers_is_parked_and_not_given_to_a_fourth(fleet: Fleet) -> None:
    session_id = fleet.submit(deadly(fleet, "sleep 60"))
    for number in range(1, 4):
        worker = fleet.host(f"host{number}", hasty=True).work()
        fleet.until(lambda number=number: len(fleet.lines()) == number)  # type: ignore[misc]
        worker.kill_everything()
    fleet.host("last", hasty=True).work()
    parked = fleet.wait(session_id, "parked")
    assert parked["ended_with"] == 18 and len(fleet.lines()) == 3


def test_a_drained_worker_hands_its_session_back_and_another_continues_it_at_once(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet, how="idempotent: true"))
    worker = fleet.host("one").work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    assert fleet.laptop("fleet", "drain", "one").exit_code == 0
    assert worker.finish().exit_code == 0
    assert fleet.row(session_id)["state"] == "queued" and fleet.holder(session_id) is None
    let_go(fleet)
    fleet.host("two").work()
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "begun", "ended", "last"]


def test_a_worker_without_the_key_of_the_fleet_takes_no_more_jobs(fleet: Fleet) -> None:
    session_id = fleet.submit(slow(fleet))
    let_go(fleet)
    stranger = fleet.host("stranger", ACODE_CHECKPOINT_SECRET="another secret of sixteen bytes and more")
    refused = stranger.work().finish()
    assert refused.exit_code == 20 and "key" in refused.stderr
    assert fleet.row(session_id)["state"] == "queued" and fleet.lines() == []
    fleet.host("one").work()
    fleet.wait(session_id, "done")

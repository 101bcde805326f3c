"""Sessions that wait: for a person, for a key, for a time, for a worker that can serve them."""

from __future__ import annotations

import json

import psycopg
import pytest

from acode.events import types as ev
from tests.driver import Running
from tests.fleets import Fleet


def gated(fleet: Fleet, word: str = "behind") -> str:
    return f"""
title: Gated
tasks:
  - title: Work
    steps:
      - run: "echo before >> {fleet.ledger}"
      - approve: Go on?
      - run: "echo {word} >> {fleet.ledger}"
"""


def test_a_session_at_a_gate_is_parked_notifies_once_and_continues_when_any_machine_approves(fleet: Fleet) -> None:
    notified = fleet.place / "notified"
    notifying(fleet, f"cat >> {notified}")
    session_id = fleet.submit(gated(fleet))
    parked = fleet.wait(session_id, "parked")
    assert (parked["ended_with"], parked["job"], fleet.holder(session_id)) == (10, None, None)
    fleet.until(notified.exists)
    assert "session approve" in fleet.laptop("fleet", "parked").stderr
    approved = fleet.laptop("session", "approve", session_id[-8:], "--json")
    assert (approved.exit_code, approved.json["queued"]) == (0, True), approved.stderr
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["before", "behind"]
    lines = [json.loads(line) for line in notified.read_text().splitlines()]
    assert [(one["cause"], one["attention"]) for one in lines] == [("parked", "parked")]
    assert len(fleet.events(session_id, ev.ApprovalGranted)) == 1


def test_a_copy_that_was_pulled_to_look_at_it_does_not_keep_a_parked_session_from_its_answer(fleet: Fleet) -> None:
    session_id = fleet.submit(gated(fleet))
    fleet.host("one").work()
    fleet.wait(session_id, "parked")
    assert fleet.laptop("pull", session_id).exit_code == 0
    approved = fleet.laptop("session", "approve", session_id[-8:], "--json")
    assert (approved.exit_code, approved.json["queued"]) == (0, True), approved.stderr
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["before", "behind"]
    late = fleet.laptop("session", "approve", session_id[-8:], "--json")
    assert late.exit_code == 16 and "fleet cancel" not in late.json["error"]["hint"], "a cancel would be refused"
    assert fleet.laptop("session", "verify", session_id).exit_code == 0


# A notify command may take as long as it likes: what waits for it would wait until the test gives up.
PATIENT = """
import sys
from acode import notify
from acode.cli import main
notify.NOTIFY_S_MAX = 600.0
sys.exit(main(sys.argv[1:]))
"""


def notifying(fleet: Fleet, command: str) -> Running:
    """The worker of a host with one slot, which runs this command."""
    host = fleet.host("one")
    config = host.place / "state" / "config.yml"
    config.parent.mkdir(mode=0o700)
    config.write_text(f"notify: {{command: {json.dumps(command)}}}\n")
    return host.process("worker", "--name", host.name, program=("-c", PATIENT))


@pytest.mark.release
def test_a_notify_command_that_hangs_keeps_no_slot(fleet: Fleet) -> None:
    """With one slot the second session is taken while the command for the first still runs."""
    begun, go = fleet.place / "begun", fleet.place / "go"
    notifying(fleet, f"echo begun >> {begun}; until test -e {go}; do sleep 0.05; done; cat >> {go}")
    for _ in range(2):
        session_id = fleet.submit(gated(fleet))
        fleet.wait(session_id, "parked")
    fleet.until(lambda: begun.exists() and begun.read_text() == "begun\nbegun\n")
    go.touch()
    fleet.until(lambda: [json.loads(line)["cause"] for line in go.read_text().splitlines()] == ["parked", "parked"])


@pytest.mark.release
def test_a_notify_command_that_fails_or_is_killed_is_a_line_of_the_worker(fleet: Fleet) -> None:
    first = fleet.place / "first"
    worker = notifying(fleet, f"test -e {first} && exit 5; touch {first}; kill -9 $$")
    for status in ("-9", "5"):
        session_id = fleet.submit(gated(fleet))
        fleet.wait(session_id, "parked")
        worker.wait_for_line(f"Session {session_id[-8:]}: the notify command ended with {status}$")
        assert fleet.laptop("session", "approve", session_id[-8:]).exit_code == 0
        fleet.wait(session_id, "done")


@pytest.mark.release
def test_a_no_leaves_it_parked_and_a_yes_and_the_next_job_are_one_transaction(fleet: Fleet) -> None:
    session_id = fleet.submit(gated(fleet))
    fleet.host("one").work()
    fleet.wait(session_id, "parked")
    denied = fleet.laptop("session", "deny", session_id[-8:], "--json")
    assert (denied.exit_code, denied.json["queued"]) == (0, False)
    assert fleet.row(session_id)["state"] == "parked" and fleet.jobs() == 0
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        assert fleet.laptop("session", "approve", session_id[-8:]).exit_code == 1
        assert fleet.events(session_id, ev.ApprovalGranted) == [] and fleet.row(session_id)["state"] == "parked"
        connection.execute("DROP TRIGGER refuse ON procrastinate_jobs")
    assert fleet.laptop("session", "approve", session_id[-8:]).exit_code == 0
    fleet.wait(session_id, "done")


@pytest.mark.release
def test_a_key_lets_one_session_run_at_a_time_and_a_parked_one_keeps_it(fleet: Fleet) -> None:
    first = fleet.submit(gated(fleet, "first"), "--key", "deploy")
    second = fleet.submit(gated(fleet, "second"), "--key", "deploy")
    fleet.host("one").work("--slots", "2")
    fleet.wait(first, "parked")
    fleet.wait(second, "waiting")
    assert fleet.lines() == ["before"]
    fleet.laptop("session", "approve", first[-8:])
    fleet.wait(first, "done")
    fleet.wait(second, "parked")
    assert fleet.lines() == ["before", "first", "before"]
    cancelled = fleet.laptop("fleet", "cancel", second[-8:], "--reason", "not wanted", "--json")
    assert (cancelled.exit_code, cancelled.json["ended"]) == (0, True), cancelled.stderr
    assert fleet.row(second)["state"] == "cancelled"
    assert [one.reason for one in fleet.events(second, ev.SessionCancelled)] == ["not wanted"]
    with psycopg.connect(fleet.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM acode_fleet_keys").fetchone() == (0,)


def quick(fleet: Fleet, word: str) -> str:
    return f'title: Quick\ntasks:\n  - title: Work\n    steps:\n      - run: "echo {word} >> {fleet.ledger}"\n'


def test_queues_labels_and_times_decide_who_takes_a_session_and_when(fleet: Fleet) -> None:
    gpu = fleet.submit(quick(fleet, "gpu"), "--labels", "gpu,linux")
    other = fleet.submit(quick(fleet, "other"), "--queue", "other")
    later = fleet.submit(quick(fleet, "later"), "--at", "2999-01-01T00:00:00+00:00")
    assert fleet.laptop("fleet", "pause", "default").exit_code == 0
    plain = fleet.submit(quick(fleet, "plain"))
    fleet.host("one").work("--labels", "linux")
    status = fleet.laptop("fleet", "status", "--json").json
    assert (status["counts"]["queued"], status["paused_queues"]) == (4, ["default"])
    fleet.until(lambda: len(fleet.laptop("fleet", "workers", "--json").json) == 1)
    assert fleet.laptop("fleet", "resume", "default").exit_code == 0
    fleet.wait(plain, "done")
    assert fleet.lines() == ["plain"], "of the others none is this worker's"
    fleet.host("two").work("--labels", "linux,gpu,large", "--queue", "default", "--queue", "other")
    fleet.wait(gpu, "done")
    fleet.wait(other, "done")
    assert fleet.row(later)["state"] == "queued"


def test_a_step_that_fails_and_may_not_be_repeated_is_parked_and_a_person_has_it_retried(fleet: Fleet) -> None:
    plan = f"""
title: Fails
tasks:
  - title: Work
    steps:
      - run: "echo tried >> {fleet.ledger}; test -e {fleet.place}/repaired"
"""
    session_id = fleet.submit(plan)
    fleet.host("one").work()
    parked = fleet.wait(session_id, "parked")
    assert parked["ended_with"] == 19 and fleet.lines() == ["tried"]
    (fleet.place / "repaired").touch()
    assert fleet.laptop("fleet", "retry", session_id[-8:]).exit_code == 0
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["tried", "tried"]
    assert [one.automatic for one in fleet.events(session_id, ev.ResumeStarted)][-1] is False
    refused = fleet.laptop("fleet", "retry", session_id[-8:], "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (14, "ACODE-FLEET-002")


def test_a_plan_with_a_secret_is_not_submitted(fleet: Fleet) -> None:
    plan = (
        'title: x\ntasks:\n  - title: A\n    steps:\n      - run: "curl -H ghp_abcdefghijklmnopqrstuvwxyz0123456789"\n'
    )
    refused = fleet.laptop("submit", fleet.laptop.plan(plan), "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (17, "ACODE-SYNC-005")


def test_a_plan_by_cron_makes_one_session_for_a_time_until_it_is_cancelled(fleet: Fleet) -> None:
    plan = fleet.laptop.plan(quick(fleet, "again"))
    entry = fleet.laptop("submit", plan, "--cron", "0 0 1 1 *", "--json").json
    with psycopg.connect(fleet.dsn, autocommit=True) as connection:
        connection.execute("UPDATE acode_fleet_schedules SET next_at = now() - interval '1 hour'")
    fleet.host("one").work()
    fleet.until(lambda: fleet.lines() == ["again"])
    status = fleet.laptop("fleet", "status", "--json").json
    (row,) = status["timetable"]
    assert row["schedule_id"] == entry["schedule_id"] and row["last_session"] is not None
    fleet.wait(row["last_session"], "done")
    assert fleet.laptop("fleet", "cancel", entry["short_id"]).exit_code == 0
    assert fleet.laptop("fleet", "status", "--json").json["timetable"] == []
    assert fleet.lines() == ["again"]
    assert fleet.laptop("submit", plan, "--cron", "0 0 31 2 *").exit_code == 2


@pytest.mark.release
def test_a_running_session_is_cancelled_by_its_worker_at_the_next_boundary(fleet: Fleet) -> None:
    plan = f"""
title: Long
tasks:
  - title: Work
    steps:
      - run: "echo begun >> {fleet.ledger}; sleep 60"
"""
    session_id = fleet.submit(plan)
    fleet.host("one").work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    asked = fleet.laptop("fleet", "cancel", session_id[-8:], "--reason", "wrong", "--json")
    assert asked.json["ended"] is False
    fleet.wait(session_id, "cancelled")
    assert [one.reason for one in fleet.events(session_id, ev.SessionCancelled)] == ["wrong"]


LEAVES_FILES = """
title: Leaves files
tasks:
  - title: Work
    steps:
      - run: "echo whole > out.txt; echo begun >> {place}/ledger; while [ ! -e {place}/go ]; do sleep 0.1; done"
        outputs: [out.txt]
        probe: exit 7
      - run: "cat out.txt >> {place}/ledger"
"""


def test_a_step_whose_files_are_on_a_dead_machine_cannot_be_taken_as_done_and_is_done_again(fleet: Fleet) -> None:
    """A log that says that its files are there would be wrong: nobody has them but the machine of the dead worker."""
    session_id = fleet.submit(LEAVES_FILES.format(place=fleet.place))
    worker = fleet.host("one", hasty=True).work()
    fleet.until(lambda: fleet.lines() == ["begun"])
    worker.kill_everything()
    fleet.host("two", hasty=True).work()
    assert fleet.wait(session_id, "parked")["ended_with"] == 19
    before = len(fleet.events(session_id, object))
    refused = fleet.laptop("session", "resolve", session_id[-8:], "work.1", "--applied", "--json")
    error = refused.json["error"]
    assert refused.exit_code == 2 and "out.txt" in error["message"], error
    assert f"session resolve {session_id[-8:]} work.1 --retry" in error["hint"], error
    assert fleet.row(session_id)["state"] == "parked", "nothing follows from an answer that was not taken"
    assert len(fleet.events(session_id, object)) == before, "and nothing is recorded"
    (fleet.place / "go").touch()
    answered = fleet.laptop("session", "resolve", session_id[-8:], "work.1", "--retry", "--json")
    assert (answered.exit_code, answered.json["queued"]) == (0, True), answered
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["begun", "begun", "whole"]

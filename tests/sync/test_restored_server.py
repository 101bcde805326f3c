"""The server's database was restored from an older backup: it is seen, pushed again, and nothing is repeated."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
import pytest

from tests.line import Line
from tests.machines import Machine, assert_level, lease, shared_log, socket_of, url_of
from tests.postgres import Server
from tests.sync.test_released import NOBODY, counting, finish_elsewhere, forced, marks, standing

DONE = """
title: Done
tasks:
  - title: Write
    steps:
      - write: {path: a.txt, content: "a\\n"}
"""


def restore(dsn: str, session_id: str, seq: int, generation: int = 1) -> None:
    """The server as it was when it had so many events of the session."""
    with psycopg.connect(dsn) as connection:
        for table in ("acode_events", "acode_checkpoints", "acode_snapshots"):
            connection.execute(f"DELETE FROM {table} WHERE session_id = %s AND seq > %s", (session_id, seq))  # type: ignore[call-overload]
        connection.execute(
            "UPDATE acode_sessions SET signed = NULL, seq = %s, generation = %s, owner = NULL, head ="
            " (SELECT mac FROM acode_events WHERE session_id = %s AND seq = %s) WHERE session_id = %s",
            (seq, generation, session_id, seq, session_id),
        )


def test_what_the_server_has_lost_is_pushed_again_and_said(machines: tuple[Machine, Machine], database: str) -> None:
    one, _ = machines
    session_id = one.run(DONE)
    restore(database, session_id, 3)
    pushed = one("sync", "now", "--json")
    assert pushed.exit_code == 16 and "restored from an older backup" in pushed.json["sessions"][0]["error"]["message"]
    assert_level(one, database, session_id)
    assert lease(database, session_id)[1] is None, "the lease stays given back"
    assert one("sync", "now").exit_code == 0


@pytest.mark.parametrize("kept", [3, 0], ids=["a part", "nothing"])
def test_what_is_pushed_again_is_counted_and_listed_as_the_log_has_it(
    machines: tuple[Machine, Machine], database: str, kept: int
) -> None:
    one, two = machines
    session_id = one.run(DONE)
    events = len(shared_log(database, session_id))
    if kept:
        restore(database, session_id, kept)
    with psycopg.connect(database) as connection:
        if not kept:
            connection.execute("TRUNCATE acode_sessions CASCADE")
        connection.execute("UPDATE acode_sessions SET state = 'EXECUTING', steps_done = 0")
    pushed = one("sync", "now", "--json").json
    assert (pushed["sent"], pushed["sessions"][0]["sent"]) == (events - kept, events - kept)
    (listed,) = two("session", "list", "--remote", "--json").json
    assert (listed["title"], listed["state"], listed["steps_done"], listed["steps_total"]) == (
        "Done",
        "COMPLETED",
        1,
        1,
    )


def test_gc_removes_nothing_that_the_server_does_not_hold_now_and_an_older_copy_does_not_come_back(
    machines: tuple[Machine, Machine], database: str
) -> None:
    one, _ = machines
    session_id = one.run(DONE)
    whole = shared_log(database, session_id)
    restore(database, session_id, 3)
    kept = one("session", "gc", "--older-than", "0", "--yes")
    assert "does not hold all of it now" in kept.stderr and len(one.log(session_id)) == len(whole)
    one("sync", "now")
    assert one("session", "gc", "--older-than", "0", "--yes").exit_code == 0
    restore(database, session_id, 3)
    refused = one("resume", session_id, "--remote", "--yes", "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (20, "ACODE-LOG-006"), refused.stderr


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("first", [("sync", "now"), ("sync", "status"), ("doctor",), None], ids=str)
def test_once_a_server_was_found_restored_a_session_that_was_given_back_is_not_continued_unasked(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path, first: tuple[str, ...] | None
) -> None:
    """Another machine has finished it; the restored server offers the state before that."""
    one, two = machines
    witness = one.run(DONE)
    session_id = one.run(counting(tmp_path))
    given = len(shared_log(database, session_id))
    finish_elsewhere(two, session_id)
    restore(database, session_id, given)
    restore(database, witness, 3)
    if first is not None:
        assert one(*first).exit_code in (0, 1, 16), "the witness shows it"
    for command in (("session", "approve", session_id), ("resume", session_id, "--remote"), ("pull", session_id)):
        refused = one(*command, "--json")
        assert (refused.exit_code, "--offline --reason" in refused.json["error"]["hint"]) == (16, True), command
        assert "every machine that has worked on it has run: acode sync now" in refused.json["error"]["hint"], command
    assert marks(tmp_path) == 1 and standing(one, session_id) == "released"
    two("sync", "now")
    assert one("resume", session_id).exit_code == 16 and marks(tmp_path) == 1


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("seen", ["by another session", "by the owner that it knew"])
def test_a_machine_that_knows_of_another_owner_does_not_get_the_session_from_a_restored_server_unasked(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path, seen: str
) -> None:
    """It was told of the owner that has finished the session; the restored server knows only the time before."""
    one, two = machines
    witness = one.run(DONE)
    session_id = one.run(counting(tmp_path))
    given = len(shared_log(database, session_id))
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    assert one("resume", session_id).exit_code == 16 and standing(one, session_id) == "fenced"
    assert two("session", "approve", session_id).exit_code == 0 and two("resume", session_id).exit_code == 0
    restore(database, session_id, given)
    if seen == "by another session":
        restore(database, witness, 3)
    for command in (("sync", "now"), ("session", "approve", session_id), ("resume", session_id, "--remote")):
        assert one(*command, "--no-input").exit_code == 16, command
        assert standing(one, session_id) == "fenced" and lease(database, session_id)[:2] == (1, None), command
    assert marks(tmp_path) == 1
    two("sync", "now")
    assert_level(two, database, session_id)
    assert one("resume", session_id).exit_code == 16 and marks(tmp_path) == 1


@pytest.mark.req("FR-011c-055")
def test_a_copied_workspace_does_not_get_the_session_from_a_restored_server_unasked(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    """The original has finished it without a server; the copy has its standing, that of an owner."""
    one, _ = machines
    one.env["ACODE_SYNC_RELEASE"] = "never"
    session_id = one.run(counting(tmp_path))
    copied = one.place / "copy"
    shutil.copytree(one.workspace, copied)
    url = one.env["ACODE_POSTGRES_URL"]
    one.connect(NOBODY)
    assert one("session", "approve", session_id).exit_code == 0 and one("resume", session_id).exit_code == 0
    one.connect(url)
    restore(database, session_id, 3, generation=0)
    for command in (("sync", "now"), ("resume", session_id, "--remote", "--yes", "--no-input")):
        assert one("-C", copied, *command).exit_code == 16, command
        assert lease(database, session_id)[1] is None, command
    assert one("sync", "now").exit_code == 0, "the original pushes it again"
    assert marks(tmp_path) == 1


@pytest.mark.req("FR-011c-055")
def test_an_older_backup_under_another_address_is_not_believed_unasked(
    machines: tuple[Machine, Machine], postgres_server: Server, database: str, tmp_path: Path
) -> None:
    """What was pushed to the one address was never pushed to the other: nothing seems to be lost there."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    given = len(shared_log(database, session_id))
    for machine in (two, one):
        assert machine("resume", session_id, "--remote", "--yes").exit_code == 10
    finish_elsewhere(two, session_id)
    restore(database, session_id, given)
    with Line(socket_of(postgres_server)) as line:
        one.connect(url_of(database, line.port))
        for command in (("sync", "now"), ("session", "approve", session_id), ("resume", session_id, "--remote")):
            assert one(*command, "--no-input").exit_code == 16, command
            assert standing(one, session_id) == "released", command
    assert marks(tmp_path) == 1


def test_status_and_doctor_say_that_the_server_has_lost_what_it_held(
    machines: tuple[Machine, Machine], database: str
) -> None:
    one, _ = machines
    session_id = one.run(DONE)
    assert one("sync", "status", "--json").json["status"] == "up_to_date"
    assert one("doctor", "--json").json["checks"][-1]["name"] == "shared copy"
    assert one("doctor").exit_code == 0
    restore(database, session_id, 3)
    status = one("sync", "status", "--json").json
    assert (status["status"], status["pending_events"]) == ("degraded", len(one.log(session_id)) - 3)
    assert "restored from an older backup: it held 3 of" in status["reason"]
    assert "restored from an older backup" in one("sync", "status").stdout
    doctor = one("doctor")
    assert doctor.exit_code == 1 and "restored from an older backup" in doctor.stdout
    one("sync", "now")
    assert one("sync", "status", "--json").json["status"] == "up_to_date"
    assert one("doctor").exit_code == 0


@pytest.mark.req("FR-011c-055")
def test_a_restored_server_is_believed_again_once_somebody_has_held_the_session_there(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    witness = one.run(DONE)
    session_id = one.run(counting(tmp_path))
    restore(database, witness, 3)
    assert one("resume", session_id, "--remote").exit_code == 16
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10, "two knows of nothing that was lost"
    assert one("resume", session_id, "--remote", "--yes").exit_code == 10, "two has held it since"
    assert not forced(one, session_id) and lease(database, session_id)[0] == 3


def test_a_person_may_take_over_from_a_restored_server_and_that_is_recorded(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, _ = machines
    witness = one.run(DONE)
    session_id = one.run(counting(tmp_path))
    restore(database, witness, 3)
    assert one("resume", session_id, "--remote", "--no-input").exit_code == 16
    said = one("resume", session_id, "--remote", "--yes", "--offline", "--reason", "two is new")
    assert said.exit_code == 10, said.stderr
    (event,) = forced(one, session_id)
    assert "the server did not know its owner" in event.what and event.reason == "two is new"


@pytest.mark.parametrize("restored", [True, False])
def test_a_copied_workspace_does_not_get_the_lease_by_pushing_what_the_server_has_lost(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path, restored: bool
) -> None:
    """Its cursor says that it is the owner. The original, which is, may have done more since than it has pushed."""
    one, _ = machines
    one.env["ACODE_SYNC_RELEASE"] = "never"
    session_id = one.run(counting(tmp_path))
    owner = lease(database, session_id)[1]
    copied = one.place / "copy"
    shutil.copytree(one.workspace, copied)
    restore(database, session_id, 3, generation=0 if restored else 1)
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE acode_sessions SET owner = %s", (owner,))
    for command in (("sync", "now"), ("resume", session_id, "--remote", "--yes")):
        assert one("-C", copied, *command).exit_code == 16
        assert lease(database, session_id)[1] == owner
    assert one("sync", "now").exit_code == 0, "the original pushes it again"
    assert_level(one, database, session_id)

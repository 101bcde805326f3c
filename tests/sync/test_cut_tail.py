"""The end of a log is cut off on the server, and what is left looks whole."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psycopg
import pytest

from acode.engine.session_place import NO_ANCHOR
from acode.events import decode
from acode.events import types as ev
from tests.machines import Machine, lease, shared_log, undo_migrations
from tests.sync.test_released import counting, finish_elsewhere, marks

NO_SIGNATURE = "UPDATE acode_sessions SET signed = NULL"


def cut(dsn: str, session_id: str, seq: int) -> None:
    """By somebody who knows the tables and has no key."""
    with psycopg.connect(dsn) as connection:
        for table in ("acode_events", "acode_checkpoints", "acode_snapshots"):
            connection.execute(f"DELETE FROM {table} WHERE session_id = %s AND seq > %s", (session_id, seq))  # type: ignore[call-overload]
        connection.execute(
            "UPDATE acode_sessions SET seq = %s, owner = NULL, head ="
            " (SELECT mac FROM acode_events WHERE session_id = %s AND seq = %s) WHERE session_id = %s",
            (seq, session_id, seq, session_id),
        )


def change(dsn: str, statement: str, *values: object) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(statement, values)  # type: ignore[call-overload]


def signature(dsn: str) -> bytes:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT signed FROM acode_sessions").fetchone()
    assert row is not None and row[0] is not None
    return bytes(row[0])


def notes(machine: Machine, session_id: str) -> list[str]:
    events = [decode(body, session_id, seq).event for seq, body, _ in machine.log(session_id)]
    return [event.what for event in events if isinstance(event, ev.Noted)]


@pytest.fixture
def shared(machines: tuple[Machine, Machine], tmp_path: Path) -> str:
    return machines[0].run(counting(tmp_path))


@pytest.mark.parametrize("command", ["resume", "pull"])
def test_a_log_that_ends_before_what_its_holder_signed_is_refused(
    machines: tuple[Machine, Machine], shared: str, database: str, command: str
) -> None:
    _, two = machines
    cut(database, shared, len(shared_log(database, shared)) - 2)
    arguments = ("resume", shared, "--remote", "--yes") if command == "resume" else ("pull", shared)
    refused = two(*arguments, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (20, "ACODE-LOG-006"), refused.stderr
    assert "cut off" in refused.json["error"]["message"] and lease(database, shared) == (1, None)
    with two.store() as store:
        assert shared not in store.session_ids(), "nothing of it was kept"


def test_a_log_with_another_event_where_its_holder_signed_is_refused(
    machines: tuple[Machine, Machine], shared: str, database: str
) -> None:
    _, two = machines
    last = len(shared_log(database, shared))
    change(database, "UPDATE acode_events SET mac = sha256(mac) WHERE seq = %s", last)
    change(database, "UPDATE acode_sessions SET head = sha256(head)")
    refused = two("pull", shared, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (20, "ACODE-LOG-006"), refused.stderr


def test_the_machine_that_gave_it_back_does_not_continue_a_log_cut_to_where_it_left_it(
    machines: tuple[Machine, Machine], shared: str, database: str, tmp_path: Path
) -> None:
    """Its own anchor and its own log fit: only what the other machine signed shows that steps are missing."""
    one, two = machines
    given = len(shared_log(database, shared))
    finish_elsewhere(two, shared)
    cut(database, shared, given)
    for command in (("session", "approve", shared), ("resume", shared), ("resume", shared, "--remote", "--yes")):
        refused = one(*command, "--json")
        assert (refused.exit_code, refused.json["error"]["code"]) == (20, "ACODE-LOG-006"), refused.stderr
    assert marks(tmp_path) == 1
    two("sync", "now")
    assert len(shared_log(database, shared)) == len(two.log(shared)), "the machine that has all of it pushes it again"


@pytest.mark.parametrize("forged", ["not ours", "another session's", "a number"])
def test_an_end_that_was_not_signed_with_the_key_is_refused(
    machines: tuple[Machine, Machine], shared: str, database: str, forged: str
) -> None:
    one, two = machines
    real = msgspec.json.decode(signature(database))
    if forged == "another session's":
        other = one.run("title: Other\ntasks: [{title: W, steps: [{write: {path: b.txt, content: b}}]}]")
        moved = "UPDATE acode_sessions SET signed = (SELECT signed FROM acode_sessions WHERE session_id = %s)"
        change(database, moved, other)
    else:
        value = msgspec.json.encode({**real, "seq": 1}) if forged == "not ours" else b"7"
        change(database, "UPDATE acode_sessions SET signed = %s", value)
    refused = two("resume", shared, "--remote", "--yes", "--json")
    assert refused.exit_code == 20, refused.stderr


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_machine_without_an_anchor_warns_and_records_it(
    machines: tuple[Machine, Machine], shared: str, database: str, looks_first: bool
) -> None:
    """Whether or not the end is signed: a row that was put back proves nothing of what came after it."""
    one, two = machines
    if not looks_first:
        change(database, NO_SIGNATURE)
    else:
        assert NO_ANCHOR in two("pull", shared).stderr
    taken = two("resume", shared, "--remote", "--yes")
    assert taken.exit_code == 10 and NO_ANCHOR in taken.stderr
    assert notes(two, shared).count(NO_ANCHOR) == 1
    back = one("resume", shared, "--remote", "--yes")
    assert back.exit_code == 10 and NO_ANCHOR not in back.stderr, "this one knew it"
    again = two("resume", shared, "--remote", "--yes")
    assert again.exit_code == 10 and NO_ANCHOR not in again.stderr and notes(two, shared).count(NO_ANCHOR) == 1


def test_a_client_that_signs_nothing_works_on_the_same_server(
    machines: tuple[Machine, Machine], shared: str, database: str
) -> None:
    """It continues the log and leaves the signed end where it was."""
    one, two = machines
    signed = signature(database)
    assert one("session", "approve", shared).exit_code == 0 and one("sync", "now").exit_code == 0
    change(database, "UPDATE acode_sessions SET signed = %s", signed)
    assert two("resume", shared, "--remote", "--yes").exit_code == 0


def test_a_server_of_an_older_client_gets_the_column_and_keeps_what_it_holds(
    machines: tuple[Machine, Machine], shared: str, database: str
) -> None:
    _, two = machines
    undo_migrations(database, 2)
    assert two("resume", shared, "--remote", "--yes").exit_code == 10
    assert msgspec.json.decode(signature(database))["seq"] == len(shared_log(database, shared))

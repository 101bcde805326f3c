"""A session that was given back: the machine that had it asks who has it now, before it writes on, and waits."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import acode
from acode import lock as locks
from acode.errors import InputRequired, LeaseLost
from acode.events import decode
from acode.events import types as ev
from acode.store import sync_cursor
from acode.sync import pusher
from acode.sync.delivery import Delivery
from acode.sync.exchange import Pushed
from acode.sync.postgres import ServerFailure, connect
from tests.line import Cut, Line
from tests.machines import PATIENCE_S, Machine, assert_level, lease, socket_of, url_of
from tests.postgres import Server

NOBODY = "postgresql://127.0.0.1:1/x"
ROUND_TRIP_S = 0.3
APPENDING = {
    "resume": ("resume",),
    "resume --auto": ("resume", "--auto"),
    "approve": ("session", "approve"),
    "deny": ("session", "deny"),
    "resolve": ("session", "resolve", "count.3", "--applied"),
    "rollback": ("session", "rollback", "--yes"),
    "cancel": ("session", "cancel"),
    "abandon": ("session", "abandon"),
    "checkpoint": ("session", "checkpoint"),
    "pause": ("session", "pause"),
}


def counting(place: Path) -> str:
    return f"""
title: Count
tasks:
  - title: Count
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
      - approve: Go on?
      - run: "echo ran >> {place}/marks"
"""


def marks(place: Path) -> int:
    path = place / "marks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def with_id(command: tuple[str, ...], session_id: str) -> list[str]:
    """The id comes behind the name of the command."""
    at = 2 if command[0] == "session" else 1
    return [*command[:at], session_id, *command[at:]]


def forced(machine: Machine, session_id: str) -> list[ev.Forced]:
    found = [decode(body, session_id, seq).event for seq, body, _ in machine.log(session_id)]
    return [event for event in found if isinstance(event, ev.Forced)]


def standing(machine: Machine, session_id: str) -> str:
    with machine.store() as store:
        return sync_cursor.cursor_of(store, session_id).standing


@pytest.fixture
def given_back(machines: tuple[Machine, Machine], tmp_path: Path, database: str) -> str:
    one, _ = machines
    session_id = one.run(counting(tmp_path))
    assert lease(database, session_id)[1] is None and standing(one, session_id) == "released"
    return session_id


@pytest.fixture
def slow(postgres_server: Server) -> Iterator[Line]:
    with Line(socket_of(postgres_server), reply_delay_s=ROUND_TRIP_S) as line:
        yield line


def finish_elsewhere(machine: Machine, session_id: str) -> None:
    assert machine("resume", session_id, "--remote", "--yes").exit_code == 10
    assert machine("session", "approve", session_id).exit_code == 0
    assert machine("resume", session_id).exit_code == 0


@pytest.mark.req("FR-011c-055")
def test_a_slow_answer_is_waited_for_and_nothing_that_was_done_elsewhere_is_repeated(
    machines: tuple[Machine, Machine], given_back: str, database: str, tmp_path: Path, slow: Line
) -> None:
    one, two = machines
    finish_elsewhere(two, given_back)
    before = one.log(given_back)
    one.connect(url_of(database, slow.port))
    one.patient = False  # as users have it: a second for an owner
    began = slow.replies
    for command in (("session", "approve"), ("resume",)):
        refused = one(*with_id(command, given_back), "--json")
        assert (refused.exit_code, refused.json["error"]["code"]) == (16, "LOCK-006"), refused.stderr
        if command == ("session", "approve"):
            assert "continued elsewhere" in refused.json["error"]["message"]
            assert "Asking the server whether another machine has continued" in refused.stderr
    assert slow.replies - began > 4, "the answer took longer than an owner waits"
    assert marks(tmp_path) == 1 and one.log(given_back) == before


@pytest.mark.parametrize("name", APPENDING)
def test_without_an_answer_no_command_appends_to_a_session_that_was_given_back(
    machines: tuple[Machine, Machine], given_back: str, tmp_path: Path, name: str
) -> None:
    one, _ = machines
    before = one.log(given_back)
    one.connect(NOBODY if name != "deny" else None)  # a shell without the variable has no server to ask at all
    refused = one(*with_id(APPENDING[name], given_back), "--json")
    assert refused.exit_code == 16, refused.stderr
    error = (refused.lines[-1]["data"] if refused.lines[-1].get("event") == "session_end" else refused.json)["error"]
    assert "was given back at 20" in error["message"] and "--offline --reason" in error["hint"]
    assert one.log(given_back) == before and marks(tmp_path) == 0
    assert standing(one, given_back) == "released"


@pytest.mark.req("FR-011c-048")
def test_a_person_may_continue_offline_with_a_reason_that_is_recorded(
    machines: tuple[Machine, Machine], given_back: str, database: str, tmp_path: Path
) -> None:
    one, _ = machines
    one.connect(NOBODY)
    assert one("session", "approve", given_back, "--offline").exit_code == 2, "it is recorded why"
    said = one("session", "approve", given_back, "--offline", "--reason", "two is switched off")
    assert said.exit_code == 0, said.stderr
    assert one("resume", given_back).exit_code == 0, "this machine is the owner again"
    assert marks(tmp_path) == 1
    (event,) = forced(one, given_back)
    assert "given back at 20" in event.what and event.reason == "two is switched off"
    one.connect(url_of(database))
    assert one("sync", "now").exit_code == 0
    assert_level(one, database, given_back)


def test_offline_overrides_neither_another_owner_nor_a_history_that_went_on(
    machines: tuple[Machine, Machine], given_back: str, tmp_path: Path
) -> None:
    one, two = machines
    assert two("resume", given_back, "--remote", "--yes").exit_code == 10
    before = one.log(given_back)
    for _ in range(2):
        refused = one("session", "approve", given_back, "--offline", "--reason", "I want it")
        assert refused.exit_code == 16 and one.log(given_back) == before
    assert not forced(one, given_back)


def test_an_owner_continues_without_a_server_and_with_release_never_a_machine_stays_one(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    one.env["ACODE_SYNC_RELEASE"] = "never"
    session_id = one.run(counting(tmp_path))
    assert lease(database, session_id)[1] is not None and standing(one, session_id) == "owner"
    assert two("resume", session_id, "--remote", "--yes").exit_code == 16, "it was not given back"
    one.connect(NOBODY)
    assert one("session", "approve", session_id).exit_code == 0
    assert one("resume", session_id).exit_code == 0 and marks(tmp_path) == 1
    one.connect(url_of(database))
    assert one("sync", "now").exit_code == 0
    assert lease(database, session_id)[1] is None, "what has ended needs no owner"


@pytest.mark.parametrize("delivered", [True, False])
def test_a_lease_that_may_have_been_given_back_unheard_is_taken_for_given_back(
    machines: tuple[Machine, Machine], postgres_server: Server, database: str, tmp_path: Path, delivered: bool
) -> None:
    """The answer to the release is lost: the server has given the session free, and nobody here has heard it."""
    one, _ = machines
    one.env["ACODE_SYNC_RELEASE"] = "never"
    session_id = one.run(counting(tmp_path))
    del one.env["ACODE_SYNC_RELEASE"]
    for number in range(40):
        with Line(socket_of(postgres_server)) as line, one.store(look_only=False) as store:
            ledger = connect(url_of(database, line.port), lambda: False)
            delivery = Delivery(one.world(), store, ledger)
            assert isinstance(delivery.deliver(session_id, sync_cursor.last_seq(store, session_id)), Pushed)
            first = line.messages["to the server"]
            line.cut = Cut(way="to the server", message=first + number, delivered=delivered)
            with contextlib.suppress(ServerFailure):
                delivery.release(session_id)
            ledger.close()
        if lease(database, session_id)[1] is None:
            assert standing(one, session_id) == "released", "nobody may work on it unasked"
            return
    raise AssertionError("it was never given back")


@pytest.mark.parametrize("act", ["session", "resolve", "rollback"])
def test_a_program_whose_session_was_given_back_asks_first_too(
    machines: tuple[Machine, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    one, _ = machines

    def work() -> None:
        with acode.session("count", workspace=one.workspace) as session:
            session.write("a.txt", "a")
            session.approve("Go on?")
            session.run(f"echo ran >> {tmp_path}/marks")

    acts: dict[str, Callable[[], object]] = {
        "session": work,
        "resolve": lambda: acode.resolve("count", "2", "applied", workspace=one.workspace),
        "rollback": lambda: acode.rollback("count", workspace=one.workspace),
    }
    for name, value in one.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pusher, "EXIT_S_MAX", PATIENCE_S)
    with pytest.raises(InputRequired):
        work()
    (row,) = one("session", "list", "--json").json
    session_id = str(row["session_id"])
    assert standing(one, session_id) == "released"
    before = one.log(session_id)
    monkeypatch.setenv("ACODE_POSTGRES_URL", NOBODY)
    with pytest.raises(LeaseLost, match="was given back at"):
        acts[act]()
    assert one.log(session_id) == before and marks(tmp_path) == 0


def test_a_session_that_was_given_back_is_not_repaired_without_an_answer(
    machines: tuple[Machine, Machine], given_back: str, database: str
) -> None:
    """What is mended here would part from what another machine has written since."""
    one, _ = machines
    with contextlib.closing(sqlite3.connect(one.workspace / ".agent" / "workspace.db")) as db, db:
        db.execute("DELETE FROM checkpoints")
    before = one.log(given_back)
    one.connect(NOBODY)
    refused = one("session", "repair", given_back, "--yes", "--json")
    assert refused.exit_code == 16 and "--offline --reason" in refused.json["error"]["hint"], refused.stderr
    assert one.log(given_back) == before and standing(one, given_back) == "released"
    one.connect(url_of(database))
    assert one("session", "repair", given_back, "--yes").exit_code == 0, "the server has answered"


@contextlib.contextmanager
def held_by_somebody(machine: Machine, session_id: str) -> Iterator[int]:
    """A process here holds the lock of the session, of this generation."""
    with machine.store() as store:
        generation = store.generation(session_id)
    lock, _ = locks.acquire(machine.workspace / ".agent" / "locks", session_id, lambda: generation, now=now_utc)
    try:
        yield generation
    finally:
        lock.release()


def now_utc() -> datetime:
    return datetime.now(UTC)


def test_the_lock_of_a_session_that_was_given_back_is_not_broken_without_an_answer(
    machines: tuple[Machine, Machine], given_back: str, database: str
) -> None:
    """That it was broken is an event: behind what another machine may have written since, it would be another past."""
    one, _ = machines
    before = one.log(given_back)
    unlock = ("session", "unlock", given_back, "--force")
    with held_by_somebody(one, given_back) as generation:
        one.connect(NOBODY)
        refused = one(*unlock, "--json")
        assert refused.exit_code == 16 and "--offline --reason" in refused.json["error"]["hint"], refused.stderr
        assert one.log(given_back) == before and standing(one, given_back) == "released"
        with one.store() as store:
            assert store.generation(given_back) == generation, "nobody is fenced off unsaid"
        assert one(*unlock, "--offline", "--reason", "two is switched off").exit_code == 0
    assert standing(one, given_back) == "owner"
    assert one("session", "approve", given_back).exit_code == 0, "whoever holds the session next records the decision"
    events = [decode(body, given_back, seq).event for seq, body, _ in one.log(given_back)[len(before) :]]
    assert [type(event) for event in events[:2]] == [ev.LockBroken, ev.Forced]
    assert [event.reason for event in forced(one, given_back)] == ["two is switched off"]


def test_the_lock_of_a_session_that_was_given_back_is_broken_once_the_server_has_answered(
    machines: tuple[Machine, Machine], given_back: str, database: str
) -> None:
    one, _ = machines
    before = one.log(given_back)
    with held_by_somebody(one, given_back):
        assert one("session", "unlock", given_back, "--force").exit_code == 0
    events = [decode(body, given_back, seq).event for seq, body, _ in one.log(given_back)[len(before) :]]
    assert [type(event) for event in events] == [ev.LockBroken]
    assert one("sync", "now").exit_code == 0
    assert_level(one, database, given_back)


def test_a_supervisor_passes_on_that_a_person_decided_to_work_offline(
    machines: tuple[Machine, Machine], given_back: str, tmp_path: Path
) -> None:
    one, _ = machines
    assert one("session", "approve", given_back).exit_code == 0
    assert standing(one, given_back) == "released"
    before = one.log(given_back)
    one.connect(NOBODY)
    one.env["ACODE_SESSION_LOCK_TIMEOUT_SECONDS"] = "0"
    assert one("supervise", given_back).exit_code == 16
    assert one.log(given_back) == before and marks(tmp_path) == 0
    said = one("supervise", given_back, "--offline", "--reason", "two is switched off")
    assert said.exit_code == 0, said.stderr
    (event,) = forced(one, given_back)
    assert event.reason == "two is switched off" and marks(tmp_path) == 1


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("told", ["released", "fenced"])
def test_another_server_does_not_make_a_machine_the_owner_of_a_session_that_it_gave_up(
    machines: tuple[Machine, Machine], given_back: str, postgres_server: Server, tmp_path: Path, told: str
) -> None:
    """The server that knows who has it is not the one that is configured now, which has never heard of it."""
    one, two = machines
    assert two("resume", given_back, "--remote", "--yes").exit_code == 10
    if told == "fenced":
        assert one("resume", given_back).exit_code == 16
    assert two("session", "approve", given_back).exit_code == 0 and two("resume", given_back).exit_code == 0
    with postgres_server.database() as other:
        one.connect(url_of(other))
        for command in (
            ("sync", "now"),
            ("resume", given_back, "--remote", "--yes"),
            ("session", "approve", given_back),
        ):
            assert one(*command, "--no-input").exit_code != 0, command
            assert standing(one, given_back) == told, command
    assert marks(tmp_path) == 1

"""Two machines and one session: who may write, who is fenced, and what happens to a history that was not chosen."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from acode.engine.session_place import NO_ANCHOR
from acode.errors import LogRolledBack, SyncFailed
from acode.events import decode
from acode.events import types as ev
from acode.sync.outbox import node_of
from acode.sync.pusher import SUSPENDED_S
from acode.sync.take_over import bring
from tests.line import Cut, Line, Way
from tests.machines import Machine, assert_level, everything, lease, shared_log, socket_of, url_of
from tests.postgres import Server
from tests.variants import first_of

NOBODY = "postgresql://127.0.0.1:1/x"
HANG_UP = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'acode sync' AND datname = current_database()"""


def counting(place: Path, *, gate: bool = True, wait: bool = False) -> str:
    """A plan whose command leaves a mark outside of every workspace each time it runs."""
    question = "      - approve: Go on?\n" if gate else ""
    waits = f"touch {place}/begun; while [ ! -e {place}/go ]; do sleep 0.02; done; " if wait else ""
    return f"""
title: Count
tasks:
  - title: Count
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
{question}      - run: "{waits}echo ran >> {place}/marks"
      - write: {{path: b.txt, content: "b\\n"}}
"""


def marks(place: Path) -> int:
    path = place / "marks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def events(machine: Machine, session_id: str, kind: type[Any]) -> list[Any]:
    found = [decode(body, session_id, seq).event for seq, body, _ in machine.log(session_id)]
    return [event for event in found if isinstance(event, kind)]


# Given back.


@pytest.mark.req("FR-011c-052", "FR-011c-055", "FR-011c-053")
def test_a_session_that_was_given_back_is_carried_on_elsewhere_and_comes_home(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    session_id = one.run(counting(tmp_path))
    assert lease(database, session_id)[1] is None
    (row,) = two("session", "list", "--remote", "--json").json
    assert (row["session_id"], row["state"], row["owner"]) == (session_id, "AWAITING_APPROVAL", None)
    taken = two("resume", session_id[-8:], "--remote", "--yes")
    assert taken.exit_code == 10 and (two.workspace / "a.txt").read_text() == "a\n", taken.stderr
    assert [event.what for event in events(two, session_id, ev.Noted)] == [NO_ANCHOR, "taken over from another machine"]
    two("session", "approve", session_id[-8:])
    assert two("resume", session_id[-8:]).exit_code == 0
    assert (two.workspace / "b.txt").read_text() == "b\n" and marks(tmp_path) == 1
    assert_level(two, database, session_id)
    refused = one("resume", session_id[-8:], "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (16, "LOCK-006")
    assert "--remote" in refused.json["error"]["hint"] and marks(tmp_path) == 1
    pulled = one("pull", session_id[-8:])
    assert pulled.exit_code == 0 and "To resume it here" not in pulled.stderr, "it has ended"
    assert_level(one, database, session_id)
    for machine in machines:
        assert machine("session", "verify", session_id[-8:]).exit_code == 0
    assert one("resume", session_id[-8:], "--remote").exit_code == 15
    assert lease(database, session_id)[1] is None, "what has ended needs no owner"


def test_where_this_machine_may_not_write_the_next_action_is_one_that_is_not_refused(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """A copy, a session that another machine has taken, and one with two histories."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    name = session_id[-8:]

    def next_actions(machine: Machine) -> set[str]:
        shown = machine("status", session_id).stdout.splitlines()[-1].removeprefix("Next: ")
        explained = machine("explain", session_id, "--json").json["next_action"]
        return {shown, explained, machine("resume", session_id, "--dry-run", "--json").json["next_action"]}

    assert two("pull", session_id).exit_code == 0
    assert next_actions(two) == {f"acode resume {name} --remote"}
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    assert one("resume", session_id).exit_code == 16
    assert next_actions(one) == {f"acode resume {name} --remote"}
    url = two.env["ACODE_POSTGRES_URL"]
    assert one("resume", session_id, "--remote", "--yes").exit_code == 10
    two.connect(NOBODY)
    assert two("session", "deny", session_id, "--offline", "--reason", "nobody else has it").exit_code == 0
    two.connect(url)
    assert two("sync", "now").exit_code == 20
    assert next_actions(two) == {f"acode sync status {name}"}


def test_a_copy_is_looked_at_and_not_written_on(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    session_id = one.run(counting(tmp_path))
    assert two("pull", session_id[-8:]).exit_code == 0
    assert two("session", "verify").exit_code == 0 and two("session", "history").exit_code == 0
    assert "Sync: a copy; another machine owns it" in two("status").stdout
    before = two.log(session_id)
    for command in (["resume", session_id], ["session", "approve", session_id], ["session", "cancel", session_id]):
        assert two(*command).exit_code == 16
    assert two.log(session_id) == before
    one("session", "approve", session_id)
    assert one("resume", session_id).exit_code == 0, "a look elsewhere has taken nothing"


@pytest.mark.req("FR-011c-055")
def test_a_word_said_about_a_session_that_another_machine_has_is_refused(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    """The one that gave it back does not know yet that it was taken; it asks before it writes."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    before = one.log(session_id)
    assert one("session", "approve", session_id).exit_code == 16
    assert one("session", "rollback", session_id, "--yes").exit_code == 16
    assert one.log(session_id) == before and (one.workspace / "a.txt").exists()
    assert two("session", "approve", session_id).exit_code == 0
    assert_level(two, database, session_id)
    assert lease(database, session_id)[1] is None, "given back again with everything that was said"


@pytest.mark.req("FR-011c-055", "FR-011c-053")
def test_of_two_machines_that_race_for_a_session_one_wins_and_each_step_runs_once(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    three = Machine(tmp_path / "three", url_of(database))
    session_id = one.run(counting(tmp_path))
    one("session", "approve", session_id)
    racers = [machine.process("resume", session_id, "--remote", "--yes", "--no-input") for machine in (two, three)]
    ended = [racer.finish() for racer in racers]
    assert sorted(end.exit_code for end in ended) in ([0, 15], [0, 16]), [end.stderr for end in ended]
    assert marks(tmp_path) == 1
    winner = (two, three)[[end.exit_code for end in ended].index(0)]
    assert_level(winner, database, session_id)


# Not given back.


@pytest.mark.req("FR-011c-055", "FR-011c-053")
@pytest.mark.parametrize("line", first_of("stands", "dies"))
def test_an_owner_that_slept_through_a_take_over_is_refused_when_it_wakes(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path, line: str
) -> None:
    """Also where its line to the server has died meanwhile: that is no reason to believe that there is no server."""
    one, two = machines
    running = one.process("run", one.plan(counting(tmp_path, gate=False, wait=True)), "--json")
    session_id = running.wait_for_line('"session_start"').partition('"session_id":"')[2][:36]
    while not (tmp_path / "begun").exists() or lease_of(database, session_id) is None:
        running.wait_for_line("step_started")
    running.signal(signal.SIGSTOP)
    stopped_at = time.monotonic()
    refused = two("resume", session_id, "--remote", "--yes")
    assert refused.exit_code == 16 and "has not given it back" in refused.stderr
    taken = two("resume", session_id, "--remote", "--yes", "--force", "--reason", "it hangs")
    assert taken.exit_code == 19, "nobody here knows what became of the command"
    (forced,) = events(two, session_id, ev.Forced)[:1]
    assert forced.reason == "it hangs" and "had not given it back" in forced.what
    shared = shared_log(database, session_id)
    (tmp_path / "go").touch()
    while time.monotonic() - stopped_at <= SUSPENDED_S:  # long enough to be noticed by whoever slept
        assert shared_log(database, session_id) == shared
    if line == "dies":
        with psycopg.connect(database) as connection:
            connection.execute(HANG_UP)
    running.signal(signal.SIGCONT)
    ended = running.finish()
    assert ended.exit_code == 16 and ended.lines[-1]["data"]["error"]["code"] == "LOCK-006"
    assert shared_log(database, session_id)[: len(shared)] == shared and not (one.workspace / "b.txt").exists()
    assert_level(two, database, session_id)
    assert one("resume", session_id).exit_code == 16


def lease_of(dsn: str, session_id: str) -> int | None:
    try:
        return lease(dsn, session_id)[0] if shared_log(dsn, session_id) else None
    except (ValueError, psycopg.Error):
        return None


@pytest.fixture
def parted(machines: tuple[Machine, Machine], database: str, tmp_path: Path) -> str:
    """One worked offline, while two took the session over by force and wrote too."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    one.connect(NOBODY)
    one("session", "checkpoint", session_id, "--label", "written offline", "--offline", "--reason", "on a train")
    two("resume", session_id, "--remote", "--yes", "--force")
    one.connect(url_of(database))
    return session_id


@pytest.mark.req("FR-011c-055")
def test_a_history_that_parted_is_shown_with_both_tails_and_never_merged(
    machines: tuple[Machine, Machine], database: str, parted: str
) -> None:
    one, _ = machines
    before = everything(database)
    ended = one("sync", "now", "--json")
    (session,) = ended.json["sessions"]
    assert ended.exit_code == 20 and session["error"]["code"] == "ACODE-SYNC-004"
    tails = session["tails"]
    assert [event["type"] for event in tails["here"]] == ["forced", "checkpoint_created"]
    assert tails["there"][0]["type"] == "noted" and tails["there"][0]["seq"] == tails["common"] + 1
    assert everything(database) == before
    assert one("resume", parted).exit_code == 20
    shown = one("sync", "status", parted).stdout
    assert "checkpoint_created" in shown and "noted" in shown
    assert one("pull", parted).exit_code == 20, "pulling does not merge either"


@pytest.mark.req("FR-011c-055")
def test_a_person_may_choose_the_shared_history(machines: tuple[Machine, Machine], database: str, parted: str) -> None:
    one, two = machines
    one("sync", "now")
    chosen = one("pull", parted, "--force")
    assert chosen.exit_code == 0 and "set aside" in chosen.stderr
    assert one.log(parted) == two.log(parted) == shared_log(database, parted)
    assert list((one.workspace / ".agent").glob("workspace.db.*.bak")), "what was given up is kept in a backup"
    assert one("session", "verify", parted).exit_code == 0


@pytest.mark.req("FR-011c-055")
def test_a_person_may_choose_the_history_here(machines: tuple[Machine, Machine], database: str, parted: str) -> None:
    one, two = machines
    theirs = two.log(parted)
    chosen = one("sync", "now", parted, "--force", "--reason", "mine is right", "--json")
    assert chosen.exit_code == 0 and chosen.json["sessions"][0]["set_aside"] > 0
    assert_level(one, database, parted)
    (_, forced) = events(one, parted, ev.Forced)
    assert forced.reason == "mine is right" and "were set aside" in forced.what
    with psycopg.connect(database) as connection:
        aside = connection.execute("SELECT seq, body, mac FROM acode_set_aside ORDER BY seq").fetchall()
    assert aside and aside == theirs[-len(aside) :]
    assert two("resume", parted).exit_code == 20, "the other one has parted now"


def test_a_database_that_was_put_back_is_noticed_by_what_the_server_knows(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    """The anchor in the user's state is gone too: only the server remembers."""
    one, _ = machines
    session_id = one.run(counting(tmp_path))
    kept = tmp_path / "kept.db"
    with one.store() as store:
        store.back_up().rename(kept)
    one("session", "approve", session_id)
    assert one("resume", session_id).exit_code == 0
    for path in (one.workspace / ".agent").glob("workspace.db*"):
        path.unlink()
    shutil.copyfile(kept, one.workspace / ".agent" / "workspace.db")
    (one.workspace / ".agent" / "workspace.db").chmod(0o600)
    shutil.rmtree(one.place / "state" / "anchors")
    refused = one("resume", session_id, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (20, LogRolledBack.code) and marks(tmp_path) == 1
    assert one("pull", session_id).exit_code == 0
    assert_level(one, database, session_id)


def test_what_an_older_acode_did_not_note_is_not_taken_for_a_rollback(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    """It takes and gives back a lease without saying who it is: what stands there of the last holder is out of date."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    one("sync", "now")
    assert two("resume", session_id, "--remote", "--yes").exit_code == 10
    assert_level(two, database, session_id)
    with psycopg.connect(database) as connection:
        noted = (node_of(one.place / "state", one.workspace), 1)
        connection.execute("UPDATE acode_sessions SET last_node = %s, last_generation = %s", noted)
    assert lease(database, session_id)[0] == 2
    refused = one("resume", session_id, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (16, "LOCK-006")


@pytest.mark.req("FR-011c-053", "FR-011c-055")
@pytest.mark.parametrize("way", first_of("to the server", "to the client"))
def test_a_take_over_that_is_cut_off_anywhere_is_finished_by_the_next_try(
    machines: tuple[Machine, Machine], postgres_server: Server, database: str, tmp_path: Path, way: Way
) -> None:
    """All rows or none, and the lease only with them; also where it was taken and the answer was lost."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    with Line(socket_of(postgres_server)) as line:
        assert taken_over(two, url_of(database, line.port), session_id) == 1
        total = line.messages[way]
    for message in range(0, total, 3):
        forget_take_over(two, database, session_id, one.log(session_id))
        cut = Cut(way=way, message=message, delivered=message % 2 == 0)
        with Line(socket_of(postgres_server), cut=cut) as line:
            taken_over(two, url_of(database, line.port), session_id)
            assert line.cuts == 1
        assert two.log(session_id)[: len(one.log(session_id))] == one.log(session_id)
        assert lease(database, session_id)[1] == node_of(two.place / "state", two.workspace)


def taken_over(machine: Machine, url: str, session_id: str, *, force: bool = False) -> int:
    machine.connect(url)
    for number in range(1, 5):
        try:
            bring(machine.world(), session_id, own=True, force=force, reason="it is gone")
            return number
        except SyncFailed:
            if (machine.workspace / ".agent" / "workspace.db").exists():
                with machine.store() as store:
                    assert all(store.verify(one).problems == () for one in store.session_ids())
    raise AssertionError("not even the fourth try succeeded")


def forget_take_over(machine: Machine, dsn: str, session_id: str, log: list[Any], *, owner: str | None = None) -> None:
    shutil.rmtree(machine.workspace / ".agent", ignore_errors=True)
    shutil.rmtree(machine.place / "state" / "anchors", ignore_errors=True)
    with psycopg.connect(dsn) as connection:
        values = (owner, log[-1][0], log[-1][2])
        connection.execute("UPDATE acode_sessions SET owner = %s, seq = %s, head = %s", values)


@pytest.mark.req("FR-011c-055")
@pytest.mark.parametrize("way", first_of("to the server", "to the client"))
def test_a_take_over_by_force_is_said_once_wherever_it_was_cut_off(
    machines: tuple[Machine, Machine], postgres_server: Server, database: str, tmp_path: Path, way: Way
) -> None:
    """Also where the server had given the lease away and nobody here heard of it."""
    one, two = machines
    session_id = one.run(counting(tmp_path))
    log, total = one.log(session_id), 1
    for message in range(-1, 60, 4):
        forget_take_over(two, database, session_id, log, owner="another")
        cut = Cut(way=way, message=message, delivered=message % 8 == 3) if message >= 0 else None
        with Line(socket_of(postgres_server), cut=cut) as line:
            tries = taken_over(two, url_of(database, line.port), session_id, force=True)
            if cut is not None and not line.cuts:
                break  # it speaks less than that
        total += tries - 1
        (forced,) = events(two, session_id, ev.Forced)
        assert forced.reason == "it is gone" and "which had not given it back" in forced.what
    assert total > 4, "some were cut off"


# What comes down is proved.


def test_without_the_key_nothing_comes_down_and_the_hint_names_the_way(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, _ = machines
    session_id = one.run(counting(tmp_path))
    stranger = Machine(tmp_path / "stranger", url_of(database), secret=None)
    refused = stranger("pull", session_id)
    assert refused.exit_code == 20 and "acode key export" in refused.stderr and "acode key import" in refused.stderr
    assert stranger("session", "list", "--json").json == []
    assert stranger("resume", session_id, "--remote", "--force").exit_code == 20
    assert lease(database, session_id)[1] is None, "who cannot prove it does not get it"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE acode_events SET body = convert_to(replace(convert_from(body, 'UTF8'), 'a.txt', 'c.txt'), 'UTF8')",
        "DELETE FROM acode_events WHERE seq = 3",
        "UPDATE acode_checkpoints SET body = convert_to(replace(convert_from(body, 'UTF8'), ':1', ':2'), 'UTF8')",
        "UPDATE acode_session_blobs SET purpose = 'nonsense'",
    ],
    ids=["an event was changed", "an event was removed", "a checkpoint was changed", "a blob is misnamed"],
)
def test_what_was_changed_on_the_server_is_not_kept(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path, change: str
) -> None:
    one, two = machines
    session_id = one.run(
        counting(tmp_path)
        .replace("echo ran", "echo output; echo ran")
        .replace("approve: Go", "read: a.txt\n      - run: echo output\n      - approve: Go")
    )
    with psycopg.connect(database) as connection:
        assert connection.execute(change.encode()).rowcount > 0
    refused = two("pull", session_id)
    assert refused.exit_code != 0 and "Traceback" not in refused.stderr, refused.stderr
    assert two("session", "list", "--json").json == []


def test_a_plan_with_secrets_stays_on_its_machine(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    canary = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    session_id = one.run(counting(tmp_path).replace('content: "b', f'content: "{canary} b'))
    refused = two("resume", session_id, "--remote", "--yes", "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (17, "ACODE-SYNC-005")


def test_a_file_that_stands_here_is_never_replaced(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    one, two = machines
    session_id = one.run(counting(tmp_path))
    (two.workspace / "a.txt").write_text("mine\n")
    taken = two("resume", session_id, "--remote", "--yes")
    assert taken.exit_code == 17 and (two.workspace / "a.txt").read_text() == "mine\n"
    assert "modified here: a.txt" in taken.stderr


@pytest.mark.req("FR-011c-052")
def test_what_is_pending_here_goes_before_the_session_is_carried_on_from_afar(
    machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, _ = machines
    one.connect(NOBODY)
    session_id = one.run(counting(tmp_path))
    one.connect(url_of(database))
    assert one("resume", session_id, "--remote").exit_code == 10
    assert_level(one, database, session_id)


@pytest.mark.req("FR-011c-048")
def test_where_the_server_is_gone_for_good_a_person_has_the_last_word(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    one, two = machines
    session_id = one.run(counting(tmp_path))
    assert two("pull", session_id, "--yes").exit_code == 0
    two.connect(NOBODY)
    assert two("session", "approve", session_id).exit_code == 16
    assert two("session", "unlock", session_id, "--force", "--reason", "it burnt down").exit_code == 0
    assert [event.reason for event in events(two, session_id, ev.LockBroken)] == ["it burnt down"]
    two("session", "approve", session_id)
    assert two("resume", session_id).exit_code == 0


def test_an_unknown_session_and_a_missing_server_are_named(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    assert one("pull", "deadbeef").exit_code == 14
    one.connect(NOBODY)
    refused = one("resume", "deadbeef", "--remote", "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (1, "ACODE-SYNC-001")
    one.connect(None)
    assert one("session", "list", "--remote").exit_code == 3

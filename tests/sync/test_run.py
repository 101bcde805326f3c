"""A run with a second tier: pushed in the background, never waited for, and never in the way."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.store import sync_cursor
from tests.line import Line
from tests.machines import Machine, assert_level, lease, shared_log, socket_of, url_of
from tests.postgres import Server
from tests.sync.test_released import forced

NOBODY = "postgresql://127.0.0.1:1/x"
PLAN = """
title: Make and greet
tasks:
  - title: Make
    steps:
      - write: {path: a.txt, content: "a\\n"}
      - run: echo greetings
      - approve: Go on?
      - write: {path: b.txt, content: "b\\n"}
"""
WAITING = """
title: Wait for a word
tasks:
  - title: Wait
    steps:
      - write: {path: begun.txt, content: "begun\\n"}
      - run: while [ ! -e go ]; do sleep 0.02; done
        idempotent: true
      - write: {path: end.txt, content: "end\\n"}
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine", None)
    yield made
    made.stop()


@pytest.mark.req("FR-011c-049", "CLI-011c-07")
def test_a_run_is_pushed_while_it_runs_and_given_back_at_its_end(machine: Machine, database: str) -> None:
    machine.connect(url_of(database))
    session_id = machine.run(PLAN)
    assert_level(machine, database, session_id)
    assert lease(database, session_id) == (1, None)
    assert "Sync: Up to date ✓\n" in machine("status").stdout
    sync = machine("status", "--json").json["sync"]
    assert (sync["status"], sync["pending_events"], sync["reason"]) == ("up_to_date", 0, None)


@pytest.mark.req("SCN-011c-07", "FR-011c-046", "FR-011c-047", "FR-011c-048", "OUT-011c-07")
def test_without_a_server_the_session_runs_pauses_and_is_resumed_in_degraded_mode(machine: Machine) -> None:
    machine.connect(NOBODY)
    ended = machine("run", machine.plan(PLAN))
    assert ended.exit_code == 10 and "Traceback" not in ended.stderr
    shown = machine("status").stdout
    pending = len(machine.log(only_session(machine)))
    assert f"Sync: DEGRADED - {pending} events pending\n  Last sync attempt: " in shown
    assert "  Next retry: " in shown and "  Reason: Connection refused\n" in shown
    assert "\nNote: Session continues locally. Sync will resume when remote is available.\n" in shown
    assert f"Sync status: DEGRADED - {pending} events pending" in machine("resume", "--dry-run").stdout
    machine("session", "approve", only_session(machine)[-8:])
    resumed = machine("resume", "--last")
    assert resumed.exit_code == 0 and (machine.workspace / "b.txt").read_text() == "b\n"
    assert "Sync: DEGRADED - " in resumed.stderr and "Session continues locally" in resumed.stderr


@pytest.mark.req("CLI-011c-03", "LOG-011c-01", "LOG-011c-02")
def test_the_state_of_the_sync_stands_in_the_dry_run_and_in_the_log(machine: Machine) -> None:
    machine.connect(NOBODY)
    machine.run(PLAN)
    sync = machine("resume", "--dry-run", "--json").json["sync"]
    assert sync["status"] == "degraded" and sync["pending_events"] == len(machine.log(only_session(machine)))
    machine("session", "approve", only_session(machine)[-8:])
    machine("resume", "--last")
    log = (machine.workspace / ".agent" / "logs" / "acode.jsonl").read_text().splitlines()
    (line,) = [one for one in map(json.loads, log) if one["event"] == "session_resume"]
    assert line["sync_status"] == "degraded"


def only_session(machine: Machine) -> str:
    with machine.store() as store:
        (session_id,) = store.session_ids()
        return session_id


@pytest.mark.req("FR-011c-051", "FR-011c-049", "BP-011c-14")
def test_a_server_that_comes_back_is_noticed_while_the_session_runs(
    machine: Machine, postgres_server: Server, database: str
) -> None:
    with Line(socket_of(postgres_server)) as line:
        line.deaf = True
        machine.connect(url_of(database, line.port))
        running = machine.process("run", machine.plan(WAITING), "--json")
        degraded = json.loads(running.wait_for_line('"sync_changed"'))
        assert degraded["data"]["change"] == "degraded" and degraded["data"]["reason"]
        assert machine("status", "--json").json["sync"]["status"] == "degraded"
        assert machine("status", "--json").json["sync"]["next_retry_in_seconds"] is not None
        line.deaf = False
        while machine("status", "--json").json["sync"]["status"] != "up_to_date":
            assert running.wait_for_line("session_start")
        (machine.workspace / "go").touch()
        ended = running.finish()
    assert ended.exit_code == 0
    changes = [one["data"]["change"] for one in ended.lines if one["event"] == "sync_changed"]
    assert changes == ["degraded", "restored"]
    assert_level(machine, database, only_session(machine))


@pytest.mark.req("FR-011c-050")
def test_steps_do_not_wait_for_a_slow_server(machine: Machine, postgres_server: Server, database: str) -> None:
    """Each of forty durable steps would have to wait for a reply of its own; the server has given a few by then."""
    machine.patient = False
    steps = "".join(f'      - write: {{path: f{number}.txt, content: "x\\n"}}\n' for number in range(40))
    with Line(socket_of(postgres_server), reply_delay_s=1.0) as line:
        machine.connect(url_of(database, line.port))
        ended = machine("run", machine.plan(f"title: Many\ntasks:\n  - title: Write\n    steps:\n{steps}"), "--json")
        replies = line.replies
    assert ended.exit_code == 0 and len([one for one in ended.lines if one["event"] == "step_completed"]) == 40
    assert replies < 20
    assert machine("status", "--json").json["sync"]["pending_events"] > 0
    machine.connect(url_of(database))
    machine("sync", "now")
    assert_level(machine, database, only_session(machine))


@pytest.mark.req("FR-011c-050")
def test_a_server_that_hangs_holds_neither_the_run_nor_its_end(
    machine: Machine, postgres_server: Server, database: str
) -> None:
    machine.patient = False
    assert postgres_server.process is not None
    postgres_server.process.send_signal(signal.SIGSTOP)
    try:
        machine.connect(url_of(database))
        running = machine.process("run", machine.plan(PLAN), "--json")
        assert running.finish(timeout_s=20).exit_code == 10
    finally:
        postgres_server.process.send_signal(signal.SIGCONT)
    machine("sync", "now")
    assert_level(machine, database, only_session(machine))


@pytest.mark.req("FR-011c-053", "FR-011c-054")
def test_a_killed_run_is_resumed_and_the_shared_log_has_each_event_once(machine: Machine, database: str) -> None:
    machine.connect(url_of(database))
    running = machine.process("run", machine.plan(WAITING), "--json")
    running.wait_for_line('"step_started".*wait.2')
    running.kill_everything()
    (machine.workspace / "go").touch()
    assert machine("resume", "--last").exit_code == 0
    assert_level(machine, database, only_session(machine))
    assert lease(database, only_session(machine))[1] is None


def test_what_an_earlier_run_owed_goes_with_the_next_one(machine: Machine, database: str) -> None:
    machine.connect(NOBODY)
    first = machine.run(PLAN)
    machine.connect(url_of(database))
    second = machine.run(PLAN.replace("Make and greet", "Another"))
    for session_id in (first, second):
        assert_level(machine, database, session_id)
        assert lease(database, session_id)[1] is None


def test_without_the_extra_the_run_goes_on_and_says_what_is_missing(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "without" / "psycopg").mkdir(parents=True)
    (tmp_path / "without" / "psycopg" / "__init__.py").write_text("raise ImportError('not installed')\n")
    machine.connect(NOBODY)
    import os

    path = f"{tmp_path / 'without'}{os.pathsep}{os.environ['PYTHONPATH']}"
    assert machine.process("run", machine.plan(PLAN), PYTHONPATH=path).finish().exit_code == 10
    assert 'pip install "acode-cli[postgres]"' in machine("status", "--json").json["sync"]["reason"]
    now = machine.process("sync", "now", PYTHONPATH=path).finish()
    assert now.exit_code == 3 and "acode-cli[postgres]" in now.stderr


def test_an_untrusted_url_of_the_workspace_is_not_used(machine: Machine, database: str) -> None:
    (machine.workspace / ".agent").mkdir(mode=0o700)
    (machine.workspace / ".agent" / "config.yml").write_text(f"sync: {{url: '{url_of(database)}'}}\n")
    session_id = machine.run(PLAN)
    assert machine("status", "--json").json["sync"]["status"] == "disabled"
    assert machine("sync", "now").exit_code == 3
    machine("config", "trust")
    assert machine("sync", "now").exit_code == 0
    assert shared_log(database, session_id) == machine.log(session_id)


def test_sync_now_says_why_it_could_not(machine: Machine) -> None:
    machine.connect(NOBODY)
    machine.run(PLAN)
    ended = machine("sync", "now", "--json")
    error = ended.json["error"]
    assert (ended.exit_code, error["code"]) == (1, "ACODE-SYNC-001") and "Connection refused" in error["message"]
    status = machine("sync", "status", "--json").json
    assert status["status"] == "degraded" and status["reason"] == "Connection refused"
    assert status["sessions"][0]["pending_events"] == status["pending_events"] > 0
    machine.connect(None)
    assert machine("sync", "now").exit_code == 3 and machine("sync", "status", "--json").json["status"] == "disabled"


@pytest.mark.parametrize(
    "command", [("sync", "now"), ("pull", "abcd"), ("submit", "plan.yml"), ("fleet", "status")], ids=str
)
def test_a_command_that_needs_the_server_names_what_to_type_when_it_is_away_or_wrong(
    machine: Machine, database: str, command: tuple[str, ...]
) -> None:
    """A submit that failed is not sent later, and a wrong name of the database does not become right by waiting."""
    machine.connect(NOBODY)
    machine.run(PLAN)
    away = machine(*command, "--json").json["error"]
    assert away["code"] == "ACODE-SYNC-001" and "same command again when the server answers" in away["hint"]
    machine.connect(url_of(database).replace("?", "_gone?"))
    wrong = machine(*command, "--json").json["error"]
    assert "does not exist" in wrong["message"] and "correct it there, or the settings here" in wrong["hint"]
    assert "acode config show --origin" in wrong["hint"]


@pytest.mark.parametrize("ended", [True, False])
def test_another_server_is_owed_everything(
    machine: Machine, postgres_server: Server, database: str, ended: bool
) -> None:
    """One that waits may have been continued by way of the first server: a person says that it was not."""
    machine.connect(url_of(database))
    session_id = machine.run(PLAN)
    if ended:
        assert machine("session", "cancel", session_id).exit_code == 0
    with postgres_server.database() as other:
        machine.connect(url_of(other))
        sync = machine("status", "--json").json["sync"]
        assert (sync["status"], sync["pending_events"]) == ("pending", len(machine.log(session_id)))
        assert machine("sync", "now").exit_code == (0 if ended else 16)
        if not ended:
            chosen = ("sync", "now", session_id, "--force", "--reason", "the server was replaced")
            assert machine(*chosen).exit_code == 0
        assert_level(machine, other, session_id)
    said = [event.reason for event in forced(machine, session_id)]
    assert said == ([] if ended else ["the server was replaced"])


def test_a_run_that_ends_while_something_is_sent_is_sent_to_its_end(
    machine: Machine, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last events become durable between the look at what is owed and the end of that exchange."""
    from acode.engine.notices import Notice, SessionStart
    from acode.sync import pusher as pushing
    from acode.sync.delivery import Delivery

    session_id = machine.run(PLAN)
    last = len(machine.log(session_id))
    world = machine.world()
    pusher = pushing.Pusher(world, url_of(database))
    delivered = Delivery.deliver

    def ends_meanwhile(delivery: Delivery, session_id: str, through: int) -> object:
        done = delivered(delivery, session_id, through)
        if through < last:
            pusher.durable(last)
            with pusher._news:
                pusher._closing_at = world.monotonic() + 30.0
        return done

    monkeypatch.setattr(Delivery, "deliver", ends_meanwhile)
    monkeypatch.setattr(pushing, "EXIT_S_MAX", 30.0)
    pusher.durable(5)
    start = SessionStart(title="t", short_id=session_id[-8:], tasks=1, steps=1, workspace=str(world.workspace))
    pusher.emit(Notice(body=start, at=world.clock(), session_id=session_id, seq=3))
    assert pusher._thread is not None
    pusher._thread.join()
    assert_level(machine, database, session_id)
    assert lease(database, session_id)[1] is None


def test_only_what_is_durable_is_pushed(machine: Machine, database: str) -> None:
    """A row that a power cut could take is not sent: the pusher stops where the engine's word stops."""
    from acode.engine.notices import Notice, SessionStart
    from acode.sync.pusher import Pusher

    session_id = machine.run(PLAN)
    world = machine.world()
    pusher = Pusher(world, url_of(database))
    start = SessionStart(title="t", short_id=session_id[-8:], tasks=1, steps=1, workspace=str(world.workspace))
    pusher.emit(Notice(body=start, at=world.clock(), session_id=session_id, seq=3))
    pusher.durable(5)
    pusher.speak_to = None
    pusher.close()
    assert [seq for seq, _, _ in shared_log(database, session_id)] == [1, 2, 3, 4, 5]
    assert lease(database, session_id)[1] is not None, "given back although something is owed"
    with machine.store() as store:
        assert sync_cursor.cursor_of(store, session_id).pushed_seq == 5

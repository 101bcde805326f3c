"""acode session …: looking into sessions, answering them and ending them."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import psutil
import pytest

from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode

ROW = [
    *("session_id", "short_id", "source", "title", "state", "escalated", "resumable", "created_at", "updated_at"),
    *("tasks_done", "tasks_total", "steps_done", "steps_total", "interruption_class", "reason_code"),
    *("attention", "kind"),
]


@pytest.fixture
def paused(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, THREE_TASKS))
    return str(acode("session", "list", "--json").json[0]["short_id"])


@pytest.fixture
def waiting(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, GATE))
    return str(acode("session", "list", "--json").json[0]["short_id"])


def types(acode: Acode) -> list[str]:
    return [event["type"] for event in acode("session", "history", "--json").json]


# List.


@pytest.mark.req("CLI-011c-04", "OUT-011c-03")
def test_the_list_has_the_manuals_columns_and_relative_times(acode: Acode, paused: str, workspace: Path) -> None:
    acode("run", save(workspace, GATE, "gate.yml"))
    head, *rows = acode("session", "list", "--resumable").stdout.splitlines()
    assert head.split() == ["ID", "STATE", "SINCE", "TASK"]
    assert rows[0].split()[1:] == ["needs", "you:", "approve", rows[0].split()[4], "ago", "Deploy", "it"]
    assert rows[1].split()[:2] == [paused, "PAUSED"]
    assert rows[1].endswith("s ago  Add input validation") or rows[1].endswith("ago             Add input validation")


def test_a_row_has_exactly_the_promised_fields(acode: Acode, paused: str) -> None:
    (row,) = acode("session", "list", "--json").json
    assert list(row) == ROW
    assert (row["short_id"], row["state"], row["resumable"]) == (paused, "PAUSED", True)
    assert (row["tasks_done"], row["tasks_total"], row["steps_done"], row["steps_total"]) == (1, 3, 3, 6)
    assert (row["interruption_class"], row["source"]) == ("tool_failure", "native")


def test_ended_sessions_are_listed_but_not_as_resumable(acode: Acode, paused: str) -> None:
    acode("session", "cancel", paused)
    assert [row["state"] for row in acode("session", "list", "--json").json] == ["CANCELLED"]
    assert acode("session", "list", "--resumable", "--json").json == []
    empty = acode("session", "list", "--resumable")
    assert (empty.exit_code, empty.stdout) == (0, "")


@pytest.mark.parametrize("quick", [True, False])
def test_a_list_can_be_limited_to_the_latest_sessions(acode: Acode, paused: str, workspace: Path, quick: bool) -> None:
    acode("session", "cancel", paused)
    acode("run", "plan.yml", "--new")
    words = ["session", "list", "--limit", "1", *([] if quick else ["-v"])]
    (row,) = acode(*words, "--json").json
    assert row["short_id"] != paused
    assert acode(*words).stderr.splitlines()[-1] == "1 more session: acode session list --all"
    assert len(acode("session", "list", "--json").json) == 2
    assert acode("session", "list", "--limit", "0").exit_code == 2


def test_an_empty_workspace_lists_nothing_and_is_left_empty(acode: Acode, workspace: Path) -> None:
    ended = acode("session", "list", "--json")
    assert (ended.exit_code, ended.json) == (0, [])
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize("words", [["--json", "session", "list"], ["session", "--json", "list"]])
def test_the_quick_way_and_the_parser_agree(acode: Acode, paused: str, words: list[str]) -> None:
    """`-v` is a word that only the parser knows."""
    assert acode(*words, "-v").json == acode(*words).json
    assert acode("session", "list", "-v").stdout == acode("session", "list").stdout


def test_a_damaged_session_is_shown_and_not_left_out(acode: Acode, paused: str, workspace: Path) -> None:
    tamper(workspace)
    (row,) = acode("session", "list", "--json").json
    assert (row["short_id"], row["state"], row["error"]["exit_code"]) == (paused, None, 20)
    assert "DAMAGED" in acode("session", "list").stdout
    assert acode("resume", "--last").exit_code == 20


def tamper(workspace: Path) -> None:
    """As somebody would who has the file and not the key."""
    with sqlite3.connect(workspace / ".agent" / "workspace.db") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            sql = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0]
            db.execute(f"DROP TRIGGER {name}")
            KEPT.append(sql)
        db.execute("UPDATE checkpoints SET body = replace(body, '\"steps_done\":3', '\"steps_done\":4')")
        db.execute("UPDATE events SET body = replace(body, 'tool_failure', 'timeout')")
        while KEPT:
            db.execute(KEPT.pop())


KEPT: list[str] = []


# Show, history, verify.


def test_show_tells_each_steps_state(acode: Acode, paused: str) -> None:
    found = acode("session", "show", paused, "--json").json
    steps = {step["id"]: step["status"] for task in found["tasks"] for step in task["steps"]}
    assert steps == {
        "analyze.1": "completed",
        "validate.1": "completed",
        "validate.2": "completed",
        "validate.check": "failed",
        "validate.4": "pending",
        "finish.1": "pending",
    }
    shown = acode("session", "show", paused).stdout
    assert "✓ validate.2: Write phone.txt - completed" in shown
    assert "✗ validate.check: Run cat go.txt - failed" in shown


@pytest.mark.req("CLI-011c-05")
def test_history_is_the_log_in_order(acode: Acode, paused: str) -> None:
    events = acode("session", "history", paused, "--json").json
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert list(events[0]) == ["seq", "event_id", "at", "type", "actor", "task", "step", "data", "hash"]
    assert (events[0]["type"], events[-1]["type"]) == ("session_created", "session_paused")
    failed = next(event for event in events if event["type"] == "step_failed")
    assert (failed["task"], failed["step"], failed["data"]["exit_status"]) == ("validate", "validate.check", 1)
    lines = acode("session", "history", paused).stdout.splitlines()
    assert len(lines) == len(events)
    assert "step_failed" in lines[failed["seq"] - 1] and "validate.check" in lines[failed["seq"] - 1]


def test_history_can_be_cut_by_number_and_time(acode: Acode, paused: str) -> None:
    events = acode("session", "history", paused, "--json").json
    assert acode("session", "history", paused, "--json", "--limit", "2").json == events[-2:]
    assert acode("session", "history", paused, "--json", "--since", events[3]["at"]).json == events[3:]
    assert acode("session", "history", paused, "--json", "--since", "1h").json == events
    assert acode("session", "history", paused, "--json", "--since", "2999-01-01").json == []
    for wrong in (["--limit", "0"], ["--limit", "x"], ["--since", "yesterday"]):
        assert acode("session", "history", paused, *wrong).exit_code == 2


def test_verify_says_that_all_fits(acode: Acode, paused: str) -> None:
    found = acode("session", "verify", paused, "--json").json
    assert set(found) >= {"ok", "events", "checkpoints", "blobs", "problems"}
    assert (found["ok"], found["problems"]) == (True, [])
    assert "is whole" in acode("session", "verify", paused).stdout


def test_verify_names_what_was_tampered_with(acode: Acode, paused: str, workspace: Path) -> None:
    tamper(workspace)
    ended = acode("session", "verify", "--json")
    assert (ended.exit_code, ended.json["ok"]) == (20, False)
    assert {"ACODE-LOG-001"} <= {problem["code"] for problem in ended.json["problems"]}
    assert acode("session", "verify").exit_code == 20


# Answers.


def test_an_approval_lets_the_resume_pass_the_gate(acode: Acode, waiting: str, workspace: Path) -> None:
    ended = acode("session", "approve", waiting, "--note", "fine")
    assert (ended.exit_code, ended.stdout) == (0, "Approved: ship.gate. The steps behind it may run.\n")
    assert ended.stderr == f"To resume: acode resume {waiting}\n"
    assert acode("resume", waiting).exit_code == 0
    assert (workspace / "shipped.txt").read_text() == "shipped\n"


@pytest.mark.req("NFR-011c-012")
def test_a_denied_session_stays_at_its_gate(acode: Acode, waiting: str, workspace: Path) -> None:
    assert acode("session", "deny", waiting, "--json").json["state"] == "PAUSED"
    assert acode("resume", waiting).exit_code == 10
    assert not (workspace / "shipped.txt").exists()


def test_only_the_gate_a_session_waits_at_can_be_answered(acode: Acode, waiting: str) -> None:
    assert "hint: It waits at ship.gate. " in acode("session", "approve", waiting, "ship.nowhere").stderr
    assert acode("session", "approve", waiting, "ship.upload").exit_code == 2
    assert acode("session", "approve", waiting, "ship.gate").exit_code == 0


def test_a_person_settles_what_nothing_shows(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill_everything()
    name = acode("session", "list", "--json").json[0]["short_id"]
    assert acode("session", "resolve", name, "work.slow").exit_code == 2
    assert acode("session", "resolve", name, "work.1", "--applied").exit_code == 2
    ended = acode("session", "resolve", name, "work.slow", "--applied", "--note", "I looked")
    assert ended.stdout == "Step work.slow is taken as done.\n"
    assert acode("resume", name).exit_code == 0
    settled = [event for event in acode("session", "history", "--json").json if event["type"] == "step_settled"]
    assert (settled[-1]["actor"], settled[-1]["data"]["note"]) == ("user", "I looked")


@pytest.mark.parametrize("answers", [["--applied", "--retry"], ["--retry", "--not-applied", "--applied"]])
def test_answers_that_contradict_each_other_are_none(acode: Acode, paused: str, answers: list[str]) -> None:
    before = types(acode)
    ended = acode("session", "resolve", paused, "validate.check", *answers)
    assert (ended.exit_code, types(acode)) == (2, before)
    assert "contradict each other" in ended.stderr and all(one in ended.stderr for one in answers)


# Save points, locks, endings.


def test_a_save_point_is_a_numbered_checkpoint(acode: Acode, paused: str) -> None:
    ended = acode("session", "checkpoint", paused, "--label", "before lunch", "--json")
    assert ended.json["checkpoint_id"] == 4
    assert types(acode)[-1] == "checkpoint_created"


@pytest.mark.req("CLI-011c-06")
def test_a_free_lock_needs_no_breaking_and_a_live_one_needs_force(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    name = acode("session", "list", "--json").json[0]["short_id"]
    refused = acode("session", "unlock", name)
    assert (refused.exit_code, f"pid {running.pid}" in refused.stderr) == (16, True)
    broken = acode("session", "unlock", name, "--force", "--reason", "it hangs")
    assert broken.stdout == f"The lock of pid {running.pid} is broken.\n"
    assert "lock_broken" in types(acode)
    (workspace / "go.txt").write_text("go\n")
    assert running.finish().exit_code == 16  # it was fenced off: its next event is refused
    assert acode("session", "unlock", name).stdout == "The session is not locked: nothing to do.\n"


def test_pause_reaches_the_process_that_runs_the_session(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    name = acode("session", "list", "--json").json[0]["short_id"]
    assert acode("session", "pause", name, "--json").json["pid"] == running.pid
    running.wait_for_line("Pausing after step work.slow")
    (workspace / "go.txt").write_text("go\n")
    ended = running.finish()
    assert ended.exit_code == 130
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {name}"


@pytest.mark.parametrize(("command", "state"), [("cancel", "CANCELLED"), ("abandon", "FAILED")])
def test_an_ended_session_stays_ended(acode: Acode, paused: str, command: str, state: str) -> None:
    assert acode("session", command, paused, "--reason", "no need", "--json").json["state"] == state
    assert acode("resume", paused).exit_code == 15
    assert acode("session", command, paused).exit_code == 15
    acts = {"cancel": "cancel", "abandon": "abandon", "approve": "approve", "deny": "deny", "checkpoint": "save"}
    for act, words in (acts | {"rollback": "roll back"}).items():
        assert acode("session", act, paused).stderr.startswith(f"error: Cannot {words} {state} session {paused}: ")
    assert "To resume" not in acode("session", command, paused).stderr


@pytest.mark.parametrize("command", ["cancel", "abandon", "pause"])
def test_a_command_that_still_runs_is_named_when_its_session_is_ended(
    acode: Acode, workspace: Path, command: str
) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    running.kill()
    name = acode("session", "list", "--json").json[0]["short_id"]
    ended = acode("session", command, name, "--json")
    (warning,) = ended.json["warnings"]
    assert (ended.exit_code, warning in ended.stderr) == (0, True)
    named = re.search(r"the command of step work\.slow is still running, pid (\d+), since .*; it still runs", warning)
    assert named is not None and psutil.pid_exists(int(named[1]))
    (workspace / "go.txt").touch()


@pytest.mark.parametrize(
    "command", ["resolve", "approve", "deny", "checkpoint", "unlock", "pause", "cancel", "abandon"]
)
def test_what_changes_a_session_wants_its_id(acode: Acode, paused: str, command: str) -> None:
    before = types(acode)
    ended = acode("session", command, "--json")
    assert (ended.exit_code, ended.json["error"]["code"]) == (2, "ACODE-CLI-001")
    assert types(acode) == before


def test_pausing_a_session_that_has_ended_names_what_to_do_next(acode: Acode, paused: str, workspace: Path) -> None:
    assert acode("session", "cancel", paused).exit_code == 0
    refused = acode("session", "pause", paused, "--json")
    assert refused.exit_code == 15 and "acode run --new" in refused.json["error"]["hint"]

"""What people do every day and what used to lead them astray: the message, the exit status, the next command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import acode as library
from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode, kill_and_wait
from tests.terminals import Terminal, ended


@pytest.fixture
def paused(acode: Acode, workspace: Path) -> str:
    assert acode("run", save(workspace, THREE_TASKS)).exit_code == 1
    return str(acode("session", "list", "--json").json[0]["short_id"])


# Which session.


def test_a_supervisor_without_an_argument_takes_nothing_unasked(acode: Acode, paused: str) -> None:
    before = acode("session", "history", paused, "--json").json
    refused = acode("supervise")
    assert refused.exit_code == 10 and paused in refused.stderr
    assert (
        f"hint: Name one: acode supervise {paused}; or take the most recent: acode supervise --last" in refused.stderr
    )
    assert acode("session", "history", paused, "--json").json == before


@pytest.mark.parametrize("answer", ["y", "n"])
def test_at_a_terminal_a_supervisor_asks_which_session(
    terminal: Terminal, acode: Acode, workspace: Path, answer: str
) -> None:
    acode("run", save(workspace, GATE))
    child = terminal("supervise")
    child.expect_exact("Resume this session? [Y/n] ")
    child.sendline(answer)
    assert ended(child) == (10 if answer == "y" else 130)


def test_a_program_that_acode_cannot_run_is_named_as_such(acode: Acode, workspace: Path) -> None:
    with pytest.raises(RuntimeError), library.session("job", workspace=workspace) as session:
        session.step("one", fail)
    refused = acode("resume")
    assert refused.exit_code == 10
    assert "run the program again (its key is 'job')" in refused.stderr and "acode resume" not in refused.stderr


def fail() -> None:
    raise RuntimeError("no")


def test_a_lock_of_a_program_is_not_waited_for_by_a_command_that_must_fail(acode: Acode, workspace: Path) -> None:
    with library.session("job", workspace=workspace) as session:
        session.step("one", str, 1)
        name = acode("session", "list", "--json").json[0]["short_id"]
        refused = acode("session", "cancel", name)
    assert refused.exit_code == 16
    assert "run the program again, with wait=True" in refused.stderr and "acode resume" not in refused.stderr


def test_sessions_of_all_workspaces_are_found_by_their_anchors(acode: Acode, workspace: Path, paused: str) -> None:
    other = workspace.parent / "other"
    other.mkdir()
    assert acode("-C", str(other), "run", str(save(other, GATE))).exit_code == 10
    listed = acode("session", "list", "--all-workspaces", "--json")
    assert listed.exit_code == 0
    assert {row["workspace"]: row["state"] for row in listed.json} == {
        os.path.realpath(workspace): "PAUSED",
        os.path.realpath(other): "AWAITING_APPROVAL",
    }
    text = acode("session", "list", "--all-workspaces").stdout
    assert "WORKSPACE" in text and os.path.realpath(other) in text
    (other / ".agent" / "workspace.db").unlink()
    gone = [row for row in acode("session", "list", "--all-workspaces", "--json").json if row["state"] is None]
    assert [row["title"] for row in gone] == ["Deploy it"] and not gone[0]["resumable"]
    assert "GONE" in acode("session", "list", "--all-workspaces").stdout
    assert len(acode("session", "list", "--json").json) == 1, "without the flag it is this workspace"


# Changed files.


@pytest.fixture
def changed(paused: str, workspace: Path) -> str:
    (workspace / "email.txt").write_text("somebody else\n")
    (workspace / "go.txt").write_text("go\n")
    return paused


def test_abort_and_start_fresh_starts_fresh(terminal: Terminal, acode: Acode, changed: str) -> None:
    child = terminal("resume", changed)
    child.expect_exact("[A]bort and start fresh")
    child.expect_exact("Choice: ")
    child.sendline("a")
    child.expect_exact(f"Session {changed} is cancelled, and ")
    child.expect_exact("Start fresh? [y/N] ")
    child.sendline("y")
    child.expect_exact("Completed: session")
    assert ended(child) == 0
    states = [row["state"] for row in acode("session", "list", "--all", "--json").json]
    assert sorted(states) == ["CANCELLED", "COMPLETED"]


@pytest.mark.parametrize("answers", [("",), ("a", "n"), ("a", "")])
def test_nothing_is_begun_anew_that_was_not_said_twice(
    terminal: Terminal, acode: Acode, changed: str, answers: tuple[str, ...]
) -> None:
    child = terminal("resume", changed)
    for prompt, answer in zip(("Choice: ", "[y/N] "), answers, strict=False):
        child.expect_exact(prompt)
        child.sendline(answer)
    child.expect_exact("acode run --new ")
    assert ended(child) == 17
    assert [row["state"] for row in acode("session", "list", "--all", "--json").json] == ["PAUSED"]


# Rolling back.


def test_a_rollback_that_is_refused_shows_no_preview(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill()
    (workspace / "go.txt").write_text("go\n")
    name = acode("session", "list", "--json").json[0]["short_id"]
    refused = acode("session", "rollback", name, "--yes")
    assert refused.exit_code == 1 and "step work.slow is in flight" in refused.stderr
    assert "takes back, in this order" not in refused.stderr + refused.stdout
    assert f"acode resume {name}" in refused.stderr


def test_the_rollback_of_an_ended_session_says_why_not(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, GATE.replace("      - approve: Deploy to production?\n        id: gate\n", ""))
    assert acode("run", plan).exit_code == 0
    name = acode("session", "list", "--all", "--json").json[0]["short_id"]
    refused = acode("session", "rollback", name, "--yes")
    assert refused.exit_code == 15
    assert "hint: What stood in the files before was removed when it ended." in refused.stderr
    assert f"acode run --new {os.path.realpath(plan)}" in refused.stderr
    assert "Only a session that has not ended can be rolled back" in acode("session", "rollback", "--help").stdout


@pytest.mark.parametrize(("undo", "note"), [("", "leaves its changes in place"), ("undo: rm x", "runs its undo")])
def test_the_note_before_a_command_is_true_of_its_undo(acode: Acode, workspace: Path, undo: str, note: str) -> None:
    told = acode("run", save(workspace, f"tasks: [{{id: a, steps: [{{run: touch x{', ' if undo else ''}{undo}}}]}}]\n"))
    assert told.exit_code == 0 and note in told.stderr


# Refusals and explanations.


MAY_RESUME = "Note: a person may resume; an automatic resume would be refused now:"


def test_a_person_is_told_what_an_automatic_resume_would_not_get(acode: Acode, paused: str) -> None:
    told = acode("resume", paused)
    assert told.exit_code == 1 and MAY_RESUME in told.stderr and "remain of the 30 s cool-down" in told.stderr


def test_nobody_is_told_to_resume_before_a_refusal(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill()
    # Its command and the keeper go too: nothing shows what became of it.
    for mark in (workspace / ".agent" / "run").glob("*/started"):
        pids = json.loads(mark.read_text())
        kill_and_wait(pids["keeper"], pids["command"])
    refused = acode("resume", "--last")
    assert refused.exit_code == 19
    assert MAY_RESUME not in refused.stderr
    assert "acode session resolve" in refused.stderr


def test_an_explanation_ends_with_the_next_command(acode: Acode, paused: str) -> None:
    shown = acode("explain", paused)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1] == f"Next: acode resume {paused}"
    assert "Nothing is resumed by this." in shown.stdout


def test_no_hint_names_a_plan_that_is_not_there(acode: Acode, workspace: Path) -> None:
    empty = acode("resume")
    assert empty.exit_code == 14
    assert "hint: Start one: acode init writes a first plan, acode run plan.yml runs it" in empty.stderr
    assert acode("init").exit_code == 0 and (workspace / "plan.yml").exists()
    assert acode("run", "plan.yml").exit_code == 0
    ended_before = acode("session", "list", "--all", "--json").json[0]["short_id"]
    again = acode("resume", ended_before)
    assert again.exit_code == 15 and f"acode run --new {os.path.realpath(workspace / 'plan.yml')}" in again.stderr


@pytest.mark.parametrize("words", [("worker",), ("submit", "plan.yml"), ("fleet", "status")], ids=" ".join)
def test_without_a_server_a_command_of_the_fleet_ends_at_once_with_the_setting_that_is_missing(
    acode: Acode, workspace: Path, words: tuple[str, ...]
) -> None:
    save(workspace, THREE_TASKS)
    told = acode(*words)
    assert told.exit_code == 3, told
    assert "no server is configured" in told.stderr and "hint: Set ACODE_POSTGRES_URL" in told.stderr


def test_once_a_gate_is_answered_the_next_command_is_no_second_answer(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, GATE))
    (waiting,) = acode("session", "list", "--json").json
    name = waiting["short_id"]
    looks = [("status", name), ("explain", name), ("resume", name, "--dry-run")]
    assert [acode(*words).stdout.count(f"Next: acode session approve {name}") for words in looks] == [1, 1, 1]
    assert acode("session", "approve", name).exit_code == 0
    assert [acode(*words).stdout.rstrip().endswith(f"Next: acode resume {name}") for words in looks] == [True] * 3
    assert acode("explain", name, "--json").json["needs_human"] is False
    shown = [acode("session", "list").stdout, acode("status", name).stdout, acode("explain", name).stdout]
    assert ["approved, to resume" in text and "waits for an approval" not in text for text in shown] == [True] * 3
    assert acode("status", name, "--json").json["state"] == "AWAITING_APPROVAL", "for programs nothing changes"
    assert acode("resume", name, "--yes").exit_code == 0

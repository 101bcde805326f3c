"""Whatever is wrong with what acode is given: a clear sentence, a way out, the documented status, and nothing lost."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.cli.plans import THREE_TASKS, save
from tests.driver import Acode, Ended

RUN = "tasks: [{title: T, steps: [{run: 'true'}]}]\n"
AS_ROOT = os.geteuid() == 0 if hasattr(os, "geteuid") else False


def refused(ended: Ended, exit_code: int, code: str) -> None:
    """One sentence with its code, no traceback, and the same in JSON by the caller."""
    assert ended.exit_code == exit_code, ended.stderr
    assert f"[{code}]" in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


BAD_PLANS = {
    "malformed": "tasks: [\n",
    "cycle": "tasks: [{id: a, needs: [b], steps: [{read: x}]}, {id: b, needs: [a], steps: [{read: x}]}]\n",
    "duplicate id": "tasks: [{id: a, title: A, steps: [{read: x}]}, {id: a, title: B, steps: [{read: x}]}]\n",
    "duplicate key": "title: A\ntitle: B\ntasks: []\n",
    "outside": "tasks: [{title: A, steps: [{read: ../secret}]}]\n",
    "absolute": "tasks: [{title: A, steps: [{write: {path: /tmp/x, content: x}}]}]\n",
    "unknown key": "tasks: [{title: A, steps: [{run: 'true', idempotnt: true}]}]\n",
    "empty": "",
    "only a comment": "# nothing\n",
    "no mapping": "- a\n- b\n",
    "wrong type": "tasks: 7\n",
    "two kinds": "tasks: [{title: A, steps: [{run: 'true', read: x}]}]\n",
    "binary": "\x00\x01\x02",
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_plan_that_cannot_be_used_runs_nothing(acode: Acode, workspace: Path, name: str) -> None:
    plan = save(workspace, BAD_PLANS[name])
    refused(acode("run", plan), 2, "ACODE-PLAN-001")
    assert [path.name for path in workspace.iterdir()] == ["plan.yml"]
    assert acode("run", plan, "--json").json["error"]["exit_code"] == 2


def test_a_mistake_in_a_plan_is_told_with_its_line(acode: Acode, workspace: Path) -> None:
    text = "title: A\ntasks:\n  - title: A\n    steps:\n      - run: 'true'\n        idempotnt: true\n"
    ended = acode("run", save(workspace, text))
    assert "plan.yml:6" in ended.stderr
    assert "idempotent" in ended.stderr


def test_a_plan_of_ten_megabytes_is_refused_before_it_is_parsed(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, RUN + "# " + "x" * 10_000_000 + "\n")
    refused(acode("run", plan), 2, "ACODE-PLAN-001")


def test_a_directory_is_no_plan(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").mkdir()
    refused(acode("run", "plan.yml"), 2, "ACODE-PLAN-001")


@pytest.mark.skipif(AS_ROOT, reason="root may read and write everything")
def test_an_unreadable_workspace_is_said_to_be_one(acode: Acode, workspace: Path) -> None:
    (workspace / "closed").mkdir(mode=0o000)
    refused(acode("-C", workspace / "closed", "session", "list"), 1, "ACODE-DB-006")


@pytest.mark.skipif(AS_ROOT, reason="root may read and write everything")
def test_a_read_only_workspace_runs_nothing_and_can_still_be_read(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    name = acode("session", "list", "--json").json[0]["short_id"]
    places = [workspace, workspace / ".agent", workspace / ".agent" / "workspace.db"]
    for place in places:
        place.chmod(place.stat().st_mode & ~0o222)
    try:
        assert acode("status", name).exit_code == 0
        assert acode("resume", name).exit_code == 1
    finally:
        for place in places:
            place.chmod(place.stat().st_mode | 0o200)
    assert acode("session", "verify", name).exit_code == 0


def test_a_directory_that_is_not_there_is_a_usage_error(acode: Acode) -> None:
    refused(acode("-C", "nowhere", "session", "list"), 2, "ACODE-CLI-001")
    refused(acode("status", "-C", "nowhere"), 2, "ACODE-CLI-001")


def test_a_file_is_no_workspace(acode: Acode, workspace: Path) -> None:
    (workspace / "file").touch()
    refused(acode("-C", workspace / "file", "status"), 2, "ACODE-CLI-001")


COMMANDS = [
    ["resume", "--last"],
    ["status"],
    ["explain"],
    ["session", "list"],
    ["session", "history"],
    ["run", "plan.yml"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_database_that_is_none_is_never_an_empty_workspace(acode: Acode, workspace: Path, command: list[str]) -> None:
    acode("run", save(workspace, THREE_TASKS))
    database = workspace / ".agent" / "workspace.db"
    for path in database.parent.glob("workspace.db-*"):
        path.unlink()
    database.write_bytes(b"not a database at all, only some text that is long enough to be looked at " * 60)
    before = database.read_bytes()
    refused(acode(*command), 20, "ACODE-DB-002")
    assert database.read_bytes() == before


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_a_newer_database_asks_for_an_upgrade(acode: Acode, workspace: Path, command: list[str]) -> None:
    acode("run", save(workspace, THREE_TASKS))
    with sqlite3.connect(workspace / ".agent" / "workspace.db") as db:
        db.execute("PRAGMA user_version = 9999")
    ended = acode(*command)
    refused(ended, 20, "ACODE-DB-003")
    assert "Upgrade acode" in ended.stderr


@pytest.mark.parametrize("command", COMMANDS[:4], ids=" ".join)
def test_a_lost_database_says_what_was_lost(acode: Acode, workspace: Path, command: list[str]) -> None:
    acode("run", save(workspace, THREE_TASKS))
    for path in (workspace / ".agent").glob("workspace.db*"):
        path.unlink()
    ended = acode(*command)
    refused(ended, 20, "ACODE-LOG-006")
    assert "Add input validation" in ended.stderr


@pytest.mark.parametrize("command", ["rm -rf .agent", "rm -f .agent/workspace.db*", 'rm -rf "$PWD"'])
def test_a_step_that_removes_the_log_ends_the_run_and_nothing_is_said_to_be_recorded(
    acode: Acode, workspace: Path, command: str
) -> None:
    save(
        workspace, f"tasks: [{{id: t, title: T, steps: [{{run: {command!r}}}, {{write: {{path: b, content: b}}}}]}}]\n"
    )
    ended = acode.process("run", "plan.yml", "--json").finish()
    last = ended.lines[-1]
    assert (ended.exit_code, last["event"], last["data"]["error"]["code"]) == (20, "session_end", "ACODE-LOG-006")
    assert last["data"]["next_action"].startswith("acode session verify "), "a resume would be refused again"
    assert last["data"]["error"]["message"].startswith("after step t.1: the database of")
    assert not {line["event"] for line in ended.lines} & {"step_completed", "step_failed"}
    assert not (workspace / "b").exists()


def test_a_lost_database_of_ended_sessions_does_not_stop_a_new_one(acode: Acode, workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    plan = save(workspace, THREE_TASKS)
    assert acode("run", plan).exit_code == 0
    for path in (workspace / ".agent").glob("workspace.db*"):
        path.unlink()
    assert acode("run", plan).exit_code == 0


# The place.


def test_the_home_directory_is_no_workspace_unless_forced(acode: Acode, home: Path) -> None:
    plan = save(home, RUN)
    refused(acode("run", plan, cwd=home), 2, "ACODE-WS-001")
    refused(acode("-C", "/", "run", plan), 2, "ACODE-WS-001")
    assert not (home / ".agent").exists()
    assert acode("run", plan, "--force", cwd=home).exit_code == 0
    assert [row["state"] for row in acode("session", "list", "--json", cwd=home).json] == ["COMPLETED"]


def test_force_is_offered_only_by_commands_that_have_it(acode: Acode, home: Path) -> None:
    offered = {
        word: "--force" in acode(*word.split(), cwd=home).stderr for word in ("run p.yml", "resume", "supervise")
    }
    assert set(offered.values()) == {True}, offered
    for word in ("status", "session list", "explain", "doctor", "config show", "session history"):
        ended = acode(*word.split(), cwd=home)
        refused(ended, 2, "ACODE-WS-001")
        assert "--force" not in ended.stderr and "-C DIR" in ended.stderr, word


@pytest.mark.parametrize("words", [["-C", "", "session", "list"], ["status", "-C", ""], ["run", "p.yml", "-C", ""]])
def test_an_empty_name_is_no_directory(acode: Acode, words: list[str]) -> None:
    ended = acode(*words)
    assert ended.exit_code == 2 and "-C: the name of the directory is empty" in ended.stderr


def test_a_bundle_that_is_not_there_is_a_mistyped_path_and_no_damage(acode: Acode) -> None:
    refused(acode("session", "verify", "--bundle", "/nope"), 2, "ACODE-CLI-001")


def test_a_forced_home_does_not_swallow_the_projects_below_it(acode: Acode, home: Path) -> None:
    acode("run", save(home, RUN), "--force", cwd=home)
    project = home / "project"
    project.mkdir()
    assert acode("session", "list", "--json", cwd=project).json == []


@pytest.mark.parametrize(("to", "code"), [("../out", 1), ("in", 0)])
def test_a_command_does_not_work_outside_through_a_link(acode: Acode, workspace: Path, to: str, code: int) -> None:
    (workspace / "in").mkdir()
    (workspace.parent / "out").mkdir()
    (workspace / "d").symlink_to(to)
    save(workspace, "tasks: [{id: t, title: T, steps: [{run: touch here, cwd: d}]}]\n")
    ended = acode("run", "plan.yml")
    assert (ended.exit_code, (workspace.parent / "out" / "here").exists()) == (code, False)
    assert (workspace / "in" / "here").exists() == (code == 0)
    assert ("the working directory d leads out of the workspace" in ended.stderr) == (code == 1)


def test_the_nearest_workspace_above_is_used(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    below = workspace / "src" / "deep"
    below.mkdir(parents=True)
    assert len(acode("session", "list", "--json", cwd=below).json) == 1
    assert acode("-C", below, "session", "list", "--json").json == []


# The command line itself.


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "there is no command 'nonsense'"),
        (["resum"], "did you mean 'resume'?"),
        (["session", "lst"], "did you mean 'list'?"),
        (["run"], "missing argument 'PLAN|TASK'"),
        (["run", "a.yml", "b.yml"], "are for another agent"),
        (["resume", "--strategy", "hope"], "invalid value for '--strategy'"),
        (["resume", "--lst"], "no such option"),
        (["completion"], "choose from: bash, zsh, fish, powershell"),
        (["session", "history", "--limit", "many"], "not a valid integer"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_was_meant(acode: Acode, words: list[str], says: str) -> None:
    ended = acode(*words)
    refused(ended, 2, "ACODE-CLI-001")
    assert says in ended.stderr.lower().replace("PLAN", "plan") or says in ended.stderr
    assert "--help" in ended.stderr
    assert acode(*words, "--json").json["error"]["code"] == "ACODE-CLI-001"


def test_an_empty_task_and_flags_that_do_not_fit_are_refused(acode: Acode, workspace: Path) -> None:
    refused(acode("run", "  "), 2, "ACODE-CLI-001")
    refused(acode("run", "plan.yml", "--model", "x"), 2, "ACODE-CLI-001")
    assert list(workspace.iterdir()) == []

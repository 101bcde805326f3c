"""Runs that other tools began, on the command line: listed, named, shown, repaired, refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.arc import CONTEXT_PATH, context, put, suspended, task
from tests.driver import Acode, Ended
from tests.foreign import (
    ARC,
    MEMORY,
    OPEN_PHASES,
    WORK,
    ledger,
    put_arc,
    put_driver,
    put_foreign,
    put_memory,
    tree,
)

BOTH = pytest.mark.parametrize("run", [ARC, MEMORY])


def first_line(ended: Ended) -> str:
    return ended.stdout.splitlines()[0]


# Without a driver.


@pytest.mark.req("PROTO-15", "PROTO-21")
def test_without_a_driver_the_report_is_printed_and_an_agent_memory_run_is_left_alone(
    acode: Acode, workspace: Path, home: Path
) -> None:
    put_memory(workspace)
    before = tree(workspace)
    ended = acode("resume", MEMORY)
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == "═" * 59
    assert lines[1] == f"RESUMING RUN: {MEMORY}"
    assert "- Phase: 2" in lines and "- Tasks: 0/2 complete" in lines
    assert "- Execute task T001 - Do T001" in lines
    assert any(line.startswith("Continuing... waits for a driver") for line in lines)
    assert tree(workspace) == before


@pytest.mark.req("ARC-04", "ARC-06", "ARC-ORPHAN-10")
def test_without_a_driver_an_arc_run_is_repaired_and_nothing_is_executed(
    acode: Acode, workspace: Path, home: Path
) -> None:
    phases: dict[str, Any] = {"work": {"status": "in_progress", "team_name": "rune-1"}}
    checkpoint = put_arc(workspace, phases=phases, owner_pid="4000001", later_field={"kept": True})
    team = home / ".claude" / "teams" / "rune-1"
    team.mkdir(parents=True)
    ended = acode("resume", ARC)
    assert ended.exit_code == 0, ended.stderr
    value = json.loads(checkpoint.read_text())
    assert value["phases"]["work"]["status"] == "pending" and value["phases"]["work"]["team_name"] is None
    assert value["owner_pid"] == os.getpid() and value["config_dir"] == str(home / ".claude")
    assert value["later_field"] == {"kept": True}
    assert not team.exists()
    assert list(checkpoint.parent.glob("checkpoint.json.bak.*"))
    assert "Nothing was executed" in ended.stdout and ledger(workspace) == []


def test_without_a_driver_suspended_contexts_are_not_used_up(acode: Acode, workspace: Path) -> None:
    put(workspace, CONTEXT_PATH, context())
    checkpoint = put_arc(workspace, phases=suspended(task()))
    before = (workspace / CONTEXT_PATH).read_bytes()
    assert acode("resume", ARC).exit_code == 0
    assert json.loads(checkpoint.read_text())["phases"]["work"]["suspended_tasks"] == [task()]
    assert (workspace / CONTEXT_PATH).read_bytes() == before


@BOTH
def test_a_driver_that_nobody_trusted_is_not_used_and_that_is_said(acode: Acode, workspace: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put_foreign(workspace, run)
    ended = acode("resume", run)
    assert ended.exit_code == 0
    assert ledger(workspace) == []
    assert "acode config trust" in ended.stdout


# Looking.


@BOTH
def test_a_dry_run_and_every_other_look_change_nothing_on_disk(
    acode: Acode, workspace: Path, home: Path, run: str
) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put_memory(workspace)
    phases: dict[str, Any] = {"work": {"status": "in_progress", "team_name": "rune-1"}}
    put_arc(workspace, phases=phases, schema_version=16)
    (home / ".claude" / "teams" / "rune-1").mkdir(parents=True)
    before = tree(workspace, home)
    for command in (["resume", "--dry-run", run], ["explain", run], ["status", run], ["session", "list"]):
        for flags in ([], ["--json"]):
            assert acode(*command, *flags).exit_code == 0
    assert tree(workspace, home) == before


@BOTH
def test_a_dry_run_of_a_carried_run_changes_nothing_either(acode: Acode, workspace: Path, home: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put(workspace, "fail", WORK[run][1])
    put_foreign(workspace, run)
    assert acode("resume", run, "--yes").exit_code == 1
    before = tree(workspace, home)
    found = acode("resume", "--dry-run", run, "--json")
    assert found.exit_code == 0
    assert found.json["state"] == "PAUSED" and found.json["interruption_class"] == "tool_failure"
    assert found.json["skipped_steps"] == [f"{WORK[run][0]}.drive"]
    assert without_database(tree(workspace, home)) == without_database(before)


@BOTH
@pytest.mark.parametrize("look", ["history", "verify", "show"])
def test_of_a_run_that_nobody_has_carried_there_is_no_log_and_that_is_said(
    acode: Acode, workspace: Path, run: str, look: str
) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put(workspace, "fail", WORK[run][1])
    put_foreign(workspace, run)
    ended = acode("session", look, run)
    assert ended.exit_code == 14 and "acode has recorded nothing of the" in ended.stderr
    assert f"acode status {run}" in ended.stderr
    assert acode("resume", run, "--yes").exit_code == 1
    assert acode("session", look, run).exit_code == 0


def without_database(found: dict[str, Any]) -> dict[str, Any]:
    """A reader of the log makes and removes SQLite's own files beside it; everything else stays as it is."""
    return {path: what for path, what in found.items() if "workspace.db" not in path and not path.endswith(".agent")}


@pytest.mark.req("PROTO-09", "PROTO-10")
def test_the_dry_run_of_an_agent_memory_run_has_the_fields_of_the_contract(acode: Acode, workspace: Path) -> None:
    put_memory(workspace)
    found = acode("resume", MEMORY, "--dry-run", "--json").json
    assert found["session_id"] == MEMORY and found["source"] == "agent-memory"
    assert found["phase"] == 2 and found["tasks"] == {"T001": "pending", "T002": "pending"}
    assert found["runnable"] == ["T001"] and found["missing_artifacts"] == []
    assert found["last_activity"] == "2026-01-15T14:31:00Z" and found["last_completed"] is None
    assert found["decision"]["eligible"] is True and found["decision"]["attempt"] == 1
    assert found["next_action"] == f"acode resume {MEMORY}"


@pytest.mark.req("ARC-HASH-03")
def test_the_dry_run_of_an_arc_run_has_the_fields_of_the_contract(acode: Acode, workspace: Path) -> None:
    put(workspace, "tmp/forge.md", "changed")
    forge = {"status": "completed", "artifact": "tmp/forge.md", "artifact_hash": "0" * 64}
    put_arc(workspace, phases={"forge": forge}, schema_version=18)
    found = acode("resume", ARC, "--dry-run", "--json").json
    assert found["checkpoint_path"] == f".claude/arc/{ARC}/checkpoint.json"
    assert (found["schema_from"], found["schema_to"], found["next_phase"]) == (18, 19, "forge")
    assert [one["phase"] for one in found["demoted"]] == ["forge"]
    assert found["orphans_cleaned"] == [] and found["stale_state_files"] == [] and found["suspended"] == {}
    assert "forge" not in found["skipped_tasks"] and "plan_review" in found["skipped_tasks"]


def test_status_shows_a_run_like_a_session(acode: Acode, workspace: Path) -> None:
    put_memory(workspace)
    found = acode("status", MEMORY, "--json").json
    assert found["state"] == "PAUSED" and found["tasks_total"] == 2
    assert found["lock"] == {"held": False, "owner": None}
    assert found["decision"]["reason_code"] == "resume_allowed" and found["sync"]["status"] == "disabled"
    assert "Next: acode resume" in acode("status", MEMORY).stdout


def test_explain_prints_the_report_for_people(acode: Acode, workspace: Path) -> None:
    put_arc(workspace)
    shown = acode("explain", ARC).stdout
    assert f"RESUMING RUN: {ARC}" in shown and "- Run the phase work" in shown
    assert "Nothing was changed." in shown


@pytest.mark.req("PROTO-15", "PROTO-21")
def test_a_native_session_has_the_same_report_filled_with_what_is_true_of_it(acode: Acode, workspace: Path) -> None:
    steps = "[{run: 'true'}, {run: 'exit 1', id: bad}]"
    put(workspace, "plan.yml", f"version: 1\ntitle: A plan\ntasks: [{{id: a, steps: {steps}}}]\n")
    assert acode("run", "plan.yml").exit_code == 1
    session = acode("session", "list", "--json").json[0]
    lines = acode("explain").stdout.splitlines()
    at = lines.index("═" * 59)
    assert lines[at + 1] == f"RESUMING RUN: {session['session_id']}"
    assert "- Phase: PAUSED, Task 1/1, Step 2/2" in lines and "- Tasks: 0/1 complete" in lines
    assert "- Last completed: a.1 - Run true" in lines and "- a.bad: Run exit 1" in lines
    assert f"Continuing... waits for acode resume {session['short_id']}" in lines


def test_a_secret_in_a_run_is_shown_to_nobody_and_outlives_nothing(acode: Acode, workspace: Path) -> None:
    secret = "hunter2hunter2hunter2hunter2"
    put_driver(workspace, "agent-memory")
    put(workspace, "fail", "T002")
    run = put_memory(workspace)
    graph = (run / "task-graph.json").read_text()
    (run / "task-graph.json").write_text(graph.replace("Do T001", f"Use password={secret}"))
    said = [acode(*words, MEMORY) for words in (["explain"], ["explain", "--json"], ["status"], ["status", "--json"])]
    said += [acode("resume", MEMORY, "--yes"), acode("resume", MEMORY, "--dry-run", "--json")]
    said.append(acode("resume", MEMORY))
    assert said[-1].exit_code == 0
    assert not any(secret in ended.stdout + ended.stderr for ended in said)
    left = [
        path for path in (workspace / ".agent").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]
    assert left == []


# Lists and names.


def test_the_list_shows_runs_beside_sessions_with_their_source(acode: Acode, workspace: Path) -> None:
    put(workspace, "plan.yml", "version: 1\ntitle: A plan\ntasks: [{id: a, steps: [{run: 'true'}]}]\n")
    assert acode("run", "plan.yml").exit_code == 0
    assert first_line(acode("session", "list")).split() == ["ID", "STATE", "SINCE", "TASK"]
    put_arc(workspace)
    put_memory(workspace)
    assert first_line(acode("session", "list")).split() == ["ID", "SOURCE", "STATE", "SINCE", "TASK"]
    rows = {row["session_id"]: row for row in acode("session", "list", "--json").json}
    assert {row["source"] for row in rows.values()} == {"native", "arc", "agent-memory"}
    assert rows[ARC]["state"] == rows[MEMORY]["state"] == "PAUSED"
    assert (rows[ARC]["tasks_done"], rows[ARC]["tasks_total"]) == (23, 26)
    assert (rows[MEMORY]["tasks_done"], rows[MEMORY]["tasks_total"]) == (0, 2)
    resumable = acode("session", "list", "--resumable", "--json").json
    assert {row["session_id"] for row in resumable} == {ARC, MEMORY}


@BOTH
def test_a_run_and_the_session_that_carries_it_are_one_row(acode: Acode, workspace: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put(workspace, "fail", WORK[run][1])
    put_foreign(workspace, run)
    assert acode("resume", run, "--yes").exit_code == 1
    (row,) = acode("session", "list", "--json").json
    assert row["session_id"] == run and row["carrier"] is not None
    assert row["interruption_class"] == "tool_failure" and row["steps_done"] == 1
    assert acode("session", "list", "--resumable", "--json").json == [row]
    assert acode("status", row["carrier"][-8:], "--json").json["session_id"] == run
    history = acode("session", "history", run, "--json").json
    assert history[0]["data"]["source"] == row["source"]


@BOTH
def test_a_run_is_named_by_a_part_of_its_id_or_by_its_session(acode: Acode, workspace: Path, run: str) -> None:
    put_arc(workspace)
    put_memory(workspace)
    for name in (run, run[:8], run[-8:]):
        assert acode("status", name, "--json").json["session_id"] == run
    assert acode("status", "nobody-knows").exit_code == 14
    assert acode("resume", run, "--dry-run", "--source", "native").exit_code == 14


@pytest.mark.req("PROTO-02", "PROTO-03", "PROTO-05")
def test_of_several_runs_nobody_guesses_and_of_none_there_is_a_fresh_start(acode: Acode, workspace: Path) -> None:
    assert acode("resume", "--source", "agent-memory").exit_code == 14
    put_memory(workspace)
    assert acode("resume", "--source", "agent-memory").exit_code == 0
    assert acode("resume").exit_code == 10
    assert acode("resume", "--last").exit_code == 0
    put_memory(workspace, "20260116-0900-other-work-b2c3")
    ended = acode("resume", "--source", "agent-memory", "--json")
    assert ended.exit_code == 10
    assert set(ended.json["error"]["details"]["candidates"]) == {MEMORY, "20260116-0900-other-work-b2c3"}


def test_without_an_id_the_most_recent_is_a_native_session(acode: Acode, workspace: Path) -> None:
    put(workspace, "plan.yml", "version: 1\ntitle: A plan\ntasks: [{id: a, steps: [{run: 'exit 1'}]}]\n")
    assert acode("run", "plan.yml").exit_code == 1
    put_arc(workspace)
    both = acode("resume", "--json")
    assert both.exit_code == 10 and ARC in both.json["error"]["details"]["candidates"]
    assert "A plan" in acode("resume", "--last").stderr


def test_an_ended_run_is_not_resumed(acode: Acode, workspace: Path) -> None:
    put_arc(workspace, phases={name: {"status": "skipped"} for name in OPEN_PHASES})
    assert acode("resume", ARC).exit_code == 15
    assert acode("resume", ARC, "--dry-run").exit_code == 15
    assert acode("explain", ARC).exit_code == 0


def test_a_session_whose_run_is_gone_is_not_taken_for_finished(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    put(workspace, "fail", "code_review")
    checkpoint = put_arc(workspace)
    assert acode("resume", ARC, "--yes").exit_code == 1
    (row,) = acode("session", "list", "--json").json
    checkpoint.parent.rename(workspace / "elsewhere")
    gone = acode("resume", row["carrier"])
    assert gone.exit_code == 1 and "not here" in gone.stderr
    checkpoint.parent.parent.rmdir()
    assert acode("resume", row["carrier"]).exit_code == 1
    assert acode("session", "list", "--json").json[0]["state"] == "PAUSED"


# What is refused.


def refused(acode: Acode, *flags: str) -> int:
    return acode("resume", ARC, "--yes", *flags).exit_code


@pytest.mark.req("ARC-02", "ARC-03")
@pytest.mark.parametrize(
    ("fields", "exit_code"),
    [
        ({"session_nonce": "not-hex"}, 20),
        ({"config_dir": "/somewhere/else"}, 17),
        ({"owner_pid": 1}, 16),
        ({"schema_version": 31}, 1),
        ({"schema_version": 20, "phases": {"unheard_of": {"status": "pending"}}}, 1),
    ],
)
def test_an_arc_run_that_is_not_ours_to_carry_is_refused_untouched(
    acode: Acode, workspace: Path, fields: dict[str, Any], exit_code: int
) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace, **fields)
    before = checkpoint.read_bytes()
    assert refused(acode) == exit_code
    assert checkpoint.read_bytes() == before and ledger(workspace) == []
    assert acode("session", "list", "--json").json[0]["carrier"] is None


@pytest.mark.req("ARC-RESUME-02")
def test_an_unreadable_checkpoint_is_listed_and_refused_with_its_backup_named(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace)
    good = checkpoint.read_bytes()
    checkpoint.with_name("checkpoint.json.bak.1").write_bytes(good)
    checkpoint.write_bytes(b"{")
    (row,) = acode("session", "list", "--json").json
    assert row["state"] == "DAMAGED" and row["resumable"] is False
    ended = acode("resume", ARC, "--yes", "--json")
    assert ended.exit_code == 20 and "checkpoint.json.bak.1" in ended.json["error"]["hint"]
    assert checkpoint.read_bytes() == b"{"


@pytest.mark.req("ARC-FRESH-03", "ARC-FRESH-04")
def test_a_stale_plan_needs_a_persons_word_which_is_kept(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace)
    put(workspace, "a/lost.py", "lost_name = 1\n")
    head = commit_all(workspace)
    put(workspace, "plans/a.md", f"---\ngit_sha: {head}\nbranch: gone\n---\nSee `a/lost.py` and `lost_name`.\n")
    (workspace / "a/lost.py").unlink()
    commit_all(workspace)
    assert refused(acode) == 17
    assert acode("resume", ARC, "--dry-run", "--json").json["next_action"].endswith("--changed-files continue")
    assert refused(acode, "--changed-files", "continue") == 0
    assert json.loads(checkpoint.read_text())["freshness"]["status"] == "STALE-OVERRIDE"
    (row,) = acode("session", "list", "--json", "--all").json
    notes = [event["data"] for event in acode("session", "history", row["carrier"], "--json").json]
    assert any(note.get("data", {}).get("stale_plan_accepted") for note in notes)


def commit_all(workspace: Path) -> str:
    def git(*line: str) -> str:
        return subprocess.run(["git", *line], cwd=workspace, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", "-A", "a", "plans" if (workspace / "plans").exists() else "a")
    git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "a")
    return git("rev-parse", "HEAD")

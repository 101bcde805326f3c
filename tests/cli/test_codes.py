"""Each class of interruption, reason code and error code that a script may meet, through the command line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest

from acode.engine.held_session import held
from acode.events import types as ev
from acode.library.world import world_of
from tests.agent.town import Town, call, plan_turn, served, task_turns
from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode
from tests.foreign import MEMORY, put_driver, put_foreign
from tests.terminals import Terminal, ended


@pytest.fixture
def stopped(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "go.txt").write_text("go\n")
    return str(acode("session", "list", "--json").json[0]["short_id"])


def decisions(acode: Acode, session: str) -> list[dict[str, Any]]:
    history = acode("session", "history", session, "--json").json
    return [event["data"] for event in history if event["type"] == "resume_decision"]


def append(workspace: Path, session: str, *events: ev.Known) -> None:
    """What another version of acode, or a crash in a place that nobody knows, would have left in the log."""
    with held(world_of(workspace), session) as run:
        run.append(*events)


# Classes.


@pytest.mark.req("POL-CLASS-03", "POL-COOL-03")
def test_a_context_reset_is_waited_for_ten_seconds_by_whoever_comes_automatically(
    acode: Acode, workspace: Path, tmp_path: Path
) -> None:
    too_long = {"status": 400, "body": {"error": {"message": "too long", "code": "context_length_exceeded"}}}
    turns = [
        plan_turn({"id": "work"}),
        {"says": "The record of a piece of work follows", "text": "Searched."},
        {"says": ["Your task now: Work", "What you noted down"], "fault": {**too_long, "times": 1}, "text": "Done."},
        task_turns("Work", {"calls": [call("search", text="a")]}, {"fault": too_long}),
    ]
    with served({"models": ["scripted"], "turns": turns}, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        assert town.run("--approve-plan").exit_code == 1
        look = acode("status", town.short, "--json").json
        assert look["interruption_class"] == "context_reset"
        refused = town.resume("--auto", "--json")
        assert refused.exit_code == 75
        (decision,) = decisions(acode, town.short)
        assert (decision["interruption_class"], decision["reason_code"]) == ("context_reset", "resume_blocked_cooldown")
        assert 0 < decision["cooldown_seconds_remaining"] <= 10
        town.configure("resume: {cooldown_seconds: {tool_failure: 3600, process_crash: 3600, context_reset: 0}}\n")
        assert town.resume("--auto").exit_code == 0, "it is this class that was waited for"


@pytest.mark.req("POL-CODE-03")
def test_an_end_of_no_known_class_is_left_to_a_person(acode: Acode, workspace: Path, stopped: str) -> None:
    append(workspace, stopped, ev.SessionExecuting(reason="resume"), ev.SessionPaused(reason="moved_to_the_moon"))
    (row,) = acode("session", "list", "--json").json
    assert (row["interruption_class"], row["reason_code"]) == (None, "resume_unknown_interruption_class")
    refused = acode("resume", stopped, "--auto", "--json")
    end = refused.lines[-1]["data"]
    assert (refused.exit_code, end["reason_code"]) == (13, "resume_unknown_interruption_class")
    (decision,) = decisions(acode, stopped)
    assert (decision["reason_code"], decision["interruption_class"]) == ("resume_unknown_interruption_class", None)
    assert acode("resume", stopped).exit_code == 0


# Error codes.


@pytest.mark.req("CODE-011c-06")
def test_a_log_that_fits_no_plan_ends_with_006_and_executes_nothing(
    acode: Acode, workspace: Path, stopped: str
) -> None:
    ghost = ev.StepStarted(
        step="validate.ghost", task="validate", kind="run", attempt=1, key="k:validate.ghost:1", action_digest=""
    )
    append(workspace, stopped, ev.SessionExecuting(reason="resume"), ghost)
    asked = acode("resume", stopped, "--json")
    assert (asked.exit_code, asked.lines[-1]["data"]["error"]["code"]) == (1, "ACODE-RESUME-006")
    assert "validate.ghost" in asked.lines[-1]["data"]["error"]["message"]
    assert not (workspace / "late.txt").exists()


@pytest.mark.req("CODE-011c-06")
def test_a_session_whose_foreign_run_is_gone_ends_with_006(acode: Acode, workspace: Path) -> None:
    run = put_foreign(workspace, MEMORY)
    put_driver(workspace, "agent-memory", idempotent=True)
    (workspace / "fail").write_text("T001")
    assert acode("resume", MEMORY, "--yes").exit_code == 1
    session = acode("session", "list", "--json").json[0]["carrier"]
    shutil.rmtree(run)
    asked = acode("resume", session["session_id"] if isinstance(session, dict) else session, "--json")
    error = asked.json["error"] if asked.json.get("error") else asked.lines[-1]["data"]["error"]
    assert (asked.exit_code, error["code"]) == (1, "ACODE-RESUME-006")


@pytest.mark.req("CODE-011c-07")
def test_a_target_that_records_the_step_with_other_content_ends_with_007(acode: Acode, workspace: Path) -> None:
    save(workspace, "CREATE TABLE t (n);\n", "one.sql")
    save(workspace, "CREATE TABLE u (n);\n", "two.sql")
    steps = "[{sql: {database: app.db, file: one.sql}}, {approve: 'On?'}, {sql: {database: app.db, file: two.sql}}]"
    acode("run", save(workspace, f"title: T\ntasks: [{{id: main, steps: {steps}}}]\n"))
    session = acode("session", "list", "--json").json[0]["session_id"]
    database = apsw.Connection(str(workspace / "app.db"))
    row = ("other", session, "main.3", "two.sql", "0" * 64, "2026-01-01")
    database.execute("INSERT INTO acode_applied VALUES (?, ?, ?, ?, ?, ?)", (f"{session}:main.3:1", *row[1:]))
    database.close()
    assert acode("session", "approve", session).exit_code == 0
    asked = acode("resume", session, "--json")
    assert (asked.exit_code, asked.lines[-1]["data"]["error"]["code"]) == (20, "ACODE-RESUME-007")
    database = apsw.Connection(str(workspace / "app.db"))
    assert list(database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'u'")) == []
    database.close()


@pytest.mark.req("CODE-011c-13")
def test_a_file_that_is_swapped_while_its_change_is_looked_at_ends_with_file_001(
    acode: Acode, terminal: Terminal, workspace: Path, stopped: str
) -> None:
    (workspace / "email.txt").write_text("looks harmless\n")
    child = terminal("resume", stopped)
    child.expect_exact("Choice: ")
    (workspace / "email.txt").write_text("is not\n")
    child.sendline("c")
    child.expect_exact("[FILE-001]")
    assert ended(child) == 17
    told = [json.loads(line) for line in (workspace / ".agent/logs/acode.jsonl").read_text().splitlines()]
    (details,) = [line["details"] for line in told if line.get("code") == "FILE-001"]
    hashes = [hashlib.sha256(text).hexdigest() for text in (b"looks harmless\n", b"is not\n")]
    assert details == {"path": "email.txt", "expected": hashes[0], "found": hashes[1]}
    assert not (workspace / "late.txt").exists()


@pytest.mark.req("CFG-011c-04", "FR-040b-30")
def test_a_validation_that_takes_longer_than_it_may_executes_nothing(
    acode: Acode, workspace: Path, stopped: str
) -> None:
    os.utime(workspace / "email.txt", (1, 1))  # its stat proves nothing now, so it is hashed
    save(workspace / ".agent", "resume: {validation_timeout_seconds: 0.000001}\n", "config.yml")
    asked = acode("resume", stopped, "--json")
    error = asked.lines[-1]["data"]["error"]
    assert (asked.exit_code, error["code"]) == (17, "ACODE-RESUME-004")
    assert "ran out of time" in error["message"] and "validation_timeout_seconds" in error["hint"]
    assert not (workspace / "late.txt").exists()
    save(workspace / ".agent", "resume: {validation_timeout_seconds: 60}\n", "config.yml")
    assert acode("resume", stopped).exit_code == 0


HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.req("CODE-011c-11")
@pytest.mark.parametrize("name_in_it", ["of the last owner", "nobody's"])
def test_a_process_that_is_not_acode_and_holds_the_lock_is_named_with_lock_003(
    acode: Acode, workspace: Path, stopped: str, name_in_it: str
) -> None:
    (path,) = [one for one in (workspace / ".agent/locks").iterdir() if one.name.partition(".")[0].endswith(stopped)]
    if name_in_it == "nobody's":
        path.write_bytes(b"")
    program = workspace.parent / "backup-tool"
    program.symlink_to(os.path.realpath(sys.executable))
    stranger = subprocess.Popen(
        [program, "-I", "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert stranger.stdout is not None and stranger.stdout.readline() == "held\n"
    try:
        asked = acode("resume", stopped, "--json")
    finally:
        stranger.communicate()
    assert (asked.exit_code, asked.json["error"]["code"]) == (16, "LOCK-003")
    assert f"pid {stranger.pid}, backup-tool" in asked.json["error"]["message"]
    assert acode("resume", stopped).exit_code == 0


@pytest.mark.req("CODE-011c-04", "IF-040b-02")
def test_changed_files_end_with_004_and_what_kind_it_was_is_a_detail(
    acode: Acode, workspace: Path, stopped: str
) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    (workspace / "phone.txt").unlink()
    asked = acode("resume", stopped, "--json")
    error = asked.lines[-1]["data"]["error"]
    assert (asked.exit_code, error["code"]) == (17, "ACODE-RESUME-004")
    assert error["details"]["detail_code"] == "ACODE-RESUME-013"
    assert [one["path"] for one in error["details"]["mismatches"]] == ["email.txt", "phone.txt"], "every one"
    assert asked.lines[-1]["data"]["next_action"].endswith("--changed-files continue")


# One reason code.


@pytest.mark.parametrize("actor", ["system", "user"])
def test_an_unknown_outcome_has_one_reason_code_in_the_last_line_and_in_the_audit_event(
    acode: Acode, workspace: Path, actor: str
) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill_everything()
    asked = acode("resume", "--last", "--json", *(["--auto"] if actor == "system" else []))
    (decision,) = decisions(acode, acode("session", "list", "--json").json[0]["session_id"])
    end = asked.lines[-1]["data"]
    assert (asked.exit_code, end["error"]["code"]) == (19, "ACODE-RESUME-009")
    assert end["reason_code"] == decision["reason_code"] == "resume_non_idempotent_step"
    assert decision["actor"] == actor


def test_the_log_file_tells_when_a_resume_is_completed(acode: Acode, workspace: Path, stopped: str) -> None:
    assert acode("resume", stopped).exit_code == 0
    lines = [json.loads(line) for line in (workspace / ".agent/logs/acode.jsonl").read_text().splitlines()]
    (begun,) = [line for line in lines if line["event"] == "session_resume"]
    (done,) = [line for line in lines if line["event"] == "resume_completed"]
    assert done["session_id"] == begun["session_id"] and done["level"] == "info" and done["at"] > begun["at"]
    assert (done["executed_steps"], done["skipped_steps"], done["state"]) == (3, 3, "COMPLETED")


def test_a_first_run_that_ends_well_has_no_such_line(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, GATE.replace("      - approve: Deploy to production?\n        id: gate\n", "")))
    assert "resume_completed" not in (workspace / ".agent/logs/acode.jsonl").read_text()

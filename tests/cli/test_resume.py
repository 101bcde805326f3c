"""acode resume: what it says and in which order, which session it takes, and how it refuses."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode, Ended


@pytest.fixture
def stopped(acode: Acode, workspace: Path) -> str:
    """A session that paused at Task 2, Step 3, because a file was missing that is there now; its short id."""
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "go.txt").write_text("go\n")
    return str(acode("session", "list", "--json").json[0]["short_id"])


def in_order(text: str, *pieces: str) -> None:
    at = 0
    for piece in pieces:
        found = text.find(piece, at)
        assert found >= 0, f"{piece!r} is missing, or not after what must stand before it, in:\n{text}"
        at = found + len(piece)


@pytest.mark.req("OUT-011c-01", "OUT-011c-04", "CLI-011c-02", "CLI-011c-10", "FR-011c-056")
def test_a_resume_tells_its_story_in_the_order_of_the_manual(acode: Acode, stopped: str) -> None:
    ended = acode("resume", stopped)
    assert (ended.exit_code, ended.stdout) == (0, "")
    in_order(
        ended.stderr,
        f"Resuming session {stopped}...\n",
        "  Loaded state: PAUSED at Task 2, Step 3\n",
        "  Skipping: Task 1 (complete)\n",
        "  Skipping: Task 2, Steps 1-2 (complete)\n",
        "  Starting from: Task 2, Step 3\n",
        "Validating environment...\n",
        "  ✓ Working directory exists\n",
        "  ✓ Required files accessible\n",
        "  ✓ Configuration valid\n",
        "\nEnvironment ready. Resuming...\n",
        "  ✓ Task 1: Analyze existing code (skipped",
        "  ✓ Task 2, Steps 1-2 (skipped)\n",
        "  ● Task 2, Step 3: Run cat go.txt",
        "  ✓ Task 2, Step 3: Run cat go.txt",
        "  ✓ Task 3, Step 1: Write end.txt",
    )


@pytest.mark.req("FR-011c-057", "FR-011c-058", "FR-011c-059", "FR-011c-060")
def test_a_resume_counts_what_is_skipped_left_and_done(acode: Acode, stopped: str) -> None:
    ended = acode("resume", stopped)
    assert "  Skipped in all: 3 of 6 steps (" in ended.stderr
    assert "  Remaining: 3 steps\n" in ended.stderr
    assert [f"[{number}/6]" in ended.stderr for number in (4, 5, 6)] == [True] * 3
    assert f"✓ Resume completed: session {stopped} is done (3 steps executed, 3 steps skipped" in ended.stderr


@pytest.mark.req("CLI-011c-03")
def test_a_dry_run_shows_what_would_happen_and_changes_nothing(acode: Acode, stopped: str, workspace: Path) -> None:
    before = acode("session", "history", "--json").json
    ended = acode("resume", "--dry-run", stopped)
    in_order(
        ended.stdout,
        f"Would resume session {stopped}:\n",
        "  Current state: PAUSED\n",
        "  Last checkpoint: Task 2, Step 2\n",
        "  Skipping: 3 steps (complete)\n",
        "  Remaining: 3 steps\n",
        "  Sync status: ",
        f"Next: acode resume {stopped}",
    )
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert acode("session", "history", "--json").json == before
    assert not (workspace / "late.txt").exists()


DRY_RUN = {
    *("session_id", "short_id", "source", "title", "state", "escalated", "scenario", "interruption_class", "decision"),
    *("resume_point", "checkpoint", "skipped_tasks", "skipped_steps", "remaining_steps", "in_flight", "in_progress"),
    *("environment", "sync", "needs_human", "next_action"),
}


def test_the_dry_runs_document_has_every_promised_field(acode: Acode, stopped: str) -> None:
    found = acode("resume", stopped, "--dry-run", "--json").json
    assert set(found) >= DRY_RUN
    assert (found["short_id"], found["state"], found["scenario"]) == (stopped, "PAUSED", "clean_shutdown")
    assert found["interruption_class"] == "tool_failure"
    assert found["skipped_steps"] == ["analyze.1", "validate.1", "validate.2"]
    assert found["remaining_steps"] == ["validate.check", "validate.4", "finish.1"]
    assert found["decision"]["actor"] == "user" and found["decision"]["eligible"] is True
    assert acode("resume", stopped, "--dry-run", "--auto", "--json").json["decision"]["actor"] == "system"


def test_without_a_terminal_nothing_is_taken_that_was_not_named(acode: Acode, stopped: str, workspace: Path) -> None:
    ended = acode("resume")
    assert ended.exit_code == 10
    assert stopped in ended.stderr and "--last" in ended.stderr
    assert not (workspace / "late.txt").exists()


@pytest.mark.req("FR-011c-001")
@pytest.mark.parametrize("flag", ["--last", "--yes"])
def test_the_most_recent_session_is_taken_by_flag_and_named(
    acode: Acode, stopped: str, workspace: Path, flag: str
) -> None:
    assert acode("run", save(workspace, THREE_TASKS.replace("input", "output"), "later.yml")).exit_code == 0
    assert acode("run", save(workspace, GATE, "gate.yml")).exit_code == 10
    (newest,) = [one["short_id"] for one in acode("session", "list", "--json").json if one["title"] == "Deploy it"]
    acode("session", "approve", newest)
    ended = acode("resume", flag)
    assert ended.exit_code == 0
    assert f'Taking the most recent session: {newest} - approved, to resume - "Deploy it"' in ended.stderr
    states = {one["short_id"]: one["state"] for one in acode("session", "list", "--json").json}
    assert (states[newest], states[stopped]) == ("COMPLETED", "PAUSED")
    left = acode("resume", flag)
    assert left.exit_code == 0
    assert f'Taking the most recent session: {stopped} - PAUSED - "Add input validation"' in left.stderr


@pytest.mark.req("SCN-011c-02")
def test_of_two_sessions_the_named_one_is_resumed(acode: Acode, stopped: str, workspace: Path) -> None:
    acode("run", save(workspace, GATE, "gate.yml"))
    assert acode("resume", stopped).exit_code == 0
    states = {row["title"]: row["state"] for row in acode("session", "list", "--json").json}
    assert states == {"Add input validation": "COMPLETED", "Deploy it": "AWAITING_APPROVAL"}


@pytest.mark.parametrize("cut", [slice(-4, None), slice(-8, None), slice(None, 13), slice(None)])
def test_any_unique_end_or_beginning_names_a_session(acode: Acode, stopped: str, cut: slice) -> None:
    whole = acode("session", "list", "--json").json[0]["session_id"]
    assert acode("resume", whole[cut], "--dry-run", "--json").json["session_id"] == whole


@pytest.mark.parametrize("name", ["zzzz", "abc", "00000000-0000-0000-0000-000000000000", "../../etc/passwd"])
def test_an_unknown_id_lists_what_there_is_and_starts_nothing(acode: Acode, stopped: str, name: str) -> None:
    ended = acode("resume", name)
    assert ended.exit_code == 14
    assert stopped in ended.stderr
    assert len(acode("session", "list", "--json").json) == 1


@pytest.mark.parametrize("name", ["", "abc"])
def test_too_little_of_an_id_is_told_how_much_it_takes(acode: Acode, stopped: str, name: str) -> None:
    ended = acode("resume", name)
    assert ended.exit_code == 14
    assert f"no session is named by “{name}”: it takes 4 or more characters of its id; there are: {stopped}" in (
        ended.stderr
    )


def test_no_session_at_all_is_14(acode: Acode) -> None:
    for command in (["resume"], ["resume", "--last"], ["status"], ["explain"], ["resume", "--dry-run"]):
        ended = acode(*command, "--json")
        assert (ended.exit_code, ended.json["error"]["code"]) == (14, "ACODE-RESUME-001")


@pytest.mark.req("SCN-011c-04", "OUT-011c-08")
def test_an_ended_session_is_not_resumed_and_the_way_on_is_named(acode: Acode, stopped: str) -> None:
    acode("resume", stopped)
    ended = acode("resume", stopped)
    assert ended.exit_code == 15
    assert f"Cannot resume COMPLETED session {stopped}" in ended.stderr
    assert "Start a new one: acode run" in ended.stderr
    assert "To resume:" not in ended.stderr
    assert acode("resume", "--dry-run", stopped).exit_code == 15
    for words in (["--last"], []):
        assert acode("resume", *words).exit_code == acode("resume", "--dry-run", *words).exit_code == 14


@pytest.mark.req("OUT-011c-05", "CLI-011c-09", "SCN-011c-06", "FR-011c-044")
def test_changed_files_stop_a_resume_until_somebody_decides(acode: Acode, stopped: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    os.utime(workspace / "email.txt", (time.time() - 300, time.time() - 300))
    ended = acode("resume", stopped)
    assert ended.exit_code == 17
    assert "error: 1 file that the session works on was changed by somebody else: email.txt" in ended.stderr
    assert "  ⚠ Changed files detected:\n    - email.txt (modified 5 min ago)\n" in ended.stderr
    assert "The session was working on these files. Changes may conflict.\n" in ended.stderr
    assert "--changed-files continue" in ended.stderr
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {stopped}"
    went_on = acode("resume", stopped, "--changed-files", "continue")
    assert went_on.exit_code == 0
    assert "Continuing with changed files..." in went_on.stderr
    assert (workspace / "email.txt").read_text() == "somebody else\n"


@pytest.mark.req("CLI-011c-09")
def test_force_goes_on_past_changed_files_and_the_reason_is_recorded(
    acode: Acode, stopped: str, workspace: Path
) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    assert acode("resume", stopped, "--force", "--reason", "I looked").exit_code == 0
    forced = [event for event in acode("session", "history", "--json").json if event["type"] == "forced"]
    assert [event["data"]["reason"] for event in forced] == ["I looked"]


def test_a_refusal_after_the_start_still_ends_the_json_lines(acode: Acode, stopped: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    ended = acode("resume", stopped, "--json")
    lines = ended.lines
    assert (lines[0]["event"], lines[-1]["event"]) == ("session_start", "session_end")
    end = lines[-1]["data"]
    assert (ended.exit_code, end["exit_code"], end["state"]) == (17, 17, "PAUSED")
    assert end["error"]["code"] == "ACODE-RESUME-004"
    assert [line for line in lines if "error" in line] == []


# Where a run stops, and the one command that helps then.


def stop_at_a_gate(acode: Acode, workspace: Path) -> Ended:
    return acode("run", save(workspace, GATE), "--json")


def stop_at_changed_files(acode: Acode, workspace: Path) -> Ended:
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "notes.txt").write_text("mine\n")
    return acode("resume", "--last", "--json")


def stop_at_the_last_attempt(acode: Acode, workspace: Path) -> Ended:
    (workspace / ".agent").mkdir()
    (workspace / ".agent" / "config.yml").write_text("resume: {max_resume_attempts: 1}\n")
    acode("run", save(workspace, THREE_TASKS))
    return acode("resume", "--last", "--json")


def stop_after_the_last_attempt(acode: Acode, workspace: Path) -> Ended:
    stop_at_the_last_attempt(acode, workspace)
    return acode("resume", "--last", "--json")


def stop_in_a_forced_attempt(acode: Acode, workspace: Path) -> Ended:
    stop_at_the_last_attempt(acode, workspace)
    return acode("resume", "--last", "--force", "--json")


def stop_at_an_unknown_outcome(acode: Acode, workspace: Path) -> Ended:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill_everything()
    return acode("resume", "--last", "--json")


def stop_at_a_time_out(acode: Acode, workspace: Path) -> Ended:
    return acode("run", save(workspace, slow("timeout: 1")), "--json")


def stop_at_a_time_out_of_what_may_be_repeated(acode: Acode, workspace: Path) -> Ended:
    return acode("run", save(workspace, slow(REPEATABLE)), "--json")


REPEATABLE = "timeout: 1\n        idempotent: true"
STOPS = [
    (stop_at_a_gate, 10, "acode session approve {}"),
    (stop_at_changed_files, 17, "acode resume {} --changed-files continue"),
    (stop_at_the_last_attempt, 1, "acode resume {} --force --reason TEXT"),
    (stop_after_the_last_attempt, 18, "acode resume {} --force --reason TEXT"),
    (stop_in_a_forced_attempt, 1, "acode resume {} --force --reason TEXT"),
    (stop_at_an_unknown_outcome, 19, "acode session resolve {} work.slow --applied|--not-applied|--retry"),
    (stop_at_a_time_out, 1, "acode session resolve {} work.slow --applied|--not-applied|--retry"),
    (stop_at_a_time_out_of_what_may_be_repeated, 1, "acode resume {}"),
]


@pytest.mark.parametrize(("stop", "code", "way"), STOPS, ids=[stop.__name__ for stop, _, _ in STOPS])
def test_the_last_line_names_the_command_that_helps_as_a_look_does(
    acode: Acode, workspace: Path, stop: Callable[[Acode, Path], Ended], code: int, way: str
) -> None:
    ended = stop(acode, workspace)
    last = ended.lines[-1]
    if isinstance(last["data"]["error"]["details"].get("step"), str):
        assert way.format(last["session_id"][-8:]).partition(" --applied")[0] in last["data"]["error"]["hint"]
    name = last["session_id"][-8:]
    assert (ended.exit_code, last["event"], last["data"]["next_action"]) == (code, "session_end", way.format(name))
    assert acode("explain", name, "--json").json["next_action"] == last["data"]["next_action"]
    assert ("all 1 attempts used" in acode("explain", name).stdout) == ("--force" in way)


def test_a_failure_that_ends_the_session_names_no_resume(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, "on_failure: abort\ntasks: [{title: T, steps: [{run: exit 3}]}]\n"))
    assert (ended.exit_code, "acode resume" in ended.stderr) == (1, False)
    assert f"Fix the cause, then: acode run --new {(acode.workspace / 'plan.yml').resolve()}" in ended.stderr


def test_a_refusal_before_the_start_is_one_error_document(acode: Acode, stopped: str) -> None:
    acode("resume", stopped)
    ended = acode("resume", stopped, "--json")
    assert list(ended.json) == ["error"]
    assert list(ended.json["error"]) == ["code", "message", "hint", "exit_code", "details"]


def test_an_automatic_attempt_waits_for_its_cool_down(acode: Acode, stopped: str) -> None:
    ended = acode("resume", stopped, "--auto", "--json")
    end = ended.lines[-1]["data"]
    assert (ended.exit_code, end["reason_code"]) == (75, "resume_blocked_cooldown")
    assert 0 < end["error"]["details"]["cooldown_seconds_remaining"] <= 30


def test_a_person_is_told_what_would_stop_an_automatic_attempt(acode: Acode, stopped: str) -> None:
    ended = acode("resume", stopped)
    assert ended.exit_code == 0
    assert "an automatic resume would be refused now" in ended.stderr


def test_lenient_is_no_decision_about_a_file_that_somebody_deleted(acode: Acode, stopped: str, workspace: Path) -> None:
    (workspace / "email.txt").unlink()
    ended = acode("resume", stopped, "--lenient")
    assert ended.exit_code == 17 and "--changed-files continue" in ended.stderr
    assert "--changed-files decides about files that others changed or deleted" in " ".join(
        acode("resume", "--help").stdout.split()
    )
    assert acode("resume", stopped, "--lenient", "--changed-files", "continue").exit_code == 0


def test_skipping_the_validation_is_said_and_recorded(acode: Acode, stopped: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    ended = acode("resume", stopped, "--skip-validation")
    assert "warning: the environment is not validated" in ended.stderr
    assert "Validating environment" not in ended.stderr
    assert "validation_skipped" in [event["type"] for event in acode("session", "history", "--json").json]


@pytest.mark.parametrize("skip", [["--skip-validation"], []], ids=["option", "setting"])
def test_a_change_that_nobody_looked_at_is_no_work_of_the_next_step(
    acode: Acode, stopped: str, workspace: Path, skip: list[str]
) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    if not skip:
        (workspace / ".agent" / "config.yml").write_text("resume: {validate_environment: false}\n")
    ended = acode("resume", stopped, *skip, "--json")
    assert ended.exit_code == 17, "it is reported at the end, and not taken for the work of a step"
    assert "email.txt" in ended.lines[-1]["data"]["error"]["message"]
    events = acode("session", "history", "--json").json
    assert "email.txt" not in [path for event in events for path in event["data"].get("touched", [])]


def test_verbose_tells_scenario_decision_and_replay(acode: Acode, stopped: str) -> None:
    ended = acode("resume", stopped, "-v")
    assert "Decision: resume_allowed, attempt 1 of 3" in ended.stderr
    assert "Scenario: clean_shutdown; checkpoint " in ended.stderr
    assert "replayed events 1 to " in ended.stderr
    assert "Scenario" not in acode("resume", stopped).stderr


@pytest.mark.req("OUT-011c-06", "SCN-011c-08")
def test_a_killed_command_is_settled_and_the_settlement_is_told(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    running.kill_everything()
    (workspace / "go.txt").write_text("go\n")
    ended = acode("resume", "--last")
    assert ended.exit_code == 0
    in_order(
        ended.stderr,
        "Loaded state: EXECUTING at Task 1, Step 2",
        "Step: Run echo under way",
        "Status: Was in progress\n",
        "Checking: ",
        "Action: Re-executing step\n",
        "● Task 1, Step 2: ",
    )


def test_partial_outputs_are_told_to_be_put_back(acode: Acode, workspace: Path) -> None:
    declared = "outputs: [made.txt]"
    text = slow(declared).replace("echo under way;", "echo half > made.txt; echo under way;")
    running = acode.process("run", save(workspace, text))
    running.wait_for_line("│ under way")
    running.kill_everything()
    (workspace / "go.txt").write_text("go\n")
    ended = acode("resume", "--last")
    assert ended.exit_code == 0
    in_order(
        ended.stderr,
        "Status: Partially done\n",
        "Action: Rolling back to checkpoint\n",
        "Action: Re-executing step\n",
        "Restored: made.txt",
    )


def test_an_unknown_outcome_is_nobodys_guess(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill_everything()
    ended = acode("resume", "--last")
    assert ended.exit_code == 19
    assert "session resolve" in ended.stderr and "--not-applied" in ended.stderr
    shown = acode("status", "--json").json
    assert shown["decision"]["reason_code"] == "resume_non_idempotent_step"


@pytest.mark.req("SCN-011c-05", "OUT-011c-08")
def test_a_running_session_is_refused_with_its_owner(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    name = acode("session", "list", "--json").json[0]["short_id"]
    ended = acode("resume", name)
    assert ended.exit_code == 16
    assert f"Session {name} is locked by another process: pid {running.pid}" in ended.stderr
    for way_out in ("--wait", "other acode processes", "acode session unlock"):
        assert way_out in ended.stderr
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {name}"
    assert acode("status", "--json").json["lock"]["owner"]["pid"] == running.pid
    (workspace / "go.txt").write_text("go\n")
    assert running.finish().exit_code == 0

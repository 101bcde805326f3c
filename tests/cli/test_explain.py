"""acode explain and status: a stranger to the tool sees what happened, why, and what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from acode.cli.sync_state import in_brief, in_full
from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode


@pytest.fixture
def paused(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, THREE_TASKS))
    return str(acode("session", "list", "--json").json[0]["short_id"])


@pytest.mark.req("NFR-040b-28")
def test_an_explanation_answers_every_question_of_a_newcomer(acode: Acode, paused: str) -> None:
    text = acode("explain", paused, env={"COLUMNS": "120"}).stdout
    for answer in (
        f"Session {paused}  Add input validation",
        "PAUSED · 3 of 6 steps done · last active just now",
        "Stopped     A step failed, so it paused by itself.",
        "class tool_failure: step validate.check: `cat go.txt` ended with exit status 1",
        "Last output │ cat: go.txt: No such file or directory",
        "Done        Task 1: Analyze existing code",
        "            Task 2, Steps 1-2",
        "In flight   nothing",
        "Pending     Task 2, Step 3 (validate.check): Run cat go.txt",
        "Drift       none: 3 files as the session left them",
        "Would it be resumed automatically? no (resume_blocked_cooldown, attempt 1 of 3)",
        "<- this decides",
        "May a person resume it? yes",
        f"Next: acode resume {paused}",
    ):
        assert answer in text


def test_every_rule_is_told_with_its_reason(acode: Acode, paused: str) -> None:
    text = acode("explain", paused).stdout
    rules = acode("explain", paused, "--json").json["rules"]
    assert len(rules) == 8
    for rule in rules:
        assert f"{'✓' if rule['met'] else '✗'} {rule['name']}: " in text


def test_the_explanations_document_is_the_dry_runs(acode: Acode, paused: str) -> None:
    explained = acode("explain", paused, "--json").json
    previewed = acode("resume", paused, "--dry-run", "--json").json
    assert explained.keys() == previewed.keys()
    assert (explained["decision"]["actor"], previewed["decision"]["actor"]) == ("system", "user")
    same = ("session_id", "state", "scenario", "interruption_class", "skipped_steps", "remaining_steps", "environment")
    assert {name: explained[name] for name in same} == {name: previewed[name] for name in same}


def test_a_step_in_flight_is_explained_by_its_evidence(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    assert "it is running now" in acode("explain").stdout
    running.kill_everything()
    text = acode("explain").stdout
    assert "It was cut off in the middle of its work" in text
    assert "class process_crash: " in text
    assert "In flight   Task 1, Step 2 (work.slow)" in text
    assert "a person must say whether it took effect" in text
    assert "May a person resume it? once the step in flight is settled" in text
    assert "Next: acode session resolve " in text


def test_drift_is_named_file_by_file(acode: Acode, paused: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    (workspace / "phone.txt").unlink()
    text = acode("explain", paused).stdout
    assert "changed by somebody else: email.txt (modified" in text
    assert "changed by somebody else: phone.txt (deleted" in text
    assert f"Next: acode resume {paused} --changed-files continue" in text


def test_a_gate_is_told_as_what_it_waits_for(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, GATE))
    text = acode("explain").stdout
    assert "It stands at a gate: Deploy to production?" in text
    assert "Next: acode session approve " in text


def test_an_ended_session_is_explained_in_one_line(acode: Acode, paused: str) -> None:
    acode("session", "cancel", paused)
    ended = acode("explain", paused)
    assert ended.exit_code == 0
    assert "nothing is left to resume" in ended.stdout


def test_the_document_of_an_ended_session_has_every_field_filled(acode: Acode, paused: str) -> None:
    before = acode("explain", paused, "--json").json
    acode("session", "cancel", paused)
    found = acode("explain", paused, "--json").json
    assert set(before) - set(found) <= {"interruption", "warnings", "rules"}
    assert {name for name, value in found.items() if value is None} == {
        *("interruption_class", "resume_point", "in_progress", "attention")
    }
    decision = found["decision"]
    assert (decision["eligible"], decision["reason_code"]) == (False, "resume_missing_checkpoint")
    assert (decision["run_state"], found["environment"]["valid"], found["needs_human"]) == ("failed", True, False)


def test_a_failed_step_that_may_not_be_repeated_needs_a_person(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, "tasks: [{title: T, steps: [{run: exit 3}]}]\n"))
    found = acode("explain", "--json").json
    assert (found["decision"]["reason_code"], found["needs_human"]) == ("resume_non_idempotent_step", True)
    assert acode("resume", "--last", "--dry-run", "--json").json["decision"]["eligible"], "a person may"


def test_a_look_changes_nothing(acode: Acode, paused: str, workspace: Path) -> None:
    before = acode("session", "history", "--json").json
    for words in (["explain"], ["status"], ["session", "list"], ["session", "show"], ["session", "verify"]):
        assert acode(*words).exit_code == 0
    assert acode("session", "history", "--json").json == before


# Status.


def test_status_tells_state_position_decision_and_lock(acode: Acode, paused: str) -> None:
    text = acode("status", paused).stdout
    assert text.startswith(f"Session: {paused}\n")
    for line in (
        "State: PAUSED\n",
        "Progress: 1/3 tasks, 3/6 steps\n",
        "Position: Task 2/3, Step 3/4\n",
        "Automatic resume now: refused (resume_blocked_cooldown, ",
        "Lock: free\n",
        f"Next: acode resume {paused}\n",
    ):
        assert line in text


def test_the_status_document_is_a_row_with_decision_lock_and_sync(acode: Acode, paused: str) -> None:
    row = acode("session", "list", "--json").json[0]
    found = acode("status", paused, "--json").json
    assert {name: found[name] for name in row} == row
    assert list(found)[len(row) :] == ["decision", "lock", "sync"]
    assert found["lock"] == {"held": False, "owner": None}
    promised = {"status", "pending_events", "last_attempt_at", "next_retry_in_seconds", "reason"}
    assert set(found["sync"]) == promised | {"standing"}
    assert found["decision"]["actor"] == "system"


@pytest.mark.req("CLI-011c-07", "OUT-011c-07")
def test_a_degraded_sync_is_told_with_its_numbers_and_no_alarm(acode: Acode) -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    degraded = {
        "status": "degraded",
        "pending_events": 5,
        "last_attempt_at": "2026-03-01T11:50:00+00:00",
        "next_retry_in_seconds": 30,
        "reason": "Connection refused",
    }
    assert in_full(degraded, now) == [
        "Sync: DEGRADED - 5 events pending",
        "  Last sync attempt: 10 min ago",
        "  Next retry: 30 sec",
        "  Reason: Connection refused",
        "",
        "Note: Session continues locally. Sync will resume when remote is available.",
    ]
    assert in_full({"status": "up_to_date", "pending_events": 0}, now) == ["Sync: Up to date ✓"]
    assert in_brief({"status": "pending", "pending_events": 2}) == "2 events pending"


# What a list and a closer look say is the same.


ENDINGS = {
    "a failed step that may not be repeated": ("steps: [{run: exit 3}]", "resume_non_idempotent_step"),
    "a failed step that may": ("steps: [{run: exit 3, idempotent: true}]", "resume_blocked_cooldown"),
    "a failed step with a probe": ("steps: [{run: exit 3, probe: exit 1}]", "resume_blocked_cooldown"),
    "a gate": ("steps: [{approve: Go?}]", "resume_allowed"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_list_says_what_the_status_says(acode: Acode, workspace: Path, ending: str) -> None:
    steps, reason = ENDINGS[ending]
    acode("run", save(workspace, f"tasks: [{{title: T, {steps}}}]\n"))
    (row,), status = acode("session", "list", "--json").json, acode("status", "--json").json
    assert row == {name: status[name] for name in row}
    assert row["reason_code"] == status["decision"]["reason_code"] == reason


@pytest.mark.parametrize(
    ("declared", "reason"),
    [("timeout: 60", "resume_non_idempotent_step"), ("idempotent: true", "resume_blocked_cooldown")],
)
def test_a_step_that_was_cut_off_is_judged_alike_in_the_list(
    acode: Acode, workspace: Path, declared: str, reason: str
) -> None:
    running = acode.process("run", save(workspace, slow(declared)))
    running.wait_for_line("│ under way")
    running.kill_everything()
    (row,), status = acode("session", "list", "--json").json, acode("status", "--json").json
    assert row == {name: status[name] for name in row}
    assert (row["interruption_class"], row["reason_code"]) == ("process_crash", reason)


def test_a_session_that_runs_has_no_interruption_and_its_lock_refuses_a_second(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    (row,), status = acode("session", "list", "--json").json, acode("status", "--json").json
    assert row == {name: status[name] for name in row}
    assert (row["state"], row["interruption_class"], row["reason_code"]) == ("EXECUTING", None, None)
    assert status["lock"]["held"] and not status["decision"]["eligible"]
    for look in (["resume", "--dry-run", row["short_id"]], ["explain", row["short_id"]]):
        found = acode(*look, "--json").json
        assert (found["interruption_class"], found["needs_human"]) == (None, False)
        assert (found["decision"]["eligible"], found["decision"]["reason_code"]) == (False, None)
        assert found["decision"]["cooldown_seconds_remaining"] == 0
    assert "Decision: refused (its lock is held)" in acode("resume", "--dry-run", row["short_id"]).stdout
    assert acode("resume", row["short_id"]).exit_code == 16
    (workspace / "go.txt").touch()
    assert running.finish().exit_code == 0

"""acode run: what a person sees, what a program reads, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.plans import GATE, THREE_TASKS, save
from tests.disks import on_a_small_disk
from tests.driver import Acode

ENVELOPE = ["event", "at", "session_id", "seq", "task", "step", "data"]
END = ["state", "exit_code", "reason_code", "executed_steps", "skipped_steps", "next_action", "error"]


def test_a_run_talks_on_stderr_and_keeps_stdout_for_data(acode: Acode, workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    ended = acode("run", save(workspace, THREE_TASKS))
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "Add input validation (3 tasks, 6 steps)" in ended.stderr
    assert "Task 2/3: Add validators" in ended.stderr
    assert "  ✓ Task 2, Step 1: Write email.txt (" in ended.stderr
    assert "    │ go" in ended.stderr
    assert "[6/6]" in ended.stderr
    assert "is done (6 steps executed" in ended.stderr
    assert "To resume" not in ended.stderr


def test_json_lines_begin_with_the_start_and_end_with_the_end(acode: Acode, workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    ended = acode("run", save(workspace, THREE_TASKS), "--json")
    lines = ended.lines
    assert [list(line) for line in lines] == [ENVELOPE] * len(lines)
    assert (lines[0]["event"], lines[-1]["event"]) == ("session_start", "session_end")
    assert list(lines[-1]["data"]) == END
    assert lines[-1]["data"] == {
        "state": "COMPLETED",
        "exit_code": 0,
        "reason_code": "completed",
        "executed_steps": 6,
        "skipped_steps": 0,
        "next_action": "",
        "error": None,
    }
    assert [line["step"] for line in lines if line["event"] == "step_completed"] == [
        "analyze.1",
        "validate.1",
        "validate.2",
        "validate.check",
        "validate.4",
        "finish.1",
    ]
    assert len({line["session_id"] for line in lines}) == 1
    sequence = [line["seq"] for line in lines if line["seq"] is not None]
    assert sequence == sorted(sequence)


@pytest.mark.req("FR-011c-063", "FR-011c-064", "FR-011c-065")
def test_a_failed_step_ends_with_its_reason_and_the_command_that_resumes(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, THREE_TASKS))
    assert ended.exit_code == 1
    assert "✗ Task 2, Step 3: Run cat go.txt failed" in ended.stderr
    assert "error: step validate.check: `cat go.txt` ended with exit status 1 [ACODE-STEP-001]" in ended.stderr
    assert "hint: Fix the cause, then: acode resume" in ended.stderr
    assert "Remaining: 3 steps" in ended.stderr
    name = acode("session", "list", "--json").json[0]["short_id"]
    assert ended.stderr.splitlines()[-1] == f"To resume: acode resume {name}"


def test_a_failed_step_ends_the_json_lines_with_its_error(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, THREE_TASKS), "--json")
    end = ended.lines[-1]["data"]
    assert (ended.exit_code, end["exit_code"], end["state"]) == (1, 1, "PAUSED")
    assert end["error"]["code"] == "ACODE-STEP-001"
    assert end["next_action"].startswith("acode resume ")
    assert ended.stderr.splitlines()[-1].startswith("To resume: acode resume ")


def test_an_unfinished_session_of_the_plan_needs_an_answer(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, THREE_TASKS)
    acode("run", plan)
    again = acode("run", plan)
    name = acode("session", "list", "--json").json[0]["short_id"]
    assert again.exit_code == 10
    assert f"acode resume {name}" in again.stderr and "--new" in again.stderr
    assert len(acode("session", "list", "--json").json) == 1


def test_the_same_plan_under_another_name_is_the_same_plan(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    assert acode("run", save(workspace, THREE_TASKS, "copy.yml")).exit_code == 10
    assert acode("run", save(workspace, GATE, "other.yml")).exit_code == 10  # its own gate, not the question
    assert len(acode("session", "list", "--json").json) == 2


def test_new_begins_beside_the_unfinished_one(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, THREE_TASKS)
    acode("run", plan)
    assert acode("run", plan, "--new").exit_code == 1
    assert len(acode("session", "list", "--json").json) == 2


def test_a_plan_that_ended_runs_again_without_a_question(acode: Acode, workspace: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    plan = save(workspace, THREE_TASKS)
    assert [acode("run", plan).exit_code for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("argument", ["absent.yml", "absent.yaml", "absent/plan", "./absent"])
def test_what_looks_like_a_file_and_is_not_there_is_a_usage_error(acode: Acode, argument: str) -> None:
    ended = acode("run", argument)
    assert ended.exit_code == 2
    assert f"the plan file {argument} does not exist" in ended.stderr
    assert "hint: To write a first plan: acode init." in ended.stderr


def test_a_plan_is_found_from_the_workspace_that_was_named(acode: Acode, workspace: Path, tmp_path: Path) -> None:
    (workspace / "go.txt").write_text("go\n")
    save(workspace, THREE_TASKS)
    assert acode("-C", workspace, "run", "plan.yml", cwd=tmp_path).exit_code == 0
    assert (workspace / "end.txt").exists()


def test_a_gate_that_nobody_can_answer_leaves_the_session_there(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, GATE))
    assert ended.exit_code == 10
    assert "needs an approval and nobody can be asked: Deploy to production?" in ended.stderr
    assert acode("status", "--json").json["state"] == "AWAITING_APPROVAL"


@pytest.mark.req("NFR-011c-013")
def test_a_secret_in_a_command_is_shown_nowhere(acode: Acode, workspace: Path) -> None:
    secret = "hunter2-but-much-longer-than-that"
    plan = save(workspace, f"tasks: [{{title: T, steps: [{{run: 'echo {secret}; false'}}]}}]\n")
    env = {"DEPLOY_TOKEN": secret}
    shown = [
        acode("run", plan, env=env),
        acode("run", plan, "--new", "--json", env=env),
        acode("status", env=env),
        acode("explain", env=env),
        acode("resume", "--dry-run", env=env),
        acode("session", "show", env=env),
        acode("session", "history", "--json", env=env),
    ]
    for ended in shown:
        assert secret not in ended.stdout + ended.stderr
    assert secret not in (workspace / ".agent" / "logs" / "acode.jsonl").read_text()


def test_quiet_leaves_only_errors_and_the_way_on(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, THREE_TASKS), "-q")
    lines = ended.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint", "To resume"]


def test_an_event_is_printed_only_after_it_is_durable(acode: Acode, workspace: Path) -> None:
    """Every printed number is in the log, in the order of the log."""
    ended = acode("run", save(workspace, THREE_TASKS), "--json")
    history = {event["seq"]: event["type"] for event in acode("session", "history", "--json").json}
    for line in ended.lines:
        if line["event"] in ("step_started", "step_failed"):
            assert line["seq"] in history
    assert max(history) == ended.lines[-1]["seq"]


def test_output_is_shown_without_what_steers_a_terminal(acode: Acode, workspace: Path) -> None:
    line = json.dumps(r"printf '\033[31mred\033[0m\n10%%\r100%%\n\033]0;title\007tab\there\n'")
    plan = save(workspace, f"tasks: [{{title: T, steps: [{{run: {line}, idempotent: true}}]}}]\n")
    ended = acode("run", plan)
    shown = [line for line in ended.stderr.splitlines() if line.startswith("    │ ")]
    assert shown == ["    │ red", "    │ 100%", "    │ tab     here"]
    assert "\x1b" not in ended.stderr


def test_a_retried_step_says_so(acode: Acode, workspace: Path) -> None:
    plan = save(
        workspace,
        "tasks: [{title: T, steps: [{run: 'test -e once || { touch once; exit 1; }', idempotent: true,"
        " retry: {attempts: 2, backoff_seconds: 0}}]}]\n",
    )
    ended = acode("run", plan)
    assert ended.exit_code == 0
    assert "trying again in 0 s (attempt 2)" in ended.stderr
    assert "(attempt 2)" in ended.stderr


def test_an_undeclared_command_is_announced_before_it_runs(acode: Acode, workspace: Path) -> None:
    ended = acode("run", save(workspace, "tasks: [{title: T, steps: [{run: echo it runs}]}]\n"))
    assert ended.stderr.index("note on t.1: no probe, no outputs, not idempotent") < ended.stderr.index("│ it runs")


def test_a_run_that_fills_the_disk_names_one_command_that_continues_it(acode: Acode, tmp_path: Path) -> None:
    def work(place: Path) -> None:
        plan = "title: Fill\ntasks:\n  - id: a\n    steps:\n      - run: head -c 4000000 /dev/zero > big; true\n"
        last = acode("-C", place, "run", save(place, plan), "--json", cwd=place).lines[-1]["data"]
        assert last["error"]["code"] == "ACODE-DB-005"
        assert last["error"]["hint"] == f"Make room, then: {last['next_action']}"

    on_a_small_disk(tmp_path / "small", work)

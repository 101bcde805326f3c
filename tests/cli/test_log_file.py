"""The log file and the metrics: what whoever looks later will find."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from acode import log_file
from tests.cli.plans import THREE_TASKS, save, slow
from tests.driver import Acode


def lines(workspace: Path, event: str | None = None) -> list[dict[str, Any]]:
    text = (workspace / ".agent" / "logs" / "acode.jsonl").read_text()
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if event is None or line["event"] == event]


@pytest.fixture
def paused(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "go.txt").write_text("go\n")
    return str(acode("session", "list", "--json").json[0]["short_id"])


SEED = [
    *("event", "session_id", "checkpoint_id", "skipped_tasks", "skipped_steps", "remaining_steps"),
    *("in_progress_action", "sync_status", "environment_valid"),
]


@pytest.mark.req("LOG-011c-01", "LOG-011c-02", "NFR-040b-21", "NFR-040b-27")
def test_a_resume_leaves_exactly_the_promised_line(acode: Acode, paused: str, workspace: Path) -> None:
    acode("resume", paused)
    (line,) = lines(workspace, "session_resume")
    assert set(line) == {*SEED, "at", "level"}
    assert line == {
        **line,
        "level": "info",
        "checkpoint_id": 3,
        "skipped_tasks": 1,
        "skipped_steps": 3,
        "remaining_steps": 3,
        "in_progress_action": None,
        "sync_status": "disabled",
        "environment_valid": True,
    }


def test_an_environment_at_which_nobody_looked_is_not_logged_as_valid(
    acode: Acode, paused: str, workspace: Path
) -> None:
    acode("resume", paused, "--skip-validation")
    (line,) = lines(workspace, "session_resume")
    assert line["environment_valid"] is None
    assert lines(workspace, "environment_valid") == []


@pytest.mark.req("LOG-011c-02")
@pytest.mark.parametrize(
    ("declared", "in_progress", "settled"),
    [
        ("outputs: [made.txt]", "rollback_retry", "rollback_and_retry"),
        ("idempotent: true", "retry", "retry"),
        ("probe: test -f made.txt", "skip", "skip"),
    ],
)
def test_what_became_of_a_step_in_flight_is_logged_in_the_promised_spelling(
    acode: Acode, workspace: Path, declared: str, in_progress: str, settled: str
) -> None:
    text = slow(declared).replace("echo under way;", "echo half > made.txt; echo under way;")
    running = acode.process("run", save(workspace, text))
    running.wait_for_line("│ under way")
    running.kill_everything()
    (workspace / "go.txt").write_text("go\n")
    acode("resume", "--last")
    resumed = lines(workspace, "session_resume")[0]
    assert resumed["in_progress_action"] == in_progress and isinstance(resumed["checkpoint_id"], int)
    assert lines(workspace, "step_settled")[0]["action"] == settled


@pytest.mark.req("NFR-040b-22", "FR-011c-037")
def test_scenario_and_replay_order_are_logged(acode: Acode, paused: str, workspace: Path) -> None:
    last = len(acode("session", "history", "--json").json) + 1  # and the decision of the resume itself
    acode("resume", paused)
    (scenario,) = lines(workspace, "resume_scenario")
    assert (scenario["level"], scenario["scenario"]) == ("info", "clean_shutdown")
    (order,) = lines(workspace, "replay_order")
    assert (order["first"], order["last"], order["count"]) == (1, last, last)


@pytest.mark.req("NFR-040b-23", "NFR-011c-016")
def test_a_mismatch_is_logged_as_an_error_with_its_files(acode: Acode, paused: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("somebody else\n")
    acode("resume", paused)
    (line,) = lines(workspace, "environment_mismatch")
    assert (line["level"], [one["path"] for one in line["mismatches"]]) == ("error", ["email.txt"])
    (error,) = [one for one in lines(workspace, "error") if one["code"] == "ACODE-RESUME-004"]
    assert error["session_id"].endswith(paused) and error["seq"] > 0


@pytest.mark.req("NFR-040b-24", "NFR-040b-30")
def test_a_loop_is_an_error_and_then_critical(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, "tasks: [{title: T, steps: [{run: 'false', idempotent: true}]}]\n")
    acode("run", plan)
    statuses = [acode("resume", "--last").exit_code for _ in range(4)]
    assert statuses == [1, 1, 1, 18]
    assert [line["level"] for line in lines(workspace, "escalated")] == ["critical"]
    assert [line["level"] for line in lines(workspace, "attempt_limit_exceeded")] == ["error"]


@pytest.mark.req("NFR-011c-014", "NFR-011c-015", "FR-011c-062")
def test_every_attempt_and_every_error_is_logged_with_its_place(acode: Acode, workspace: Path) -> None:
    acode("run", save(workspace, THREE_TASKS))
    acode("resume", "--last", "--auto")
    acode("resume", "--last")
    decisions = [(line["reason_code"], line["eligible"]) for line in lines(workspace, "resume_decision")]
    assert decisions == [("resume_blocked_cooldown", False), ("resume_allowed", True)]
    failed = [line for line in lines(workspace, "error") if line["code"] == "ACODE-STEP-001"]
    assert len(failed) == 2
    assert all(line["step"] == "validate.check" and line["session_id"] for line in failed)


def test_a_refusal_by_the_lock_is_in_the_log_file_only(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, slow()))
    running.wait_for_line("│ under way")
    before = acode("session", "history", "--json").json
    assert acode("resume", "--last").exit_code == 16
    assert acode("session", "history", "--json").json == before
    assert [line["code"] for line in lines(workspace, "error")] == ["ACODE-RESUME-003"]


def test_a_look_at_an_empty_workspace_leaves_no_log(acode: Acode, workspace: Path) -> None:
    acode("status")
    assert list(workspace.iterdir()) == []


def test_the_log_is_private_and_rotated(
    acode: Acode, paused: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / ".agent" / "logs" / "acode.jsonl").unlink()
    monkeypatch.setattr(log_file, "LOG_BYTES_MAX", 2_000)
    for _ in range(12):
        acode("resume", paused, "--auto")
    logs = sorted((workspace / ".agent" / "logs").iterdir())
    assert [path.name for path in logs] == ["acode.jsonl", "acode.jsonl.1", "acode.jsonl.2", "acode.jsonl.3"]
    for path in logs:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size <= 2_000 or len(path.read_text().splitlines()) == 1
        for line in path.read_text().splitlines():
            json.loads(line)


def test_a_log_that_cannot_be_written_does_not_stop_the_work(acode: Acode, paused: str, workspace: Path) -> None:
    log = workspace / ".agent" / "logs" / "acode.jsonl"
    log.unlink()
    os.symlink(workspace / "elsewhere", log)  # a link is not followed, whoever made it
    assert acode("resume", paused).exit_code == 0
    assert not (workspace / "elsewhere").exists()


@pytest.mark.req("NFR-040b-25", "NFR-040b-26")
def test_resumes_are_counted_and_timed_where_somebody_measures(
    acode: Acode, paused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry.metrics import _internal as global_metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    # A provider can be set once in a process, and other tests run in this one.
    monkeypatch.setattr(global_metrics, "_METER_PROVIDER", MeterProvider(metric_readers=[reader]))
    assert acode("resume", paused).exit_code == 0
    data = reader.get_metrics_data()
    assert data is not None
    scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics]
    found = {metric.name: metric.data for scope in scopes for metric in scope.metrics}
    (counted,) = found["acode.resume_point.count"].data_points
    (timed,) = found["acode.resume_point.duration"].data_points
    assert (counted.value, dict(counted.attributes or {})) == (1, {"acode.scenario": "clean_shutdown"})  # type: ignore[union-attr]
    assert timed.count == 1 and timed.sum > 0  # type: ignore[union-attr]

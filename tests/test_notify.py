"""Somebody is called: each cause once, and a notifier that fails, hangs or is killed costs the run nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from acode import notify
from acode.config.settings import NOTIFY_CAUSES
from tests.cli.plans import GATE, save
from tests.driver import WAIT_S_MAX, Acode

UNKNOWN = "title: Pay\ntasks: [{title: t, steps: [{run: 'echo begun; sleep 60', id: pay, title: Pay}]}]"
FAILS = "title: Fails\ntasks: [{title: t, steps: [{run: 'exit 3', id: work}]}]"
WRITES = "title: Made\ntasks: [{title: t, steps: [{write: {path: made.txt, content: ours}}, {run: 'exit 3'}]}]"
WELL = "title: Well\ntasks: [{title: t, steps: [{run: 'true'}]}]"

# One attempt of the policy's own, at once.
IMPATIENT = {"ACODE_RESUME_MAX_RESUME_ATTEMPTS": "1", "ACODE_RESUME_COOLDOWN_SECONDS_TOOL_FAILURE": "0"}


@pytest.fixture
def told(acode: Acode, workspace: Path) -> Path:
    return configured(acode, workspace, "cat >> ../alerts")


def configured(acode: Acode, workspace: Path, command: str, on: str = "") -> Path:
    (workspace / ".agent").mkdir(exist_ok=True)
    more = f"\n  on: {on}" if on else ""
    (workspace / ".agent" / "config.yml").write_text(f"notify:\n  command: {json.dumps(command)}{more}\n")
    assert acode("config", "trust").exit_code == 0
    return workspace.parent / "alerts"


def alerts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def causes(path: Path) -> list[str]:
    return [one["cause"] for one in alerts(path)]


def test_a_waiting_gate_is_reported_once_with_the_command_that_answers_it(
    acode: Acode, workspace: Path, told: Path
) -> None:
    acode("run", save(workspace, GATE))
    for _ in range(2):
        acode("resume", "--last", "--yes")
    (alert,) = alerts(told)
    assert (alert["cause"], alert["attention"]) == ("gate", "approve")
    assert alert["next_action"] == f"acode session approve {alert['short_id']}"


def test_an_unknown_outcome_is_reported_once(acode: Acode, workspace: Path, told: Path) -> None:
    running = acode.process("run", save(workspace, UNKNOWN))
    running.wait_for_line("│ begun")
    running.kill_everything()
    for _ in range(2):
        acode("resume", "--last", "--yes")
    (alert,) = alerts(told)
    assert (alert["cause"], alert["attention"]) == ("unknown", "resolve")
    assert "acode session resolve" in alert["next_action"]


def test_the_same_failure_is_reported_once_and_another_one_again(acode: Acode, workspace: Path, told: Path) -> None:
    plan = FAILS.replace("exit 3", "exit $(cat status)")
    (workspace / "status").write_text("3")
    acode("run", save(workspace, plan))
    acode("resume", "--last", "--yes")
    assert causes(told) == ["failed"]
    (workspace / "status").write_text("4")
    acode("resume", "--last", "--yes", "--changed-files", "continue")
    assert causes(told).count("failed") == 2


def test_files_that_somebody_changed_are_reported_once(acode: Acode, workspace: Path, told: Path) -> None:
    mismatch(acode, workspace)
    acode("resume", "--last", "--yes")
    assert causes(told).count("mismatch") == 1


def test_a_good_end_is_reported_where_it_is_asked_for(acode: Acode, workspace: Path, told: Path) -> None:
    acode("run", save(workspace, WELL))
    assert causes(told) == []
    path = configured(acode, workspace, "cat >> ../alerts", on="[done]")
    acode("run", "--new", save(workspace, WELL))
    acode("run", "--new", save(workspace, FAILS, "fails.yml"))
    assert causes(path) == ["done"]


def test_a_person_at_the_terminal_is_not_kept_waiting_and_the_step_is_not_either(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier waits for a file that only a later step makes: a run that waited for it would never end well."""
    monkeypatch.setattr(notify, "NOTIFY_S_MAX", 30.0)
    command = "until test -e ../released; do sleep 0.05; done; cat >> ../alerts"
    path = configured(acode, workspace, command, on="[mismatch]")
    plan = """
title: Files
tasks: [{title: t, steps: [{write: {path: a.txt, content: x}}, {run: 'test -e go'}, {run: 'touch ../released'}]}]
"""
    acode("run", save(workspace, plan))
    (workspace / "a.txt").write_text("somebody else\n")
    (workspace / "go").touch()
    assert acode("resume", "--last", "--yes", "--changed-files", "continue").exit_code == 0
    assert causes(path) == ["mismatch"]


# Each cause, with a notifier that does not do its work.


def gate(acode: Acode, workspace: Path) -> int:
    return acode("run", save(workspace, GATE)).exit_code


def unknown(acode: Acode, workspace: Path) -> int:
    running = acode.process("run", save(workspace, UNKNOWN))
    running.wait_for_line("│ begun")
    running.kill_everything()
    return acode("resume", "--last", "--yes").exit_code


def escalated(acode: Acode, workspace: Path) -> int:
    acode("run", save(workspace, FAILS.replace("id: work", "id: work, idempotent: true")))
    acode("resume", "--last", "--auto", env=IMPATIENT)
    return acode("resume", "--last", "--auto", env=IMPATIENT).exit_code


def mismatch(acode: Acode, workspace: Path) -> int:
    acode("run", save(workspace, WRITES))
    (workspace / "made.txt").write_text("theirs")
    return acode("resume", "--last", "--yes").exit_code


def failed(acode: Acode, workspace: Path) -> int:
    return acode("run", save(workspace, FAILS)).exit_code


def done(acode: Acode, workspace: Path) -> int:
    return acode("run", save(workspace, WELL)).exit_code


# How a session comes to need somebody, and the exit status that this ends with. `parked` is in tests/fleet.
CAUSES = {"gate": (gate, 10), "unknown": (unknown, 19), "escalated": (escalated, 18), "mismatch": (mismatch, 17)}
CAUSES |= {"failed": (failed, 1), "done": (done, 0)}
NOTIFIERS = {
    "failing": ("exit 5", "ended with 5"),
    "killed": ("kill -9 $$", f"ended with -{signal.SIGKILL}"),
    "hanging": ("sleep 600 & wait", "took over 0.2 s and was stopped"),
}


def complaints(workspace: Path) -> list[str]:
    lines = [json.loads(one) for one in (workspace / ".agent" / "logs" / "acode.jsonl").read_text().splitlines()]
    return [one["message"] for one in lines if one["event"] == "notify_failed"]


@pytest.mark.parametrize("notifier", NOTIFIERS)
@pytest.mark.parametrize("cause", CAUSES)
def test_a_notifier_that_fails_hangs_or_is_killed_is_one_line_in_the_log_and_costs_the_run_nothing(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch, cause: str, notifier: str
) -> None:
    command, problem = NOTIFIERS[notifier]
    monkeypatch.setattr(notify, "NOTIFY_S_MAX", 0.2 if notifier == "hanging" else WAIT_S_MAX)
    configured(acode, workspace, command, on=f"[{cause}]")
    reach, exit_code = CAUSES[cause]
    assert reach(acode, workspace) == exit_code
    again = acode("resume", "--last", "--yes")
    assert again.exit_code == (14 if cause == "done" else exit_code), again.stderr
    (line,) = complaints(workspace)
    assert problem in line


def test_every_cause_that_may_be_configured_is_tested_by_its_name() -> None:
    assert {*CAUSES, "parked"} == set(NOTIFY_CAUSES)


def test_an_escalation_is_reported_once_with_the_way_to_look_at_it(acode: Acode, workspace: Path, told: Path) -> None:
    assert escalated(acode, workspace) == 18
    assert acode("resume", "--last", "--auto").exit_code == 18
    (alert,) = [one for one in alerts(told) if one["cause"] == "escalated"]
    assert (alert["level"], alert["attention"]) == ("critical", "escalated")
    assert alert["next_action"] == f"acode explain {alert['short_id']}"


def test_a_notifier_that_is_not_there_is_a_line_in_the_log(acode: Acode, workspace: Path) -> None:
    configured(acode, workspace, "exec /no/such/one")
    assert gate(acode, workspace) == 10
    (line,) = complaints(workspace)
    assert "ended with 127" in line


def test_an_unknown_cause_in_the_settings_is_named(acode: Acode, workspace: Path) -> None:
    (workspace / ".agent").mkdir()
    (workspace / ".agent" / "config.yml").write_text("notify: {on: [gates]}\n")
    ended = acode("config", "check")
    assert ended.exit_code == 3
    assert "gate" in ended.stderr

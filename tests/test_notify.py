"""Somebody is called: each cause once, and a notifier that fails, hangs or is killed costs the run nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from acode import notify
from tests.cli.plans import GATE, save
from tests.driver import Acode

UNKNOWN = "title: Pay\ntasks: [{title: t, steps: [{run: 'echo begun; sleep 60', id: pay, title: Pay}]}]"
FAILS = "title: Fails\ntasks: [{title: t, steps: [{run: 'exit 3', id: work}]}]"
WELL = "title: Well\ntasks: [{title: t, steps: [{run: 'true'}]}]"


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
    write = "title: Made\ntasks: [{title: t, steps: [{write: {path: made.txt, content: ours}}, {run: 'exit 3'}]}]"
    acode("run", save(workspace, write))
    (workspace / "made.txt").write_text("theirs")
    for _ in range(2):
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


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        *[("exit 5", "ended with 5"), ("sleep 60 & wait", "took over 0.2 s"), ("exec /no/such/one", "ended with 127")],
        ("kill -9 $$", f"ended with -{signal.SIGKILL}"),
    ],
)
def test_a_notifier_that_fails_hangs_or_is_killed_is_a_line_in_the_log(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch, command: str, problem: str
) -> None:
    monkeypatch.setattr(notify, "NOTIFY_S_MAX", 0.2)
    configured(acode, workspace, command)
    assert acode("run", save(workspace, GATE)).exit_code == 10
    lines = [json.loads(one) for one in (workspace / ".agent" / "logs" / "acode.jsonl").read_text().splitlines()]
    (line,) = [one for one in lines if one["event"] == "notify_failed"]
    assert problem in line["message"]


def test_an_unknown_cause_in_the_settings_is_named(acode: Acode, workspace: Path) -> None:
    (workspace / ".agent").mkdir()
    (workspace / ".agent" / "config.yml").write_text("notify: {on: [gates]}\n")
    ended = acode("config", "check")
    assert ended.exit_code == 3
    assert "gate" in ended.stderr

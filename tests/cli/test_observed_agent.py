"""acode run --agent and acode resume for sessions of observed agents; the agent is a few lines of shell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from acode.events import types as ev
from acode.observed.setup import SETUPS
from tests.observed.agents import Place, payload

AGENT = """#!/bin/sh
echo "claude $*" >> "$SEEN"
tell() {{ printf '%s' "$1" | '{hook}' >> "$SEEN" 2>&1; }}
tell '{start}'
tell '{before}'
[ -e "$DIES" ] && {{ rm "$DIES"; kill -9 $$; }}
'{bash}' -c 'echo x >> ledger'
tell '{after}'
[ -e "$FAILS" ] && exit 3
tell '{end}'
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """With an agent called claude on the path, which makes one call for each task."""
    made = Place(tmp_path)
    call = {"tool": "Bash", "arguments": {"command": "echo x >> ledger"}, "call": "one"}
    told = {
        moment: json.dumps(payload("claude", moment, made.workspace, **call))
        for moment in ("start", "before", "after", "end")
    }
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(
        AGENT.format(hook=made.doors.hook, bash=made.doors.directory / "shells" / "bash", **told), encoding="utf-8"
    )
    program.chmod(0o755)
    made.env |= {"PATH": f"{program.parent}{os.pathsep}{made.env['PATH']}", "SEEN": os.fspath(tmp_path / "seen")}
    made.env |= {name: os.fspath(tmp_path / name.lower()) for name in ("DIES", "FAILS")}
    return made


def test_a_task_is_done_by_the_agent_and_recorded_by_its_hooks(place: Place) -> None:
    done = place.acode("run", "--agent", "claude", "do the job", "--", "--model", "small")
    assert done.returncode == 0, done.stderr
    assert (place.base / "seen").read_text().splitlines()[0] == "claude -p do the job --model small"
    (row,) = place.rows()
    assert (row["source"], row["state"], row["steps_done"]) == ("claude", "COMPLETED", 1)
    assert place.lines("ledger") == ["x"]


def test_an_agent_that_fails_leaves_a_session_that_can_be_resumed(place: Place) -> None:
    (place.base / "fails").touch()
    failed = place.acode("run", "--agent", "claude", "do the job")
    assert failed.returncode == 1 and "ended with exit status 3" in failed.stderr
    (row,) = place.rows()
    assert (row["state"], row["interruption_class"]) == ("PAUSED", "tool_failure")
    shown = place.acode("resume", "--last", "--yes", "--no-launch", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout.splitlines()[-1])["command"] == ["claude", "--resume", "c1a0de00-aaaa"]


def test_a_killed_agent_is_asked_about_and_then_resumed_by_its_own_command(place: Place) -> None:
    (place.base / "dies").touch()
    assert place.acode("run", "--agent", "claude", "do the job").returncode != 0
    unknown = place.acode("resume", "--last", "--yes", "--no-launch")
    assert unknown.returncode == 19 and "acode session resolve" in unknown.stderr, unknown.stderr
    (row,) = place.rows()
    step = next(one.step for one in place.history() if isinstance(one, ev.StepStarted))
    assert place.acode("session", "resolve", row["short_id"], step, "--not-applied").returncode == 0
    resumed = place.acode("resume", "--last", "--yes")
    assert resumed.returncode == 0, resumed.stderr
    assert "claude --resume c1a0de00-aaaa" in (place.base / "seen").read_text()
    assert place.lines("ledger") == ["x"]


@pytest.mark.parametrize("agent", sorted(SETUPS))
def test_a_check_of_an_agent_that_is_missing_tells_that_first_and_changes_nothing(agent: str, place: Place) -> None:
    place.env["PATH"] = os.fspath(place.base / "none")
    before = sorted(place.base.rglob("*"))
    missing = place.acode("hook", "check", agent)
    assert missing.returncode == 2 and "is not installed" in missing.stderr, missing.stderr
    assert "Asking" not in missing.stdout + missing.stderr
    assert sorted(place.base.rglob("*")) == before


def test_an_agent_whose_hooks_are_not_there_is_told_apart(place: Place) -> None:
    (place.base / "bin" / "claude").write_text("#!/bin/sh\nexit 0\n")
    done = place.acode("run", "--agent", "claude", "do the job")
    assert done.returncode == 0 and "no hook of Claude Code was called" in done.stderr


@pytest.mark.parametrize("words", [("plan.yml", "--", "--flag"), ("--agent", "claude", "task", "--model", "m")])
def test_what_does_not_fit_an_agent_is_refused(place: Place, words: tuple[str, ...]) -> None:
    assert place.acode("run", *words).returncode == 2

"""Ready drivers: an agent's own headless start, given the prompt of a task; a stand-in of that name is on the PATH."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from acode.config.settings import DRIVING_AGENTS
from tests.arc import put
from tests.driver import Acode
from tests.foreign import ARC, DRIVER, MEMORY, WORK, done, ledger, put_foreign

# It notes its arguments and the prompt file's text, and then works like the driver of every other test of foreign runs.
STAND_IN = """#!/bin/sh
printf '%s\\0' "$(basename "$0")" "$@" "$(cat "$ACODE_PROMPT_FILE")" END >> arguments
exec ./driver.sh "$ACODE_PROMPT_FILE" "$ACODE_TASK" "$ACODE_RUN_ID"
"""


def put_agent(workspace: Path, monkeypatch: pytest.MonkeyPatch, agent: str, **more: Any) -> None:
    put(workspace, "driver.sh", DRIVER).chmod(0o755)
    put(workspace, f"bin/{agent}", STAND_IN).chmod(0o755)
    driver = {"agent": agent, **more}
    put(workspace, ".agent/config.yml", json.dumps({"drivers": {"arc": driver, "agent-memory": driver}}))
    monkeypatch.setenv("PATH", f"{workspace / 'bin'}{os.pathsep}{os.environ['PATH']}")


def starts(workspace: Path) -> list[list[str]]:
    whole = (workspace / "arguments").read_text(encoding="utf-8")
    return [start.split("\0")[:-1] for start in whole.split("END\0") if start]


@pytest.mark.parametrize("run", [ARC, MEMORY])
@pytest.mark.parametrize("agent", DRIVING_AGENTS)
def test_a_run_is_driven_by_the_agents_own_headless_start(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch, agent: str, run: str
) -> None:
    put_agent(workspace, monkeypatch, agent, arguments=["--model", "small one"])
    put_foreign(workspace, run)
    ended = acode("resume", run, "--yes", "--json")
    assert ended.exit_code == 0, ended.stderr
    assert ledger(workspace) == done(run)
    found = starts(workspace)
    assert len(found) == len(WORK[run])
    for *words, prompt in found:
        assert len(prompt.splitlines()) > 3
        extra = ["--model", "small one"]
        assert (
            words
            == {
                "claude": ["claude", "-p", prompt, *extra],
                "gemini": ["gemini", "-p", prompt, *extra],
                "codex": ["codex", "exec", *extra, prompt],
                "opencode": ["opencode", "run", *extra, prompt],
            }[agent]
        )


def test_the_prompt_stands_in_the_arguments_and_not_in_the_log(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_agent(workspace, monkeypatch, "claude")
    put_foreign(workspace, ARC)
    assert acode("resume", ARC, "--yes").exit_code == 0
    sentence = max(starts(workspace)[0][2].splitlines(), key=len).encode()
    assert len(sentence) > 40
    files = [path for path in (workspace / ".agent").rglob("*") if path.is_file()]
    assert any(path.name == "workspace.db" for path in files)
    assert [path for path in files if sentence in path.read_bytes()] == []


def test_an_agent_that_is_not_there_is_no_failure_of_the_phase(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_agent(workspace, monkeypatch, "gemini")
    (workspace / "bin" / "gemini").unlink()
    monkeypatch.setenv("PATH", os.defpath)
    checkpoint = put_foreign(workspace, ARC)
    before = json.loads(checkpoint.read_text())["phases"]
    ended = acode("resume", ARC, "--yes")
    assert ended.exit_code == 1 and "gemini is not on the PATH" in ended.stderr and "Install gemini" in ended.stderr
    assert json.loads(checkpoint.read_text())["phases"] == before
    assert ledger(workspace) == []


def test_an_agent_in_a_file_that_nobody_trusted_is_not_started(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_agent(workspace, monkeypatch, "claude")
    put_foreign(workspace, ARC)
    ended = acode("resume", ARC, "--no-input")
    assert "not trusted" in ended.stdout + ended.stderr
    assert not (workspace / "arguments").exists()

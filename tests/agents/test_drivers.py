"""Ready drivers with the real agents: `drivers: {arc: {agent: claude}}` continues a run that another tool began."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents import processes
from tests.agents.client import NAMES, client_of, program
from tests.agents.trial import AGENT_S_MAX, Trial, install_acode, trial
from tests.agents.wanted_calls import Model, WantedCall
from tests.arc import put
from tests.foreign import ARC, DRIVER, MEMORY, OPEN_PHASES, done, ledger, put_foreign

pytestmark = pytest.mark.agents

UNKNOWN = 19
# What a person writes beside the agent's name: acode passes no permission of its own.
ARGUMENTS = {
    "claude": ["--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--model", "scripted"],
    "codex": ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"],
    "gemini": ["-m", "gemini-2.5-pro", "--yolo"],
    "opencode": ["-m", "scripted/scripted"],
}
WORK = './driver.sh "$ACODE_PROMPT_FILE" "$ACODE_TASK" "$ACODE_RUN_ID"'


@contextmanager
def foreign_run(name: str, run: str, directory: Path) -> Iterator[Trial]:
    """A run of another tool in the workspace, the agent on the PATH, and a model that does the work of each task."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        workspace = one.place.workspace
        put(workspace, "driver.sh", DRIVER).chmod(0o755)
        put_foreign(workspace, run)
        driver = {"agent": name, "arguments": ARGUMENTS[name]}
        put(workspace, ".agent/config.yml", json.dumps({"drivers": {"arc": driver, "agent-memory": driver}}))
        line = shlex.quote(str(program(name, client)))
        put(one.place.home, f"bin/{name}", f'#!/bin/sh\nexec {line} "$@"\n').chmod(0o755)
        one.variables["PATH"] = f"{one.place.home / 'bin'}:{one.variables['PATH']}"
        one.server.model = Model(calls=(WantedCall(kind="command", text=WORK),), trusting=True)
        install_acode(one)
        trusted = one.acode("config", "trust", "--yes")
        assert trusted.returncode == 0, trusted.stderr
        yield one


@pytest.mark.parametrize(("name", "run"), [(name, run) for run in (ARC, MEMORY) for name in NAMES])
def test_an_agent_continues_a_run_to_its_end(name: str, run: str, tmp_path: Path) -> None:
    with foreign_run(name, run, tmp_path / "trial") as one:
        ended = one.acode("resume", run, "--yes")
        assert ended.returncode == 0, ended.stdout + ended.stderr + one.log()
        assert ledger(one.place.workspace) == done(run)


@pytest.mark.parametrize("name", NAMES)
def test_killed_with_its_agent_in_the_middle_of_a_phase_it_repeats_no_finished_one(name: str, tmp_path: Path) -> None:
    first, second, *_ = OPEN_PHASES
    with foreign_run(name, ARC, tmp_path / "trial") as one:
        workspace = one.place.workspace
        put(workspace, "hold", second)
        os.mkfifo(workspace / "gate")
        running = start_resume(one)
        assert processes.wait_until(lambda: f"{second} begun" in ledger(workspace), AGENT_S_MAX), one.log()
        processes.kill_all(one.place.home)
        running.wait()
        (workspace / "hold").unlink()
        ended = one.acode("resume", ARC, "--yes")
        if ended.returncode == UNKNOWN:  # nobody is left who could know: a person looks, and says so
            assert one.acode("session", "resolve", ARC, second, "--retry").returncode == 0
            ended = one.acode("resume", ARC, "--yes")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        lines = ledger(workspace)
        assert lines.count(f"{first} begun") == 1
        assert [line for line in lines if line.endswith("done")] == [f"{phase} done" for phase in OPEN_PHASES]


def start_resume(one: Trial) -> subprocess.Popen[bytes]:
    running = subprocess.Popen(
        [sys.executable, "-m", "acode", "resume", ARC, "--yes"],
        cwd=one.place.workspace,
        env={**one.variables, "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    one.started.append(running)
    return running

"""Tools killed in the middle: each is settled by its kind, done once, and told as if nothing had happened."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from acode.agent.tools.interface import BY_HAND
from acode.errors import OutcomeUnknown
from acode.events import types as ev
from tests.agent.desk import Desk, call, repository
from tests.driver import kill_and_wait
from tests.repositories import git, log


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "place")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_write_that_was_killed_is_settled_and_told_as_if_nothing_had_happened(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tool: str, when: str
) -> None:
    file = desk.put("a.txt", "old\n")
    wanted = {
        "write_file": call("write_file", path="a.txt", content="newer\n"),
        "edit_file": call("edit_file", path="a.txt", old="old", new="newer"),
    }[tool]
    replace = os.replace

    def replace_and_die(old: Any, new: Any, **how: Any) -> None:
        mine = os.fsencode(new) == b"a.txt"
        if not mine or when == "after":
            replace(old, new, **how)
        if mine:
            os.kill(os.getpid(), 9)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_and_die)
        desk.killed(wanted)
    assert file.read_text() == ("newer\n" if when == "after" else "old\n")
    (answer,) = desk.use(wanted)
    assert answer.text == f"{'Wrote' if tool == 'write_file' else 'Edited'} a.txt: 6 bytes."
    assert file.read_text() == "newer\n"
    attempts = [event.attempt for event in desk.events() if isinstance(event, ev.StepStarted)]
    assert attempts == ([1] if when == "after" else [1, 2])
    assert [path.name for path in desk.workspace.iterdir() if path.name.startswith(".acode")] == []


@pytest.mark.parametrize("status", [0, 3])
def test_a_command_that_outlived_its_acode_is_told_as_it_ended_and_not_run_again(desk: Desk, status: int) -> None:
    wanted = call("run_command", command=f"kill -9 $(cat ../pid); echo ran >> ../ledger; echo out; exit {status}")
    desk.killed(wanted)
    (answer,) = desk.use(wanted)
    assert (answer.text, answer.error) == (f"out\n[exit status {status}]", status != 0)
    assert desk.use(wanted) == [answer]
    assert (desk.place / "ledger").read_text() == "ran\n"


def test_a_command_that_nobody_saw_end_waits_for_a_person_and_their_word_is_told(desk: Desk) -> None:
    wanted = call("run_command", command="echo ran >> ../ledger; kill -9 $(cat ../pid) $PPID")
    desk.killed(wanted)
    until = time.monotonic() + 10
    while "ran" not in (desk.place / "ledger").read_text() and time.monotonic() < until:
        pass
    with pytest.raises(OutcomeUnknown, match="outcome is unknown"):
        desk.use(wanted)
    desk.resolve("run_command-1", "applied")
    (answer,) = desk.use(wanted)
    assert answer.text.startswith(BY_HAND)
    assert (desk.place / "ledger").read_text() == "ran\n"


def test_a_read_only_command_that_nobody_saw_end_is_run_again_without_asking(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "pipe")
    wanted = call("run_command", command="cat pipe")

    def kill_everything() -> None:
        """Opening the pipe waits for the command to read from it."""
        with open(desk.workspace / "pipe", "wb"):
            (mark,) = (desk.workspace / ".agent" / "run").glob("*/started")
            found = json.loads(mark.read_bytes())
            kill_and_wait(int((desk.place / "pid").read_text()), found["keeper"], found["command"])

    killer = threading.Thread(target=kill_everything)
    killer.start()
    desk.killed(wanted)
    killer.join()
    (desk.workspace / "pipe").unlink()
    desk.put("pipe", "now a file\n")
    (answer,) = desk.use(wanted)
    assert answer.text == "now a file\n[exit status 0]"


def test_a_commit_that_outlived_its_acode_is_made_once(desk: Desk) -> None:
    workspace = repository(desk)
    desk.put("a.txt", "a\n")
    hook = desk.put(".git/hooks/pre-commit", "#!/bin/sh\nkill -9 $(cat ../pid)\n")
    hook.chmod(0o755)
    wanted = call("git_commit", message="Once", paths=["a.txt"])
    desk.killed(wanted)
    (answer,) = desk.use(wanted)
    assert log(workspace) == ["Once"]
    assert answer.text == f"Committed as {git(workspace, 'rev-parse', 'HEAD').strip()}."

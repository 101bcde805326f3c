"""acode hook check: all four reports are seen where it is set up, and what is not seen is named where it is not."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agents.client import NAMES, client_of, pinned_version, program
from tests.agents.trial import Trial, install_acode, trial
from tests.agents.wanted_calls import Model

pytestmark = pytest.mark.agents

ALL_SEEN = {"hook_start": True, "front_begin": True, "front_end": True, "hook_end": True}
# What `check` does not pass: an agent's permissions and Codex's trust are the user's to give.
PERMITTED = {
    "claude": ["--model", "scripted"],
    "codex": ["--dangerously-bypass-hook-trust"],
    "gemini": ["-m", "gemini-2.5-pro"],
    "opencode": [],
}


@contextmanager
def agent_in_path(name: str, directory: Path, *, permitted: bool = True) -> Iterator[Trial]:
    """The agent under its own name in PATH, and a model that runs what it is asked to."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        programs = one.place.home / "bin"
        programs.mkdir()
        words = PERMITTED[name] if permitted else []
        line = shlex.join([str(program(name, client)), *words])
        (programs / name).write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && exec {line.split()[0]} --version\nexec {line} "$@"\n'
        )
        (programs / name).chmod(0o755)
        one.variables["PATH"] = f"{programs}:{one.variables['PATH']}"
        one.server.model = Model(asked_for=re.compile(r"echo acode-check-\w+"))
        yield one


def checked(one: Trial) -> dict[str, Any]:
    done = one.acode("hook", "check", one.name, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) is ("error" not in found)
    return found["error"]["details"] if "error" in found else found


@pytest.mark.parametrize("name", NAMES)
def test_where_it_is_set_up_check_sees_begin_and_end_from_hook_and_front(name: str, tmp_path: Path) -> None:
    with agent_in_path(name, tmp_path / "trial") as one:
        install_acode(one)
        found = checked(one)
        assert (found["ok"], found["seen"]) == (True, ALL_SEEN), found
        assert found["version"] == found["tested_version"] == pinned_version(name)
        assert found["notes"] == []


@pytest.mark.parametrize("name", ["gemini"])
def test_where_it_is_not_set_up_check_names_every_file_that_lacks_it(name: str, tmp_path: Path) -> None:
    with agent_in_path(name, tmp_path / "trial") as one:
        found = checked(one)
        assert not found["ok"] and not any(found["seen"].values())
        assert [problem for problem in found["problems"] if "settings.json lacks acode's settings" in problem]


@pytest.mark.parametrize("name", ["codex"])
def test_untrusted_hooks_of_codex_are_named(name: str, tmp_path: Path) -> None:
    with agent_in_path(name, tmp_path / "trial", permitted=False) as one:
        install_acode(one)
        found = checked(one)
        assert found["seen"] == {**ALL_SEEN, "hook_start": False, "hook_end": False}, found
        assert any("type /hooks" in problem for problem in found["problems"])


@pytest.mark.parametrize("name", ["gemini"])
def test_a_front_that_is_hidden_in_silence_is_named(name: str, tmp_path: Path) -> None:
    with agent_in_path(name, tmp_path / "trial") as one:
        install_acode(one)
        (one.place.workspace / ".env").write_text("A=1\n")
        found = checked(one)
        assert found["seen"] == {**ALL_SEEN, "front_begin": False, "front_end": False}, found
        assert any("hides" in problem for problem in found["problems"])

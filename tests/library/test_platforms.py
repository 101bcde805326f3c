"""A program on Windows: refused by the library itself, before anything is read or written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import acode
from acode.errors import UnsupportedPlatform


def work(workspace: Path) -> None:
    with acode.session("job", workspace=workspace) as session:
        session.step("one", lambda: (workspace / "done.txt").write_text("done"))


def answer(workspace: Path) -> None:
    acode.resolve("job", "one", "applied", workspace=workspace)


def take_back(workspace: Path) -> None:
    acode.rollback("job", workspace=workspace)


@pytest.mark.req("NFR-040b-18")
@pytest.mark.parametrize("call", [work, answer, take_back])
def test_windows_is_refused_to_a_program_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[Path], None]
) -> None:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("ACODE_UNSUPPORTED", raising=False)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with monkeypatch.context() as there:
        there.setattr(sys, "platform", "win32")
        with pytest.raises(UnsupportedPlatform, match="Windows") as caught:
            call(workspace)
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-CLI-004", 2)
    assert "WSL" in caught.value.hint
    assert list(workspace.iterdir()) == [] and not (tmp_path / "state").exists()


@pytest.mark.req("NFR-040b-18")
def test_a_program_elsewhere_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    work(tmp_path)
    assert (tmp_path / "done.txt").read_text() == "done"

"""The platform switch: Windows is refused before anything is touched, macOS is called unproven."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from acode.cli.doctor import _platform
from acode.config.platforms import refuse_unsupported
from acode.errors import UnsupportedPlatform
from tests.driver import Acode


@pytest.mark.req("NFR-040b-18")
@pytest.mark.parametrize("words", [["status"], ["session", "list"], ["resume", "--last"], ["run", "plan.yml"]])
def test_windows_is_refused_at_start_and_wsl_is_named(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    with monkeypatch.context() as there:
        there.setattr(sys, "platform", "win32")
        refused = acode(*words, "--json")
    assert (refused.exit_code, refused.json["error"]["code"]) == (2, "ACODE-CLI-004")
    assert "WSL" in refused.json["error"]["hint"]
    assert list(workspace.iterdir()) == []


@pytest.mark.req("NFR-040b-18")
def test_a_person_may_step_over_the_refusal_and_no_other_system_is_refused() -> None:
    with pytest.raises(UnsupportedPlatform):
        refuse_unsupported("win32", {"ACODE_UNSUPPORTED": "0"})
    refuse_unsupported("win32", {"ACODE_UNSUPPORTED": "1"})
    refuse_unsupported("linux", {})
    refuse_unsupported("darwin", {})


@pytest.mark.req("NFR-040b-18")
def test_the_doctor_says_which_systems_are_proven() -> None:
    assert _platform("linux").ok
    unproven = _platform("darwin")
    assert not unproven.ok and not unproven.needed and "unproven" in unproven.detail

"""A fresh machine: a new home, a bare path, Debian's own Python and the wheel. The tutorial is typed in a terminal."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.package.conftest import new_environment
from tests.tutorial import check_tutorial, type_tutorial
from tests.typed_terminal import typed_terminal

DEBIAN = "/usr/bin/python3"


@pytest.mark.skipif(shutil.which(DEBIAN) is None or shutil.which("tmux") is None, reason="needs python3 and tmux")
def test_install_tutorial_kill_and_resume_on_a_fresh_machine(wheel: Path, tmp_path: Path) -> None:
    installed = new_environment(tmp_path / "environment", DEBIAN, wheel)
    assert (installed.parent / "share" / "man" / "man1" / "acode.1").is_file()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "acode").symlink_to(installed / "acode")
    with typed_terminal(tmp_path / "place", programs) as terminal:
        shown = type_tutorial(terminal, tmp_path / "place")
    check_tutorial(shown, tmp_path / "place")

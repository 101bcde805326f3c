"""The tutorial, typed in a real terminal by somebody with a new home and a bare path."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conftest import SOURCE
from tests.tutorial import check_tutorial, type_tutorial
from tests.typed_terminal import typed_terminal


def test_the_tutorial_typed_line_by_line_does_what_it_says(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    acode = programs / "acode"
    acode.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m acode "$@"\n', encoding="utf-8")
    acode.chmod(0o755)
    with typed_terminal(tmp_path / "place", programs) as terminal:
        shown = type_tutorial(terminal, tmp_path / "place")
    check_tutorial(shown, tmp_path / "place")

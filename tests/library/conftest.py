"""Every test of the library has a place of its own; nothing of the tester's home is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.library.programs import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Place(tmp_path)
    monkeypatch.chdir(made.workspace)
    return made

"""Fixtures of the tests of other agents: a project, and an environment that names no configuration of the caller's."""

from __future__ import annotations

from pathlib import Path

import pytest

VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "QWEN_HOME", "CLINE_DIR", "CLINE_DATA_DIR")


@pytest.fixture(autouse=True)
def _no_agents_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place

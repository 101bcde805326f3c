"""The files that other services read: they are what those services take them for."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import ROOT
from tests.package.conftest import call, tool

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_there_are_workflows_to_look_at() -> None:
    assert {path.stem for path in WORKFLOWS} == {"docs", "release", "test", "weekly"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.name))
def test_a_workflow_follows_the_schema(workflow: Path) -> None:
    call(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", workflow)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: str(path.name))
def test_a_workflow_calls_only_commands_and_files_that_are_there(workflow: Path) -> None:
    commands = (ROOT / "dev.py").read_text(encoding="utf-8")
    words = workflow.read_text(encoding="utf-8").split()
    called = [words[at + 2].rstrip(')"') for at in range(len(words) - 2) if words[at + 1] == "dev.py"]
    assert [name for name in called if f'"{name}": {name}' not in commands] == []
    places = [word for word in words if word.startswith(("tests/", "examples/", ".ci/"))]
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_the_documentation_is_built_without_a_warning(tmp_path: Path) -> None:
    call(tool("mkdocs"), "build", "--strict", "--quiet", "--site-dir", tmp_path / "site")
    assert (tmp_path / "site" / "guide" / "install" / "index.html").is_file()

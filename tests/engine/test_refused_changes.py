"""A session whose resume was refused because of changed files is shown as such, by lists that look at no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.plans import save
from tests.driver import Acode

WRITES = "title: Made\ntasks: [{title: t, steps: [{write: {path: made.txt, content: ours}}, {run: 'exit 3'}]}]"


@pytest.fixture
def refused(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, WRITES))
    save(workspace, "theirs", "made.txt")
    return refuse(acode)


def refuse(acode: Acode) -> str:
    assert acode("resume", "--last", "--yes").exit_code == 17
    return str(acode("session", "list", "--json").json[0]["short_id"])


def needed(acode: Acode) -> list[str | None]:
    return [one["attention"] for one in acode("session", "list", "--json").json]


def test_it_is_shown_until_somebody_has_decided(acode: Acode, refused: str) -> None:
    assert needed(acode) == ["changed_files"]
    assert f"Next: acode resume {refused} --changed-files continue" in acode("status", refused).stdout
    assert acode("resume", refused, "--yes", "--changed-files", "continue").exit_code == 1
    assert needed(acode) == [None]


def test_files_that_were_restored_are_seen_by_the_next_look(acode: Acode, workspace: Path, refused: str) -> None:
    save(workspace, "ours", "made.txt")
    assert acode("explain", refused, "--json").json["attention"] is None
    assert acode("resume", refused, "--yes").exit_code == 1
    assert needed(acode) == [None]


def test_the_note_is_removed_with_its_session(acode: Acode, workspace: Path, refused: str) -> None:
    (note,) = (workspace / ".agent" / "run").glob("*changed_files/*")
    acode("session", "cancel", refused)
    assert acode("session", "gc", "--older-than", "0", "--yes").exit_code == 0
    assert not note.parent.exists()


def test_a_note_that_cannot_be_made_costs_only_the_note(acode: Acode, workspace: Path, refused: str) -> None:
    (note,) = (workspace / ".agent" / "run").glob("*changed_files/*")
    note.unlink()
    note.parent.rmdir()
    note.parent.touch()
    refuse(acode)
    assert needed(acode) == [None]

"""A workspace that was copied, moved or mounted elsewhere: one session is continued in one place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import acode as library
from acode import seal
from acode.errors import CopiedWorkspace
from acode.events import decode
from acode.events import types as ev
from acode.store.store import Store
from tests.driver import Acode, Ended

PLAN = """
title: Count
tasks:
  - title: Count
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
      - approve: Go on?
      - run: "echo ran >> {place}/marks"
"""
APPENDING = {
    "approve": ("session", "approve", "{id}"),
    "resume": ("resume", "{id}"),
    "resume --auto": ("resume", "{id}", "--auto"),
    "deny": ("session", "deny", "{id}"),
    "resolve": ("session", "resolve", "{id}", "count.3", "--applied"),
    "rollback": ("session", "rollback", "{id}", "--yes"),
    "cancel": ("session", "cancel", "{id}"),
    "abandon": ("session", "abandon", "{id}"),
    "checkpoint": ("session", "checkpoint", "{id}"),
    "pause": ("session", "pause", "{id}"),
    "repair": ("session", "repair", "{id}", "--yes"),
}


@pytest.fixture
def session_id(acode: Acode, workspace: Path, tmp_path: Path) -> str:
    (workspace / "plan.yml").write_text(PLAN.format(place=tmp_path))
    ended = acode("run", "plan.yml", "--json")
    assert ended.exit_code == 10, ended.stderr
    return str(ended.lines[0]["session_id"])


def marks(place: Path) -> int:
    path = place / "marks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def noted(place: Path, home: Path, session_id: str) -> list[ev.Noted]:
    keyring = seal.load_keyring(home / "acode", {}, create=False)
    with Store(place / ".agent", keyring, clock=None, new_id=None, look_only=True) as store:  # type: ignore[arg-type]
        found = [decode(body, session_id, seq).event for seq, body, _ in store.rows(session_id)]
    return [event for event in found if isinstance(event, ev.Noted)]


def at(acode: Acode, place: Path, name: str, session_id: str) -> Ended:
    return acode("-C", place, *(word.format(id=session_id) for word in APPENDING[name]), "--json")


def damage(place: Path) -> None:
    """A checkpoint less: there is something to repair."""
    import sqlite3

    with sqlite3.connect(place / ".agent" / "workspace.db") as db:
        db.execute("DELETE FROM checkpoints")


@pytest.mark.parametrize("name", APPENDING)
def test_no_command_appends_in_a_copy_while_the_original_has_the_session(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str, name: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    if name == "repair":
        damage(copy)
    refused = at(acode, copy, name, session_id)
    error = (refused.lines[-1]["data"] if refused.lines[-1].get("event") == "session_end" else refused.json)["error"]
    assert (refused.exit_code, error["code"]) == (20, "ACODE-LOG-011"), refused.stderr
    assert str(workspace) in error["message"] and str(workspace) in error["hint"]
    assert acode("-C", copy, "session", "verify", session_id).exit_code == 20, "it is not whole as the original is"
    assert acode("session", "approve", session_id).exit_code == 0, "the original goes on"
    assert acode("resume", session_id).exit_code == 0 and marks(tmp_path) == 1
    assert at(acode, copy, name, session_id).exit_code == 20, "and when it has ended, the copy still does not"


def test_the_next_action_in_a_copy_is_to_resume_in_the_original(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    there = f"acode -C {workspace} resume {session_id[-8:]}"
    assert acode("-C", copy, "status", session_id).stdout.splitlines()[-1] == f"Next: {there}"
    for words in (("explain", session_id), ("resume", session_id, "--dry-run")):
        assert acode("-C", copy, *words, "--json").json["next_action"] == there


@pytest.mark.parametrize("words", [("status",), ("explain",), ("resume", "--dry-run")], ids=" ".join)
def test_a_preview_in_a_copy_tells_that_it_is_only_a_copy(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str, words: tuple[str, ...]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    shown = acode("-C", copy, *words, session_id)
    assert shown.exit_code == 0 and f"this workspace is a copy of {workspace}" in shown.stderr
    assert "is a copy" not in acode(*words, session_id).stderr


def test_verify_does_not_call_a_copy_damaged_and_names_the_way_out(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    verdict = acode("-C", copy, "session", "verify", session_id)
    assert (verdict.exit_code, "is only a copy" in verdict.stdout, "damaged" in verdict.stdout) == (20, True, False)
    assert "session repair" not in verdict.stderr, "it would find nothing to repair"
    assert f"acode -C {workspace} resume {session_id[-8:]}" in verdict.stderr


def test_verify_after_a_restored_backup_names_the_repair_that_accepts_it(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    shutil.copytree(workspace / ".agent", tmp_path / "backup")
    assert acode("session", "approve", session_id).exit_code == 0
    shutil.rmtree(workspace / ".agent")
    shutil.copytree(tmp_path / "backup", workspace / ".agent")
    verdict = acode("session", "verify", session_id)
    assert verdict.exit_code == 20 and "acode session repair --accept-rollback" in verdict.stderr


def test_a_moved_workspace_goes_on_and_its_anchor_follows(
    acode: Acode, workspace: Path, tmp_path: Path, home: Path, session_id: str
) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(workspace, tmp_path / "older")
    assert acode("session", "checkpoint", session_id).exit_code == 0
    workspace.rename(moved)
    said = acode("-C", moved, "session", "approve", session_id, cwd=tmp_path)
    assert said.exit_code == 0 and f"was moved here from {workspace}" in said.stderr
    (event,) = noted(moved, home, session_id)
    assert event.what == "moved here from another directory" and event.data["from"] == str(workspace)
    again = acode("-C", moved, "resume", session_id, cwd=tmp_path)
    assert again.exit_code == 0 and marks(tmp_path) == 1 and "was moved" not in again.stderr
    (tmp_path / "older").rename(workspace)
    assert acode("-C", workspace, "resume", session_id).exit_code == 20, "the first place is the copy now"
    assert marks(tmp_path) == 1


def test_an_older_copy_that_takes_the_place_of_what_was_removed_is_seen(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    """The anchor of the place that is gone counts: a move does not hide that the log was put back."""
    older = tmp_path / "older"
    shutil.copytree(workspace, older)
    assert acode("session", "approve", session_id).exit_code == 0
    shutil.rmtree(workspace)
    refused = acode("-C", older, "session", "checkpoint", session_id, "--json", cwd=tmp_path)
    assert (refused.exit_code, refused.json["error"]["code"]) == (20, "ACODE-LOG-006")


def test_without_any_anchor_it_is_warned_and_recorded(
    acode: Acode, workspace: Path, home: Path, session_id: str
) -> None:
    for name in ("anchors", "places"):
        shutil.rmtree(home / "acode" / name)
    said = acode("session", "approve", session_id)
    assert said.exit_code == 0 and "has no anchor here" in said.stderr
    (event,) = noted(workspace, home, session_id)
    assert "no anchor" in event.what


def test_a_copy_of_what_an_older_acode_anchored_is_seen_once_the_original_was_used(
    acode: Acode, workspace: Path, home: Path, tmp_path: Path, session_id: str
) -> None:
    shutil.rmtree(home / "acode" / "places")  # as 0.1 left it
    assert acode("session", "checkpoint", session_id).exit_code == 0
    shutil.copytree(workspace, tmp_path / "copy")
    assert at(acode, tmp_path / "copy", "approve", session_id).exit_code == 20


def test_a_refused_copy_is_told_no_command_that_is_refused_again(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    refused = acode("-C", copy, "resume", session_id)
    assert refused.exit_code == 20 and f"acode -C {workspace} resume" in refused.stderr
    assert "To resume" not in refused.stderr


def test_a_plan_that_was_begun_in_the_original_is_only_begun_anew_in_a_copy(
    acode: Acode, workspace: Path, tmp_path: Path, session_id: str
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    refused = acode("-C", copy, "run", copy / "plan.yml")
    assert refused.exit_code == 20 and "acode run --new" in refused.stderr
    assert f"acode resume {session_id[-8:]};" not in refused.stderr, "which would be refused in turn"
    assert acode("-C", copy, "run", "--new", copy / "plan.yml").exit_code == 10, "at its gate"
    assert acode("run", workspace / "plan.yml").exit_code == 10, "the original names its own"


def test_a_program_is_refused_in_a_copy_and_may_begin_there_under_another_key(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), library.session("one", workspace=workspace) as session:
        session.write("a.txt", "a")
        raise RuntimeError
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    with pytest.raises(CopiedWorkspace) as refused, library.session("one", workspace=copy):
        raise AssertionError("it must not begin")
    hint = refused.value.hint
    assert (
        hint.startswith(f"Continue it there: run the program in {workspace}.")
        and "acode -C" not in hint
        and "acode run" not in hint
    )
    with library.session("two", workspace=copy) as session:
        session.write("b.txt", "b")

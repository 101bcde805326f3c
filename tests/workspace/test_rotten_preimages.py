"""Bytes that stood in a file before a step: put back however large they are; rotten, nothing is begun without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acode.engine import rollback
from acode.store import store
from tests.driver import Acode, Ended
from tests.yaml_text import plan_text

LARGE = "what stood there before\n" * 5_000


def plan(acode: Acode, *steps: dict[str, Any]) -> None:
    (acode.workspace / "plan.yml").write_text(plan_text("x", [{"id": "t", "title": "t", "steps": list(steps)}]))


def written(acode: Acode, *paths: str) -> str:
    """Large files were written over, one after the other; the step behind that has failed."""
    for path in paths:
        (acode.workspace / path).write_text(f"{path}\n{LARGE}")
    plan(acode, *({"write": {"path": path, "content": "small\n"}} for path in paths), {"run": "test -f go"})
    assert acode("run", "plan.yml").exit_code == 1
    (acode.workspace / "go").touch()
    return str(acode("session", "list", "--json").json[0]["session_id"])[-8:]


def built(acode: Acode) -> str:
    """One command has made two large files anew."""
    for path in ("a.txt", "b.txt"):
        (acode.workspace / path).write_text(f"{path}\n{LARGE}")
    line = "echo small > a.txt; echo small > b.txt"
    plan(acode, {"run": line, "outputs": ["a.txt", "b.txt"]}, {"run": "test -f go"})
    assert acode("run", "plan.yml").exit_code == 1
    (acode.workspace / "go").touch()
    return str(acode("session", "list", "--json").json[0]["session_id"])[-8:]


def rot(acode: Acode, path: str) -> Path:
    """One bad sector in the bytes that stood at the path."""
    for blob in (acode.workspace / ".agent" / "blobs").rglob("*"):
        if blob.is_file() and blob.read_bytes().startswith(path.encode()):
            blob.write_bytes(b"rot" + blob.read_bytes()[3:])
            return blob
    raise AssertionError(f"no blob for {path}")


def types(acode: Acode, name: str) -> list[str]:
    return [one["type"] for one in acode("session", "history", name, "--json").json]


def texts(acode: Acode, *paths: str) -> list[str]:
    return [(acode.workspace / path).read_text() for path in paths]


def roll_back(acode: Acode, name: str) -> Ended:
    return acode("session", "rollback", name, "--yes")


def half_undone(acode: Acode, name: str, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """The bytes rot between the look at all of them and their turn."""
    with monkeypatch.context() as late:
        late.setattr(rollback, "with_missing_preimages", lambda store, root, session, undoing: undoing)
        return roll_back(acode, name)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "BLOB_BYTES_MAX", 1_000)


@pytest.mark.usefixtures("small_memory")
def test_a_file_too_large_to_be_read_at_once_is_put_back(acode: Acode) -> None:
    name = written(acode, "a.txt")
    assert acode("session", "verify", name).exit_code == 0
    done = roll_back(acode, name)
    assert done.exit_code == 0, done.stderr
    assert texts(acode, "a.txt") == [f"a.txt\n{LARGE}"]
    assert acode("resume", name).exit_code == 0


@pytest.mark.usefixtures("small_memory")
def test_an_output_too_large_to_be_read_at_once_is_put_back(acode: Acode) -> None:
    (acode.workspace / "a.txt").write_text(LARGE)
    line = "wc -c < a.txt >> seen; echo half > a.txt; test -f go || kill -9 $PPID $$"
    plan(acode, {"run": line, "outputs": ["a.txt"]})
    assert acode("run", "plan.yml").exit_code == 1
    (acode.workspace / "go").touch()
    assert acode("resume", "--last").exit_code == 0
    assert texts(acode, "seen")[0].split() == [str(len(LARGE))] * 2


def test_nothing_is_begun_where_bytes_are_rotten_and_the_session_can_still_be_carried_on(acode: Acode) -> None:
    name = written(acode, "a.txt", "b.txt")
    blob = rot(acode, "a.txt")
    before = types(acode, name)
    refused = roll_back(acode, name)
    assert refused.exit_code == 20, "b.txt could be put back, but then the rollback could not be finished"
    for word in ("a.txt before t.1", blob.name, "nothing was changed", "leaves them alone"):
        assert word in refused.stderr
    assert texts(acode, "a.txt", "b.txt") == ["small\n", "small\n"] and types(acode, name) == before
    shown = acode("session", "rollback", name, "--dry-run")
    assert shown.exit_code == 0 and "old content of a.txt cannot be restored" in shown.stderr
    assert acode("resume", name).exit_code == 0


def test_steps_that_do_not_need_the_rotten_bytes_are_taken_back(acode: Acode) -> None:
    name = written(acode, "a.txt", "b.txt")
    rot(acode, "a.txt")
    assert acode("session", "rollback", name, "--to", "t.1", "--yes").exit_code == 0
    assert texts(acode, "a.txt", "b.txt") == ["small\n", f"b.txt\n{LARGE}"]


def test_bytes_that_were_lost_here_are_not_said_to_be_on_another_machine(acode: Acode) -> None:
    name = written(acode, "a.txt")
    rot(acode, "a.txt").unlink()
    refused = roll_back(acode, name)
    assert refused.exit_code == 20
    assert "it is gone" in refused.stderr and "another" not in refused.stderr


@pytest.mark.parametrize("begun", [False, True])
def test_a_rollback_goes_on_when_a_person_has_put_the_file_right_by_hand(
    acode: Acode, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = built(acode)
    rot(acode, "a.txt")
    if begun:
        assert half_undone(acode, name, monkeypatch).exit_code == 20
        assert texts(acode, "a.txt", "b.txt") == ["small\n", f"b.txt\n{LARGE}"]
    (acode.workspace / "a.txt").write_text("as I want it\n")
    done = roll_back(acode, name)
    assert done.exit_code == 0, done.stderr
    assert texts(acode, "a.txt", "b.txt") == ["as I want it\n", f"b.txt\n{LARGE}"]
    assert acode("resume", name, "--changed-files", "continue").exit_code == 0


def test_a_rollback_that_has_put_nothing_back_can_be_called_off(acode: Acode, monkeypatch: pytest.MonkeyPatch) -> None:
    name = written(acode, "a.txt")
    rot(acode, "a.txt")
    assert half_undone(acode, name, monkeypatch).exit_code == 20
    refused = acode("resume", name)
    way = f"acode session resolve {name} t.1 --not-applied"
    assert refused.exit_code == 1 and f"acode session rollback {name}" in refused.stderr
    assert way in roll_back(acode, name).stderr
    assert acode("session", "resolve", name, "t.1", "--applied").exit_code == 2, "nobody can say what the files say"
    assert acode("session", "resolve", name, "t.1", "--not-applied").exit_code == 0
    assert acode("resume", name).exit_code == 0
    assert texts(acode, "a.txt") == ["small\n"]


def test_a_rollback_that_has_put_something_back_is_not_called_off(
    acode: Acode, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = built(acode)
    rot(acode, "a.txt")
    assert half_undone(acode, name, monkeypatch).exit_code == 20
    refused = acode("session", "resolve", name, "t.1", "--not-applied")
    assert refused.exit_code == 2 and "has put b.txt back already" in refused.stderr
    assert acode("resume", name).exit_code == 1


def test_verify_and_repair_say_that_lost_bytes_are_not_mended_by_a_repair(acode: Acode) -> None:
    name = written(acode, "a.txt")
    blob = rot(acode, "a.txt")
    verified = acode("session", "verify", name)
    assert verified.exit_code == 20 and blob.name in verified.stdout
    assert "backup of .agent/blobs" in verified.stderr and "session repair" not in verified.stderr
    repaired = acode("session", "repair", name)
    assert repaired.exit_code == 0 and "backup of .agent/blobs" in repaired.stderr
    assert "nothing to repair" not in repaired.stderr


@pytest.mark.parametrize("way", ["retry", "by hand"])
def test_a_step_in_flight_whose_bytes_are_rotten_is_left_as_it_is_and_the_ways_out_work(acode: Acode, way: str) -> None:
    (acode.workspace / "a.txt").write_text(f"a.txt\n{LARGE}")
    plan(acode, {"run": "echo half > a.txt; test -f go || kill -9 $PPID $$", "outputs": ["a.txt"]})
    assert acode("run", "plan.yml").exit_code == 1
    (acode.workspace / "go").touch()
    rot(acode, "a.txt")
    name = str(acode("session", "list", "--json").json[0]["session_id"])[-8:]
    refused = acode("resume", name)
    assert refused.exit_code == 20
    for word in ("old content of a.txt cannot be restored", "--strategy retry", f"resolve {name} t.1 --applied"):
        assert word in refused.stderr
    assert texts(acode, "a.txt") == ["half\n"]
    if way == "retry":
        assert acode("resume", name, "--strategy", "retry").exit_code == 0
    else:
        assert acode("session", "resolve", name, "t.1", "--applied").exit_code == 0
        assert acode("resume", name).exit_code == 0

"""Who a workspace is to the other machines of a shared copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from acode import lock
from acode.sync.outbox import name_on, node_of


def test_a_name_lasts_and_a_copied_one_is_not_taken_over(tmp_path: Path) -> None:
    here, there = tmp_path / "here/node", tmp_path / "there/node"
    name = name_on(here, "this-machine")
    assert name_on(here, "this-machine") == name
    there.parent.mkdir()
    shutil.copy(here, there)
    other = name_on(there, "another-machine")
    assert other != name and name_on(there, "another-machine") == other
    assert name_on(here, "this-machine") == name


def test_a_name_of_before_machines_were_noted_stays(tmp_path: Path) -> None:
    path = tmp_path / "node"
    path.write_text("00112233445566778899aabbccddeeff\n")
    assert name_on(path, "this-machine") == b"00112233445566778899aabbccddeeff"
    assert name_on(path, "another-machine") != b"00112233445566778899aabbccddeeff", "it is noted from then on"


def test_where_a_machine_does_not_say_who_it_is_the_name_stays_with_the_directory(tmp_path: Path) -> None:
    path = tmp_path / "node"
    name = name_on(path, "")
    assert name_on(path, "") == name
    assert name_on(path, "this-machine") == name
    assert name_on(path, "") == name


def test_a_state_directory_that_was_copied_to_another_machine_is_another_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "machine_id", lambda: "one")
    before = node_of(tmp_path, tmp_path)
    assert node_of(tmp_path, tmp_path) == before != node_of(tmp_path, tmp_path / "elsewhere")
    monkeypatch.setattr(lock, "machine_id", lambda: "two")
    assert node_of(tmp_path, tmp_path) != before

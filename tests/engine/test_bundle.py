"""A bundle proves itself where the key is, says so where it is not, and holds nothing that must stay at home."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acode import seal
from acode.engine.bundle import export, verify_bundle
from acode.engine.create import run_plan
from acode.engine.repair import repair
from acode.errors import AcodeError
from tests.driver import Acode
from tests.victims import FAILED, Victim, with_snapshots
from tests.worlds import plan_file, world


def bundle_of(victim: Victim, place: Path) -> Path:
    path = place / "bundle.jsonl"
    path.write_bytes(b"".join(export(victim.world, victim.id)))
    return path


def keyring(victim: Victim) -> seal.Keyring:
    return seal.load_keyring(victim.world.state_dir, {})


def test_a_bundle_is_whole_and_the_same_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_snapshots(monkeypatch)
    victim = Victim(tmp_path / "v")
    path = bundle_of(victim, tmp_path)
    session_id, verified = verify_bundle(path, keyring(victim))
    assert (session_id, verified.problems) == (victim.id, ())
    assert verified.events == victim.attack.last() and verified.checkpoints == 2 and verified.blobs > 0
    assert path.read_bytes() == b"".join(export(victim.world, victim.id))


@pytest.mark.parametrize("index", range(0, 100, 7))
def test_a_bundle_with_any_byte_changed_is_refused(index: int, tmp_path: Path) -> None:
    victim = Victim(tmp_path / "v")
    path = bundle_of(victim, tmp_path)
    raw = bytearray(path.read_bytes())
    for at in range(index * len(raw) // 100, len(raw), max(1, len(raw) // 40)):
        changed = bytearray(raw)
        changed[at] ^= 0x01
        path.write_bytes(changed)
        with pytest.raises(AcodeError) as refused:
            verify_bundle(path, keyring(victim))
        assert refused.value.exit_code == 20


@pytest.mark.parametrize("change", ["cut off", "a line left out", "a line twice", "something behind", "another key"])
def test_a_bundle_that_is_not_what_was_exported_is_refused(change: str, tmp_path: Path) -> None:
    victim = Victim(tmp_path / "v")
    path = bundle_of(victim, tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    keys = keyring(victim)
    match change:
        case "cut off":
            lines = lines[:-1]
        case "a line left out":
            del lines[4]
        case "a line twice":
            lines.insert(4, lines[4])
        case "something behind":
            lines.append(lines[4])
        case "another key":
            keys = seal.Keyring(current="k", keys={"k": b"k" * 32})
    path.write_bytes(b"".join(lines))
    with pytest.raises(AcodeError) as refused:
        verify_bundle(path, keys)
    assert refused.value.exit_code == 20
    assert (refused.value.code == "ACODE-KEY-002") is (change == "another key")


def test_a_damaged_session_is_exported_as_it_is_and_the_damage_is_named(tmp_path: Path) -> None:
    victim = Victim(tmp_path / "v", FAILED)
    victim.attack.set_body(6, "garbage")
    _, verified = verify_bundle(bundle_of(victim, tmp_path), keyring(victim))
    assert [one.seq for one in verified.problems] == [6]
    repair(victim.world, victim.id)
    _, mended = verify_bundle(bundle_of(victim, tmp_path), keyring(victim))
    assert mended.problems == () and [one.seq for one in mended.noted] == [6]


def test_what_is_secret_or_the_users_stays_at_home(tmp_path: Path) -> None:
    """Pre-images, secrets and the place of the workspace are not in it; what acode made is."""
    there = world(tmp_path)
    token = "gh" + "p_" + "0123456789abcdefghijABCDEFGHIJ456789"
    (there.workspace / "a.txt").write_text("the user's own words\n")
    (there.workspace / "b.txt").write_text(f"{token}\n")
    plan = f"""
version: 1
title: Bundle
tasks:
  - id: main
    steps:
      - write: {{path: a.txt, content: "new"}}
      - write: {{path: b.txt, content: "{token}"}}
      - run: echo an output of ours
      - run: "false"
"""
    session_id = run_plan(there, plan_file(plan)).session_id
    raw = b"".join(export(there, session_id))
    assert token.encode() not in raw and b"the user's own words" not in raw
    assert str(there.workspace).encode() not in raw
    blobs = [line for line in map(json.loads, raw.splitlines()) if line["line"] == "blob"]
    assert {line["purpose"]: line["data"] is None for line in blobs} == {
        "sensitive": True,
        "preimage": True,
        "output": False,
    }


def test_the_command_writes_a_private_file_and_verifies_it(acode: Acode, workspace: Path, tmp_path: Path) -> None:
    (workspace / "plan.yml").write_text(FAILED)
    acode("run", "plan.yml")
    target = tmp_path / "taken.jsonl"
    assert acode("session", "export", "-o", target).exit_code == 0
    assert target.stat().st_mode & 0o777 == 0o600
    assert acode("session", "export").stdout.encode() == target.read_bytes()
    checked = acode("session", "verify", "--bundle", target, "--json")
    assert checked.exit_code == 0 and checked.json["ok"]
    target.write_bytes(target.read_bytes().replace(b"main.2", b"main.3"))
    assert acode("session", "verify", "--bundle", target).exit_code == 20
    assert acode("session", "verify", "--bundle", tmp_path / "absent").exit_code == 2

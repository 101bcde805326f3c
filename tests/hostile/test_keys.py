"""Keys: made private, refused when shared, rotated without losing the past, lost with a clear word."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from acode import seal
from acode.engine.preview import verify
from acode.engine.resume import resume
from acode.engine.world import Options
from acode.errors import AcodeError
from tests.driver import Acode
from tests.victims import FAILED, Victim

needs_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="changes the owner of files")


def key_file(victim: Victim) -> Path:
    return seal.key_file(victim.world.state_dir)


def refused(victim: Victim) -> AcodeError:
    with pytest.raises(AcodeError) as stopped:
        resume(victim.world, victim.id, Options())
    return stopped.value


def test_the_key_is_made_for_its_owner_alone_and_outside_the_workspace(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    path = key_file(victim)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.is_relative_to(victim.world.workspace)
    key = path.read_bytes().strip()
    files = [one for one in victim.world.workspace.rglob("*") if one.is_file()]
    assert [
        str(one) for one in files if key in one.read_bytes() or bytes.fromhex(key.decode()) in one.read_bytes()
    ] == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o666, 0o620])
def test_a_key_that_others_can_reach_is_refused_not_repaired(mode: int, tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    key_file(victim).chmod(mode)
    error = refused(victim)
    assert (error.code, error.exit_code) == ("ACODE-KEY-001", 20)
    assert f"{mode:04o}" in error.message and "chmod 600" in error.hint
    assert stat.S_IMODE(key_file(victim).stat().st_mode) == mode


@needs_root
def test_a_key_of_somebody_else_is_refused(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    os.chown(key_file(victim), 12345, 12345)
    assert refused(victim).code == "ACODE-KEY-001"


def test_a_key_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    moved = tmp_path / "elsewhere"
    key_file(victim).rename(moved)
    key_file(victim).symlink_to(moved)
    assert refused(victim).code == "ACODE-KEY-001"


@pytest.mark.parametrize("content", [b"", b"abc\n", b"z" * 64, b"0" * 63 + b"\n", b"\xff" * 64, b"0" * 64 + b"\n0\n"])
def test_a_damaged_key_file_is_an_error_and_never_a_new_key(content: bytes, tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    key_file(victim).write_bytes(content)
    assert refused(victim).code == "ACODE-KEY-001"
    assert key_file(victim).read_bytes() == content


def test_rotation_keeps_old_logs_verifiable_and_signs_with_the_new_key(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    old = seal.load_keyring(victim.world.state_dir, {}).current
    new = seal.rotate_key(victim.world.state_dir)
    (victim.world.workspace / "go").touch()
    assert resume(victim.world, victim.id, Options()).exit_code == 0
    assert verify(victim.world, victim.id)[1].problems == ()
    used = [row[0] for row in victim.attack.sql("SELECT DISTINCT json_extract(body, '$.key_id') FROM events")]
    assert set(used) == {old, None, new}, "a row names its key where that is not the one of the first"
    assert victim.attack.sql("SELECT json_extract(body, '$.key_id') FROM events ORDER BY id DESC LIMIT 1") == [(new,)]
    assert stat.S_IMODE(key_file(victim).stat().st_mode) == 0o600


def test_keys_can_be_taken_along_to_another_home(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    text = seal.export_keys(victim.world.state_dir)
    key_file(victim).unlink()
    assert refused(victim).code == "ACODE-KEY-002"
    seal.import_keys(victim.world.state_dir, text)
    (victim.world.workspace / "go").touch()
    assert resume(victim.world, victim.id, Options()).exit_code == 0


def test_a_lost_key_is_reported_as_such_with_the_way_out(acode: Acode, workspace: Path, home: Path) -> None:
    (workspace / "plan.yml").write_text(FAILED)
    acode("run", "plan.yml")
    (home / "acode" / "keys").unlink()
    ended = acode("resume", "--last")
    assert ended.exit_code == 20 and "is not here" in ended.stderr and "acode key import" in ended.stderr
    asked = acode("session", "repair", "--yes")
    assert asked.exit_code == 20 and "--accept-lost-key" in asked.stderr
    mended = acode("session", "repair", "--accept-lost-key", "--yes", "--reason", "disk died")
    assert mended.exit_code == 0, mended.stderr
    assert acode("session", "verify").exit_code == 0
    (workspace / "go").touch()
    assert acode("resume", "--last").exit_code == 0
    assert (workspace / "log.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("secret", ["", "short", "fifteen bytes.."])
def test_a_short_secret_is_refused(secret: str, acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(FAILED)
    ended = acode("run", "plan.yml", env={"ACODE_CHECKPOINT_SECRET": secret})
    assert ended.exit_code == 20 and "at least 16" in ended.stderr
    assert not secret or secret not in ended.stderr


def test_a_secret_from_the_environment_signs_and_another_one_is_told(acode: Acode, workspace: Path, home: Path) -> None:
    (workspace / "plan.yml").write_text(FAILED)
    (workspace / "show").write_text("")
    acode("run", "plan.yml", env={"ACODE_CHECKPOINT_SECRET": "the first long secret"})
    assert not (home / "acode" / "keys").exists()
    assert acode("session", "verify", env={"ACODE_CHECKPOINT_SECRET": "the first long secret"}).exit_code == 0
    other = acode("session", "verify", env={"ACODE_CHECKPOINT_SECRET": "another long secret"})
    assert other.exit_code == 20 and "ACODE-KEY-002" in other.stdout + other.stderr


def test_codes_are_compared_in_constant_time() -> None:
    """By the standard library's own comparison, everywhere that a code or a seal is checked."""
    import ast

    source = Path(seal.__file__).parent
    found = []
    for path in [source / "seal.py", *sorted((source / "store").glob("*.py")), source / "engine" / "bundle.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
                text = ast.unparse(node)
                if "seal.code(" in text or "seal.seal(" in text or "hmac" in text:
                    found.append(f"{path.name}:{node.lineno}: {text}")
    assert found == []
    assert "hmac.compare_digest" in (source / "seal.py").read_text()

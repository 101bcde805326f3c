"""What stood in a command's outputs when they were put back: there after the end, and gone when collected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from acode.store import schema
from tests.driver import Acode, Ended
from tests.tampering import Attack
from tests.unit.test_redact import SHAPED, Maker
from tests.yaml_text import plan_text

MINE = "the only copy of my notes\n"
LINE = "mkdir -p build; echo half > build/app; test -f go || kill -9 $PPID $$"


@pytest.fixture
def secret() -> str:
    return next(iter(SHAPED.values()))(Maker(7))


def cut_off(acode: Acode, *more: dict[str, Any], env: dict[str, str] | None = None, **step: Any) -> None:
    """A command and its keeper are killed in the middle of their outputs."""
    steps = [{"run": LINE, "outputs": ["build/**"], **step}, *more]
    (acode.workspace / "plan.yml").write_text(plan_text("Build", [{"id": "t", "title": "t", "steps": steps}]))
    assert acode("run", "plan.yml", env=env).exit_code == 1
    (acode.workspace / "go").touch()


def blobs(acode: Acode) -> list[bytes]:
    return [path.read_bytes() for path in (acode.workspace / ".agent" / "blobs").rglob("*") if path.is_file()]


def session(acode: Acode) -> str:
    return str(acode("session", "list", "--all", "--json").json[0]["session_id"])


def taken_out(acode: Acode, to: Path) -> Ended:
    return acode("session", "export", session(acode), "--kept", to)


def test_what_a_rollback_replaced_is_there_after_the_end_under_the_command_that_was_named(
    acode: Acode, tmp_path: Path
) -> None:
    cut_off(acode)
    notes = acode.workspace / "build" / "notes.txt"
    notes.write_text(MINE)  # a person, between kill and resume
    notes.chmod(0o640)
    (acode.workspace / "build" / "link").symlink_to("notes.txt")
    resumed = acode("resume", "--last")
    assert resumed.exit_code == 0, resumed.stderr
    assert not notes.exists() and MINE.encode() in blobs(acode)
    assert f"acode session export {session(acode)[-8:]} --kept DIR" in resumed.stderr

    done = taken_out(acode, tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    (directory,) = (tmp_path / "out").iterdir()
    assert (directory / "build" / "notes.txt").read_text() == MINE
    assert (directory / "build" / "notes.txt").stat().st_mode & 0o777 == 0o640
    assert (directory / "build" / "app").read_text() == "half\n"
    assert os.readlink(directory / "build" / "link") == "notes.txt"
    assert sorted(done.stdout.splitlines()) == sorted(
        str(directory / "build" / one) for one in ("app", "link", "notes.txt")
    )
    assert acode("session", "verify", session(acode)).exit_code == 0


def test_what_a_rollback_replaced_goes_when_the_session_is_collected(acode: Acode) -> None:
    cut_off(acode)
    assert acode("resume", "--last").exit_code == 0
    assert blobs(acode) == [b"half\n"]
    assert acode("session", "gc", "--older-than", "0", "--yes").exit_code == 0
    assert blobs(acode) == []


@pytest.mark.req("THREAT-011c-04")
def test_a_replaced_file_with_a_secret_is_there_until_the_end_and_that_is_said(
    acode: Acode, tmp_path: Path, secret: str
) -> None:
    """However large it is: it is looked through piece by piece."""
    cut_off(acode, {"run": "test -f on"})
    (acode.workspace / "build" / "env").write_text("x = 1\n" * 300_000 + f"{secret}\n")
    (acode.workspace / "build" / "notes.txt").write_text(MINE * 100_000)
    resumed = acode("resume", "--last")
    assert "Only until the session ends: 1 file" in resumed.stderr
    assert taken_out(acode, tmp_path / "before").exit_code == 0
    (found,) = (tmp_path / "before").rglob("env")
    assert secret in found.read_text()

    (acode.workspace / "on").touch()
    assert acode("resume", "--last").exit_code == 0
    assert not any(secret.encode() in raw for raw in blobs(acode))
    after = taken_out(acode, tmp_path / "after")
    assert after.exit_code == 0 and "build/env" in after.stderr and "went with the end of its session" in after.stderr
    assert {path.name for path in (tmp_path / "after").rglob("*") if path.is_file()} == {"app", "notes.txt"}
    assert acode("session", "verify", session(acode)).exit_code == 0


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.req("THREAT-011c-04")
def test_a_declared_secret_in_a_replaced_file_goes_with_the_end_also_where_its_value_is_not_at_hand(
    acode: Acode, known: bool
) -> None:
    env = {"PLAIN_NAME": "correct-horse-battery"}
    cut_off(acode, secret_env=["PLAIN_NAME"], env=env)
    (acode.workspace / "build" / "notes.txt").write_text("it is correct-horse-battery\n")
    ended = acode("resume", "--last", env=env if known else None)
    assert (ended.exit_code == 0) is known
    name = session(acode)
    if not known:
        assert Attack(acode.workspace).sql("SELECT count(*) FROM blobs WHERE purpose = 'saved'") == [(0,)]
        assert acode("session", "cancel", name).exit_code == 0
    assert not any(b"correct-horse" in raw for raw in blobs(acode))


def test_what_is_kept_stays_on_its_machine(acode: Acode, tmp_path: Path) -> None:
    cut_off(acode)
    (acode.workspace / "build" / "notes.txt").write_text(MINE)
    assert acode("resume", "--last").exit_code == 0
    assert acode("session", "export", session(acode), "-o", tmp_path / "bundle").exit_code == 0
    raw = (tmp_path / "bundle").read_text()
    assert '"purpose":"saved","data":null' in raw and "b25seSBjb3B5" not in raw and MINE.strip() not in raw


def test_nothing_is_overwritten_where_kept_files_are_written_to(acode: Acode, tmp_path: Path) -> None:
    cut_off(acode)
    assert acode("resume", "--last").exit_code == 0
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    refused = taken_out(acode, tmp_path / "full")
    assert refused.exit_code == 2 and "is not empty" in refused.stderr
    assert acode("session", "export", session(acode), "--kept", tmp_path / "a", "-o", tmp_path / "b").exit_code == 2


def test_a_kept_file_whose_bytes_have_rotted_is_named_and_the_others_are_written(acode: Acode, tmp_path: Path) -> None:
    cut_off(acode)
    (acode.workspace / "build" / "notes.txt").write_text(MINE)
    assert acode("resume", "--last").exit_code == 0
    for path in (acode.workspace / ".agent" / "blobs").rglob("*"):
        if path.is_file() and path.read_bytes() == MINE.encode():
            path.write_bytes(b"rot" + MINE.encode()[3:])
    done = acode("session", "export", session(acode), "--kept", tmp_path / "out", "--json")
    assert done.exit_code == 20
    assert {one["path"]: one["damaged"] for one in done.json["files"]} == {"build/app": False, "build/notes.txt": True}
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["app"]


def test_a_session_without_a_rollback_has_nothing_kept(acode: Acode, tmp_path: Path) -> None:
    (acode.workspace / "plan.yml").write_text(plan_text("x", [{"id": "t", "title": "t", "steps": [{"run": "true"}]}]))
    assert acode("run", "plan.yml").exit_code == 0
    done = taken_out(acode, tmp_path / "out")
    assert done.exit_code == 0 and "no rollback has replaced anything" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_blobs_of_older_databases_come_along() -> None:
    db = apsw.Connection(":memory:")
    for number, (name, sql) in enumerate(schema.MIGRATIONS[:6], 1):
        db.execute(sql)
        db.execute("INSERT INTO migrations VALUES (?, ?, ?, '')", (number, name, schema.checksum(sql)))
    db.pragma("user_version", 6)
    rows = [("s", "0" * 64, "output", b"text"), ("s", "0" * 64, "sensitive", None), ("s", "1" * 64, "preimage", b"")]
    db.executemany("INSERT INTO blobs VALUES (?, ?, ?, ?)", rows)
    schema.migrate(db, "now")
    schema.check(db)
    assert list(db.execute("SELECT * FROM blobs ORDER BY sha256, purpose")) == rows
    db.execute("INSERT INTO blobs VALUES ('s', ?, 'saved', NULL)", ("2" * 64,))
    with pytest.raises(apsw.ConstraintError):
        db.execute("INSERT INTO blobs VALUES ('s', ?, 'other', NULL)", ("2" * 64,))

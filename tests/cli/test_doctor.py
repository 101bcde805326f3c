"""acode doctor: it says that all is well only where it has looked and all is."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from acode.disk import file_lock
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import Stop, trace
from tests.crash.place import Place
from tests.disks import on_a_small_disk
from tests.driver import Acode, Ended

PLAN = "version: 1\ntitle: Nightly\ntasks: [{id: a, steps: [{run: 'true'}]}]\n"


@pytest.fixture
def used(workspace: Path, acode: Acode) -> Path:
    (workspace / "plan.yml").write_text(PLAN)
    assert acode("run", "plan.yml").exit_code == 0
    return workspace / ".agent"


def failed(ended: Ended) -> list[str]:
    assert ended.exit_code == 1, ended.stdout
    assert "All is well" not in ended.stderr + ended.stdout
    return [line.removeprefix("✗ ").partition(":")[0] for line in ended.stdout.splitlines() if line.startswith("✗")]


def test_a_workspace_that_was_used_is_well(used: Path, acode: Acode) -> None:
    ended = acode("doctor")
    assert ended.exit_code == 0 and "every recorded session is in it" in ended.stdout


@pytest.mark.parametrize("loss", ["removed", "emptied", "directory removed", "another one"])
def test_a_lost_database_is_never_well(loss: str, used: Path, acode: Acode, tmp_path: Path) -> None:
    match loss:
        case "removed":
            (used / "workspace.db").unlink()
        case "emptied":
            (used / "workspace.db").write_bytes(b"")
        case "directory removed":
            shutil.rmtree(used)
        case _:
            acode("session", "list")
            other = tmp_path / "other"
            other.mkdir()
            (other / "plan.yml").write_text(PLAN)
            assert Acode(other)("run", "plan.yml").exit_code == 0
            shutil.copy(other / ".agent" / "workspace.db", used / "workspace.db")
    ended = acode("doctor")
    assert failed(ended) == ["database"]
    assert "“Nightly”" in ended.stdout and "--accept-rollback" in ended.stdout


def test_a_full_disk_is_never_well(tmp_path: Path, home: Path) -> None:
    def work(place: Path) -> None:
        acode = Acode(place)
        assert failed(acode("doctor")) == ["disk space"]
        with open(place / "all", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        assert failed(acode("doctor")) == ["workspace", "disk space"]

    on_a_small_disk(tmp_path / "small", work)


@needs_ptrace
@pytest.mark.parametrize("answer", [-errno.ENOLCK, 0], ids=["refused", "given to everybody"])
def test_a_failing_lock_is_never_well(answer: int, tmp_path: Path) -> None:
    """The kernel is never asked: the program gets this answer to its system call, as from a disk without locks."""
    place = Place(tmp_path / "place")
    place.workspace.mkdir(parents=True)
    place.put("plan.yml", PLAN)
    assert place.acode("run", "plan.yml").exit_code == 0

    def instead(stop: Stop) -> None:
        stop.skip() if stop.phase == "entry" else stop.answer(answer)

    ended = trace(partial(place.traced, "doctor"), on_stop=instead, wanted=lambda stop: stop.name == "flock")
    said = Ended(exit_code=ended.exit_code, stdout=place.words_heard().decode(), stderr=place.words_said())
    assert ended.stops and failed(said) == ["locks"]


def test_a_lock_that_somebody_holds_is_a_lock(used: Path, acode: Acode) -> None:
    held = os.open(used.parent, os.O_RDONLY)
    try:
        assert file_lock.try_lock(held)
        assert acode("doctor").exit_code == 0
    finally:
        os.close(held)


def test_doctor_leaves_nothing_behind(used: Path, acode: Acode) -> None:
    before = sorted(used.rglob("*"))
    assert acode("doctor").exit_code == 0
    assert sorted(used.rglob("*")) == before


def test_the_engine_that_redacts_is_named_and_a_machine_without_re2_is_well(
    used: Path, acode: Acode, home: Path
) -> None:
    """Alpine has no wheel of google-re2: there the import fails."""
    assert "✓ redaction: by re2\n" in acode("doctor").stdout
    (home / "re2.py").write_text("raise ImportError('no such library')\n")
    path = os.pathsep.join([str(home), os.environ["PYTHONPATH"]])
    alone = subprocess.run(
        [sys.executable, "-m", "acode", "doctor"],
        cwd=used.parent,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        text=True,
        capture_output=True,
    )
    assert "✓ redaction: by Python's re" in alone.stdout and 'pip install "acode-cli[re2]"' in alone.stdout

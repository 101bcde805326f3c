"""A file of acode's own is a regular file with one name; anything else there is neither opened nor waited for."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from acode import command_notes
from acode.disk.own_files import is_ours_alone, open_own, read_own
from acode.steps import keeper

STRANGE: dict[str, Callable[[Path, Path], object]] = {
    "a FIFO": lambda path, _: os.mkfifo(path, 0o600),
    "a directory": lambda path, _: path.mkdir(),
    "a link": lambda path, elsewhere: path.symlink_to(elsewhere),
    "a link to nothing": lambda path, elsewhere: path.symlink_to(elsewhere.with_name("nowhere")),
    "a hard link": lambda path, elsewhere: os.link(elsewhere, path),
}
WAYS = {"read": os.O_RDONLY, "write": os.O_WRONLY, "append": os.O_RDWR | os.O_APPEND, "make": os.O_WRONLY | os.O_CREAT}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    place = tmp_path / "elsewhere"
    place.write_bytes(b"somebody else's")
    return place


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("way", WAYS)
def test_what_acode_did_not_make_is_refused_and_not_touched(
    tmp_path: Path, elsewhere: Path, kind: str, way: str
) -> None:
    STRANGE[kind](tmp_path / "own", elsewhere)
    with pytest.raises(OSError):
        open_own(tmp_path / "own", WAYS[way])
    assert elsewhere.read_bytes() == b"somebody else's"
    assert not (tmp_path / "nowhere").exists()


def test_a_new_file_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(open_own(tmp_path / "own", os.O_WRONLY | os.O_CREAT))
    finally:
        os.umask(before)
    found = (tmp_path / "own").stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert is_ours_alone(found)
    (tmp_path / "own").chmod(0o640)
    assert not is_ours_alone((tmp_path / "own").stat())
    assert read_own(tmp_path / "own") == b""


@pytest.mark.parametrize("kind", STRANGE)
def test_the_keeper_writes_its_notes_into_no_file_of_somebody_else(tmp_path: Path, elsewhere: Path, kind: str) -> None:
    STRANGE[kind](tmp_path / "started.new", elsewhere)
    with pytest.raises(OSError):
        command_notes.write_note(os.fspath(tmp_path), "started", {"keeper": 1})
    STRANGE[kind](tmp_path / "output", elsewhere)
    with pytest.raises(OSError):
        keeper.Capture(os.fspath(tmp_path / "output"), 100, keeper, None)  # type: ignore[arg-type]
    assert elsewhere.read_bytes() == b"somebody else's"


def test_the_keeper_starts_as_a_program_with_nothing_of_acode_but_these_files() -> None:
    """It must start in no time, and find its own files without the paths that `-I` and `-S` take away."""
    names = "sorted(name for name in sys.modules if name.startswith(('acode', 'msgspec', 'apsw', 'psutil')))"
    script = (
        f"import runpy, sys; sys.argv = [sys.argv[1]]; runpy.run_path(sys.argv[0], run_name='kept'); print({names})"
    )
    place = Path(keeper.__file__)
    env = {"PYTHONPATH": os.fspath(place.parents[2])}
    shown = subprocess.run(
        [sys.executable, "-S", "-c", script, os.fspath(place)], env=env, text=True, stdout=subprocess.PIPE, check=True
    ).stdout
    assert (
        shown.strip() == "['acode', 'acode.command_notes', 'acode.disk', 'acode.disk.file_lock', 'acode.disk.fsync',"
        " 'acode.disk.own_files', 'acode.lease_file', 'acode.steps', 'acode.steps.keeper_limits']"
    )
    alone = subprocess.run(
        [sys.executable, "-I", "-S", os.fspath(place)], input="", text=True, stderr=subprocess.PIPE, check=False
    )
    assert "JSONDecodeError" in alone.stderr  # it was loaded, and found no request

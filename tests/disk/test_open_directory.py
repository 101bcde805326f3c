"""An open directory is that directory, whatever is put in its place, and leads through no link."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.disk.open_directory import OpenDirectory, descriptor_of
from acode.errors import UnsafePath
from acode.formats.agent_memory.disk import Folder
from acode.formats.arc import disk as arc

KINDS = {
    "itself": lambda path: OpenDirectory(path, descriptor_of(path)),
    "of an arc run": lambda path: arc.Directory(path, descriptor_of(path)),
    "of an agent-memory run": Folder.at,
}


@pytest.fixture(params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenDirectory]:
    (tmp_path / "here").mkdir()
    with KINDS[request.param](os.fspath(tmp_path / "here")) as directory:
        yield directory


def test_a_name_is_looked_up_in_the_directory_that_was_opened(opened: OpenDirectory, tmp_path: Path) -> None:
    (tmp_path / "here" / "file").write_text("ours")
    (tmp_path / "here").rename(tmp_path / "moved")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("theirs")
    with open(opened.open("file", os.O_RDONLY)) as file:
        assert file.read() == "ours"
    opened.rename("file", "other")
    opened.mkdir("made")
    assert sorted(os.listdir(tmp_path / "moved")) == opened.names() == ["made", "other"]
    opened.rmdir("made")
    opened.unlink("other")
    assert os.listdir(tmp_path / "here") == ["file"]


def test_neither_a_file_nor_a_directory_is_opened_through_a_link(opened: OpenDirectory, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    (tmp_path / "here" / "to_a_file").symlink_to(tmp_path / "elsewhere" / "file")
    (tmp_path / "here" / "to_a_directory").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "to_nothing").symlink_to(tmp_path / "elsewhere" / "new")
    for name in ("to_a_file", "to_nothing"):
        with pytest.raises((UnsafePath, OSError)):
            opened.open(name, os.O_RDWR | os.O_CREAT)
        assert opened.is_link(name)
    with pytest.raises((UnsafePath, OSError)):
        opened.open_below("to_a_directory")
    assert os.listdir(tmp_path / "elsewhere") == ["file"]


def test_a_pipe_is_not_waited_for(opened: OpenDirectory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "here" / "pipe")
    os.close(opened.open("pipe", os.O_RDONLY))


def test_a_closed_directory_is_used_by_nobody(opened: OpenDirectory, tmp_path: Path) -> None:
    (tmp_path / "here" / "file").touch()
    opened.close()
    opened.close()
    for use in (lambda: opened.open("file", os.O_RDONLY), lambda: opened.unlink("file"), lambda: opened.mkdir("new")):
        with pytest.raises(OSError):
            use()
    assert os.listdir(tmp_path / "here") == ["file"]


def test_more_names_than_asked_for_are_told_by_one_more(opened: OpenDirectory, tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / "here" / name).touch()
    assert len(opened.names(2)) == 3
    assert opened.names() == opened.names(4) == ["a", "b", "c", "d"]

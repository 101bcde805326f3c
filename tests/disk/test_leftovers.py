"""A temporary file is its writer's for as long as that lives, by the kernel's word and not by a number in its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.disk import leftovers
from acode.disk.leftovers import create_temporary, forget_leftovers
from acode.disk.open_directory import OpenDirectory, descriptor_of


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[OpenDirectory]:
    with OpenDirectory(os.fspath(tmp_path), descriptor_of(os.fspath(tmp_path))) as opened:
        yield opened


def test_the_file_of_a_living_writer_is_left_alone_whatever_its_pid_means_here(
    directory: OpenDirectory, tmp_path: Path
) -> None:
    """In another container no process of that number may live; the lock is seen everywhere."""
    name, descriptor = create_temporary(directory, "checkpoint.json", 0o600)
    forget_leftovers(directory)
    assert directory.names() == [name]
    os.close(descriptor)
    forget_leftovers(directory)
    assert directory.names() == []


def test_the_file_of_a_killed_writer_is_removed_though_its_pid_is_somebody_elses_now(
    directory: OpenDirectory, tmp_path: Path
) -> None:
    (tmp_path / ".checkpoint.json.1.acode-tmp").touch()  # as 0.1 named it: process 1 lives, and never wrote it
    child = os.fork()
    if child == 0:
        create_temporary(directory, "checkpoint.json", 0o400)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(directory.names()) == 2
    forget_leftovers(directory)
    assert directory.names() == []


def test_only_what_is_named_like_a_leftover_and_is_a_file_is_removed(directory: OpenDirectory, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.touch()
    (tmp_path / ".a.1.acode-tmp").symlink_to(theirs)
    (tmp_path / ".b.2.acode-tmp").mkdir()
    (tmp_path / "c.3.acode-tmp").touch()
    (tmp_path / ".d.xyz.acode-tmp").touch()
    before = directory.names()
    forget_leftovers(directory)
    assert directory.names() == before


def test_a_file_that_is_taken_for_a_leftover_before_it_is_locked_is_made_anew(
    directory: OpenDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and locking it another writer may look: neither loses a byte by that."""
    lock, looks = leftovers.try_lock, iter((True, True, False))

    def after_a_look_of_another(descriptor: int) -> bool:
        if next(looks):
            with monkeypatch.context() as patch:
                patch.setattr(leftovers, "try_lock", lock)
                forget_leftovers(directory)
        return lock(descriptor)

    monkeypatch.setattr(leftovers, "try_lock", after_a_look_of_another)
    name, descriptor = create_temporary(directory, "checkpoint.json", 0o600)
    assert directory.names() == [name]
    assert os.fstat(descriptor).st_nlink == 1
    os.close(descriptor)


def test_where_the_file_system_gives_no_lock_nothing_is_removed(
    directory: OpenDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(leftovers, "try_lock", refused)
    name, descriptor = create_temporary(directory, "checkpoint.json", 0o600)
    os.close(descriptor)
    forget_leftovers(directory)
    assert directory.names() == [name]

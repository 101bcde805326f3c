"""What is synced survives a power cut, by the means that each platform has; a failed sync is never taken for one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from acode.disk import fsync


class Syncs:
    """The two calls that a platform may have, counted; `refusal` is what the full one answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusal: int | None = None) -> None:
        self.done: list[str] = []
        self._refusal = refusal
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._plain)

    def _plain(self, descriptor: int) -> None:
        self.done.append("fsync")
        self._sync(descriptor)

    def full(self, descriptor: int) -> None:
        if self._refusal is not None:
            raise OSError(self._refusal, os.strerror(self._refusal))
        self.done.append("full")


def test_without_a_full_sync_a_file_is_synced_by_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs(monkeypatch)
    with open(tmp_path / "file", "wb") as file:
        fsync.sync_file(file.fileno(), full_sync=None)
    assert syncs.done == ["fsync"]


def test_with_a_full_sync_the_drives_cache_is_emptied_and_nothing_else_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    with open(tmp_path / "file", "wb") as file:
        fsync.sync_file(file.fileno(), full_sync=syncs.full)
    assert syncs.done == ["full"]


@pytest.mark.parametrize("refusal", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_volume_that_knows_no_full_sync_gets_the_one_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    syncs = Syncs(monkeypatch, refusal)
    with open(tmp_path / "file", "wb") as file:
        fsync.sync_file(file.fileno(), full_sync=syncs.full)
    assert syncs.done == ["fsync"]


@pytest.mark.parametrize("failure", [errno.EIO, errno.ENOSPC])
def test_a_full_sync_that_fails_is_not_tried_in_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    """The kernel may have marked the pages clean: a second sync would succeed and lie."""
    syncs = Syncs(monkeypatch, failure)
    with open(tmp_path / "file", "wb") as file, pytest.raises(OSError) as raised:
        fsync.sync_file(file.fileno(), full_sync=syncs.full)
    assert raised.value.errno == failure
    assert syncs.done == []


@pytest.mark.parametrize(("answer", "is_failure"), [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)])
def test_only_a_file_system_without_a_sync_of_directories_is_excused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int, is_failure: bool
) -> None:
    def refused(descriptor: int) -> None:
        raise OSError(answer, os.strerror(answer))

    monkeypatch.setattr(os, "fsync", refused)
    if is_failure:
        with pytest.raises(OSError):
            fsync.sync_directory(tmp_path)
    else:
        fsync.sync_directory(tmp_path)


def test_a_write_that_takes_a_part_is_continued_to_the_last_byte() -> None:
    """A pipe takes what fits; the reader makes room while the writer is in its loop."""
    data = os.urandom(300_000)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        fsync.write_all(writing, data)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        assert file.read() == data
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

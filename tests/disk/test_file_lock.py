"""The kernel's lock: one holder, named, and free as soon as the holder gives it back or dies."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.disk import file_lock


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "lock").touch()
    return tmp_path / "lock"


@pytest.fixture
def held(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDWR)
    assert file_lock.try_lock(descriptor)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def other(place: Path) -> Iterator[int]:
    descriptor = os.open(place, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_a_second_one_is_refused_until_the_first_gives_it_back(held: int, other: int) -> None:
    assert not file_lock.try_lock(other)
    file_lock.unlock(held)
    assert file_lock.try_lock(other)


def test_the_death_of_its_holder_frees_it(place: Path, other: int) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        file_lock.try_lock(os.open(place, os.O_RDWR))
        os.write(writing, b".")
        signal.pause()
        os._exit(0)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    os.close(writing)
    assert not file_lock.try_lock(other)
    if sys.platform == "linux":
        assert file_lock.holder_pid(other) == child
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert file_lock.try_lock(other)


def test_it_is_waited_for_as_long_as_the_caller_says_and_no_longer(held: int, other: int) -> None:
    assert not file_lock.lock_within(other, wait_s=0.0, every_s=0.001)
    threading.Timer(0.02, file_lock.unlock, (held,)).start()
    assert file_lock.lock_within(other, wait_s=30.0, every_s=0.001)


def test_a_lock_that_cannot_be_given_is_an_error_and_nobodys(place: Path) -> None:
    descriptor = os.open(place, os.O_RDWR)
    os.close(descriptor)
    with pytest.raises(OSError):
        file_lock.try_lock(descriptor)

"""The conductor of the schedules: a sweep that is cut short leaves nobody behind, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Hashable

import pytest

from tests.concurrency.conductor import Conductor, Process


class Empty:
    """Nothing is shared."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def reset(self) -> None: ...
    def bury(self, process: Process) -> None: ...

    def appearance(self, part: str) -> Hashable:
        return part

    def all_parts(self) -> Hashable:
        return ()

    def blocked(self, process: Process) -> bool:
        return False

    def judge(self) -> list[str]:
        return []


@pytest.mark.timeout(20)
def test_who_is_dismissed_in_the_middle_of_its_work_dies_there_and_does_no_more() -> None:
    conductor, done = Conductor(Empty()), []

    def work() -> str:
        for number in range(3):
            conductor.pause("move", "nothing")
            done.append(number)
        return "to the end"

    before = set(threading.enumerate())
    conductor.hire(3)
    for process in conductor.processes[:2]:  # the third has nothing to do
        process.begin(work)
    for _ in range(2):  # to its first operation, and to its second; the other stands before its beginning
        conductor.step(0)
    conductor.dismiss()
    assert set(threading.enumerate()) <= before
    assert done == [0]

"""A probe is asked and heard; one that does not answer in time is ended with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from acode.steps import probe
from tests.interrupts import faults_of
from tests.lives import alive

CHILDREN = "(while :; do sleep 0.01; done) & echo $! > child; while :; do sleep 0.01; done"


def ask(place: Path, command: str, timeout_s: float = 20.0) -> int:
    return probe.ask(command, cwd=os.fspath(place), env=dict(os.environ), timeout_s=timeout_s)


def child_of(place: Path) -> int:
    return int((place / "child").read_text())


@pytest.mark.parametrize("status", [0, 1, 2])
def test_its_exit_status_is_the_answer(tmp_path: Path, status: int) -> None:
    assert ask(tmp_path, f"exit {status}") == status


def test_what_a_probe_out_of_time_has_started_ends_with_it(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        ask(tmp_path, CHILDREN, timeout_s=0.5)
    assert_ends(child_of(tmp_path))


def test_an_interrupt_at_any_moment_of_the_start_leaves_nothing_running() -> None:
    act = "lambda: probe.ask('sleep 100 & sleep 100', cwd='/', env={'PATH': os.defpath}, timeout_s=50)"
    assert faults_of(act, "import os; from acode.steps import probe") == []


def test_what_a_probe_has_started_ends_when_a_person_stops_the_waiting(tmp_path: Path) -> None:
    def press() -> None:
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path, CHILDREN)
    assert_ends(child_of(tmp_path))


def assert_ends(pid: int) -> None:
    """A kill takes a moment."""
    until = time.monotonic() + 10.0
    while alive(pid):
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.005)

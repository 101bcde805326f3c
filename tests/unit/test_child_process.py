"""A child is never lost to a signal: handlers wait while it is started, and each of them runs afterwards."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.child_process import HeldSignals
from tests.interrupts import faults_of

SLEEPS = "['/bin/sh', '-c', 'sleep 100 & sleep 100']"


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """Handlers that note, and an alarm that also raises."""
    numbers: list[int] = []

    def note(number: int, _frame: object) -> None:
        numbers.append(number)

    def note_and_raise(number: int, _frame: object) -> None:
        numbers.append(number)
        raise TimeoutError

    before = {number: signal.signal(number, note) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, note_and_raise)
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_is_held_is_handled_once_at_the_end(heard: list[int]) -> None:
    with HeldSignals():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGUSR1)
        assert heard == []
    assert heard == [signal.SIGUSR1]


def test_a_handler_that_raises_takes_no_other_signal_away(heard: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR2)]
    with pytest.raises(TimeoutError), HeldSignals():
        for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR2):
            signal.raise_signal(number)
    assert sorted(heard) == sorted([signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR2])
    assert handlers == [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGALRM, signal.SIGUSR2)]


def test_a_signal_that_another_thread_gets_is_held_too(heard: list[int]) -> None:
    with HeldSignals():
        other = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGUSR1))
        other.start()
        other.join()
        assert heard == []
    assert heard == [signal.SIGUSR1]


def test_another_thread_holds_nothing_back(heard: list[int]) -> None:
    inside, end = threading.Event(), threading.Event()

    def hold() -> None:
        with HeldSignals():
            inside.set()
            end.wait()

    other = threading.Thread(target=hold)
    other.start()
    inside.wait()
    signal.raise_signal(signal.SIGUSR1)
    end.set()
    other.join()
    assert heard == [signal.SIGUSR1]


@pytest.mark.release
def test_an_interrupt_leaves_no_agent_that_was_started_to_look_at_it(tmp_path: Path) -> None:
    where = f"SimpleNamespace(project={os.fspath(tmp_path)!r}, environment={{'PATH': os.defpath}})"
    imports = "import os; from types import SimpleNamespace; from acode.observed.setup.check import _run"
    assert faults_of(f"lambda: _run({SLEEPS}, {where})", imports) == []


@pytest.mark.release
def test_an_interrupt_while_an_agent_is_started_reaches_it() -> None:
    """It ends by the signal that is passed on; before there is one, the interrupt ends the start."""
    imports = (
        "import os; from acode.cli.observed_agent import run_beneath\n"
        "def act():\n"
        "    if run_beneath(['/bin/sleep', '100'], '/', {'PATH': os.defpath}) == -2: raise KeyboardInterrupt"
    )
    assert faults_of("act", imports) == []

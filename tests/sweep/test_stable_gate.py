"""The gate gives the same answer again and again, also on a busy machine. Its times are figures, not conditions."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.sweep.record import ROOT

BUSY = 8
QUIET = [pytest.param(0, id=f"quiet {number}") for number in range(1, 5)]
CLOSING_LINE = re.compile(r"(?:(\d+) failed, )?(\d+) passed.* in \d+")


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("busy", [*QUIET, pytest.param(BUSY, id="busy")])
def test_every_run_of_the_gate_passes(busy: int, record_property: Callable[[str, object], None]) -> None:
    """The whole test command, as a change must pass it; none of its tests is given a second try."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ACODE_", "PYTEST_"))}
    began = time.monotonic()
    with busy_processes(busy):
        ended = subprocess.run(
            ["python3", "dev.py", "test"],
            cwd=ROOT,
            env={**env, "CI": "true"},
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    closing = [found for line in ended.stdout.splitlines() if (found := CLOSING_LINE.search(line))]
    assert closing, ended.stdout[-5000:]
    failed, passed = closing[-1].groups()
    load = "busy" if busy else "quiet"
    figures = {"runs of the gate": 1, "tests passed": int(passed), f"seconds, {load}": int(time.monotonic() - began)}
    record_property("figures", {**figures, "tests failed": int(failed or 0)})
    assert ended.returncode == 0, ended.stdout[-20_000:]

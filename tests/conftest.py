"""Fixtures of every test: a home and a workspace of its own, and a way to drive acode in them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Acode

pytest_plugins = ["tests.postgres", "tests.fixtures"]

SOURCE = Path(__file__).resolve().parent.parent / "src"
CLEARED_PREFIXES = ("ACODE_", "XDG_", "OTEL_", "GIT_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
KEPT = ("ACODE_TEST_PG_DSN",)
MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 4 * 1024**3


def pytest_configure() -> None:
    """Thousands of small files are made and synced: in memory, where there is room for that, nobody waits for a disk.

    No test pulls the plug. What a disk may lose then is told by a model of it, see `tests/crash/harness/power.py`.
    """
    if sys.platform == "linux" and os.access(MEMORY, os.W_OK):
        about = os.statvfs(MEMORY)
        if about.f_bavail * about.f_frsize >= MEMORY_BYTES_MIN and not about.f_flag & os.ST_NOEXEC:
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the caller's settings, keys or anchors is seen or touched."""
    for name in list(os.environ):
        if name.startswith(CLEARED_PREFIXES) and name not in KEPT:
            monkeypatch.delenv(name)
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("ACODE_HOME", str(place / "acode"))
    for name, below in (
        ("CONFIG", ".config"),
        ("STATE", ".local/state"),
        ("DATA", ".local/share"),
        ("CACHE", ".cache"),
    ):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(place / below))
    # A subprocess has another working directory, so a relative path to the source would be lost.
    inherited = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SOURCE), *([inherited] if inherited else [])]))
    return place


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The numbers that the sweeps of this run have reached, also those that were made in another process."""
    reports = [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]
    told = [value for report in reports for name, value in report.user_properties if name == "sweep"]
    if told:
        terminalreporter.section("sweeps")
        for line in told:
            terminalreporter.write_line(line)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def acode(workspace: Path, home: Path) -> Iterator[Acode]:
    driver = Acode(workspace)
    yield driver
    driver.stop_all()

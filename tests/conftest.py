"""Fixtures of every test: a home and a workspace of its own, and a way to drive acode in them."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

from tests.driver import Acode
from tests.memory import memory

pytest_plugins = ["tests.postgres", "tests.fixtures"]

SOURCE = Path(__file__).resolve().parent.parent / "src"
CLEARED_PREFIXES = ("ACODE_", "XDG_", "OTEL_", "GIT_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
KEPT = ("ACODE_TEST_PG_DSN",)

# Why a test may be skipped where CI is set; every other skip is a failure there.
SKIPPED_IN_CI = {
    "needs the extra: langgraph": "an environment of its own runs these tests",
    "is in the development environment only": "the test command runs these tests",
    "needs the group: package": "an environment of its own runs these tests",
    "needs the group: buckets": "an environment of its own runs these tests",
    "no real model: ACODE_TEST_MODEL_URL": "a real model is opt-in",
    "root may read and write everything": "CI is root",
}


def pytest_configure() -> None:
    keep_bytecode()
    restore_signals()
    use_memory()
    give_examples_their_time()


def keep_bytecode() -> None:
    """Tests start acode thousands of times, and without its bytecode each start takes twice as long."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def restore_signals() -> None:
    """What tests start must obey signals also where pytest itself was started by `nohup … &`, with them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in (signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return without_silent_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return without_silent_skip((yield))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no worker is alone with one of them at the end; the others in their random order."""
    items.sort(key=lambda item: not item.path.name.startswith("test_sweep_"))


def pytest_collection_finish() -> None:
    """The modules of all tests stay until the end: no garbage collection looks at them again, here or in a child."""
    gc.collect()
    gc.freeze()


Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def without_silent_skip(report: Report) -> Report:
    """CI has everything that a test can need, so that a skip there hides a broken set-up."""
    if report.skipped and os.environ.get("CI") and sys.platform == "linux" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(allowed in reason for allowed in SKIPPED_IN_CI):
            report.outcome, report.longrepr = "failed", f"skipped, and CI allows no such skip: {reason}"
    return report


def use_memory() -> None:
    if place := memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", place)


def give_examples_their_time() -> None:
    """Hypothesis fails an example that takes 200 ms, unless it finds itself in CI; on a busy machine any may."""
    settings.register_profile("acode", parent=settings.default, deadline=None)
    settings.load_profile("acode")


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

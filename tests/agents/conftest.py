"""What the trials with real agents share."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import progress
from tests.agents.client import client_of, is_supported_machine, program

_DIGEST = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", action="store_true", help="also one kill with a real small model, which is installed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What has passed with these sources is left out. A test that is named by its id runs again."""
    ours = [item for item in items if item.get_closest_marker("agents")]
    if not ours or any("::" in word for word in config.args):
        return
    done = progress.passed(config.stash.setdefault(_DIGEST, progress.source_digest()))
    known = [item for item in ours if item.nodeid in done]
    items[:] = [item for item in items if item not in known]
    if known:
        config.hook.pytest_deselected(items=known)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" and report.passed and item.get_closest_marker("agents"):
        digest = item.config.stash.setdefault(_DIGEST, progress.source_digest())
        figures = [value for name, value in report.user_properties if name == "outcome"]
        progress.note(digest, item.nodeid, figures)
    return report


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """The agent that a test names in its parameters must be there."""
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    if name is not None:
        if not is_supported_machine(name):
            pytest.skip(f"{name} is not tested on this platform")
        if not program(name, client_of(name)).exists():
            pytest.skip(f"{name} is not installed: python3 dev.py test agents")
    yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "trial"


def pytest_make_parametrize_id(config: pytest.Config, val: Any) -> str | None:
    return f"{val}" if isinstance(val, int) else None

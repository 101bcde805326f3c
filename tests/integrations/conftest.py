"""Every test of an integration has a place of its own; nothing of the tester's home is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.library.programs import Place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("ACODE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Place(tmp_path)
    monkeypatch.chdir(made.workspace)
    return made


@pytest.fixture
def loop() -> Iterator[None]:
    """The loop in which `run_sync` runs; left to itself it makes one that nobody closes."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    asyncio.set_event_loop(None)
    made.close()

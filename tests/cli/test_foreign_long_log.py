"""Looks at an agent-memory run with a long log leave a cache; it changes no answer, and nothing that acts uses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acode.formats.agent_memory import FoldCache
from tests.driver import Acode
from tests.foreign import MEMORY, done, ledger, put_driver, put_memory, tree

LOG_BYTES = 5 * 1024 * 1024
NOTE = "n" * 2_000


def append(run: Path, first: int, *, until_bytes: int) -> None:
    with (run / "events" / "orchestrator" / "b.jsonl").open("a") as file:
        while file.tell() < until_bytes:
            first += 1
            minute = f"2026-01-{15 + first // 1440:02d}T{first // 60 % 24:02d}:{first % 60:02d}:00Z"
            event = {"type": "tool_call", "event_id": f"e{first}", "timestamp": minute, "details": {"note": NOTE}}
            file.write(json.dumps(event) + "\n")


@pytest.fixture
def run(workspace: Path) -> Path:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    append(run, 0, until_bytes=LOG_BYTES)
    return run


@pytest.fixture
def cache(home: Path) -> Path:
    return home / "acode" / "cache" / "agent-memory"


def looks(acode: Acode) -> list[Any]:
    found = [acode(*words, MEMORY, "--json") for words in (["status"], ["explain"], ["resume", "--dry-run"])]
    assert [ended.exit_code for ended in found] == [0, 0, 0]
    return [ended.json for ended in found]


def test_later_looks_say_what_first_looks_say_and_change_nothing_in_the_workspace(
    acode: Acode, workspace: Path, run: Path, cache: Path
) -> None:
    before = tree(workspace)
    first = looks(acode)
    (file,) = cache.iterdir()
    assert looks(acode) == first
    assert tree(workspace) == before
    flipped = bytearray(file.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    file.write_bytes(flipped)
    assert looks(acode) == first
    append(run, 4_000, until_bytes=LOG_BYTES + 100_000)
    appended = looks(acode)
    assert appended != first
    shutil.rmtree(cache)
    assert looks(acode) == appended


def test_a_resume_does_what_the_log_says_even_beside_a_cache_that_says_otherwise(
    acode: Acode, workspace: Path, run: Path, cache: Path
) -> None:
    """A look believes a state that fits the log's bytes; what acts must not depend on one."""
    assert acode("status", MEMORY, "--json").json["tasks_done"] == 0
    states = FoldCache(cache)
    state = states.read(str(run))
    assert state is not None
    point = ((1, "e", "executor", "events/orchestrator/a.jsonl", 1), "task-completed", 1)
    tasks = {task: {"first": point, "completed": point} for task in ("T001", "T002")}
    states.write(str(run), msgspec.structs.replace(state, tasks=tasks, completed_by_others=set(tasks)))
    assert acode("status", MEMORY, "--json").json["tasks_done"] == 2
    assert acode("resume", MEMORY, "--yes").exit_code == 0
    assert ledger(workspace) == done(MEMORY)

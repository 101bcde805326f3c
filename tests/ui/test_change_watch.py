"""The stream of a page: no commit is missed, whenever it comes and however fast the next one follows."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from acode import lock
from acode.store.store import DATABASE
from acode.ui import change_watch
from acode.ui.change_watch import Watched, changes, mark_of
from tests.cli.plans import GATE, save
from tests.driver import WAIT_S_MAX, Acode


@pytest.fixture
def session(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, GATE))
    return str(acode("session", "list", "--json").json[0]["session_id"])


async def next_event(stream: AsyncIterator[str]) -> dict[str, str]:
    text = await asyncio.wait_for(anext(stream), WAIT_S_MAX)
    return dict(line.split(": ", 1) for line in text.split("\n") if line)  # type: ignore[misc]


def heard(watched: list[Watched], seen: str, count: int) -> list[dict[str, str]]:
    async def listen() -> list[dict[str, str]]:
        stream = changes(watched, seen, tick_s=0.1)
        return [await next_event(stream) for _ in range(count)]

    return asyncio.run(listen())


def test_a_commit_between_the_page_and_its_stream_is_told_at_once(acode: Acode, workspace: Path, session: str) -> None:
    watched = [Watched(workspace / ".agent", session)]
    seen = mark_of(watched)
    acode("session", "approve", session)
    ready, change = heard(watched, seen, 2)
    assert (ready["event"], change["event"]) == ("ready", "change")


def test_a_window_that_comes_back_hears_only_of_what_it_has_not_seen(workspace: Path, session: str) -> None:
    watched = [Watched(workspace / ".agent", session)]
    settle(workspace)
    _, change = heard(watched, "nothing yet", 2)
    assert [one["event"] for one in heard(watched, change["id"], 2)] == ["ready", "tick"]


def test_a_second_commit_within_one_step_of_the_file_times_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, same time: the mark of a file that was written just now is another one a little later."""
    database = workspace / ".agent" / DATABASE
    database.parent.mkdir()
    database.write_bytes(b"one")
    watched = [Watched(workspace / ".agent")]
    monkeypatch.setattr(change_watch, "FRESH_NS", 10**15)  # written just now, however slow this machine is
    seen = mark_of(watched)
    monkeypatch.setattr(change_watch, "FRESH_NS", 0)
    assert mark_of(watched) != seen


def test_a_session_that_somebody_begins_or_ends_to_work_on_is_told(workspace: Path, session: str) -> None:
    watched = [Watched(workspace / ".agent", session)]
    settle(workspace)
    free = mark_of(watched)
    held, _ = lock.acquire(workspace / ".agent" / "locks", session, lambda: 1, now=lambda: datetime.now(UTC))
    settle(workspace)
    working = mark_of(watched)
    held.release()
    settle(workspace)
    assert len({free, working, mark_of(watched)}) == 3


def test_a_sign_of_life_is_no_change(workspace: Path, session: str) -> None:
    """Or a page would read a session that does nothing every few seconds."""
    watched = [Watched(workspace / ".agent", session)]
    held, _ = lock.acquire(workspace / ".agent" / "locks", session, lambda: 1, now=lambda: datetime.now(UTC))
    settle(workspace)
    before = mark_of(watched)
    os.utime(held.path, ns=(time.time_ns(), time.time_ns()))
    assert mark_of(watched) == before
    settle(workspace)
    assert mark_of(watched) == before
    held.release()


@pytest.mark.parametrize("running", [False, True])
def test_a_look_at_the_session_is_no_change(acode: Acode, workspace: Path, session: str, running: bool) -> None:
    """Or a page would ask again for what it has just read, as fast as it can."""
    if running:
        plan = save(workspace, "title: Long\ntasks: [{title: t, steps: [{run: 'echo begun; sleep 60'}]}]", "long.yml")
        acode.process("run", "--new", plan).wait_for_line("│ begun")
    watched = [Watched(workspace / ".agent")]
    settle(workspace)
    before = mark_of(watched)
    acode("session", "show", session)
    assert mark_of(watched) == before


def settle(workspace: Path) -> None:
    """Until no file of the workspace counts as written just now."""
    files = [path for path in (workspace / ".agent").rglob("*") if path.is_file()]
    newest = max(os.stat(path).st_ctime_ns for path in files)
    while time.time_ns() - newest <= change_watch.FRESH_NS:
        os.sched_yield()

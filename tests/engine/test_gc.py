"""Collecting: only what ended long ago and what belongs to nobody; never an unfinished session."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acode import lock as locks
from acode import seal
from acode.engine import gc
from acode.engine.create import run_plan
from acode.engine.gc import collect, plan_gc
from acode.engine.preview import verify
from acode.engine.session_commands import end
from acode.engine.world import World
from acode.errors import AcodeError
from tests.driver import Acode
from tests.tampering import Attack
from tests.worlds import plan_file, world

DONE = """
version: 1
title: Done
tasks: [{id: a, steps: [{run: "head -c 100000 /dev/zero | tr '\\\\0' x"}, {run: "echo hi"}]}]
"""
OPEN = DONE.replace("Done", "Open").replace("echo hi", "false")
DAY_S = 86_400.0


def later(there: World, days: float) -> World:
    """The same world some days on."""
    return msgspec.structs.replace(there, clock=lambda: datetime.now(UTC) + timedelta(days=days))


def age(there: World, days: float) -> None:
    """Files get old by the clock of the disk."""
    then = time.time() - days * DAY_S
    for path in there.agent_dir.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then), follow_symlinks=False)


@pytest.fixture
def there(tmp_path: Path) -> World:
    return world(tmp_path)


def anchors(there: World) -> set[str]:
    return {one.session_id for one in seal.all_anchors(seal.anchor_directory(there.state_dir, there.workspace))}


def names(there: World, session_id: str) -> list[str]:
    """Everything in .agent that carries the session's name."""
    return [str(path) for path in there.agent_dir.rglob("*") if session_id in path.name]


def test_sessions_go_some_at_a_time_and_one_that_stays_keeps_no_other(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "SESSIONS_AT_ONCE_MAX", 2)
    small = "tasks: [{title: t, steps: [{write: {path: a.txt, content: a}}]}]"
    sessions = [run_plan(there, plan_file(small)).session_id for _ in range(5)]
    at = later(there, 31)
    plan = plan_gc(at)
    told = list[tuple[int, int]]()
    lock, _ = locks.acquire(there.agent_dir / "locks", sessions[1], lambda: 1, now=there.clock)
    try:
        done = collect(at, plan, lambda so_far, total: told.append((so_far, total)))
    finally:
        lock.release()
    assert done.sessions == (sessions[0], *sessions[2:])
    assert len(done.kept) == 1 and sessions[1][-8:] in done.kept[0]
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert anchors(there) == {sessions[1]}
    assert [one for one in sessions if names(there, one)] == [sessions[1]]


def test_an_ended_session_goes_with_all_that_belonged_to_it(there: World) -> None:
    gone, young, unfinished = (run_plan(there, plan_file(text)).session_id for text in (DONE, DONE, OPEN))
    blobs = [path for path in (there.agent_dir / "blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 1, "all three printed the same"
    Attack(there.workspace).sql("SELECT 1")
    at = later(there, 31)
    plan = plan_gc(at)
    assert {one.session_id for one in plan.sessions} == {gone, young}
    assert plan.bytes > 0
    done = collect(at, plan)
    assert set(done.sessions) == {gone, young} and done.kept == ()
    with pytest.raises(AcodeError) as missing:
        verify(there, gone)
    assert missing.value.exit_code == 14, "it was let go, not lost"
    assert anchors(there) == {unfinished}
    assert names(there, gone) == [] and names(there, young) == []
    assert verify(there, unfinished)[1].problems == ()
    assert [path for path in (there.agent_dir / "blobs").rglob("*") if path.is_file()] == blobs
    assert Attack(there.workspace).sql("SELECT count(*) FROM sessions") == [(1,)]


@pytest.mark.req("SCOPE-011c-03")
def test_what_was_put_away_is_neither_offered_nor_resumed(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(DONE)
    acode("run", "plan.yml")
    session = acode("session", "list", "--all", "--json").json[0]["session_id"]
    assert acode("session", "list", "--resumable", "--json").json == []
    assert acode("resume", session).exit_code == 15, "an ended session is not resumed either"
    kept = workspace / "kept.bundle"
    assert acode("session", "export", session, "--output", kept).exit_code == 0
    assert acode("session", "gc", "--older-than", "0", "--yes").exit_code == 0
    assert acode("session", "list", "--all", "--json").json == []
    for name in (session, str(kept)):
        assert acode("resume", name).exit_code in (2, 14), "it is gone, and a copy of it is no session"


def test_a_blob_that_nobody_names_any_more_goes_with_its_session(there: World) -> None:
    run_plan(there, plan_file(DONE))
    collect(later(there, 31), plan_gc(later(there, 31)))
    assert [path for path in (there.agent_dir / "blobs").rglob("*") if path.is_file()] == []


def test_young_and_unfinished_sessions_stay(there: World) -> None:
    run_plan(there, plan_file(DONE))
    unfinished = run_plan(there, plan_file(OPEN)).session_id
    assert plan_gc(later(there, 29)).sessions == ()
    plan = plan_gc(later(there, 4000), older_than_days=1)
    assert unfinished not in {one.session_id for one in plan.sessions}
    forged = msgspec.structs.replace(
        plan, sessions=(*plan.sessions, msgspec.structs.replace(plan.sessions[0], session_id=unfinished))
    )
    done = collect(later(there, 4000), forged)
    assert unfinished not in done.sessions and len(done.kept) == 1
    assert verify(there, unfinished)[1].problems == ()


def test_a_damaged_session_stays_as_evidence(there: World) -> None:
    session_id = run_plan(there, plan_file(DONE)).session_id
    attack = Attack(there.workspace)
    attack.set_body(attack.last(), "garbage")
    plan = plan_gc(later(there, 100))
    assert plan.sessions == () and session_id[-8:] in plan.kept[0]


def test_looking_changes_nothing(there: World) -> None:
    run_plan(there, plan_file(DONE))

    def everything() -> dict[str, Any]:
        return {str(path): path.read_bytes() for path in there.agent_dir.rglob("*.db") if path.is_file()}

    before = everything()
    plan_gc(later(there, 100))
    assert everything() == before


def test_what_killed_writers_left_goes_when_it_is_old(there: World) -> None:
    unfinished = run_plan(there, plan_file(OPEN)).session_id
    blobs = there.agent_dir / "blobs"
    orphan = "ab" + "0" * 62
    leftovers = [blobs / ".writing-0123", blobs / "ab" / orphan, blobs / "sensitive" / "ab" / orphan]
    leftovers += [there.agent_dir / "run" / f"{'0' * 8}-0000-0000-0000-{'0' * 12}+a.1+1" / "output"]
    leftovers += [there.agent_dir / "locks" / f"{'0' * 8}-0000-0000-0000-{'0' * 12}.1"]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left")
    assert plan_gc(there).litter == (), "a writer may be at work this very moment"
    age(there, 2)
    then = time.time() - 2 * DAY_S
    os.utime(leftovers[3].parent, (then, then))
    assert {one.kind for one in plan_gc(there).litter} == {"writing", "blob", "run", "lock"}
    done = collect(there, plan_gc(there))
    assert done.files == 5 and not any(path.exists() for path in leftovers)
    assert verify(there, unfinished)[1].problems == ()


def test_pre_images_that_a_crash_left_behind_an_end_go_at_once(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from acode.store.store import Store

    (there.workspace / "a.txt").write_text("x" * 70_000)
    text = "version: 1\ntitle: x\ntasks: [{id: a, steps: [{write: {path: a.txt, content: y}}, {run: 'false'}]}]\n"
    session_id = run_plan(there, plan_file(text)).session_id
    with monkeypatch.context() as crash:
        crash.setattr(Store, "forget_preimages", lambda *_: None)
        end(there, session_id, cancelled=True, reason="")
    sensitive = there.agent_dir / "blobs" / "sensitive"
    assert [path for path in sensitive.rglob("*") if path.is_file()] != []
    plan = plan_gc(there)
    assert plan.sessions == () and plan.secrets_of == (session_id,)
    collect(there, plan)
    assert [path for path in sensitive.rglob("*") if path.is_file()] == []


def test_old_backups_go_and_new_ones_stay(there: World) -> None:
    run_plan(there, plan_file(OPEN))
    backup = there.agent_dir / "workspace.db.20200101T000000.bak"
    backup.write_bytes(b"old")
    assert plan_gc(there).litter == ()
    age(there, 31)
    collect(there, plan_gc(there))
    assert not backup.exists()
    assert (there.agent_dir / "workspace.db").exists()


def test_the_command_shows_first_and_asks(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(DONE)
    assert acode("run", "plan.yml").exit_code == 0
    assert "Nothing to remove" in acode("session", "gc").stderr
    shown = acode("session", "gc", "--older-than", "0", "--dry-run", "--json")
    assert shown.exit_code == 0 and len(shown.json["sessions"]) == 1 and not shown.json["done"]
    assert acode("session", "gc", "--older-than", "0").exit_code == 10
    assert len(acode("session", "list", "--json").json) == 1
    done = acode("session", "gc", "--older-than", "0", "--yes", "--json")
    assert done.exit_code == 0 and len(done.json["sessions"]) == 1
    assert acode("session", "list", "--json").json == []
    assert acode("session", "gc", "--older-than", "-1").exit_code == 2

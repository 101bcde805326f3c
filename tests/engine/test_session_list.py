"""Lists of sessions: the most recent ones by an index that whoever changes the database cannot hide anything with."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from acode import seal
from acode.engine.session_list import listed, most_recent, rows, unfinished, unfinished_glances
from acode.state import State
from acode.store.store import DATABASE
from tests.lives import Life

DONE = "tasks: [{title: done, steps: [{write: {path: a.txt, content: a}}]}]"
STOPPED = "tasks: [{title: stopped, steps: [{run: 'false'}]}]"


def sql(life: Life, statement: str) -> None:
    db = apsw.Connection(str(life.world().agent_dir / DATABASE))
    db.execute(statement)
    db.close()


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


@pytest.fixture
def four(life: Life) -> list[str]:
    """Ended, stopped, ended, stopped; the latest first."""
    found = list[str]()
    for plan in (DONE, STOPPED, DONE, STOPPED):
        life.run(plan)
        found.insert(0, life.id)
    return found


def test_a_limit_cuts_the_list_behind_the_most_recent_sessions(life: Life, four: list[str]) -> None:
    here = life.world()
    assert [row.session_id for row in rows(here)] == four
    some = listed(here, limit=3)
    assert ([row.session_id for row in some.rows], some.total, some.hidden) == (four[:3], 4, 1)
    assert [row.session_id for row in listed(here, ended_max=1).rows] == [four[0], four[1], four[2]]
    assert [row.session_id for row in listed(here, ended_max=0).rows] == [four[0], four[2]]


def test_the_most_recent_session_is_an_unfinished_one_where_there_is_one(life: Life, four: list[str]) -> None:
    here = life.world()
    life.run(DONE)
    found, damaged = most_recent(here)
    assert found is not None and (found.session_id, damaged) == (four[0], [])
    assert most_recent(life.world(), unfinished=True)[0] == found


def test_an_unfinished_session_that_the_index_calls_ended_is_found_by_its_anchor(life: Life, four: list[str]) -> None:
    sql(life, "UPDATE sessions SET standing = 'ended', active_us = 0")
    here = life.world()
    assert {row.session_id for row in unfinished(here)} == {four[0], four[2]}
    found, _ = most_recent(here)
    assert found is not None and found.state is State.PAUSED


def test_an_ended_session_that_the_index_calls_running_is_shown_as_ended(life: Life, four: list[str]) -> None:
    sql(life, "UPDATE sessions SET standing = 'running'")
    here = life.world()
    assert {row.session_id for row in unfinished_glances(here)} == {four[0], four[2]}
    assert [row.session_id for row in listed(here, ended_max=0).rows] == [four[0], four[2]]
    assert [row.session_id for row in rows(here)] == four


def test_a_session_that_ended_before_its_anchor_said_so_is_listed_once(life: Life, four: list[str]) -> None:
    here = life.world()
    mark = seal.anchor_directory(here.state_dir, here.workspace) / seal.OPEN / four[1]
    mark.touch()
    assert [row.session_id for row in rows(here)] == four
    assert {row.session_id for row in unfinished(here)} == {four[0], four[2]}


def test_a_session_whose_rows_were_removed_is_listed_as_lost(life: Life, four: list[str]) -> None:
    sql(life, f"DELETE FROM sessions WHERE session_id IN ('{four[0]}', '{four[1]}')")
    lost = [row for row in rows(life.world()) if row.error is not None]
    assert [row.session_id for row in lost] == [four[0]], "one that had ended is nobody's loss"
    assert four[0] in {row.session_id for row in unfinished(life.world())}

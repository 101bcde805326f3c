"""The work that a plain step costs, in counts that a busy machine does not change."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import pytest

import acode
from tests.library.programs import Place

CALLS_MAX = 60  # of Python functions; 118 before it was in one piece, 140 in 0.1


def work(number: int) -> str:
    return "x" * 1_000


def warmed(session: acode.Session, *, idempotent: bool) -> None:
    """Everything is loaded, and the WAL file counts as long enough."""
    for number in range(40):
        session.step("work", work, number, idempotent=idempotent)
    session._run.store.room.is_wanted = False


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_plain_step_makes_few_calls(place: Place, idempotent: bool) -> None:
    counts = list[int]()
    with acode.session("k") as session:
        warmed(session, idempotent=idempotent)
        for number in range(21):
            calls = [0]

            def count(frame: Any, event: str, argument: Any, calls: list[int] = calls) -> None:
                calls[0] += event == "call"

            sys.setprofile(count)
            session.step("work", work, number, idempotent=idempotent)
            sys.setprofile(None)
            counts.append(calls[0])
    assert statistics.median(counts) <= CALLS_MAX


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_plain_step_is_two_rows_and_one_look_at_the_fence(place: Place, idempotent: bool) -> None:
    said, each = list[str](), list[tuple[str, ...]]()

    def note(cursor: Any, sql: str, bindings: Any) -> bool:
        said.append(sql.split(maxsplit=1)[0])
        return True

    with acode.session("k") as session:
        warmed(session, idempotent=idempotent)
        session._run.store.db.exec_trace = note
        for number in range(21):
            said.clear()
            session.step("work", work, number, idempotent=idempotent)
            each.append(tuple(said))
        session._run.store.db.exec_trace = None
    assert statistics.mode(each) == ("INSERT", "SELECT", "INSERT")

"""What is on record is verified, small, and as durable as promised."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import pytest

import acode
from acode.engine.step import careful
from acode.errors import ChainBroken, LogRolledBack
from acode.events import types as ev
from acode.store import checkpoints as ck
from acode.store.step_index import places
from tests.library.counted import Counted, Stop, interrupted
from tests.library.programs import Place


def change(place: Place, sql: str) -> None:
    db = apsw.Connection(os.fspath(place.workspace / ".agent" / "workspace.db"))
    db.execute("DROP TRIGGER IF EXISTS events_are_never_changed; DROP TRIGGER IF EXISTS events_are_never_deleted")
    triggers = """
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END;
"""
    db.execute(sql)
    db.execute(triggers)
    db.close()


STEPS = 5


def five(work: Counted) -> None:
    interrupted("k", *[lambda s, n=n: s.step("a", work, n) for n in range(STEPS)])


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM finished",
        "DELETE FROM finished WHERE step = 'a#3'",
        "UPDATE finished SET step = 'z' WHERE step = 'a#3'",
        "UPDATE finished SET seq = 5 WHERE step = 'a#3'",
        "UPDATE finished SET seq = 999 WHERE step = 'a#3'",
    ],
)
def test_a_hint_that_is_lost_or_wrong_makes_no_step_run_again(place: Place, damage: str) -> None:
    work = Counted("x")
    five(work)
    change(place, damage)
    with acode.session("k") as s:
        for n in range(STEPS + 1):
            assert s.step("a", work, n) == "x"
    assert len(work.calls) == STEPS + 1


def test_a_recorded_result_that_was_changed_is_never_given(place: Place) -> None:
    work = Counted("genuine")
    five(work)
    change(place, "UPDATE events SET body = replace(body, 'genuine', 'planted') WHERE body LIKE '%a#3%genuine%'")
    with pytest.raises(ChainBroken), acode.session("k") as s:
        for n in range(STEPS):
            assert s.step("a", work, n) == "genuine"
    assert len(work.calls) == STEPS


def test_a_session_whose_database_is_gone_is_missed_and_not_begun_again(place: Place) -> None:
    five(Counted())
    for path in (place.workspace / ".agent").glob("workspace.db*"):
        path.unlink()
    with pytest.raises(LogRolledBack, match="is gone"), acode.session("k"):
        pass


def test_the_state_keeps_nothing_of_a_finished_step(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 65_536)
    monkeypatch.setattr(ck, "DUE_BYTES_MIN", 32_768)

    def size(steps: int) -> int:
        with pytest.raises(Stop), acode.session(f"k{steps}") as s:
            for n in range(steps):
                s.step("a", Counted(), n, idempotent=True)
            assert s._run.session.records is not None and s._run.session.records.steps == {}
            assert s._run.session.records.task_ms == {}
            raise Stop
        db = apsw.Connection(os.fspath(place.workspace / ".agent" / "workspace.db"))
        try:
            query = "SELECT length(body) FROM snapshots WHERE session_id = ? ORDER BY seq DESC LIMIT 1"
            return int(next(iter(db.execute(query, (s.id,))))[0])
        finally:
            db.close()

    assert abs(size(600) - size(250)) < 100


def test_each_kind_of_step_has_its_one_sync_where_it_belongs(place: Place) -> None:
    """A start that may not be forgotten is synced before the function runs; of the others, the end is."""
    seen: dict[str, tuple[bool, bool]] = {}

    def synced(s: acode.Session) -> bool:
        return s._run.journal.durable_seq == s._run.session.seq

    with acode.session("k") as s:
        for name, idempotent in (("send", False), ("fetch", True)):
            s.step("flush", Counted(), idempotent=True)
            started = s.step(name, lambda: synced(s), idempotent=idempotent)
            seen[name] = started, synced(s)
    assert seen == {"send": (True, False), "fetch": (False, True)}


def test_what_was_not_synced_is_within_a_second(place: Place) -> None:
    with acode.session("k") as s:
        s.step("send", Counted())
        until = time.monotonic() + 10
        while s._run.journal.durable_seq < s._run.session.seq:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_gate_and_a_write_begin_durably(place: Place) -> None:
    with acode.session("k") as s:
        s.write("a.txt", "x")
        started = [event for event in place.json("session", "history", s.id) if event["type"] == "step_started"]
        assert started[0]["data"]["kind"] == "write"
        flight = s.begin("a")
        assert flight.started is not None and careful(flight.work.step, flight.started)
        s.complete(flight)
    assert Path("a.txt").read_text() == "x"


def test_a_damaged_event_is_repaired_into_a_step_that_a_person_decides_about(place: Place) -> None:
    work = Counted("x")
    five(work)
    (row,) = place.json("session", "list")
    change(place, "UPDATE events SET body = body || ' ' WHERE seq = 13")  # the completion of the last step
    repaired = place.acode("session", "repair", row["short_id"], "--yes")
    assert repaired.returncode == 0, repaired.stderr
    with pytest.raises(acode.OutcomeUnknown) as caught, acode.session("k"):
        pass
    assert caught.value.details["step"] == "a#5" and len(work.calls) == STEPS


def test_a_log_with_a_hole_is_not_repaired_by_guessing_what_a_program_did(place: Place) -> None:
    five(Counted("x"))
    (row,) = place.json("session", "list")
    change(place, "UPDATE events SET body = '{' WHERE seq = 13")
    repaired = place.acode("session", "repair", row["short_id"], "--yes")
    assert repaired.returncode == 20 and "only its program knew" in repaired.stderr


def test_an_exported_and_a_collected_session_leave_nothing_wrong_behind(place: Place) -> None:
    with acode.session("k") as s:
        s.step("a", Counted())
    assert place.json("session", "verify", s.id)["ok"]
    assert place.acode("session", "export", s.id, "--output", "bundle").returncode == 0
    assert place.acode("session", "verify", "--bundle", "bundle").returncode == 0
    assert place.acode("session", "gc", "--older-than", "0", "--yes").returncode == 0
    db = apsw.Connection(os.fspath(place.workspace / ".agent" / "workspace.db"))
    try:
        assert list(db.execute("SELECT count(*) FROM finished")) == [(0,)]
    finally:
        db.close()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ev.Asked(after="w", ordered=True), [("b", "x"), ("", "b")]),
        (ev.Asked(ordered=True), [("b", "x"), ("", "b")]),
        (ev.Asked(after="w"), [("b", "x")]),  # as logs were written before they said what is certain
        (ev.Asked(), []),
        (None, []),
    ],
)
def test_a_step_has_a_place_only_where_the_log_is_certain_of_it(
    asked: ev.Asked | None, expected: list[tuple[str, str]]
) -> None:
    completed = ev.StepCompleted(step="b.x", task="", attempt=1, key="", asked=asked)
    assert list(places(completed)) == expected

"""Decisions about a session's place: what was only intended is not said, what took effect is not forgotten."""

from __future__ import annotations

from acode.engine import owed_decisions
from acode.engine.owed_decisions import OwedNote, after_arrival, of, with_effect
from acode.events import types as ev
from acode.store.sync_cursor import Cursor

FORCED = ev.Forced(what="taken over from you", reason="it is gone")
ASIDE = ev.Forced(what="3 events were set aside", reason="theirs is right")
CURSOR = Cursor(session_id="s")


def intending(generation: int = 7, *done: ev.Forced, after: int = 0) -> Cursor:
    return owed_decisions._with(CURSOR, OwedNote(intended=FORCED, generation=generation, done=done, after=after))


def test_what_was_intended_takes_effect_with_its_own_generation_only() -> None:
    assert with_effect(intending(), 8, 5) == intending()
    assert of(with_effect(intending(), 7, 5)) == OwedNote(done=(FORCED,), after=5)
    assert with_effect(CURSOR, 7, 5) == CURSOR


def test_what_is_owed_already_stays_and_keeps_the_place_it_is_looked_for_from() -> None:
    assert of(with_effect(intending(7, ASIDE, after=3), 7, 5)) == OwedNote(done=(ASIDE, FORCED), after=3)


def test_rows_that_come_down_keep_what_is_owed_and_add_what_was_given_up_for_them() -> None:
    assert after_arrival(CURSOR, CURSOR, 9, None) == CURSOR
    assert of(after_arrival(CURSOR, CURSOR, 9, ASIDE)) == OwedNote(done=(ASIDE,), after=9)
    before = intending(7, ASIDE, after=12)
    assert of(after_arrival(CURSOR, before, 9, None)) == of(intending(7, ASIDE, after=9)), "its tail was given up"
    assert of(after_arrival(CURSOR, before, 9, FORCED)) == of(intending(7, ASIDE, FORCED, after=9))

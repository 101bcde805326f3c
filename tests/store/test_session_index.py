"""Sessions by standing, activity, key and part of their id: found without a look at others, trusted for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.events import types as ev
from acode.lock import owner
from acode.store import session_index
from acode.store.journal import Journal
from acode.store.store import Store
from tests.stores import Place


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made.open()
    made.close()


def begun(store: Store, key: str, kind: str = "library") -> Journal:
    journal = store.create()
    created = ev.SessionCreated(title=key, task=key, kind=kind, owner=owner(), acode_version="test")
    journal.append(created, ev.SessionPlanned(tasks=0, steps=0, plan_digest=""), ev.SessionExecuting())
    return journal


def noted(journal: Journal) -> Journal:
    journal.append(ev.Noted(what="still at work", data={}))
    return journal


def paused(journal: Journal) -> Journal:
    journal.append(ev.SessionPaused(reason="user"))
    return journal


def ended(journal: Journal) -> Journal:
    journal.append(ev.SessionCompleted(executed_steps=0))
    return journal


def ids(*journals: Journal) -> list[str]:
    return [one.session.session_id for one in journals]


def named(hints: Iterator[session_index.Entry] | list[session_index.Entry]) -> list[str]:
    return [hint.session_id for hint in hints]


def test_unfinished_sessions_come_in_the_order_of_their_last_event(store: Store) -> None:
    first, second, third = begun(store, "a"), begun(store, "b"), paused(begun(store, "c"))
    done = ended(begun(store, "d"))
    assert named(session_index.unfinished(store)) == ids(third, second, first)
    noted(first)  # of a session that runs, the index is not told of every event
    assert named(session_index.unfinished(store)) == ids(first, third, second)
    noted(third)
    assert named(session_index.unfinished(store)) == ids(third, first, second)
    assert named(session_index.newest(store)) == ids(third, first, done, second)
    ended(first)
    assert named(session_index.ended(store)) == ids(first, done)


def test_ended_sessions_come_page_by_page_and_none_twice(store: Store) -> None:
    made = [ended(begun(store, f"item {number}")) for number in range(150)]
    assert named(session_index.ended(store)) == ids(*reversed(made))
    store.db.execute("UPDATE sessions SET active_us = 7")
    assert sorted(named(session_index.ended(store))) == sorted(ids(*made)), "also where all ended at once"


def test_a_session_is_found_by_its_key_and_never_taken_for_one_of_another_kind(store: Store) -> None:
    older, newer = ended(begun(store, "nightly")), begun(store, "nightly")
    begun(store, "other")
    run = begun(store, "nightly", kind="foreign")
    begun(store, "nightly", kind="agent")
    assert session_index.sessions_of_key(store, "nightly") == ids(newer, older)
    assert session_index.sessions_of_key(store, "nightly", "foreign") == ids(run)
    assert session_index.sessions_of_key(store, "none") == []


def test_a_key_that_was_changed_in_the_index_is_not_believed(store: Store) -> None:
    begun(store, "mine")
    store.db.execute("UPDATE sessions SET key = 'yours'")
    assert session_index.sessions_of_key(store, "yours") == []


def test_a_damaged_row_does_not_keep_the_others_from_being_listed(store: Store) -> None:
    broken, whole = begun(store, "a"), begun(store, "b")
    store.db.execute("DROP TRIGGER events_are_never_changed")
    store.db.execute("UPDATE events SET body = 'no JSON' WHERE id >> 40 = ?", (store.base(*ids(broken)) >> 40,))
    assert sorted(named(session_index.unfinished(store))) == sorted(ids(whole, broken))
    assert session_index.sessions_of_key(store, "b") == ids(whole)


@pytest.mark.parametrize("chars", [4, 5, 7, 8, 12, 36])
def test_every_part_that_names_a_session_finds_it_in_the_index(store: Store, chars: int) -> None:
    known = sorted(ids(*(begun(store, f"item {number}") for number in range(20))))
    for one in known:
        short = one[-8:]
        for text in (one[:chars], one[-chars:], short[:chars], one[:chars].upper()):
            assert session_index.named_by(store, text) == [
                other for other in known if session_index.is_named_by(other, text)
            ]
    assert session_index.named_by(store, "zzzz") == session_index.named_by(store, "%%%%") == []
    assert session_index.named_by(store, known[0][:3]) == []

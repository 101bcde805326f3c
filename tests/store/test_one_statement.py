"""An event that is recorded alone is one statement: the fence, the row and the commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from acode.errors import LockLost
from acode.store import journal as journals
from acode.store.fencing import fencing_journal
from acode.store.journal import Journal
from acode.store.store import Store
from tests.builders import decided, started
from tests.stores import Place, begun, folded, log_of


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


def long_enough(store: Store, writing: Journal | None = None) -> Journal:
    """The journal of a session whose WAL file needs no more room."""
    writing = writing or begun(store)
    store.room.is_wanted = False
    return writing


def statements_of(store: Store, writing: Journal, **options: Any) -> list[str]:
    said = list[str]()

    def note(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
        said.append(sql.split(maxsplit=1)[0])
        return True

    store.db.exec_trace = note
    try:
        writing.append(decided(False), **options)
    finally:
        store.db.exec_trace = None
    return said


def test_an_event_alone_is_one_statement_and_is_committed(place: Place) -> None:
    store = place.open()
    writing = long_enough(store)
    assert statements_of(store, writing) == ["INSERT"]
    assert not store.db.in_transaction
    assert folded(place.open(look_only=True), writing.session.session_id) == writing.session


def test_events_together_stay_one_transaction(place: Place) -> None:
    store = place.open()
    writing = long_enough(store)
    writing.append(decided(False), wait=False)
    assert statements_of(store, writing) == ["BEGIN", "SELECT", "INSERT", "INSERT", "COMMIT"]


def test_room_is_made_inside_a_transaction(place: Place) -> None:
    """Zeros are put behind the file's last byte by the holder of the write lock, and by nobody else."""
    store = place.open()
    writing = begun(store)
    assert store.room.is_wanted
    assert statements_of(store, writing) == ["BEGIN", "SELECT", "INSERT", "COMMIT"]


@pytest.mark.req("FR-011c-055")
def test_a_process_whose_generation_was_raised_writes_no_event_alone_either(place: Place) -> None:
    store = place.open()
    sleeper = long_enough(store)
    session_id, seq = sleeper.session.session_id, sleeper.session.seq
    breaker = place.open()
    assert breaker.raise_generation(session_id, 1) == 2
    with pytest.raises(LockLost) as caught:
        sleeper.append(started("a"))
    assert (caught.value.exit_code, caught.value.details["found"]) == (16, 2)
    with pytest.raises(LockLost):
        sleeper.append(started("a"))
    assert len(log_of(breaker, session_id)) == seq and not store.db.in_transaction
    breaker.journal(breaker.load(session_id), 2).append(started("a"))


def test_without_the_fence_in_its_statement_it_would(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: the same with the fence left out of the statement."""
    wrong = journals.INSERT_IF_OURS.replace("WHERE number = ?6 AND generation = ?7", "WHERE ?6 AND ?7")
    assert wrong != journals.INSERT_IF_OURS
    monkeypatch.setattr(journals, "INSERT_IF_OURS", wrong)
    store = place.open()
    sleeper = long_enough(store)
    seq = sleeper.session.seq
    place.open().raise_generation(sleeper.session.session_id, 1)
    sleeper.append(started("a"))
    assert len(log_of(store, sleeper.session.session_id)) == seq + 1


def test_a_number_that_somebody_else_has_written_is_refused(place: Place) -> None:
    store, other = place.open(), place.open()
    first = begun(store)
    second = long_enough(other, other.journal(other.load(first.session.session_id), 1))
    first.append(started("a"))
    with pytest.raises(LockLost):
        second.append(started("a"))
    assert folded(store, first.session.session_id) == first.session


def test_a_lock_is_broken_in_the_transaction_of_the_event_that_says_so(place: Place) -> None:
    store = place.open()
    session_id = begun(store).session.session_id
    breaking = long_enough(store, fencing_journal(store, store.load(session_id), 1))
    said = statements_of(store, breaking)
    assert said[:4] == ["BEGIN", "UPDATE", "SELECT", "INSERT"] and said[-1] == "COMMIT"
    assert store.generation(session_id) == 2

"""Read a log from any event on: the same events as from the first, verified from the checkpoint before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.errors import AcodeError, ChainBroken, CheckpointForged
from acode.store import checkpoints as ck
from acode.store.log_tail import events_after
from tests.builders import completed, created, started
from tests.stores import Place, log_of

# Events 1-3 create, 4-5 are step a, 6-7 step b, 8 begins step c; checkpoints stand at 3, 5 and 7.
WORDS = (created("a", "b", "c"), started("a"), completed("a"), started("b"), completed("b"), started("c"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "agent")
    yield made
    made.close()


@pytest.fixture
def session_id(place: Place, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ck, "due_bytes", lambda row: 0)  # a row for each completion
    return place.holding(*WORDS)


def seqs(place: Place, session_id: str, after: int) -> list[int]:
    with place.open(look_only=True) as store:
        return [envelope.seq for envelope, _ in events_after(store, session_id, after)]


@pytest.mark.parametrize("after", range(10))
def test_from_every_number_on_the_events_are_those_of_the_whole_log(place: Place, session_id: str, after: int) -> None:
    with place.open(look_only=True) as store:
        found = [envelope for envelope, _ in events_after(store, session_id, after)]
        assert found == log_of(store, session_id)[after:]


def test_what_stands_before_the_checkpoint_is_not_read(place: Place, session_id: str) -> None:
    with place.behind_the_back() as db:
        db.execute("UPDATE events SET body = 'nonsense' WHERE seq = 2")
    assert seqs(place, session_id, 6) == [7, 8]
    with pytest.raises(AcodeError):
        seqs(place, session_id, 0)


def test_a_row_behind_the_checkpoint_that_was_changed_stops_the_reading(place: Place, session_id: str) -> None:
    with place.behind_the_back() as db:
        db.execute("UPDATE events SET body = replace(body, 'main.b', 'main.x') WHERE seq = 6")
    with pytest.raises(AcodeError):
        seqs(place, session_id, 5)
    assert seqs(place, session_id, 7) == [8]


def test_a_checkpoint_that_was_changed_is_not_believed(place: Place, session_id: str) -> None:
    with place.behind_the_back() as db:
        db.execute("UPDATE checkpoints SET body = replace(body, 'main.a', 'main.x') WHERE seq = 5")
    with pytest.raises(CheckpointForged):
        seqs(place, session_id, 5)


def test_a_log_that_is_not_the_one_of_its_checkpoint_is_refused(place: Place, session_id: str) -> None:
    with place.behind_the_back() as db:
        db.execute("UPDATE events SET mac = zeroblob(32) WHERE seq = 5")
    with pytest.raises(ChainBroken):
        seqs(place, session_id, 5)

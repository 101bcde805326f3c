"""Steps in flight in checkpoints and snapshots: by position, however many they are, and verified when they are used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.engine.salvage import salvage
from acode.errors import ChainBroken, SequenceGap
from acode.events import types as ev
from acode.store import checkpoints as ck
from acode.store.store import Store
from tests.builders import OWNER, completed, named, settled, started
from tests.stores import Place, folded, say

AT_ONCE = 300
PAYLOAD = "x" * 1_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "agent")
    yield made
    made.close()


def many_at_once(store: Store, *, ended: int) -> str:
    """A program's session with 300 steps begun, of which the first ones have ended; its id."""
    made = ev.SessionCreated(title="job", task="job", kind="library", owner=OWNER, acode_version="0")
    journal = store.create()
    say(journal, [made, ev.SessionPlanned(tasks=0, steps=0, plan_digest=""), ev.SessionExecuting(reason="run")])
    say(journal, *(started(f"s{one}", kind="call", shown=PAYLOAD) for one in range(AT_ONCE)))
    say(journal, *(completed(f"s{one}") for one in range(ended)))
    return journal.session.session_id


def test_a_checkpoint_holds_a_step_in_flight_in_a_few_bytes(place: Place) -> None:
    store = place.open()
    session_id = many_at_once(store, ended=3)
    sizes = [len(body) for _, body, _ in store.checkpoint_rows(session_id)]
    assert max(sizes) < 2_000 + AT_ONCE * (len('"main.s299":1234,'))
    assert all(PAYLOAD.encode() not in body for _, body in store.snapshots(session_id))
    assert store.snapshots(session_id), "the log is long enough for one"


def test_a_session_is_the_same_from_a_checkpoint_a_snapshot_and_the_log_alone(place: Place) -> None:
    store = place.open()
    session_id = many_at_once(store, ended=7)
    whole = folded(store, session_id)
    loaded, (peeked, _) = store.load(session_id), store.peek(session_id)
    assert loaded.first_seq > 1, "it begins at a snapshot"
    assert loaded.session == whole
    assert peeked == ck.small(whole)
    assert list(peeked.in_flight) == list(loaded.session.in_flight) == list(whole.in_flight)
    assert store.verify(session_id).problems == ()


def test_what_a_start_does_not_say_of_a_step_in_flight_stands_in_the_checkpoint(place: Place) -> None:
    store = place.open()
    session_id = many_at_once(store, ended=0)
    journal = store.journal(store.load(session_id), 1)
    say(journal, settled("s4", ev.Settled.UNKNOWN), completed("s1"))
    stored = store.last_checkpoint(session_id).session
    assert list(stored.in_flight) == [named("s4")] and named("s4") not in stored.in_flight_at
    assert store.peek(session_id)[0] == ck.small(folded(store, session_id))


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ("UPDATE events SET body = replace(body, 'main.s9\"', 'main.x9\"') WHERE seq = {seq}", ChainBroken),
        ("DELETE FROM events WHERE seq = {seq}", SequenceGap),
    ],
)
def test_a_start_that_was_changed_or_removed_behind_a_checkpoint_stops_whoever_uses_it(
    place: Place, edit: str, error: type[Exception]
) -> None:
    with place.open() as store:
        session_id = many_at_once(store, ended=3)
        seq = store.load(session_id).session.in_flight[named("s9")].seq
    with place.behind_the_back() as db:
        db.execute(edit.format(seq=seq))
    store = place.open()
    for use in (store.peek, store.load):
        with pytest.raises(error):
            use(session_id)


def test_a_repair_opens_a_step_again_whose_start_was_damaged_behind_a_snapshot(place: Place) -> None:
    with place.open() as store:
        session_id = many_at_once(store, ended=3)
        seq = store.load(session_id).session.in_flight[named("s9")].seq
    with place.behind_the_back() as db:
        db.execute("UPDATE events SET body = '{}' WHERE seq = ?", (seq,))
    salvaged = salvage(place.open(), session_id, accept_lost_key=False)
    assert named("s9") in salvaged.doubted and salvaged.seqs == (seq,)
    assert len(salvaged.session.in_flight) == AT_ONCE - 3 - 1

"""Each completion is a checkpoint; rows of checkpoints are written by size, and one that is gone is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.errors import ChainBroken, CheckpointMissing
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.state import State
from acode.store import checkpoints as ck
from acode.store.journal import Journal
from acode.store.step_index import Finished, finished_steps
from acode.store.store import Store
from tests.builders import created, finished, paused
from tests.stores import Place, begun, say

PAYLOAD = "x" * 1_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "agent")
    yield made
    made.close()


def program(store: Store) -> Journal:
    creation, *_ = created("a")
    assert isinstance(creation, ev.SessionCreated)
    owner = creation.owner
    made = ev.SessionCreated(title="k", task="k", kind="library", owner=owner, acode_version="0")
    planned = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")
    return begun(store, [made, planned, ev.SessionExecuting()])


def ask(number: int) -> ev.Asked:
    return ev.Asked(arguments=f"{number:064x}", digest_version=2, ordered=True)


def begin(journal: Journal, number: int) -> ev.StepStarted:
    step, session_id = f"w#{number}", journal.session.session_id
    key = make_key(session_id, step, 1)
    defined = Step(id=step, action=Call(function="here:work"))
    return ev.StepStarted(
        step=step, task=step, kind="call", attempt=1, key=key, action_digest="", asked=ask(number), definition=defined
    )


def end(start: ev.StepStarted, seq: int) -> ev.StepCompleted:
    """As a program's log holds it: it names its start, which says what was asked for."""
    return ev.StepCompleted(
        step=start.step, task=start.task, attempt=1, key=start.key, start=seq, result={"v": PAYLOAD}
    )


def perform(journal: Journal, first: int, last: int) -> None:
    for number in range(first, last + 1):
        start = begin(journal, number)
        (began,) = journal.append(start, durable=False)
        journal.append(end(start, began.seq), durable=False)


def rows(store: Store, session_id: str) -> list[ck.Checkpoint]:
    return list(store.checkpoints(session_id))


@pytest.mark.req("FR-011c-008")
def test_each_completion_is_a_checkpoint_and_a_row_comes_when_the_log_has_grown(place: Place) -> None:
    store = place.open()
    journal = program(store)
    session_id = journal.session.session_id
    for number in range(1, 201):
        perform(journal, number, number)
        _, checkpoint = store.peek(session_id)
        assert (checkpoint.id, checkpoint.seq) == (number, journal.session.seq)
        assert checkpoint.session.last_completed == journal.session.last_completed
    (log,) = next(iter(store.db.execute("SELECT sum(length(body)) FROM events")))
    assert [row.row_number for row in rows(store, session_id)] == list(range(1 + log // 67_000))
    verified = store.verify(session_id)
    assert (verified.problems, verified.checkpoints) == ((), 201)


def test_a_session_that_stops_or_ends_leaves_a_row(place: Place) -> None:
    store = place.open()
    for last in (paused(), finished(), ev.SessionFailed(reason="x"), ev.SessionCancelled()):
        journal = program(store)
        say(journal, last)
        _, checkpoint = store.peek(journal.session.session_id)
        assert checkpoint.seq == journal.session.seq and checkpoint.session.state is not State.EXECUTING


@pytest.mark.parametrize("steps", [80, 200])
def test_the_newest_row_is_missed_where_the_log_has_outgrown_the_one_before(place: Place, steps: int) -> None:
    store = place.open()
    journal = program(store)
    perform(journal, 1, steps)
    session_id = journal.session.session_id
    place.close()
    with place.behind_the_back() as db:
        db.execute("DELETE FROM checkpoints WHERE id = (SELECT max(id) FROM checkpoints)")
    for look in ("load", "peek"):
        with pytest.raises(CheckpointMissing):
            getattr(place.open(look_only=True), look)(session_id)


def test_a_row_that_is_gone_from_the_middle_is_found_by_verification(place: Place) -> None:
    store = place.open()
    journal = program(store)
    perform(journal, 1, 200)
    session_id = journal.session.session_id
    place.close()
    with place.behind_the_back() as db:
        db.execute("DELETE FROM checkpoints WHERE id = (SELECT id FROM checkpoints ORDER BY id LIMIT 1 OFFSET 1)")
    problems = place.open(look_only=True).verify(session_id).problems
    assert [one.code for one in problems] == [CheckpointMissing.code] * len(problems) and problems


@pytest.mark.parametrize("steps", [3, 200])
def test_a_step_is_found_by_name_whether_or_not_the_index_knows_it_yet(place: Place, steps: int) -> None:
    store = place.open()
    journal = program(store)
    perform(journal, 1, steps)
    session_id = journal.session.session_id
    indexed = int(store.db.execute("SELECT count(*) FROM finished").get)
    assert indexed == steps - len(journal.unindexed) and 0 < len(journal.unindexed) <= 80
    killed = place.open(look_only=True)
    for known in (Finished(store, session_id, journal.unindexed), Finished(killed, session_id)):
        for number in (1, steps // 2 + 1, steps):
            found = known.find(f"w#{number}")
            assert found is not None and found.asked == ask(number) and found.result == {"v": PAYLOAD}
        assert known.find("w#0") is None
    assert [name for name, _ in finished_steps(killed, session_id)] == [f"w#{one + 1}" for one in range(steps)]


def test_steps_that_a_killed_process_left_unindexed_are_indexed_by_its_successor(place: Place) -> None:
    store = place.open()
    journal = program(store)
    perform(journal, 1, 10)
    session_id = journal.session.session_id
    place.close()
    store = place.open()
    successor = store.journal(store.load(session_id), 1)
    perform(successor, 11, 12)
    say(successor, paused())
    assert successor.unindexed == {}
    assert int(store.db.execute("SELECT count(*) FROM finished").get) == 12


def test_a_completion_whose_start_was_changed_is_not_believed(place: Place) -> None:
    store = place.open()
    journal = program(store)
    perform(journal, 1, 3)
    session_id = journal.session.session_id
    place.close()
    with place.behind_the_back() as db:
        changed = "UPDATE events SET body = replace(body, 'AAI=', 'AAc=') WHERE seq = 6 AND instr(body, 'AAI=')"
        db.execute(changed)  # the digest of its arguments, 2, is made that of 7
        assert db.changes() == 1
    with pytest.raises(ChainBroken):
        Finished(place.open(look_only=True), session_id).find("w#2")


def test_rows_that_were_moved_to_another_session_do_not_prove_each_other_there(place: Place) -> None:
    """A start and its completion with their codes, of a session in which the step was done."""
    store = place.open()
    done, victim = program(store), program(store)
    perform(done, 1, 2)
    perform(victim, 1, 1)
    session_id = victim.session.session_id
    places = {"there": store.base(done.session.session_id), "here": store.base(session_id), "name": session_id}
    place.close()
    with place.behind_the_back() as db:
        db.execute(
            "INSERT OR REPLACE INTO events SELECT id - :there + :here, :name, seq, body, mac FROM events"
            " WHERE id BETWEEN :there + 5 AND :there + 7",
            places,
        )
    with pytest.raises(ChainBroken):
        Finished(place.open(look_only=True), session_id).find("w#2")


def test_starts_in_flight_keep_rows_a_fraction_of_the_log(place: Place) -> None:
    """With a thousand at once a row that names them all is large, so the next one waits until most are over."""
    store = place.open()
    journal = program(store)
    starts = [begin(journal, number) for number in range(1_000)]
    for start in starts:
        journal.append(start, durable=False, wait=False)
    for start in starts:
        journal.append(end(start, journal.session.in_flight[start.step].seq), durable=False)
    (log,) = next(iter(store.db.execute("SELECT sum(length(body)) FROM events")))
    (kept,) = next(iter(store.db.execute("SELECT sum(length(body)) FROM checkpoints")))
    assert kept < log / 20

"""The store on a real SQLite: what was appended is what is read, by whom, in which order, and how durably."""

from __future__ import annotations

import random
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

from acode.errors import (
    BadTransition,
    BlobDamaged,
    EventTooLarge,
    LockLost,
    UnknownSession,
    WriteFailed,
)
from acode.events import types as ev
from acode.state import Session, State
from acode.store import checkpoints as ck
from acode.store.session_index import find_session
from acode.store.store import Store
from tests.builders import START, by_user, completed, created, decided, did, failed, finished, paused, started
from tests.stores import KEYRING, Place, begun, folded, log_of, say
from tests.walks import walk


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.mark.req("IF-011c-05", "FR-011c-015")
def test_checkpoints_are_made_found_and_listed_with_all_that_a_resume_needs(place: Place) -> None:
    store = place.open()
    spent = ev.Spent(input_tokens=7, output_tokens=2)
    asked = ev.StepCompleted(step="main.b", task="main", attempt=1, key="k", spent=spent)
    file = ev.FileState(path="a.txt", sha256="a" * 64)
    seen = ev.FilesSeen(step="main.a", attempt=1, files=(file,))
    writer = begun(store, created("a", "b", "c"))
    say(writer, did("a"), seen, started("b"), asked, by_user(ev.CheckpointCreated(label="here")))
    session_id = writer.session.session_id
    every = list(store.checkpoints(session_id))
    latest = store.load(session_id).checkpoint
    assert latest == every[-1] and [one.id for one in every] == sorted({one.id for one in every})
    assert (latest.session_id, latest.label, latest.session.state) == (session_id, "here", State.EXECUTING)
    assert latest.session.last_completed is not None
    assert (latest.session.last_completed.task, latest.session.last_completed.step) == ("main", "main.b")
    assert latest.session.conversation is not None and latest.session.conversation.input_tokens == 7
    assert latest.at >= START and latest.key_id == KEYRING.current
    loaded = store.load(session_id).session
    assert loaded.records is not None and loaded.records.manifest["a.txt"] == file
    rows = store.checkpoint_rows(session_id)
    assert len(rows) == len(every) and all(len(mac) == 32 for _, _, mac in rows), "each is signed"


def position(session: Session) -> Session:
    """What a position knows: no records, and not how often a step in flight had failed before."""
    flights = {step: msgspec.structs.replace(one, failures=0) for step, one in session.in_flight.items()}
    return msgspec.structs.replace(ck.small(session), in_flight=flights)


# What is read is what was written.


@pytest.mark.req("FR-011c-008", "FR-011c-036")
@pytest.mark.parametrize("seed", range(10))
def test_loading_peeking_and_a_fold_of_everything_agree_at_every_length(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over many snapshots and checkpoints, and with the journal made anew by a new process now and then."""
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 600)
    monkeypatch.setattr(ck, "due_bytes", lambda row: 700)
    dice = random.Random(seed)
    writing = store.create()
    for events, actor in walk(dice.choice, 40).transactions:
        known = [event for event in events if not isinstance(event, ev.Unknown | ev.PlanChanged)]
        if not known:
            continue
        writing.append(*known, actor=actor, durable=False)
        session_id = writing.session.session_id
        everything = folded(store, session_id)
        loaded = store.load(session_id)
        assert loaded.session == everything == writing.session
        assert loaded.head == writing.head
        peeked, checkpoint = store.peek(session_id)
        assert position(peeked) == position(everything)
        assert checkpoint == loaded.checkpoint and checkpoint.id == writing.checkpoint_id
        if dice.random() < 0.2:
            writing = store.journal(loaded, 1)
    # The walk names outputs and pre-images that nobody stored.
    assert [one for one in store.verify(session_id).problems if one.code != BlobDamaged.code] == []
    assert next(iter(store.db.execute("SELECT count(*) FROM snapshots")))[0] >= 1


def test_two_sessions_in_one_database_do_not_touch_each_other(store: Store) -> None:
    one, two = begun(store), begun(store)
    for step in "abc":
        say(one, started(step), completed(step))
        say(two, by_user(decided(False)))
    assert store.session_ids() == [one.session.session_id, two.session.session_id]
    assert store.load(one.session.session_id).session == one.session
    assert store.load(two.session.session_id).session == two.session
    assert two.session.steps_done == 0


@pytest.mark.req("INV-011c-06")
def test_a_new_process_needs_nothing_but_the_file(place: Place) -> None:
    with place.open() as store:
        writing = begun(store)
        say(writing, did("a"), started("b"))
        before = writing.session
    assert place.open().load(before.session_id).session == before


# Checkpoints.


@pytest.mark.req("FR-011c-014", "FR-011c-018", "FR-011c-009", "BP-011c-01", "BP-011c-09")
def test_each_completed_step_has_a_checkpoint_and_none_stands_in_the_middle_of_one(store: Store) -> None:
    """Should_Create_Checkpoint_After_Step"""
    writing = begun(store)
    session_id, found = writing.session.session_id, [store.peek(writing.session.session_id)[1]]
    for word in (started("a"), completed("a"), started("b"), failed("b"), by_user(paused()), finishing()):
        say(writing, word)
        newest = store.peek(session_id)[1]
        found += [newest] if newest.id != found[-1].id else []
    log = log_of(store, session_id)
    assert [one.id for one in found] == list(range(len(found)))
    assert [log[one.seq - 1].type for one in found] == ["session_executing", "step_completed", "checkpoint_created"]
    assert [list(one.session.in_flight_at) for one in found[:2]] == [[], []]
    assert [one.at for one in found] == [log[one.seq - 1].at for one in found]
    assert store.last_checkpoint(session_id) == found[-1]
    assert found[-1].label == "by hand"


def finishing() -> ev.CheckpointCreated:
    return ev.CheckpointCreated(label="by hand")


@pytest.mark.req("FR-011c-017")
def test_a_completion_and_its_checkpoint_are_one_transaction(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should_Be_Atomic: whatever fails while the checkpoint is written takes the completion with it."""
    monkeypatch.setattr(ck, "due_bytes", lambda row: 0)
    store = place.open()
    writing = begun(store)
    say(writing, started("a"))
    store.db.execute("CREATE TEMP TRIGGER no BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(ABORT, 'no'); END")
    store.db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    with pytest.raises(WriteFailed):
        writing.append(completed("a"))
    place.close()
    after = place.open().load(writing.session.session_id).session
    assert (after.seq, list(after.in_flight), after.steps_done) == (4, ["main.a"], 0)


def test_a_step_that_begins_with_the_completion_before_it_is_outside_the_checkpoint(store: Store) -> None:
    writing = begun(store)
    say(writing, started("a"), [completed("a"), started("b")])
    session, checkpoint = store.peek(writing.session.session_id)
    assert checkpoint.seq == 5 and checkpoint.session.in_flight == {}
    assert session.seq == 6 and list(session.in_flight) == ["main.b"]


def test_a_quiet_session_that_collects_refusals_gets_a_checkpoint(store: Store) -> None:
    writing = begun(store)
    say(writing, *[decided(False)] * 400)
    _, checkpoint = store.peek(writing.session.session_id)
    behind = store.db.execute("SELECT sum(length(body)) FROM events WHERE seq > ?", (checkpoint.seq,)).get
    assert checkpoint.seq > 3 and (behind or 0) < ck.DUE_BYTES_MIN


@pytest.mark.req("BP-011c-03")
def test_checkpoints_stay_small_and_snapshots_linear_however_long_the_log_grows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 1_000)
    monkeypatch.setattr(ck, "due_bytes", lambda row: 0)
    steps = [f"s{number}" for number in range(150)]
    writing = begun(store, created(*steps))
    for step in steps:
        file = ev.FileState(path=f"{step}.txt", sha256="0" * 64)
        say(writing, started(step), completed(step, files=(file,)))
    sizes = [row[0] for row in store.db.execute("SELECT length(body) FROM checkpoints ORDER BY id")]
    assert max(sizes) < 2_000
    assert max(sizes[100:]) <= max(sizes[:20]) + 100
    (log,) = next(iter(store.db.execute("SELECT sum(length(body)) FROM events")))
    (snapshots,) = next(iter(store.db.execute("SELECT sum(length(body)) FROM snapshots")))
    assert snapshots < 2 * log
    loaded = store.load(writing.session.session_id)
    assert loaded.first_seq > 100, "a load begins at the newest snapshot, not at the beginning"


# Readers beside a writer.


def test_many_readers_beside_one_writer_see_whole_transactions(place: Place) -> None:
    store = place.open()
    writing = begun(store, created(*[f"s{number}" for number in range(60)]))
    session_id = writing.session.session_id
    readers = [place.open(look_only=True) for _ in range(3)]
    for number in range(60):
        say(writing, [started(f"s{number}"), completed(f"s{number}")])
        for reader in readers[: 1 + number % 3]:
            assert reader.load(session_id).session == writing.session
            assert reader.peek(session_id)[0].steps_done == number + 1


@pytest.mark.parametrize("look", ["load", "peek"])
def test_a_step_completed_in_the_middle_of_a_look_does_not_disturb_it(
    place: Place, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint was seen before the completion: the two belong to different moments."""
    writing = begun(place.open())
    session_id = writing.session.session_id
    reader = place.open(look_only=True)
    whole = Store.last_checkpoint

    def slow(self: Store, wanted: str) -> ck.Checkpoint:
        seen = whole(self, wanted)
        if self is reader and not writing.session.done("main.a"):
            say(writing, did("a"))
        return seen

    monkeypatch.setattr(Store, "last_checkpoint", slow)
    found = getattr(reader, look)(session_id)
    assert (found.session if look == "load" else found[0]).seq == 3
    assert reader.peek(session_id)[0].seq == writing.session.seq


def test_looking_writes_nothing(place: Place) -> None:
    place.holding(created("a"))
    reader = place.open(look_only=True)
    with pytest.raises(apsw.ReadOnlyError):
        reader.db.execute("UPDATE sessions SET generation = 9")


# Fencing.


@pytest.mark.req("FR-011c-055")
def test_a_process_whose_generation_was_raised_is_fenced_off_and_has_written_nothing(place: Place) -> None:
    sleeper = begun(place.open())
    session_id = sleeper.session.session_id
    breaker = place.open()
    assert breaker.raise_generation(session_id, 1) == 2
    with pytest.raises(LockLost) as caught:
        sleeper.append(started("a"))
    assert (caught.value.exit_code, caught.value.details["found"]) == (16, 2)
    assert breaker.load(session_id).session.seq == 3
    with pytest.raises(LockLost):  # again: a message about a failed write would blame the disk
        sleeper.append(started("a"))
    breaker.journal(breaker.load(session_id), 2).append(started("a"))


def test_a_generation_is_raised_once_however_many_see_it_stale(place: Place) -> None:
    store, other = place.open(), place.open()
    session_id = begun(store).session.session_id
    assert [store.raise_generation(session_id, 1), other.raise_generation(session_id, 1)] == [2, 2]


@pytest.mark.req("FR-011c-053", "NFR-040b-19")
def test_of_two_journals_of_one_session_only_the_first_can_go_on(place: Place) -> None:
    store, other = place.open(), place.open()
    first = begun(store)
    second = other.journal(other.load(first.session.session_id), 1)
    first.append(started("a"))
    with pytest.raises(LockLost):
        second.append(started("a"))
    assert folded(store, first.session.session_id) == first.session


# Refusals.


def test_an_event_over_the_limit_is_refused_and_nothing_of_its_transaction_is_written(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    with pytest.raises(EventTooLarge):
        writing.append(started("a"), ev.Forced(what="x" * 1_048_576))
    place.close()
    again = place.open()
    loaded = again.load(writing.session.session_id)
    assert loaded.session.seq == 3
    again.journal(loaded, 1).append(started("a"))


def test_a_forbidden_transition_is_not_written(place: Place) -> None:
    writing = begun(place.open())
    say(writing, finished())
    with pytest.raises(BadTransition):
        writing.append(by_user(paused()).event)
    assert place.open().load(writing.session.session_id).session.seq == 4


def test_after_a_failed_write_the_journal_is_dead_and_the_log_is_whole(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    with pytest.raises(EventTooLarge):
        writing.append(ev.Forced(what="x" * 1_048_576))
    for _ in range(2):
        with pytest.raises(WriteFailed, match="must not write"):
            writing.append(started("a"))
    assert store.verify(writing.session.session_id).problems == ()


@pytest.mark.parametrize("step_s", [0, -1, -86_400])
def test_times_grow_though_the_clock_stands_still_or_goes_back(place: Place, step_s: int) -> None:
    now = [START]

    def clock() -> datetime:
        now[0] += timedelta(seconds=step_s)
        return now[0]

    place.clock = clock
    writing = begun(place.open())
    say(writing, *[decided(False)] * 5)
    times = [one.at for one in log_of(place.open(), writing.session.session_id)]
    assert times == sorted(set(times))
    assert times[-1] - times[0] < timedelta(seconds=1)


# Names.

IDS = [
    "01980000-aaaa-7000-8000-00000000cafe",
    "01980000-bbbb-7000-8000-00000000beef",
    "01980001-cccc-7000-8000-00000001cafe",
]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (IDS[0], 0),
        (IDS[0].upper(), 0),
        (f" {IDS[1]}\n", 1),
        ("beef", 1),
        ("01980000-b", 1),
        ("0001cafe", 2),
        ("0000ca", 0),
        ("0000BEE", 1),
        ("0001", 2),
    ],  # as it is shown, and as far as it is typed
)
def test_a_session_is_found_by_its_id_or_by_a_part_that_is_unique(text: str, number: int) -> None:
    assert find_session(IDS, text) == IDS[number]


@pytest.mark.parametrize(("text", "count"), [("0198", 3), ("cafe", 2), ("01980000", 2), ("0000", 2)])
def test_a_part_that_fits_several_sessions_names_them_and_guesses_nothing(text: str, count: int) -> None:
    with pytest.raises(UnknownSession, match=f"fits {count} sessions") as caught:
        find_session(IDS, text)
    assert len(caught.value.details["candidates"]) == count
    assert caught.value.exit_code == 14


@pytest.mark.parametrize("text", ["", "fe", "afe", "%", "dead", "7000", "01980000-aaaa-7000-8000-00000000cafe0"])
def test_a_text_that_names_no_session_is_answered_with_those_there_are(text: str) -> None:
    with pytest.raises(UnknownSession, match="no session here is called"):
        find_session(IDS, text)


def test_an_unknown_id_is_an_error_in_every_read(store: Store) -> None:
    for look in (store.load, store.peek, store.verify, store.generation, store.base):
        with pytest.raises(UnknownSession):
            look(IDS[0])


# Copies.


def test_a_backup_is_a_whole_database_of_its_own(place: Place, tmp_path: Path) -> None:
    store = place.open()
    writing = begun(store)
    say(writing, did("a"), started("b"))
    copy = store.back_up()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    other = Place(tmp_path / "other")
    copy.rename(other.database)
    assert other.open().load(writing.session.session_id).session == writing.session
    other.close()


def test_pre_images_are_gone_with_the_session_and_not_to_be_found_in_the_files(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    secret = b"what stood there before: 7f3a9c"
    name, blob = store.keep(secret, "preimage")
    writing.append(started("a"), blobs={name: blob})
    assert store.blob(writing.session.session_id, name) == secret
    store.forget_preimages(writing.session.session_id)
    place.close()
    assert all(secret not in path.read_bytes() for path in place.agent_dir.iterdir() if path.is_file())

"""Damage to the log: the only results are the right session, or a stop with a named error and a hint."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from acode import seal
from acode.errors import (
    AcodeError,
    BlobDamaged,
    ChainBroken,
    CheckpointForged,
    CheckpointMissing,
    DatabaseCorrupt,
    KeyMissing,
    NewerSchema,
    SchemaMismatch,
    SequenceGap,
    UnknownSession,
    UnreadableEvent,
)
from acode.events import types as ev
from acode.state import Session
from acode.store import checkpoints as ck
from acode.store import schema
from tests.builders import completed, created, did, finished, started
from tests.stores import Place, begun, forge

# Events 1-3 create, 4-5 are step a, 6-7 step b, 8 begins step c; checkpoints stand at 3, 5 and 7.
WORDS = (created("a", "b", "c"), started("a"), completed("a"), started("b"), completed("b"), started("c"))


@pytest.fixture(autouse=True)
def a_row_for_each_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the log had grown enough with each step; `test_checkpoint_tail` knows the real rule."""
    monkeypatch.setattr(ck, "due_bytes", lambda row: 0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "agent")
    yield made
    made.close()


@pytest.fixture
def session_id(place: Place) -> str:
    return place.holding(*WORDS)


Edit = Callable[[apsw.Connection], Any]


def sql(*statements: str) -> Edit:
    return lambda db: [db.execute(statement) for statement in statements]


EVENTS: dict[str, tuple[Edit, type[AcodeError]]] = {
    "an event is missing": (sql("DELETE FROM events WHERE seq = 6"), SequenceGap),
    "several events are missing": (sql("DELETE FROM events WHERE seq IN (2, 3, 5)"), SequenceGap),
    "the first event is missing": (sql("DELETE FROM events WHERE seq = 1"), SequenceGap),
    "every event is missing": (sql("DELETE FROM events"), SequenceGap),
    "the log ends before its checkpoint": (sql("DELETE FROM events WHERE seq >= 7"), SequenceGap),
    "the creation was edited": (sql("UPDATE events SET body = replace(body, 'A plan', 'B plan')"), ChainBroken),
    "a step was renamed": (
        sql("UPDATE events SET body = replace(body, 'main.b', 'main.x') WHERE seq = 6"),
        ChainBroken,
    ),
    "white space was added": (sql("UPDATE events SET body = body || ' ' WHERE seq = 4"), ChainBroken),
    "a code was edited": (sql("UPDATE events SET mac = zeroblob(32) WHERE seq = 5"), ChainBroken),
    "the last code was edited": (sql("UPDATE events SET mac = zeroblob(32) WHERE seq = 8"), ChainBroken),
    "two codes were swapped": (
        sql("UPDATE events SET mac = (SELECT mac FROM events e WHERE e.seq = 10 - events.seq) WHERE seq IN (4, 6)"),
        ChainBroken,
    ),
    "two rows were swapped": (
        sql(
            "CREATE TEMP TABLE two AS SELECT seq, body, mac FROM events WHERE seq IN (4, 6)",
            "UPDATE events SET body = (SELECT body FROM two WHERE two.seq = 10 - events.seq),"
            " mac = (SELECT mac FROM two WHERE two.seq = 10 - events.seq) WHERE seq IN (4, 6)",
        ),
        ChainBroken,
    ),
    "a row was said twice": (
        sql("INSERT INTO events SELECT id + 4, session_id, seq + 4, body, mac FROM events WHERE seq = 5"),
        ChainBroken,
    ),
    "somebody without the key wrote on": (
        sql("INSERT INTO events SELECT id + 1, session_id, 9, replace(body, '8', '9'), mac FROM events WHERE seq = 8"),
        ChainBroken,
    ),
    "a row is filed under another session": (
        sql("UPDATE events SET session_id = (SELECT replace(session_id, '-', '_') FROM sessions) WHERE seq = 4"),
        ChainBroken,
    ),
    "a row is no JSON": (sql("UPDATE events SET body = '{' WHERE seq = 4"), UnreadableEvent),
    "a row is empty": (sql("UPDATE events SET body = '' WHERE seq = 8"), UnreadableEvent),
    "a row is no text": (sql("UPDATE events SET body = CAST(x'ff00fe' AS TEXT) WHERE seq = 4"), UnreadableEvent),
    "a row is a trap for parsers": (
        sql("UPDATE events SET body = replace(hex(zeroblob(100000)), '00', '[') WHERE seq = 4"),
        UnreadableEvent,
    ),
    "a row claims another key": (
        sql("""UPDATE events SET body = replace(body, '"event":', '"key_id":"x","event":') WHERE seq = 4"""),
        KeyMissing,
    ),
    "a row is of a later age": (sql("""UPDATE events SET body = replace(body, '"v":3', '"v":4')"""), NewerSchema),
    "the session has another number": (sql("UPDATE sessions SET number = 77"), SequenceGap),
    "the session's row is gone": (sql("DELETE FROM sessions"), UnknownSession),
}
CHECKPOINTS: dict[str, tuple[Edit, type[AcodeError]]] = {
    "the newest checkpoint is missing": (sql("DELETE FROM checkpoints WHERE seq = 7"), CheckpointMissing),
    "every checkpoint is missing": (sql("DELETE FROM checkpoints"), CheckpointMissing),
    "a checkpoint was edited": (
        sql("""UPDATE checkpoints SET body = replace(body, '"steps_done":2', '"steps_done":3') WHERE seq = 7"""),
        CheckpointForged,
    ),
    "a seal was edited": (sql("UPDATE checkpoints SET mac = zeroblob(32) WHERE seq = 7"), CheckpointForged),
    "an older checkpoint stands in its place": (
        sql(
            "CREATE TEMP TABLE old AS SELECT body, mac FROM checkpoints WHERE seq = 5",
            "UPDATE checkpoints SET body = (SELECT body FROM old), mac = (SELECT mac FROM old) WHERE seq = 7",
        ),
        CheckpointForged,
    ),
    "a checkpoint is no JSON": (sql("UPDATE checkpoints SET body = '{' WHERE seq = 7"), CheckpointForged),
    "a checkpoint is no object": (sql("UPDATE checkpoints SET body = '[]' WHERE seq = 7"), CheckpointForged),
    "a checkpoint is no text": (
        sql("UPDATE checkpoints SET body = CAST(x'ff00fe' AS TEXT) WHERE seq = 7"),
        CheckpointForged,
    ),
    "a checkpoint is a trap for parsers": (
        sql("UPDATE checkpoints SET body = replace(hex(zeroblob(100000)), '00', '[') WHERE seq = 7"),
        CheckpointForged,
    ),
    "a checkpoint is moved behind the end": (
        sql("UPDATE checkpoints SET seq = 9, id = id + 2 WHERE seq = 7"),
        CheckpointForged,
    ),
}


def edited(place: Place, edit: Edit) -> None:
    with place.behind_the_back() as db:
        edit(db)


@pytest.mark.req("FAIL-040b-02", "FAIL-040b-05", "NFR-040b-20")
@pytest.mark.parametrize("damage", EVENTS)
def test_a_damaged_log_stops_with_the_name_of_what_is_wrong(place: Place, session_id: str, damage: str) -> None:
    edit, expected = EVENTS[damage]
    edited(place, edit)
    with pytest.raises(expected) as caught:
        place.open(look_only=True).load(session_id)
    assert caught.value.exit_code == (14 if expected is UnknownSession else 20)
    assert caught.value.hint
    peeked_is_right_or_refused(place, session_id)


def peeked_is_right_or_refused(place: Place, session_id: str) -> None:
    """A position needs only the newest checkpoint and the tail; what it does not use it need not see."""
    try:
        session, _ = place.open(look_only=True).peek(session_id)
    except AcodeError:
        return
    assert (session.seq, session.steps_done, list(session.in_flight)) == (8, 2, ["main.c"])


@pytest.mark.req("THREAT-011c-02", "CODE-011c-12", "CODE-011c-05")
@pytest.mark.parametrize("damage", CHECKPOINTS)
def test_a_damaged_checkpoint_is_never_used(place: Place, session_id: str, damage: str) -> None:
    edit, expected = CHECKPOINTS[damage]
    edited(place, edit)
    for look in ("load", "peek"):
        with pytest.raises(expected) as caught:
            getattr(place.open(look_only=True), look)(session_id)
        assert (caught.value.exit_code, "repair" in caught.value.hint) == (20, True)


# A row that is missing at the end, or all of them, is found by the load that follows a verification without problems.
BY_LOADING = {
    "the session has another number",
    "the session's row is gone",
    "the newest checkpoint is missing",
    "every checkpoint is missing",
}


@pytest.mark.parametrize("damage", sorted({*EVENTS, *CHECKPOINTS} - BY_LOADING))
def test_verification_finds_all_damage_and_goes_on_to_the_end(place: Place, session_id: str, damage: str) -> None:
    edit, _ = {**EVENTS, **CHECKPOINTS}[damage]
    edited(place, edit)
    assert place.open(look_only=True).verify(session_id).problems


def test_an_undamaged_log_has_no_problems(place: Place, session_id: str) -> None:
    verified = place.open(look_only=True).verify(session_id)
    assert (verified.problems, verified.events, verified.checkpoints) == ((), 8, 3)


def test_events_after_the_newest_checkpoint_that_were_cut_off_leave_an_older_whole_log(
    place: Place, session_id: str
) -> None:
    """It cannot be seen from inside; the anchor outside knows how far the log had come."""
    edited(place, sql("DELETE FROM events WHERE seq = 8"))
    loaded = place.open(look_only=True).load(session_id)
    assert loaded.session.seq == 7 and loaded.session.in_flight == {}


@pytest.mark.parametrize("kind", ["session_completed", "checkpoint_created"])
def test_every_event_that_comes_with_a_checkpoint_is_missed_without_it(place: Place, kind: str) -> None:
    last = {"session_completed": finished(), "checkpoint_created": ev.CheckpointCreated()}[kind]
    session_id = place.holding(created("a"), did("a"), last)
    edited(place, sql("DELETE FROM checkpoints WHERE seq = (SELECT max(seq) FROM checkpoints)"))
    for look in ("load", "peek"):
        with pytest.raises(CheckpointMissing, match=kind):
            getattr(place.open(look_only=True), look)(session_id)


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (sql("DELETE FROM snapshots"), CheckpointMissing),
        (
            sql("UPDATE snapshots SET body = CAST(replace(CAST(body AS TEXT), 'main.a', 'main.z') AS BLOB)"),
            CheckpointForged,
        ),
        (sql("UPDATE snapshots SET body = x''"), CheckpointForged),
    ],
    ids=["deleted", "edited", "emptied"],
)
def test_a_damaged_snapshot_is_never_used(
    place: Place, edit: Edit, expected: type[AcodeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 100)
    session_id = place.holding(*WORDS)
    edited(place, edit)
    with pytest.raises(expected) as caught:
        place.open(look_only=True).load(session_id)
    assert caught.value.exit_code == 20
    assert place.open(look_only=True).verify(session_id).problems


def test_a_changed_or_missing_blob_is_found_when_it_is_wanted(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    name, blob = store.keep(b"before", "preimage")
    writing.append(started("a"), blobs={name: blob})
    session_id = writing.session.session_id
    edited(place, sql("UPDATE blobs SET data = x'00'"))
    with pytest.raises(BlobDamaged):
        place.open(look_only=True).blob(session_id, name)
    edited(place, sql("DELETE FROM blobs"))
    reader = place.open(look_only=True)
    assert not reader.has_blob(session_id, name)
    with pytest.raises(BlobDamaged):
        reader.blob(session_id, name)


# Keys.


def test_a_log_signed_with_a_key_that_is_not_here_is_not_believed(place: Place, session_id: str) -> None:
    place.close()
    stranger = Place(place.agent_dir, seal.Keyring(current="x", keys={"x": b"x" * 32}))
    with pytest.raises(KeyMissing) as caught:
        stranger.open(look_only=True).load(session_id)
    stranger.close()
    assert (caught.value.exit_code, caught.value.details["key_id"]) == (20, "k")


def test_the_same_key_id_with_another_key_is_no_key(place: Place, session_id: str) -> None:
    place.close()
    stranger = Place(place.agent_dir, seal.Keyring(current="k", keys={"k": b"x" * 32}))
    with pytest.raises((ChainBroken, CheckpointForged)):
        stranger.open(look_only=True).load(session_id)
    stranger.close()


def test_after_a_rotation_old_events_verify_and_new_ones_are_signed_anew(place: Place, session_id: str) -> None:
    place.close()
    both = Place(place.agent_dir, seal.Keyring(current="n", keys={"n": b"n" * 32, **place.keyring.keys}))
    store = both.open()
    store.journal(store.load(session_id), 1).append(completed("c"))
    assert store.verify(session_id).problems == ()
    assert [one.key_id for one, _, _ in store.events(session_id)] == ["k", *[""] * 7, "n"]
    both.close()
    with pytest.raises(KeyMissing):
        place.open(look_only=True).load(session_id)


# Events of another version.


@pytest.mark.req("FAIL-040b-06")
@pytest.mark.parametrize("ignorable", [True, False])
def test_an_event_of_unknown_type_is_read_shown_and_remembered(place: Place, session_id: str, ignorable: bool) -> None:
    event = {"type": "approval_revoked", "ignorable": ignorable, "step": "main.c"}
    with place.behind_the_back() as db:
        forge(db, session_id, event)
    session = place.open(look_only=True).load(session_id).session
    assert session.seq == 9
    assert session.unknown_types == ({} if ignorable else {9: "approval_revoked"})


def test_an_event_that_breaks_the_state_machine_stops_even_with_a_right_code(place: Place, session_id: str) -> None:
    with place.behind_the_back() as db:
        forge(db, session_id, {"type": "session_planned", "tasks": 1, "steps": 1, "plan_digest": "d"})
    with pytest.raises(AcodeError, match="from EXECUTING to PLANNING"):
        place.open(look_only=True).load(session_id)


# The schema.

SCHEMAS: dict[str, Edit] = {
    "a trigger was dropped": sql("DROP TRIGGER events_are_never_changed"),
    "a trigger was planted": sql("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM blobs; END"),
    "a table was planted": sql("CREATE TABLE extra(x)"),
    "a view was planted": sql("CREATE VIEW extra AS SELECT * FROM events"),
    "an index was planted": sql("CREATE INDEX extra ON events(seq)"),
    "a table was dropped": sql("DROP TABLE blobs"),
    "the migrations were dropped": sql("DROP TABLE migrations"),
    "a column was added": sql("ALTER TABLE sessions ADD COLUMN extra TEXT"),
    "a table was made anew without its checks": sql("DROP TABLE snapshots", "CREATE TABLE snapshots(id, body)"),
    "a migration was forged": sql("UPDATE migrations SET sha256 = 'x' WHERE version = 1"),
    "a migration was forgotten": sql("DELETE FROM migrations WHERE version = 2"),
    "the version was turned back": sql("PRAGMA user_version = 1"),
    "the version was forgotten": sql("PRAGMA user_version = 0"),
}


@pytest.mark.parametrize("look_only", [False, True], ids=["to write", "to look"])
@pytest.mark.parametrize("change", SCHEMAS)
def test_a_database_with_another_schema_is_refused_and_left_alone(
    place: Place, session_id: str, change: str, look_only: bool
) -> None:
    db = apsw.Connection(str(place.database))
    SCHEMAS[change](db)
    db.close()
    before = place.database.read_bytes()
    with pytest.raises(AcodeError) as caught:
        place.open(look_only=look_only)
    assert isinstance(caught.value, SchemaMismatch)
    assert caught.value.exit_code == 20 and caught.value.hint
    assert place.database.read_bytes() == before


@pytest.mark.parametrize("look_only", [False, True], ids=["to write", "to look"])
@pytest.mark.parametrize("version", [schema.VERSION + 1, 99, -1])
def test_a_database_of_a_newer_acode_is_refused_with_the_hint_to_upgrade(
    place: Place, session_id: str, version: int, look_only: bool
) -> None:
    edited(place, sql(f"PRAGMA user_version = {version}"))
    with pytest.raises(NewerSchema, match=f"version {version}") as caught:
        place.open(look_only=look_only)
    assert caught.value.hint == "Upgrade acode."


# The file.


@pytest.mark.parametrize("look_only", [False, True], ids=["to write", "to look"])
@pytest.mark.parametrize("damage", ["garbage", "text", "cut", "half a page", "another header"])
def test_a_file_that_is_no_database_any_more_is_named_so(
    place: Place, session_id: str, damage: str, look_only: bool
) -> None:
    whole = place.database.read_bytes()
    place.database.write_bytes(
        {
            "garbage": random.Random(1).randbytes(len(whole)),
            "text": b"this is no database\n" * 500,
            "cut": whole[: len(whole) // 2],
            "half a page": whole[:2048],
            "another header": b"SQLite format 9\0" + whole[16:],
        }[damage]
    )
    with pytest.raises(AcodeError) as caught:
        place.open(look_only=look_only).load(session_id)
    assert isinstance(caught.value, DatabaseCorrupt | SchemaMismatch)
    assert caught.value.exit_code == 20 and caught.value.hint


def test_an_empty_file_is_a_database_without_sessions(place: Place) -> None:
    """A process that was killed between making the file and its first table leaves one."""
    place.database.touch(mode=0o600)
    with place.open(look_only=True) as looking:
        assert looking.session_ids() == []
    assert place.database.stat().st_size == 0
    assert place.open().session_ids() == []


@pytest.mark.req("NFR-040b-20")
def test_every_flipped_bit_gives_the_right_session_or_a_named_error(place: Place, session_id: str) -> None:
    whole = place.database.read_bytes()
    right: Session = place.open(look_only=True).load(session_id).session
    place.close()
    dice = random.Random(20260101)
    named = 0
    for _ in range(400):
        bit = dice.randrange(len(whole) * 8)
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        place.database.write_bytes(flipped)
        try:
            assert place.open(look_only=True).load(session_id).session == right
        except AcodeError:
            named += 1
        place.close()
    assert named > 20, "most pages are nearly empty"

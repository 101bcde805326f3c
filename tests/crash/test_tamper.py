"""Damage and tampering: whatever is changed outside acode is detected before it is used, or was never used at all.

The attacker can write the database and has no key. The only permitted results are *correct* and *stopped by name*.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from acode.engine.create import run_plan
from acode.engine.preview import verify
from acode.engine.resume import resume
from acode.engine.session_commands import answer_gate
from acode.engine.session_list import rows
from acode.engine.world import Options
from acode.errors import AcodeError
from acode.events import types as ev
from tests.crash.tamper_sweeps import flips, judged_when_flipped
from tests.tampering import SPAN, Attack
from tests.victims import FAILED, Victim, with_snapshots
from tests.worlds import plan_file

SIGNED = (
    ("events", "body", "TEXT"),
    ("events", "mac", "BLOB"),
    ("checkpoints", "body", "TEXT"),
    ("checkpoints", "mac", "BLOB"),
    ("snapshots", "body", "BLOB"),
    ("blobs", "data", "BLOB"),
)


# Every byte.


def flip_everything(
    victim: Victim, bits: tuple[int, ...], fields: tuple[tuple[str, str, str], ...] = SIGNED
) -> dict[str, int]:
    counts = {"load": 0, "verify": 0}
    with victim.store(look_only=False) as store:
        untouched = store.load(victim.id)
        assert store.verify(victim.id).problems == ()
        for field in fields:
            for flip in flips(store, *field[:2], bits):
                counts[judged_when_flipped(store, victim.id, untouched, field, flip)] += 1
            print(f"up to {field[0]}.{field[1]}: {counts}", flush=True)
        assert store.load(victim.id) == untouched
    return counts


@pytest.mark.req("THREAT-011c-02")
def test_every_changed_byte_of_the_signed_fields_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies, codes, checkpoints, snapshots and blobs, byte by byte.

    A load stops at what it uses. What it does not use (events before its snapshot, older checkpoints, blobs of steps
    that are done) cannot mislead it, which is asserted, and is found by `session verify`.
    """
    with_snapshots(monkeypatch)
    victim = Victim(tmp_path)
    counts = flip_everything(victim, bits=(0x01,))
    assert counts["load"] > 2_000 and counts["verify"] > 2_000


@pytest.mark.release
def test_every_bit_of_the_signed_fields_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_snapshots(monkeypatch)
    for number, plan in enumerate((None, FAILED)):
        victim = Victim(tmp_path / str(number)) if plan is None else Victim(tmp_path / str(number), plan)
        counts = flip_everything(victim, bits=tuple(1 << bit for bit in range(8)))
        assert sum(counts.values()) > 50_000


@pytest.mark.release
def test_every_byte_of_the_log_changed_to_every_other_value_is_detected(tmp_path: Path) -> None:
    """Each of the 255 other values: every pattern of flipped bits within a byte. A load uses every event here."""
    victim = Victim(tmp_path)
    counts = flip_everything(victim, bits=tuple(range(1, 256)), fields=SIGNED[:2])
    assert counts["load"] > 1_000_000 and counts["verify"] == 0


def damage_the_file(victim: Victim, place: Path, dice: random.Random, rounds: int) -> dict[str, int]:
    """One byte of the database file is changed; opening, loading and verifying say the truth or stop by name."""
    with victim.store(look_only=False) as store:
        store.truncate_wal()
        untouched = store.load(victim.id)
    raw = victim.attack.path.read_bytes()
    counts = {"named": 0, "found": 0, "harmless": 0}
    for _ in range(rounds):
        index = dice.randrange(len(raw))
        damaged = bytearray(raw)
        damaged[index] ^= 1 << dice.randrange(8)
        for path in victim.world.agent_dir.glob("workspace.db*"):
            path.unlink()
        victim.attack.path.write_bytes(damaged)
        try:
            with victim.store() as store:
                loaded = store.load(victim.id)
                problems = store.verify(victim.id).problems
        except AcodeError:
            counts["named"] += 1
            continue
        assert loaded == untouched
        counts["found" if problems else "harmless"] += 1
    shutil.rmtree(place, ignore_errors=True)
    return counts


def test_a_damaged_database_file_tells_the_truth_or_stops_by_name(tmp_path: Path) -> None:
    """Harmless: free space of a page, and columns that nothing is decided by (when a row was made, what a blob is)."""
    counts = damage_the_file(Victim(tmp_path / "v"), tmp_path / "v", random.Random(7), rounds=400)
    assert counts["named"] > 20


@pytest.mark.release
def test_a_damaged_database_file_tells_the_truth_at_many_places(tmp_path: Path) -> None:
    counts = damage_the_file(Victim(tmp_path / "v"), tmp_path / "v", random.Random(8), rounds=100_000)
    assert counts["named"] + counts["found"] > 10_000


# Every kind of change to the rows.


def edit_a_row(attack: Attack) -> None:
    attack.edit(attack.seq_of("step_completed"), '"step":"', '"attempt":2,"step":"')


def delete_one(attack: Attack) -> None:
    attack.delete(attack.last() - 2)


def delete_the_tail(attack: Attack) -> None:
    attack.delete(attack.last() - 1, attack.last())


def delete_the_last_with_its_checkpoint(attack: Attack) -> None:
    last = attack.seq_of("step_completed")
    attack.delete(last, attack.last())
    attack.delete(last, attack.last(), table="checkpoints")


def swap_neighbours(attack: Attack) -> None:
    last = attack.last()
    one, other = attack.body(last - 1), attack.body(last - 2)
    attack.set_body(last - 1, other)
    attack.set_body(last - 2, one)


def swap_rows_with_their_codes(attack: Attack) -> None:
    last = attack.last()
    rows = {seq: (body, mac) for seq, body, mac in attack.sql("SELECT seq, body, mac FROM events")}
    for target, source in ((last - 1, last - 2), (last - 2, last - 1)):
        attack.sql("UPDATE events SET body = ?, mac = ? WHERE id = ?", *rows[source], SPAN + target)


def insert_a_copy(attack: Attack) -> None:
    last = attack.last()
    (row,) = attack.sql("SELECT session_id, body, mac FROM events WHERE id = ?", SPAN + last - 1)
    attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", SPAN + last + 1, row[0], last + 1, row[1], row[2])


def insert_one_far_away(attack: Attack) -> None:
    last = attack.last()
    (row,) = attack.sql("SELECT session_id, body, mac FROM events WHERE id = ?", SPAN + last)
    attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", SPAN * 2 - 1, row[0], SPAN - 1, row[1], row[2])


def delete_everything(attack: Attack) -> None:
    attack.sql("DELETE FROM events")


def delete_all_checkpoints(attack: Attack) -> None:
    attack.sql("DELETE FROM checkpoints")


def delete_the_last_checkpoint(attack: Attack) -> None:
    attack.sql("DELETE FROM checkpoints WHERE id = (SELECT max(id) FROM checkpoints)")


def put_an_old_checkpoint_last(attack: Attack) -> None:
    last = attack.sql("SELECT max(id) FROM checkpoints")[0][0]
    old = attack.sql("SELECT body, mac FROM checkpoints ORDER BY id LIMIT 1")[0]
    attack.sql("UPDATE checkpoints SET body = ?, mac = ? WHERE id = ?", *old, last)


def forget_the_session(attack: Attack) -> None:
    attack.sql("DELETE FROM sessions")


def file_a_row_under_another(attack: Attack) -> None:
    attack.sql("UPDATE events SET session_id = ? WHERE id = ?", "0" * 36, SPAN + attack.last())


def plant_a_trigger(attack: Attack) -> None:
    attack.sql("CREATE TRIGGER planted AFTER INSERT ON events BEGIN DELETE FROM events WHERE seq = 1; END")


def plant_a_view(attack: Attack) -> None:
    attack.sql("ALTER TABLE snapshots RENAME TO hidden")
    attack.sql("CREATE VIEW snapshots AS SELECT * FROM hidden")


def drop_the_guards(attack: Attack) -> None:
    attack.sql("DROP TRIGGER events_are_never_changed")


ATTACKS: list[Callable[[Attack], None]] = [
    edit_a_row,
    delete_one,
    delete_the_tail,
    delete_the_last_with_its_checkpoint,
    swap_neighbours,
    swap_rows_with_their_codes,
    insert_a_copy,
    insert_one_far_away,
    delete_everything,
    delete_all_checkpoints,
    delete_the_last_checkpoint,
    put_an_old_checkpoint_last,
    forget_the_session,
    file_a_row_under_another,
    plant_a_trigger,
    plant_a_view,
    drop_the_guards,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_structural_change_stops_the_resume_and_the_verification(
    attack: Callable[[Attack], None], tmp_path: Path
) -> None:
    victim = Victim(tmp_path, FAILED)
    (victim.world.workspace / "go").touch()
    attack(victim.attack)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.exit_code == 20
    try:
        _, verified = verify(victim.world, victim.id)
    except AcodeError as error:
        assert error.exit_code == 20
    else:
        assert verified.problems
    assert victim.file("log.txt") == "one\ntwo\nthree\n", "nothing was executed from an unverified log"


def test_contents_that_were_exchanged_are_found_and_none_of_them_is_used(tmp_path: Path) -> None:
    """Both are whole and known to the session, and each stands under the other's name."""
    victim = Victim(tmp_path)
    rows = victim.attack.sql("SELECT sha256, data FROM blobs WHERE data IS NOT NULL ORDER BY sha256")
    (one, first), (other, second) = rows[:2]
    for name, data in ((one, second), (other, first)):
        victim.attack.sql("UPDATE blobs SET data = ? WHERE sha256 = ?", data, name)
    with victim.store() as store:
        for name in (one, other):
            with pytest.raises(AcodeError) as refused:
                store.blob(victim.id, name)
            assert refused.value.exit_code == 20
    assert len(verify(victim.world, victim.id)[1].problems) == 2


def test_a_session_whose_rows_were_all_removed_is_missed(tmp_path: Path) -> None:
    """Also by a command that names none: lost work is never told as no work."""
    victim = Victim(tmp_path, FAILED)
    for table in ("sessions", "events", "checkpoints", "blobs"):
        victim.attack.sql(f"DELETE FROM {table}")
    (row,) = rows(victim.world)
    assert row.session_id == victim.id and row.error is not None and row.error.exit_code == 20


def test_bodies_swapped_between_sessions_are_detected_in_both(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    other = run_plan(victim.world, plan_file(FAILED.replace("Four", "Other"))).session_id
    query = "SELECT body, mac FROM events WHERE id = ?"
    bodies = {number: victim.attack.sql(query, number * SPAN + 4)[0] for number in (1, 2)}
    for number, source in ((1, 2), (2, 1)):
        victim.attack.sql("UPDATE events SET body = ?, mac = ? WHERE id = ?", *bodies[source], number * SPAN + 4)
    for session_id in (victim.id, other):
        assert verify(victim.world, session_id)[1].problems[0].seq == 4
        with pytest.raises(AcodeError) as refused:
            resume(victim.world, session_id, Options())
        assert refused.value.exit_code == 20


def test_an_older_copy_of_the_whole_database_is_detected_by_the_anchor(tmp_path: Path) -> None:
    """The old copy is whole and every code in it fits: only what is kept outside of it shows that it is old."""
    victim = Victim(tmp_path)
    copy = victim.attack.copy_to(tmp_path / "copy")
    answer_gate(victim.world, victim.id, None, granted=False, note="")
    victim.attack.restore_from(copy)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.code == "ACODE-LOG-006" and refused.value.exit_code == 20
    assert verify(victim.world, victim.id)[1].problems[0].code == "ACODE-LOG-006"


def test_another_history_of_the_same_length_is_detected_by_the_anchor(tmp_path: Path) -> None:
    """Grown from an old copy under the right key: as long as the real one, and still not it."""
    victim = Victim(tmp_path)
    copy = victim.attack.copy_to(tmp_path / "copy")
    answer_gate(victim.world, victim.id, None, granted=False, note="no")
    real = (victim.world.state_dir / "anchors").rglob(victim.id)
    anchor = {path: path.read_bytes() for path in real}
    victim.attack.restore_from(copy)
    for path in anchor:
        path.unlink()
    answer_gate(victim.world, victim.id, None, granted=False, note="another")
    for path, raw in anchor.items():
        path.write_bytes(raw)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.code == "ACODE-LOG-006"


def test_a_generation_that_is_rolled_back_lets_no_fenced_process_write(tmp_path: Path) -> None:
    """The generation is not signed, and need not be: the numbers the new owner wrote are taken."""
    victim = Victim(tmp_path)
    with victim.store(look_only=False) as store:
        asleep = store.journal(store.load(victim.id), store.generation(victim.id))
        store.raise_generation(victim.id, 1)
        awake = store.journal(store.load(victim.id), 2)
        awake.append(ev.LockBroken(generation=1, forced=True))
        victim.attack.sql("UPDATE sessions SET generation = 1")
        with pytest.raises(AcodeError) as fenced:
            asleep.append(ev.CheckpointCreated(label="I never slept"))
        assert fenced.value.code == "LOCK-004"
    assert verify(victim.world, victim.id)[1].problems == ()

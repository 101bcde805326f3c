"""Repair: the audited way out. Nothing bad is believed, nothing is removed, and nothing is repeated on a guess."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from acode.engine.preview import history, preview, verify
from acode.engine.repair import repair
from acode.engine.resume import resume
from acode.engine.salvage import may_have_begun
from acode.engine.session_commands import answer_gate, end, resolve
from acode.engine.world import Options
from acode.errors import AcodeError
from acode.events import types as ev
from acode.state import Session, State
from tests.builders import created, plan, session, task
from tests.driver import Acode
from tests.tampering import SPAN, Attack
from tests.victims import AT_GATE, FAILED, Victim, with_snapshots

GARBAGE = "not an event"


def session_of(victim: Victim) -> Session:
    return victim.load().session


def is_whole(victim: Victim) -> bool:
    return verify(victim.world, victim.id)[1].problems == ()


def resumed(victim: Victim) -> int:
    (victim.world.workspace / "go").touch()
    return resume(victim.world, victim.id, Options(changed_files="continue")).exit_code


def without_keepers(victim: Victim) -> None:
    """As after a clean-up of .agent/run: no evidence but the log is left."""
    for path in (victim.world.agent_dir / "run").glob(f"{victim.id}*"):
        shutil.rmtree(path)


# Checkpoints.


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM checkpoints",
        "DELETE FROM checkpoints WHERE id = (SELECT max(id) FROM checkpoints)",
        "UPDATE checkpoints SET mac = zeroblob(32)",
        "UPDATE checkpoints SET body = '{}'",
        "DELETE FROM snapshots",
        "UPDATE snapshots SET body = x'00'",
    ],
)
@pytest.mark.req("THREAT-011c-02")
def test_bad_checkpoints_are_made_anew_from_the_whole_log(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_snapshots(monkeypatch)
    victim = Victim(tmp_path, FAILED)
    before = session_of(victim)
    victim.attack.sql(damage)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.exit_code == 20
    done = repair(victim.world, victim.id, reason="the disk")
    assert done.kind == "checkpoints" and done.quarantined == () and done.steps == ()
    after = session_of(victim)
    assert (after.records, after.in_flight, after.state) == (before.records, before.in_flight, before.state)
    assert is_whole(victim)
    assert resumed(victim) == 0
    assert victim.file("log.txt") == "one\ntwo\nthree\n"


def test_a_repair_of_a_whole_session_changes_nothing(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    before = victim.load()
    assert repair(victim.world, victim.id).kind == "nothing"
    assert victim.load() == before
    assert list(victim.world.agent_dir.glob("*.bak")) == []


# Rows.


def test_an_edited_completion_opens_its_step_and_evidence_settles_it(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    seq = victim.attack.seq_of("step_completed", "main.2")
    original = victim.attack.body(seq)
    victim.attack.edit(seq, '"step":"main.2"', '"step":"main.2","attempt":7')
    done = repair(victim.world, victim.id, reason="odd")
    assert (done.kind, done.quarantined, done.steps) == ("quarantine", (seq,), ("main.2",))
    found = preview(victim.world, victim.id, Options())
    assert found.survey is not None
    (settlement,) = found.survey.continuation.in_flight
    assert (settlement.step, settlement.outcome) == ("main.2", "applied"), "the keeper knows that it ended well"
    assert resumed(victim) == 0
    assert victim.file("log.txt") == "one\ntwo\nthree\n"
    edited = original.replace('"step":"main.2"', '"step":"main.2","attempt":7')
    assert victim.attack.body(seq) == edited, "the row is kept as it was found"
    assert done.backup is not None and Path(done.backup).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["edit", "unreadable", "delete", "reorder"])
def test_a_step_that_a_bad_row_was_about_is_unknown_and_not_repeated(damage: str, tmp_path: Path) -> None:
    """Without the keeper's notes nothing but the log tells, and that cannot be believed: a person decides."""
    victim = Victim(tmp_path, FAILED)
    seq = victim.attack.seq_of("step_completed", "main.3")
    match damage:
        case "edit":
            victim.attack.edit(seq, '"duration_ms":', '"duration_ms":1')
        case "unreadable":
            victim.attack.set_body(seq, GARBAGE)
        case "delete":
            victim.attack.delete(seq)
        case "reorder":
            victim.attack.set_body(seq, victim.attack.body(seq - 1))
    without_keepers(victim)
    done = repair(victim.world, victim.id)
    assert "main.3" in done.steps
    assert is_whole(victim)
    (victim.world.workspace / "go").touch()
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options(changed_files="continue"))
    assert refused.value.exit_code == 19
    assert victim.file("log.txt") == "one\ntwo\nthree\n"
    for step in session_of(victim).in_flight:
        resolve(victim.world, victim.id, step, "applied" if step == "main.3" else "not_applied", note="", force=False)
    assert resumed(victim) == 0
    assert victim.file("log.txt") == "one\ntwo\nthree\n"
    assert session_of(victim).tasks_done == 1


def test_a_start_that_was_made_unreadable_does_not_make_its_step_run_again(tmp_path: Path) -> None:
    """Cut off right behind the start: the next step in line may have run, although nothing readable says so."""
    victim = Victim(tmp_path, FAILED)
    seq = victim.attack.seq_of("step_started", "main.3")
    victim.attack.delete(seq + 1, victim.attack.last())
    victim.attack.sql("DELETE FROM checkpoints WHERE seq > ?", seq)
    victim.attack.set_body(seq, GARBAGE)
    without_keepers(victim)
    done = repair(victim.world, victim.id, accept_rollback=True)
    assert "main.3" in done.steps
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options(changed_files="continue"))
    assert refused.value.exit_code == 19
    assert victim.file("log.txt") == "one\ntwo\nthree\n"


def test_what_is_set_aside_is_named_by_verify_and_is_no_problem_any_more(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    victim.attack.set_body(7, GARBAGE)
    repair(victim.world, victim.id, reason="garbage")
    _, verified = verify(victim.world, victim.id)
    assert verified.problems == ()
    assert [one.seq for one in verified.noted] == [7]
    told = [envelope.seq for envelope, _ in history(victim.world, victim.id)]
    assert 7 not in told and told[0] == 1
    audit = next(one for one, _ in history(victim.world, victim.id) if isinstance(one.event, ev.Quarantined))
    assert isinstance(audit.event, ev.Quarantined)
    assert audit.actor == "user" and "garbage" in audit.event.reason and audit.event.backup


def test_a_repaired_session_that_is_damaged_again_is_detected_and_repaired_again(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    victim.attack.set_body(7, GARBAGE)
    repair(victim.world, victim.id)
    victim.attack.sql("DELETE FROM checkpoints")
    victim.attack.sql("DELETE FROM snapshots")
    with pytest.raises(AcodeError):
        victim.load()
    again = repair(victim.world, victim.id)
    assert again.kind == "checkpoints" and again.quarantined == ()
    victim.attack.set_body(9, GARBAGE)
    assert not is_whole(victim)
    assert repair(victim.world, victim.id).quarantined == (9,)
    assert is_whole(victim)


def test_a_snapshot_under_a_good_seal_outlives_bad_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a sealed snapshot says needs no event before it: no step becomes unknown for nothing."""
    with_snapshots(monkeypatch)
    victim = Victim(tmp_path, FAILED)
    victim.attack.set_body(5, GARBAGE)
    assert session_of(victim).steps_done == 3, "a load does not even use it"
    assert not is_whole(victim)
    done = repair(victim.world, victim.id)
    assert (done.quarantined, done.steps) == ((5,), ())
    assert is_whole(victim)
    assert resumed(victim) == 0


@pytest.mark.parametrize("damage", ["edit", "delete", "garbage"])
def test_without_its_first_event_a_session_has_nothing_to_stand_on(damage: str, tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    match damage:
        case "edit":
            victim.attack.edit(1, "deployed", "destroyed")
        case "delete":
            victim.attack.delete(1)
        case "garbage":
            victim.attack.set_body(1, GARBAGE)
    rows = victim.attack.sql("SELECT count(*) FROM events")
    with pytest.raises(AcodeError) as refused:
        repair(victim.world, victim.id)
    assert (refused.value.code, refused.value.exit_code) == ("ACODE-LOG-009", 20)
    assert victim.attack.sql("SELECT count(*) FROM events") == rows


def test_a_planted_row_with_an_enormous_number_is_refused_not_followed(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    session_id, body, mac = victim.attack.sql("SELECT session_id, body, mac FROM events WHERE seq = 2")[0]
    victim.attack.sql("INSERT INTO events VALUES (?, ?, ?, ?, ?)", SPAN * 2 - 1, session_id, SPAN - 1, body, mac)
    with pytest.raises(AcodeError) as refused:
        repair(victim.world, victim.id)
    assert refused.value.code == "ACODE-LOG-009"


# Approvals.


@pytest.mark.req("NFR-011c-012")
def test_no_approval_outlives_a_repair(tmp_path: Path) -> None:
    """A damaged row may have been the denial that followed the grant."""
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    victim.attack.set_body(victim.attack.seq_of("step_started", "build.2"), GARBAGE)
    done = repair(victim.world, victim.id)
    assert done.approvals_dropped == ("deploy.1",)
    result = resume(victim.world, victim.id, Options())
    assert result.exit_code == 10, "the gate asks again"
    assert victim.file("deployed.txt") == ""


@pytest.mark.req("NFR-011c-012")
def test_an_approval_in_a_bad_row_is_not_granted(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=False, note="never")
    seq = victim.attack.seq_of("approval_denied")
    victim.attack.edit(seq, "approval_denied", "approval_granted")
    assert repair(victim.world, victim.id).quarantined == (seq,)
    assert resume(victim.world, victim.id, Options()).exit_code == 10
    assert victim.file("deployed.txt") == ""


# Rollback.


def test_an_honest_restore_is_accepted_with_a_word_and_nothing_is_repeated_blindly(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED.replace("test -f go", "echo four >> log.txt; test -f go"))
    copy = victim.attack.copy_to(tmp_path / "copy")
    last = victim.attack.last()
    assert resumed(victim) == 0
    ended_at = victim.attack.last()
    victim.attack.restore_from(copy)
    with pytest.raises(AcodeError) as refused:
        repair(victim.world, victim.id)
    assert refused.value.code == "ACODE-LOG-006" and "--accept-rollback" in refused.value.hint
    done = repair(victim.world, victim.id, accept_rollback=True, reason="restored")
    assert done.kind == "rollback" and done.lost == (last + 1, ended_at)
    # The anchor says that it had ended, so it does not come to life again.
    assert done.state is State.CANCELLED
    assert is_whole(victim)
    assert victim.file("log.txt").count("four") == 2


def test_an_anchor_that_cannot_be_looked_at_is_not_taken_for_none(tmp_path: Path) -> None:
    """Or a log that was put back would be called whole."""
    victim = Victim(tmp_path, AT_GATE)
    copy = victim.attack.copy_to(tmp_path / "copy")
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    victim.attack.restore_from(copy)
    (anchor,) = (victim.world.state_dir / "anchors").glob(f"*/{victim.id}")
    content = anchor.read_bytes()
    anchor.unlink()
    anchor.mkdir()
    with pytest.raises(OSError):
        repair(victim.world, victim.id, accept_rollback=True)
    anchor.rmdir()
    anchor.write_bytes(content)
    assert repair(victim.world, victim.id, accept_rollback=True).kind == "rollback"


def test_steps_of_the_lost_events_are_open_after_a_restore(tmp_path: Path) -> None:
    victim = Victim(tmp_path, AT_GATE.replace("run: echo deployed >> deployed.txt", "run: echo d >> d.txt; false"))
    copy = victim.attack.copy_to(tmp_path / "copy")
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    assert resume(victim.world, victim.id, Options()).exit_code == 1
    assert victim.file("d.txt") == "d\n"
    victim.attack.restore_from(copy)
    done = repair(victim.world, victim.id, accept_rollback=True)
    assert done.steps == ("deploy.2",)
    without_keepers(victim)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.exit_code == 19
    assert victim.file("d.txt") == "d\n"


@pytest.mark.req("NFR-011c-012")
def test_another_history_is_accepted_only_with_a_word_and_its_approvals_are_not(tmp_path: Path) -> None:
    """Grown from an old copy while the real one went on: what the real one decided is not known any more."""
    victim = Victim(tmp_path)
    copy = victim.attack.copy_to(tmp_path / "copy")
    answer_gate(victim.world, victim.id, None, granted=False, note="no")
    anchors = {path: path.read_bytes() for path in (victim.world.state_dir / "anchors").rglob(victim.id)}
    victim.attack.restore_from(copy)
    for path in anchors:
        path.unlink()
    for note in ("yes", "yes, really", "yes, again"):
        answer_gate(victim.world, victim.id, None, granted=True, note=note)
    for path, raw in anchors.items():
        path.write_bytes(raw)
    with pytest.raises(AcodeError) as refused:
        repair(victim.world, victim.id)
    assert refused.value.code == "ACODE-LOG-006"
    done = repair(victim.world, victim.id, accept_rollback=True)
    assert done.kind == "rollback" and done.approvals_dropped == ("deploy.1",)
    assert is_whole(victim)
    assert resume(victim.world, victim.id, Options()).exit_code == 10
    assert victim.file("deployed.txt") == ""


def test_a_lost_database_is_let_go_with_a_word(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    for path in victim.world.agent_dir.glob("workspace.db*"):
        path.unlink()
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.exit_code == 20
    with pytest.raises(AcodeError) as asked:
        repair(victim.world, None)
    assert asked.value.exit_code == 20
    assert not repair(victim.world, None, accept_rollback=True, dry_run=True).done
    done = repair(victim.world, None, accept_rollback=True)
    assert [one.session_id for one in done.forgotten] == [victim.id]
    with pytest.raises(AcodeError) as nothing:
        resume(victim.world, victim.id, Options())
    assert nothing.value.exit_code == 14


def test_an_ended_session_stays_ended_when_its_end_was_damaged(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    end(victim.world, victim.id, cancelled=True, reason="not wanted")
    victim.attack.set_body(victim.attack.last(), GARBAGE)
    done = repair(victim.world, victim.id)
    assert done.state is State.CANCELLED
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.exit_code == 15


# A lost key.


def lose_the_key(victim: Victim) -> None:
    (victim.world.state_dir / "keys").unlink()


def test_a_lost_key_is_said_and_the_log_is_taken_as_it_stands_only_with_a_word(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    lose_the_key(victim)
    with pytest.raises(AcodeError) as refused:
        resume(victim.world, victim.id, Options())
    assert refused.value.code == "ACODE-KEY-002"
    with pytest.raises(AcodeError) as again:
        repair(victim.world, victim.id)
    assert again.value.code == "ACODE-KEY-002" and "--accept-lost-key" in again.value.hint
    done = repair(victim.world, victim.id, accept_lost_key=True, reason="new machine")
    assert done.kind == "lost_key" and done.accepted_through == done.seq - 1 if done.seq else False
    assert done.approvals_dropped == ("deploy.1",)
    assert is_whole(victim)
    assert session_of(victim).steps_done == 2
    assert resume(victim.world, victim.id, Options()).exit_code == 10, "the approval was not taken over"
    answer_gate(victim.world, victim.id, None, granted=True, note="")
    assert resume(victim.world, victim.id, Options()).exit_code == 0
    assert victim.file("deployed.txt") == "deployed\n"


def test_the_accepted_past_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    lose_the_key(victim)
    repair(victim.world, victim.id, accept_lost_key=True)
    victim.attack.edit(5, '"step_completed"', '"step_compleated"')
    assert not is_whole(victim)
    victim.attack.edit(5, '"step_compleated"', '"step_completed"')
    assert is_whole(victim)
    victim.attack.edit(1, "deployed", "destroyed")
    with pytest.raises(AcodeError) as refused:
        victim.load()
    assert refused.value.exit_code == 20


def test_a_row_that_claims_a_lost_key_is_not_accepted_in_the_middle_of_signed_ones(tmp_path: Path) -> None:
    """Else an edited row would only have to name a key that nobody has."""
    victim = Victim(tmp_path)
    victim.attack.edit(5, '"event":', f'"key_id":"{"0" * 12}","event":')
    done = repair(victim.world, victim.id, accept_lost_key=True)
    assert (done.kind, done.quarantined, done.accepted_through) == ("quarantine", (5,), 0)


# The rest of the ways through.


def test_a_dry_run_tells_the_same_and_changes_nothing(tmp_path: Path) -> None:
    victim = Victim(tmp_path, FAILED)
    victim.attack.set_body(7, GARBAGE)
    before = victim.attack.sql("SELECT * FROM events"), victim.attack.sql("SELECT * FROM checkpoints")
    look = repair(victim.world, victim.id, dry_run=True)
    assert (victim.attack.sql("SELECT * FROM events"), victim.attack.sql("SELECT * FROM checkpoints")) == before
    done = repair(victim.world, victim.id)
    assert not look.done and done.done
    assert (look.kind, look.quarantined, look.steps) == (done.kind, done.quarantined, done.steps)


def test_damaged_blobs_are_named_and_not_pretended_to_be_mended(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    victim.attack.sql("UPDATE blobs SET data = x'00' WHERE purpose = 'output'")
    assert not is_whole(victim)
    done = repair(victim.world, victim.id)
    assert done.kind == "nothing" and len(done.remaining) == 1


@pytest.mark.parametrize("seq", range(2, 12))
@pytest.mark.parametrize("damage", [lambda v, s: v.attack.set_body(s, GARBAGE), lambda v, s: v.attack.delete(s)])
def test_wherever_the_damage_is_the_repaired_session_can_be_carried_on(
    seq: int, damage: Callable[[Victim, int], None], tmp_path: Path
) -> None:
    """Every position of a log: whole afterwards, nothing run twice, and carried on to its end."""
    victim = Victim(tmp_path, FAILED)
    damage(victim, seq)
    repair(victim.world, victim.id)
    assert is_whole(victim)
    assert resumed(victim) == 0
    assert victim.file("log.txt") == "one\ntwo\nthree\n"
    final = session_of(victim)
    assert (final.state, final.steps_done, final.tasks_done) == (State.COMPLETED, 4, 1)


def test_the_command_asks_before_it_repairs(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(FAILED)
    assert acode("run", "plan.yml").exit_code == 1
    attack = Attack(workspace)
    attack.set_body(7, GARBAGE)
    assert acode("resume", "--last").exit_code == 20
    listed = acode("session", "verify", "--json")
    assert listed.exit_code == 20 and listed.json["problems"][0]["seq"] == 7
    assert acode("session", "repair").exit_code == 10
    looked = acode("session", "repair", "--dry-run", "--json")
    assert looked.exit_code == 0 and looked.json["quarantined"] == [7] and not looked.json["done"]
    assert acode("session", "verify").exit_code == 20
    mended = acode("session", "repair", "--yes", "--reason", "it was garbage", "--json")
    assert mended.exit_code == 0 and mended.json["done"] and mended.json["backup"]
    checked = acode("session", "verify", "--json")
    assert checked.exit_code == 0 and checked.json["ok"] and checked.json["noted"][0]["seq"] == 7


def test_a_repair_that_is_killed_in_the_middle_has_changed_nothing(acode: Acode, workspace: Path) -> None:
    """The record, the dropped checkpoints and the new snapshot are one transaction."""
    (workspace / "plan.yml").write_text(FAILED)
    acode("run", "plan.yml")
    attack = Attack(workspace)
    attack.set_body(7, GARBAGE)
    before = attack.sql("SELECT * FROM events"), attack.sql("SELECT * FROM checkpoints")
    script = (
        "import os\n"
        "from acode.store.journal import Journal\n"
        "Journal._write_checkpoint = lambda *_: os._exit(9)\n"
        "from acode.cli import main\n"
        "main(['session', 'repair', '--yes'])\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=workspace, check=False, capture_output=True)
    assert killed.returncode == 9
    assert (attack.sql("SELECT * FROM events"), attack.sql("SELECT * FROM checkpoints")) == before
    assert acode("session", "repair", "--yes").exit_code == 0
    assert acode("session", "verify").exit_code == 0


@pytest.mark.parametrize(
    ("parallel", "events", "begun"),
    [
        (1, 1, ["a.1"]),
        (1, 3, ["a.1", "a.2"]),
        (3, 1, ["a.1", "b.1"]),
        (3, 3, ["a.1", "a.2", "b.1", "b.2"]),
        (3, 9, ["a.1", "a.2", "b.1", "b.2", "c.1"]),
    ],
)
def test_what_unknown_events_may_have_begun_depends_on_what_runs_at_the_same_time(
    parallel: int, events: int, begun: list[str]
) -> None:
    tasks = task("a", "1", "2"), task("b", "1", "2"), task("c", "1", needs=("a", "b"))
    now = session(created(msgspec.structs.replace(plan(*tasks), parallel=parallel)))
    assert may_have_begun(now, events) == begun

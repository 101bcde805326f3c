"""session rollback: finished steps are taken back, three-way, journaled, and finished by whoever gives it again."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acode.engine import rollback
from acode.engine.preview import as_json, preview
from acode.engine.rollback import RollbackResult, plan_rollback, roll_back
from acode.engine.session_commands import resolve
from acode.engine.world import Options
from acode.errors import CannotContinue, OutcomeUnknown, StepFailed, StepStillRunning, Usage
from acode.events import types as ev
from acode.state import State
from acode.workspace import restore
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import killed, stops_of
from tests.crash.harness.snapshots import Snapshot, fast_directory
from tests.driver import Acode
from tests.lives import Killed, Life, end_all_in

NOTE = 'echo "$ACODE_STEP_ID" >> "$LEDGER"'
PLAN = f"""
title: Built and shipped
tasks:
  - id: make
    steps:
      - write: {{path: a.txt, content: "first\\n"}}
      - write: {{path: new/deep/b.txt, content: "b\\n"}}
  - id: build
    steps:
      - run: echo built > out.txt; {NOTE}
        outputs: [out.txt]
      - write: {{path: a.txt, content: "second\\n"}}
      - run: echo on > server; {NOTE}
        id: serve
        undo: rm server && {NOTE}
  - id: ship
    steps:
      - approve: Ship?
      - run: {NOTE}
        id: upload
"""


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Everything up to the gate is done."""
    made = Life(tmp_path)
    made.put("a.txt", "mine\n")
    made.run(PLAN)
    return made


def back(life: Life, to: str | None) -> RollbackResult:
    return roll_back(life.world(), life.id, to)


def finish(life: Life) -> None:
    life.person.to_gates = "yes"
    assert life.resume().state is State.COMPLETED


def test_later_steps_are_taken_back_and_their_files_are_as_before(life: Life) -> None:
    done = back(life, "make.2")
    assert done.steps == ("build.serve", "build.2", "build.1"), "the latest first"
    assert life.text("a.txt") == "first\n" and life.text("new/deep/b.txt") == "b\n"
    assert not life.path("out.txt").exists() and not life.path("server").exists()
    session = life.look().session
    assert (session.steps_done, session.tasks_done) == (2, 1)
    assert session.done("make.2") and not session.done("build.1")


@pytest.mark.req("SEC-040b-08")
def test_everything_can_be_taken_back_in_an_emergency(life: Life) -> None:
    done = back(life, None)
    assert len(done.steps) == 5 and done.kept == ()
    assert life.text("a.txt") == "mine\n"
    assert not life.path("new").exists(), "directories that were made go too"
    assert life.look().session.steps_done == 0


def test_each_step_is_a_recorded_event_of_the_person(life: Life) -> None:
    back(life, "make.1")
    taken = [one for one in life.history() if isinstance(one.event, ev.StepsRolledBack)]
    assert [one.event.steps for one in taken] == [("build.serve",), ("build.2",), ("build.1",), ("make.2",)]
    assert {one.actor for one in taken} == {"user"}
    assert [one.event.tasks for one in taken] == [("build",), (), (), ("make",)]


def test_a_resume_afterwards_does_them_again_under_new_keys(life: Life) -> None:
    back(life, "make.1")
    finish(life)
    assert life.text("a.txt") == "second\n" and life.text("new/deep/b.txt") == "b\n" and life.text("server") == "on\n"
    keys = [one.key.split(":", 1)[1] for one in life.events(ev.StepStarted) if one.step == "build.1"]
    assert keys == ["build.1:1", "build.1:2"]
    assert life.effects() == {"build.1": 2, "build.serve": 2, "build.serve~undo": 1, "ship.upload": 1}
    assert life.person.asked.count("changes") == 0, "what was put back and made again is nobody else's change"


def test_rolled_back_at_a_gate_the_session_is_paused_and_survives_the_next_crash(life: Life) -> None:
    assert life.look().session.state is State.AWAITING_APPROVAL
    back(life, "make.1")
    session = life.look().session
    assert session.state is State.PAUSED and session.pause is not None and session.pause.reason == "rolled_back"
    life.ears.at("step_started", life.die, "make.2")
    with contextlib.suppress(Killed):
        life.resume()
    found = life.look().survey
    assert found is not None and found.scenario == "mid_write"
    finish(life)


# Three-way.


def test_what_somebody_wrote_since_stays_and_is_reported(life: Life) -> None:
    life.put("a.txt", "edited by hand\n")
    done = back(life, None)
    assert life.text("a.txt") == "edited by hand\n"
    assert done.kept == ("a.txt", "a.txt"), "once for each step that wrote it"
    assert any("a.txt was changed since step build.2" in one.body.message for one in life.ears.events("warning"))
    assert not life.path("new").exists() and not life.path("out.txt").exists(), "the others are taken back"


def test_what_is_already_as_before_is_left(life: Life) -> None:
    life.path("out.txt").unlink()
    done = back(life, "make.2")
    assert "out.txt" not in done.restored and "out.txt" not in done.kept


def test_a_directory_with_somebody_elses_file_in_it_stays(life: Life) -> None:
    life.put("new/deep/theirs.txt", "theirs\n")
    back(life, None)
    assert life.text("new/deep/theirs.txt") == "theirs\n"
    assert not life.path("new/deep/b.txt").exists()


def test_kept_files_are_asked_about_before_they_are_written_again(life: Life) -> None:
    life.put("a.txt", "edited by hand\n")
    back(life, "make.2")
    life.person.to_changes = "continue"
    finish(life)
    assert "changes" in life.person.asked
    assert life.text("a.txt") == "second\n"


# What cannot be taken back.


def test_a_step_in_a_database_without_an_undo_refuses_the_whole_rollback(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.put("1.sql", "CREATE TABLE t (n integer);")
    life.run(
        """
        tasks:
          - title: t
            steps:
              - write: {path: a.txt, content: a}
              - sql: {database: app.db, file: 1.sql}
              - write: {path: b.txt, content: b}
              - approve: ok?
        """
    )
    with pytest.raises(CannotContinue, match=r"t\.2 cannot be rolled back"):
        plan_rollback(life.world(), life.id, "t.1")
    with pytest.raises(CannotContinue, match=r"t\.2 cannot be rolled back"):
        back(life, "t.1")
    assert life.text("b.txt") == "b", "nothing of it is done"
    assert back(life, "t.2").steps == ("t.3",)


@pytest.mark.parametrize(("to", "why"), [("nowhere.1", "no step nowhere.1"), ("ship.upload", "is not done")])
def test_only_a_finished_step_of_the_plan_can_be_rolled_back_to(life: Life, to: str, why: str) -> None:
    with pytest.raises(Usage, match=why):
        back(life, to)


def test_a_step_in_flight_is_settled_first(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.cut_off(
        "tasks: [{title: t, steps: [{write: {path: a, content: a}}, {write: {path: b, content: b}}]}]",
        "step_started",
        "t.2",
    )
    with pytest.raises(CannotContinue, match="is in flight"):
        back(life, None)


def test_an_approval_that_was_rolled_back_is_asked_for_again(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.person.to_gates = "yes"
    life.run("tasks: [{title: t, steps: [{write: {path: a, content: a}}, {approve: ok?}, {run: test -e go}]}]")
    assert back(life, "t.1").steps == ("t.2",)
    life.put("go", "")
    life.person.asked.clear()
    assert life.resume().exit_code == 0
    assert life.person.asked == ["gate t.2"]


def test_a_rollback_that_was_cut_off_among_its_files_is_no_strangers_edit(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any, **named: Any) -> None:
        restore(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rollback, "restore", interrupted)
        back(life, "make.1")
    assert not life.path("server").exists() and life.text("a.txt") == "first\n"
    with pytest.raises(CannotContinue, match=r"interrupted while step build\.2 was being undone") as caught:
        life.resume()
    finish_it = f"acode session rollback {life.id[-8:]} --to make.1"
    assert caught.value.hint == f"Finish it first: {finish_it}"
    looked = as_json(preview(life.world(), life.id, Options(actor="system")))
    assert looked["next_action"] == finish_it and looked["needs_human"] and not looked["decision"]["eligible"]
    assert looked["interruption"]["evidence"] == "a rollback was interrupted while step build.2 was being undone"
    with pytest.raises(Usage, match=r"the files of step build\.2 are being restored"):
        resolve(life.world(), life.id, "build.2", "applied", note="", force=False)
    assert back(life, "make.1").steps == ("build.2", "build.1", "make.2")
    assert not life.path("out.txt").exists() and life.look().session.undoing is None
    finish(life)
    assert life.text("a.txt") == "second\n"


# Undo.


def test_an_undo_that_failed_is_given_again_and_blocks_the_session_until_then(life: Life) -> None:
    life.path("server").unlink()
    with pytest.raises(StepFailed, match=r"undo of step build\.serve failed"):
        back(life, "build.2")
    with pytest.raises(CannotContinue, match=r"interrupted while step build\.serve was being undone") as caught:
        life.resume()
    assert "session rollback" in (caught.value.hint or "")
    life.put("server", "on\n")
    assert back(life, "build.2").steps == ("build.serve",)
    finish(life)
    assert life.text("server") == "on\n"


def test_each_undo_really_runs_also_after_one_that_had_failed(life: Life) -> None:
    """The second rollback must not find the first one's status under its own key."""
    life.path("server").unlink()
    with pytest.raises(StepFailed):
        back(life, "build.2")
    life.put("server", "on\n")
    back(life, "build.2")
    life.person.to_gates = None
    assert life.resume().exit_code == 10
    assert life.text("server") == "on\n"
    back(life, "build.2")
    assert not life.path("server").exists()
    keys = [one.key for one in life.events(ev.UndoStarted)]
    assert len(set(keys)) == 3


def test_an_undo_that_is_stopped_is_not_done_even_if_it_then_ends_with_0(tmp_path: Path) -> None:
    life = Life(tmp_path)
    polite = 'trap "exit 0" TERM; while :; do sleep 0.02; done'
    life.run(f"tasks: [{{title: t, steps: [{{run: 'true', undo: '{polite}', timeout: 1}}, {{approve: ok?}}]}}]")
    with pytest.raises(StepFailed, match="ran out of its 1 s"):
        back(life, None)
    assert life.look().session.steps_done == 1
    with pytest.raises(OutcomeUnknown, match="stopped by its timeout"):
        back(life, None)


WAITING = "echo begun; while [ ! -e door ]; do sleep 0.01; done"


@pytest.mark.parametrize("survives", [True, False])
def test_an_undo_that_was_cut_off_is_settled_by_its_keeper_or_by_nobody(tmp_path: Path, survives: bool) -> None:
    life = Life(tmp_path)
    life.run(f"tasks: [{{title: t, steps: [{{run: 'true', undo: '{WAITING}; {NOTE}'}}, {{approve: ok?}}]}}]")
    life.ears.at("step_output", life.die)
    with pytest.raises(Killed):
        back(life, None)
    with pytest.raises(StepStillRunning):
        back(life, None)
    if survives:
        life.put("door", "")
        again(life)
        assert life.look().session.steps_done == 0
        assert life.effects() == {"t.1~undo": 1}
        return
    end_all_in(life.place)
    with pytest.raises(OutcomeUnknown, match=r"undo of step t\.1 was interrupted and its outcome is unknown"):
        back(life, None)
    with pytest.raises(CannotContinue, match="was interrupted while step"):
        life.resume()


def cut_off_for_good(life: Life) -> None:
    """An undo killed with its keeper, before or after its effect: nothing tells."""
    life.run(f"tasks: [{{title: t, steps: [{{run: 'true', undo: '{NOTE}; {WAITING}'}}, {{approve: ok?}}]}}]")
    life.ears.at("step_output", life.die)
    with pytest.raises(Killed):
        back(life, None)
    end_all_in(life.place)
    with pytest.raises(OutcomeUnknown, match="its outcome is unknown") as caught:
        back(life, None)
    assert f"acode session resolve {life.id[-8:]} t.1 --applied, --not-applied or --retry" in (caught.value.hint or "")


def test_notes_that_were_removed_are_no_proof_that_an_undo_never_ran(tmp_path: Path) -> None:
    life = Life(tmp_path)
    cut_off_for_good(life)
    shutil.rmtree(life.path(".agent/run"))
    life.put("door", "")
    with pytest.raises(OutcomeUnknown, match=r"the notes of its keeper in .* are gone"):
        back(life, None)
    assert life.effects() == {"t.1~undo": 1}


@pytest.mark.parametrize(("answer", "runs"), [("applied", 1), ("not_applied", 2), ("retry", 2)])
def test_a_person_says_what_became_of_an_undo_and_the_rollback_goes_on(tmp_path: Path, answer: str, runs: int) -> None:
    life = Life(tmp_path)
    cut_off_for_good(life)
    with pytest.raises(Usage) as caught:
        resolve(life.world(), life.id, "t.2", answer, note="", force=False)
    assert caught.value.hint == "Open steps: t.1"
    resolve(life.world(), life.id, "t.1", answer, note="I looked", force=False)
    (said,) = life.events(ev.UndoSettled)
    assert (said.step, said.note) == ("t.1", "I looked")
    if answer != "not_applied":
        with pytest.raises(CannotContinue, match="was interrupted while step"):
            life.resume()
    life.put("door", "")
    assert back(life, None).steps == ("t.1",)
    assert life.effects() == {"t.1~undo": runs}
    assert life.look().session.undoing is None


def test_an_undo_that_had_no_effect_leaves_the_step_done_and_the_session_free(tmp_path: Path) -> None:
    life = Life(tmp_path)
    cut_off_for_good(life)
    resolve(life.world(), life.id, "t.1", "not_applied", note="", force=False)
    assert life.resume().exit_code == 10, "it waits at its gate again"
    assert life.look().session.steps_done == 1


def test_nobody_speaks_for_an_undo_that_still_runs(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.run(f"tasks: [{{title: t, steps: [{{run: 'true', undo: '{WAITING}; {NOTE}'}}, {{approve: ok?}}]}}]")
    life.ears.at("step_output", life.die)
    with pytest.raises(Killed):
        back(life, None)
    with pytest.raises(StepStillRunning, match="the undo of step"):
        resolve(life.world(), life.id, "t.1", "applied", note="", force=False)
    life.put("door", "")
    again(life)


# The command line.


def test_a_preview_changes_nothing_and_says_how_each_step_would_be_taken_back(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(PLAN.replace(f"; {NOTE}", "").replace(f" && {NOTE}", ""))
    acode("run", "plan.yml")
    session = acode("session", "list", "--json").json[0]["session_id"]
    before = Snapshot.of(workspace).digest
    shown = acode("session", "rollback", session, "--to", "make.2", "--dry-run")
    assert shown.exit_code == 0
    assert "build.serve" in shown.stdout and "(undo: rm server)" in shown.stdout
    assert "(restore: a.txt)" in shown.stdout
    found = acode("session", "rollback", session, "--to", "make.2", "--dry-run", "--json").json
    assert [(one["step"], one["way"]) for one in found["steps"]] == [
        ("build.serve", "undo"),
        ("build.2", "files"),
        ("build.1", "files"),
    ]
    assert Snapshot.of(workspace).digest == before
    events = acode("session", "history", session, "--json").json
    assert acode("session", "rollback", session, "--to", "make.2").exit_code == 10, "nobody can be asked"
    assert acode("session", "history", session, "--json").json == events
    done = acode("session", "rollback", session, "--to", "make.2", "--yes", "--json")
    assert done.exit_code == 0 and done.json["restored"] == ["a.txt", "out.txt"]
    assert f"To resume: acode resume {session[-8:]}" in done.stderr


def test_a_preview_says_what_stays_because_somebody_changed_it(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text(PLAN.replace(f"; {NOTE}", "").replace(f" && {NOTE}", ""))
    acode("run", "plan.yml")
    session = acode("session", "list", "--json").json[0]["session_id"]
    (workspace / "a.txt").write_text("somebody else's\n")
    shown = acode("session", "rollback", session, "--dry-run").stdout
    assert "(restore: nothing; stays, because somebody changed it: a.txt)" in shown
    assert "(restore: out.txt)" in shown
    found = acode("session", "rollback", session, "--dry-run", "--json").json
    assert found["refused"] is None
    assert [one["step"] for one in found["steps"] if one["kept"] == ["a.txt"]] == ["build.2", "make.1"]
    done = acode("session", "rollback", session, "--yes", "--json").json
    assert done["kept"] == ["a.txt", "a.txt"] and "a.txt" not in done["restored"]


def test_a_preview_says_what_would_be_refused(acode: Acode, workspace: Path) -> None:
    plan = "tasks: [{id: t, title: T, steps: [{write: {path: a.txt, content: a}}, {run: 'echo on; sleep 60'}]}]\n"
    (workspace / "plan.yml").write_text(plan)
    running = acode.process("run", "plan.yml")
    running.wait_for_line("│ on")
    running.kill_everything()
    session = acode("session", "list", "--json").json[0]["session_id"]
    shown = acode("session", "rollback", session, "--dry-run")
    assert shown.exit_code == 0 and "It would be refused now: step t.2 is in flight" in shown.stdout
    refused = acode("session", "rollback", session, "--dry-run", "--json").json["refused"]
    really = acode("session", "rollback", session, "--yes", "--json")
    assert (refused, really.exit_code) == (really.json["error"], 1)


def test_an_ended_session_has_no_rollback_and_no_preview_of_one(acode: Acode, workspace: Path) -> None:
    (workspace / "plan.yml").write_text("tasks: [{title: T, steps: [{write: {path: a.txt, content: a}}]}]\n")
    acode("run", "plan.yml")
    session = acode("session", "list", "--json").json[0]["session_id"]
    for how in ("--dry-run", "--yes"):
        assert acode("session", "rollback", session, how, "--json").exit_code == 15


# Killed.


@pytest.fixture
def ground() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


def again(life: Life) -> None:
    """The undo may still run under its keeper: then it is waited for."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        try:
            back(life, None)
        except StepStillRunning:
            continue
        return


@pytest.mark.release
@needs_ptrace
@pytest.mark.timeout(300)
def test_a_rollback_killed_anywhere_is_finished_by_the_next_one(ground: Path) -> None:
    template = Life(ground / "template")
    template.put("a.txt", "mine\n")
    template.run(PLAN)
    made = Snapshot.of(template.place)

    def fresh() -> Life:
        made.put(template.place)
        return template

    life = fresh()

    def all_of_it() -> None:
        back(life, None)

    stops = len(stops_of(all_of_it))
    for at in range(2, stops, max(1, stops // 14)):
        fresh()
        killed(all_of_it, at)
        again(life)
        assert life.look().session.steps_done == 0, f"killed at {at} of {stops}"
        assert life.text("a.txt") == "mine\n" and not life.path("new").exists() and not life.path("out.txt").exists()
        assert not life.path("server").exists()
        assert life.effects()["build.serve~undo"] == 1, f"killed at {at} of {stops}: undone twice or not at all"

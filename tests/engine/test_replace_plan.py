"""Continue with an edited plan: finished steps stay, the change is recorded once, and nothing is done twice over it."""

from __future__ import annotations

import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

from acode.engine import session_commands
from acode.engine.preview import as_json
from acode.engine.world import Result
from acode.errors import OutcomeUnknown, PlanConflict, StepStillRunning
from acode.events import types as ev
from acode.planfile import PlanFile, load_plan
from tests.cli.plans import save
from tests.driver import Acode
from tests.lives import Killed, Life, end_all_in
from tests.repositories import git, make_repository

NOTE = 'echo "$ACODE_STEP_ID" >> "$LEDGER"'
PLAN = f"""
title: Migration
tasks:
  - id: t
    steps:
      - run: {NOTE}
      - run: {NOTE}
      - run: {NOTE}; ecko typo
      - run: {NOTE}
"""
MENDED = PLAN.replace("ecko", "echo")


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def file_of(life: Life, text: str) -> PlanFile:
    path = life.put("mended.yml", textwrap.dedent(text))
    return load_plan(path, plan_bytes_max=10_000_000, timeout_s_default=60.0)


def resume_with(life: Life, text: str, **options: Any) -> Result:
    return life.resume(plan=file_of(life, text), **options)


def test_a_failed_step_is_corrected_and_the_steps_before_it_do_not_run_again(life: Life) -> None:
    assert life.run(PLAN).exit_code == 1
    before = life.look().session
    assert resume_with(life, MENDED).exit_code == 0
    assert life.effects() == {"t.1": 1, "t.2": 1, "t.3": 2, "t.4": 1}
    assert [one.attempt for one in life.events(ev.StepStarted) if one.step == "t.3"] == [1, 2]
    (recorded,) = [one for one in life.history() if isinstance(one.event, ev.PlanReplaced)]
    event = recorded.event
    assert recorded.actor == "user" and before.created is not None
    assert event.previous_digest == before.created.plan_digest != event.plan_digest
    assert (event.kept, event.replaced, event.added, event.removed) == (3, ("t.3",), (), ())


def test_a_session_killed_behind_the_change_follows_the_new_plan_and_one_before_it_the_old_one(life: Life) -> None:
    life.run(PLAN)
    life.ears.at("resume_started", life.die)
    with pytest.raises(Killed):
        resume_with(life, MENDED)
    assert not life.events(ev.PlanReplaced)
    assert life.resume().exit_code == 1, "the old plan has the typo"
    life.ears.at("plan_replaced", life.die)
    with pytest.raises(Killed):
        resume_with(life, MENDED)
    assert life.resume(force=True).exit_code == 0
    assert len(life.events(ev.PlanReplaced)) == 1
    assert life.effects() == {"t.1": 1, "t.2": 1, "t.3": 3, "t.4": 1}


def test_the_preview_shows_what_the_resume_does_and_changes_nothing(life: Life) -> None:
    life.run(PLAN)
    before = len(life.history())
    longer = MENDED + f"      - run: {NOTE}\n"
    seen = as_json(life.look(plan=file_of(life, longer)))
    assert seen["plan_changes"] == {
        "kept": ["t.1", "t.2", "t.4"],
        "replaced": ["t.3"],
        "added": ["t.5"],
        "removed": [],
        "asked_again": [],
    }
    assert seen["remaining_steps"] == ["t.3", "t.4", "t.5"] and "--plan" in seen["next_action"]
    assert len(life.history()) == before
    resume_with(life, longer)
    (told,) = life.ears.events("plan_replaced")
    assert told.body.added == ["t.5"]  # type: ignore[union-attr]
    assert life.look().session.steps_done == 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MENDED.replace(NOTE, f"{NOTE}; true", 1), "t.1 is finished, and was changed"),
        (MENDED.replace(f"      - run: {NOTE}\n", "", 2), "t.1 is finished"),
        (MENDED.replace("steps:\n", "steps:\n      - run: echo new\n"), "t.1 is finished"),
    ],
    ids=["changed", "removed", "shifted"],
)
def test_what_contradicts_the_finished_steps_is_refused_by_name_and_nothing_is_recorded(
    life: Life, text: str, why: str
) -> None:
    life.run(PLAN)
    before = len(life.history())
    with pytest.raises(PlanConflict, match=why):
        life.look(plan=file_of(life, text))
    with pytest.raises(PlanConflict, match=why) as refused:
        resume_with(life, text)
    assert refused.value.exit_code == 2 and len(life.history()) == before
    assert resume_with(life, MENDED).exit_code == 0


def test_an_insertion_that_shifts_ids_is_refused_with_the_hint_to_give_them(life: Life) -> None:
    life.run(PLAN)
    shifted = MENDED.replace("steps:\n", "steps:\n      - run: echo new\n        id: new\n")
    with pytest.raises(PlanConflict) as refused:
        resume_with(life, shifted)
    assert 'id: "1"' in refused.value.hint
    steps = [f"      - {{id: \"{number}\", run: '{NOTE}'}}\n" for number in (1, 2, 3, 4)]
    named = "tasks:\n  - id: t\n    steps:\n      - {id: new, run: 'echo new >> \"$LEDGER\"'}\n" + "".join(steps)
    assert resume_with(life, named).exit_code == 0
    assert life.effects() == {"t.1": 1, "t.2": 1, "t.3": 2, "t.4": 1, "new": 1}


def test_the_same_plan_is_not_recorded_again(life: Life) -> None:
    life.run(PLAN)
    resume_with(life, PLAN)
    assert not life.events(ev.PlanReplaced)
    assert "nothing was replaced" in life.ears.events("warning")[0].body.message  # type: ignore[union-attr]


# Steps in flight.

HANGING = f"""
title: Hanging
tasks:
  - id: t
    steps:
      - run: {NOTE}; echo on; test -e ../quick || exec sleep 60
        %s
      - run: {NOTE}
"""


def cut_off(life: Life, declared: str = "") -> None:
    """The first step and everything around it are killed, after its effect."""
    life.cut_off(HANGING % declared, "step_output", "t.1")
    end_all_in(life.place)


def in_flight_lost(life: Life) -> None:
    """Nothing shows what became of the first step: its keeper is gone without a note, and so is its place."""
    import shutil

    cut_off(life)
    shutil.rmtree(life.path(".agent/run"), ignore_errors=True)


def test_an_unknown_outcome_is_told_by_a_person_before_the_plan_is_replaced(life: Life) -> None:
    in_flight_lost(life)
    other = HANGING.replace("%s", "idempotent: true")
    with pytest.raises(OutcomeUnknown) as refused:
        resume_with(life, other)
    assert refused.value.exit_code == 19 and not life.events(ev.PlanReplaced)
    session_commands.resolve(life.world(), life.id, "t.1", "not_applied", note="", force=False)
    (life.place / "quick").touch()
    assert resume_with(life, other).exit_code == 0
    assert life.attempts("t.1") == 2 and len(life.events(ev.PlanReplaced)) == 1


def test_a_step_that_took_effect_in_the_meantime_is_finished_and_cannot_be_changed(life: Life) -> None:
    cut_off(life, "probe: 'true'")
    before = len(life.history())
    with pytest.raises(PlanConflict, match=r"t\.1 is finished"):
        resume_with(life, HANGING.replace("exec sleep 60", "true") % "probe: 'true'")
    assert len(life.history()) == before
    assert resume_with(life, (HANGING % "probe: 'true'") + f"      - run: {NOTE}\n").exit_code == 0
    assert life.look().session.steps_done == 3 and life.attempts("t.1") == 1


def test_a_command_that_still_runs_cannot_be_changed_under_its_feet(life: Life) -> None:
    running = f"""
tasks:
  - id: t
    steps:
      - run: {NOTE}; while [ ! -e ../quick ]; do sleep 0.01; done
      - run: {NOTE}
"""
    life.cut_off(running.replace(NOTE, f"echo on; {NOTE}", 1), "step_output", "t.1")
    with pytest.raises(StepStillRunning):
        resume_with(life, running.replace(NOTE, f"echo off; {NOTE}", 1))
    (life.place / "quick").touch()
    longer = running.replace(NOTE, f"echo on; {NOTE}", 1) + f"      - run: {NOTE}\n"
    assert resume_with(life, longer).exit_code == 0
    assert life.effects() == {"t.1": 1, "t.2": 1, "t.3": 1}


# What an attempt left behind, and what targets remember.


def test_the_leftovers_of_a_failed_attempt_are_rolled_back_by_the_definition_that_made_them(life: Life) -> None:
    leave_half(life)
    assert resume_with(life, ONE_OUTPUT).exit_code == 0
    assert (life.text("side.txt"), life.text("out.txt")) == ("theirs\n", "theirs\n")


def test_leftovers_are_rolled_back_where_a_step_of_another_kind_takes_the_place(life: Life) -> None:
    """It knows nothing of them: nobody would roll them back later."""
    leave_half(life)
    assert resume_with(life, ANOTHER_KIND).exit_code == 0
    assert (life.text("side.txt"), life.text("new.txt"), life.path("out.txt").exists()) == ("theirs\n", "new\n", False)


def test_killed_as_soon_as_the_plan_is_replaced_its_leftovers_are_rolled_back_already(life: Life) -> None:
    leave_half(life)
    life.ears.at("plan_replaced", life.die)
    with pytest.raises(Killed):
        resume_with(life, ANOTHER_KIND)
    assert life.resume(force=True).exit_code == 0
    assert (life.text("side.txt"), life.text("new.txt"), life.path("out.txt").exists()) == ("theirs\n", "new\n", False)


ANOTHER_KIND = 'tasks: [{id: t, steps: [{write: {path: new.txt, content: "new\\n"}}]}]'
ONE_OUTPUT = "tasks: [{id: t, steps: [{run: test ! -e out.txt && cat side.txt > out.txt, outputs: [out.txt]}]}]"


def leave_half(life: Life) -> None:
    """A step has failed with half of two outputs."""
    life.put("side.txt", "theirs\n")
    broken = """
    tasks:
      - id: t
        steps:
          - run: echo half > out.txt; echo half > side.txt; exit 1
            outputs: [out.txt, side.txt]
    """
    assert life.run(broken).exit_code == 1
    assert life.text("side.txt") == "half\n"


def test_statements_are_applied_exactly_once_over_the_change(life: Life) -> None:
    life.put("one.sql", "CREATE TABLE rows (n); INSERT INTO rows VALUES (1);")
    life.put("two.sql", "INSERT INTO rows VALUES (2); INSERT INTO rowz VALUES (3);")
    steps = "tasks: [{id: m, steps: [{sql: {database: a.db, file: one.sql}}, {sql: {database: a.db, file: %s}}]}]"
    sqlite3.connect(life.path("a.db")).close()
    assert life.run(steps % "two.sql").exit_code == 1
    life.put("mended.sql", "INSERT INTO rows VALUES (2); INSERT INTO rows VALUES (3);")
    for event in ("plan_replaced", "step_started", "step_completed"):
        life.ears.at(event, life.die, None if event == "plan_replaced" else "m.2")
        with pytest.raises(Killed):
            resume_with(life, steps % "mended.sql")
    assert resume_with(life, steps % "mended.sql", force=True).exit_code == 0
    with sqlite3.connect(life.path("a.db")) as database:
        assert sorted(database.execute("SELECT n FROM rows")) == [(1,), (2,), (3,)]
        keys = [row[0] for row in database.execute("SELECT key FROM acode_applied")]
    assert sorted(key.partition(":")[2] for key in keys) in (["m.1:1", "m.2:2"], ["m.1:1", "m.2:3"])


def test_a_commit_is_made_exactly_once_over_the_change(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(life.place))
    make_repository(life.path("."), life.place)
    life.put("a.txt", "a\n")
    steps = f"""
    tasks:
      - id: c
        steps:
          - write: {{path: a.txt, content: "b\\n"}}
          - commit: {{message: First, paths: [a.txt]}}
          - run: ecko; {NOTE}
    """
    broken = steps.replace("ecko; ", "exit 1; ")
    assert life.run(broken).exit_code == 1
    assert resume_with(life, steps.replace("ecko; ", "")).exit_code == 0
    assert git(life.path("."), "log", "--format=%s").split().count("First") == 1


# Gates.

GATED = f"""
tasks:
  - id: t
    steps:
      - approve: Go on?
        id: ask
      - run: {NOTE}
        id: first
      - run: {NOTE}; exit 1
        id: second
"""


def test_a_gate_whose_covered_definitions_changed_is_asked_again(life: Life) -> None:
    life.person.to_gates = "yes"
    assert life.run(GATED).exit_code == 1
    life.person.to_gates = None
    mended = GATED.replace("; exit 1", "")
    assert as_json(life.look(plan=file_of(life, mended)))["plan_changes"]["asked_again"] == ["t.ask"]
    assert resume_with(life, mended).exit_code == 10
    assert life.effects() == {"t.first": 1, "t.second": 1}
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0
    assert life.effects() == {"t.first": 1, "t.second": 2} and life.person.asked.count("gate t.ask") == 3


def test_a_grant_that_was_not_used_yet_does_not_open_the_gate_before_other_steps(life: Life) -> None:
    assert life.run(GATED).exit_code == 10
    session_commands.answer_gate(life.world(), life.id, None, granted=True, note="")
    mended = GATED.replace("; exit 1", "; true")
    assert resume_with(life, mended).exit_code == 10
    assert life.effects() == {}


# The whole session.


def test_a_plan_that_ends_with_its_first_failure_is_not_ended_by_the_failure_before_it(life: Life) -> None:
    life.run(PLAN)
    life.ears.at("plan_replaced", life.die)
    with pytest.raises(Killed):
        resume_with(life, "on_failure: abort\n" + MENDED)
    assert life.resume().exit_code == 0


def test_secrets_of_the_new_plan_are_kept_as_privately_as_those_of_the_first(life: Life) -> None:
    life.env["TOKEN"] = "correct-horse-battery-staple"
    life.run(PLAN)
    with_secret = MENDED.replace("echo typo", "echo correct-horse-battery-staple\n        secret_env: [TOKEN]")
    resume_with(life, with_secret)
    database = life.path(".agent/workspace.db").read_bytes()
    assert b"correct-horse" not in database
    (event,) = life.events(ev.PlanReplaced)
    assert event.plan_sensitive
    told = [one for one in life.ears.notices if one.body.event == "step_output"]
    assert told and all("correct-horse" not in str(one.body) for one in told)


# On the command line.


@pytest.fixture
def failed(acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LEDGER", str(workspace / "ledger"))
    ended = acode("run", save(workspace, PLAN))
    assert ended.exit_code == 1
    session = str(acode("session", "list", "--json").json[0]["short_id"])
    assert f"acode resume {session} --plan {(workspace / 'plan.yml').resolve()}" in ended.stderr
    assert f"acode session resolve {session} t.3 --applied" in ended.stderr
    return session


def test_the_change_is_shown_and_the_edited_file_is_the_session_s_own_from_then_on(
    acode: Acode, failed: str, workspace: Path
) -> None:
    edited = workspace / "edited.yml"
    edited.write_text(MENDED.removesuffix(f"{NOTE}\n") + "'true'\n      - approve: OK?\n")
    shown = acode("resume", failed, "--plan", edited, "--dry-run").stdout
    assert "Plan changes: 2 kept, 2 replaced, 1 added, 0 removed" in shown and "Replaced: t.3, t.4" in shown
    assert acode("resume", failed, "--plan", edited).exit_code == 10
    again = acode("run", edited)
    assert again.exit_code == 10 and "has an unfinished session here" in again.stderr
    assert "was edited since" not in acode("resume", failed, "--dry-run").stdout
    assert acode("session", "verify", failed).exit_code == 0
    assert "plan_replaced" in acode("session", "history", failed).stdout


def test_wrong_uses_of_the_option_end_with_2_and_change_nothing(acode: Acode, failed: str, workspace: Path) -> None:
    events = acode("session", "history", failed, "--json").stdout
    (workspace / "wrong.yml").write_text("tasks: []\n")
    for words in (("missing.yml",), ("wrong.yml",), ("plan.yml", "--auto")):
        ended = acode("resume", failed, "--plan", *words)
        assert ended.exit_code == 2, ended
    ended = acode("resume", failed, "--plan", "plan.yml", "--json")
    assert ended.exit_code == 1 and ended.lines[-1]["data"]["error"]["code"] == "ACODE-STEP-001"
    assert events[:-2] in acode("session", "history", failed, "--json").stdout


def test_of_a_plan_that_is_refused_no_resume_is_shown_first(acode: Acode, failed: str, workspace: Path) -> None:
    (workspace / "other.yml").write_text("tasks: [{id: other, steps: [{run: 'true', id: one}]}]\n")
    ended = acode("resume", failed, "--plan", "other.yml")
    assert ended.exit_code == 2 and "cannot continue with this plan" in ended.stderr
    assert "Loaded state" not in ended.stderr and "Starting from" not in ended.stderr


def test_a_program_s_session_takes_no_plan(acode: Acode, workspace: Path) -> None:
    import acode as library

    with pytest.raises(ZeroDivisionError), library.session("k", workspace=workspace) as session:
        session.step("broken", lambda: 1 // 0)
    plan = save(workspace, MENDED)
    found = acode("session", "list", "--json").json[0]["short_id"]
    for more in ((), ("--dry-run",)):
        ended = acode("resume", found, "--plan", plan, *more)
        assert ended.exit_code == 2 and "from a program" in ended.stderr

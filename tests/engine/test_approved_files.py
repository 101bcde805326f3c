"""A grant covers the statements that are applied behind its gate, not only the name of the file they stand in."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from acode.engine import session_commands
from acode.engine.held_session import held
from acode.errors import ChangedFiles, InputRequired
from acode.events import types as ev
from acode.plan import approval_digest
from tests.lives import Life

PLAN = """
tasks:
  - title: t
    steps:
      - approve: Apply m.sql?
        id: gate
      - run: test ! -e broken
        idempotent: true
      - sql: {database: app.db, file: m.sql}
"""


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path)
    made.put("m.sql", "create table harmless(x);")
    return made


def approve(life: Life) -> None:
    session_commands.answer_gate(life.world(), life.id, None, granted=True, note="")


def tables(life: Life) -> set[str]:
    if not life.path("app.db").exists():
        return set()
    with closing(sqlite3.connect(life.path("app.db"))) as database:
        names = {str(name) for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    return names - {"acode_applied"}


def told_why(life: Life) -> list[str]:
    return [one.body.message for one in life.ears.events("warning")]


@pytest.mark.req("NFR-011c-012")
def test_a_file_edited_after_its_approval_is_not_applied_without_another_one(life: Life) -> None:
    assert life.run(PLAN).exit_code == 10
    approve(life)
    life.put("m.sql", "create table evil(x);")
    result = life.resume()
    assert isinstance(result.error, InputRequired) and "m.sql was changed after t.gate was approved" in str(
        result.error
    )
    assert told_why(life) == ["m.sql was changed after t.gate was approved: the question is asked again"]
    assert tables(life) == set()
    approve(life)
    assert life.resume().exit_code == 0
    assert tables(life) == {"evil"}


def test_a_file_that_is_as_it_was_approved_is_applied_without_another_question(life: Life) -> None:
    life.run(PLAN)
    approve(life)
    life.put("m.sql", "create table harmless(x);")
    assert life.resume().exit_code == 0
    assert tables(life) == {"harmless"} and life.person.asked == ["gate t.gate"] and told_why(life) == []


def test_what_a_person_says_yes_to_is_the_file_as_it_is_then(life: Life) -> None:
    life.ears.at("approval_request", lambda: life.put("m.sql", "create table mended(x);"))
    life.person.to_gates = "yes"
    assert life.run(PLAN).exit_code == 0
    assert tables(life) == {"mended"}


@pytest.mark.req("NFR-011c-012")
def test_a_file_edited_behind_the_open_gate_is_a_change_that_a_person_must_accept(life: Life) -> None:
    life.put("broken", "")
    life.person.to_gates = "yes"
    assert life.run(PLAN).exit_code == 1
    life.path("broken").unlink()
    life.put("m.sql", "create table evil(x);")
    with pytest.raises(ChangedFiles, match=r"m\.sql"):
        life.resume()
    assert tables(life) == set()
    assert life.resume(changed_files="continue").exit_code == 0
    assert tables(life) == {"evil"}


def test_a_file_that_an_approved_step_makes_needs_no_other_approval(life: Life) -> None:
    life.person.to_gates = "yes"
    life.put("broken", "")
    making = PLAN.replace("test ! -e broken", "echo 'create table made(x);' > m.sql; test ! -e broken")
    assert life.run(making).exit_code == 1
    life.path("broken").unlink()
    assert life.resume().exit_code == 0
    assert tables(life) == {"made"} and life.person.asked == ["gate t.gate"]


def test_a_grant_for_a_file_that_is_not_there_yet_holds_while_it_is_not_there(life: Life) -> None:
    life.path("m.sql").unlink()
    making = PLAN.replace("test ! -e broken", "echo 'create table made(x);' > m.sql")
    assert life.run(making).exit_code == 10
    approve(life)
    assert life.resume().exit_code == 0
    assert tables(life) == {"made"}


def test_a_grant_of_an_earlier_version_is_asked_for_again_and_says_why(life: Life) -> None:
    life.run(PLAN)
    with held(life.world(), life.id) as run:
        gate = next(step for step in run.session.steps() if step.id == "t.gate")
        grant = ev.ApprovalGranted(step=gate.id, question="q", action_digest=approval_digest(run.session, gate))
        run.append(grant, actor="user")
    assert life.resume().exit_code == 10
    (why,) = told_why(life)
    assert "given by an earlier acode, which did not look into m.sql" in why
    approve(life)
    assert life.resume().exit_code == 0
    assert tables(life) == {"harmless"}

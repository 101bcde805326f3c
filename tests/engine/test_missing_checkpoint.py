"""Checkpoint rows that are gone: the refusal is a decision on record, whoever asks and whatever made the session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from acode.errors import CheckpointMissing
from acode.store import checkpoints as ck
from tests.agent.town import Town, plan_turn, served, task_turns
from tests.driver import Acode
from tests.foreign import MEMORY, put_driver, put_foreign
from tests.tampering import Attack

PLAN = """
title: Two steps
tasks:
  - id: work
    steps:
      - run: echo one >> ledger
      - run: echo two >> ledger; test -e go
        idempotent: true
"""
PROGRAM = """
import acode

@acode.step
def note(word):
    with open("ledger", "a") as file:
        file.write(word + "\\n")
    if word == "two":
        raise RuntimeError("not yet")

@acode.durable(key="job")
def job():
    note("one")
    note("two")

job()
"""
DAMAGES = {
    "all of them": "DELETE FROM checkpoints",
    "those since the first step": "DELETE FROM checkpoints WHERE seq > 3",
    "the snapshot": "DELETE FROM snapshots",
}


def by_plan(acode: Acode) -> None:
    (acode.workspace / "plan.yml").write_text(PLAN)
    assert acode("run", "plan.yml").exit_code == 1


def by_program(acode: Acode) -> None:
    (acode.workspace / "program.py").write_text(PROGRAM)
    ended = acode.process(program=[str(acode.workspace / "program.py")]).finish()
    assert "not yet" in ended.stderr


def by_agent(acode: Acode) -> None:
    failing = {"text": "Done.", "fault": {"status": 503, "times": 1}}
    script = {"models": ["scripted"], "turns": [plan_turn({"id": "first"}), task_turns("First", failing)]}
    with served(script, acode.workspace.parent / "model") as (url, ledger):
        assert Town(acode, url, ledger).run("--approve-plan").exit_code == 75


def by_foreign_run(acode: Acode) -> None:
    put_foreign(acode.workspace, MEMORY)
    put_driver(acode.workspace, "agent-memory", idempotent=True)
    (acode.workspace / "fail").write_text("T001")
    assert acode("resume", MEMORY, "--yes").exit_code == 1


def decisions(acode: Acode, session_id: str) -> list[dict[str, Any]]:
    query = "SELECT body FROM events JOIN sessions ON number = id >> 40 WHERE sessions.session_id = ? ORDER BY id"
    found = Attack(acode.workspace).sql(query, session_id)
    events = (json.loads(body) for (body,) in found)
    return [event["event"] for event in events if event["event"]["type"] == "resume_decision"]


@pytest.mark.parametrize("make", [by_plan, by_program, by_agent, by_foreign_run], ids=lambda make: make.__name__)
@pytest.mark.parametrize("actor", ["user", "system"])
@pytest.mark.req("POL-CODE-02", "CODE-011c-05")
def test_whoever_asks_the_refusal_is_recorded_and_shown_with_its_reason_code(
    acode: Acode, make: Callable[[Acode], None], actor: str
) -> None:
    make(acode)
    ((session_id,),) = Attack(acode.workspace).sql("SELECT session_id FROM sessions")
    before = len(decisions(acode, session_id))
    Attack(acode.workspace).sql(DAMAGES["all of them"])
    asked = acode("resume", session_id, "--json", "--yes", *(["--auto"] if actor == "system" else []))
    assert asked.exit_code == 20, asked.stderr
    end = asked.lines[-1]
    assert end["event"] == "session_end" and end["data"]["reason_code"] == "resume_missing_checkpoint"
    assert end["data"]["error"]["code"] == "ACODE-RESUME-005"
    assert f"acode session repair {session_id[-8:]}" in end["data"]["error"]["hint"]
    (recorded,) = decisions(acode, session_id)[before:]
    assert (recorded["reason_code"], recorded["eligible"]) == ("resume_missing_checkpoint", False)
    assert (recorded["actor"], recorded["run_id"]) == (actor, session_id)
    shown = [line for line in asked.lines if line["event"] == "resume_decision"]
    assert [line["data"]["reason_code"] for line in shown] == ["resume_missing_checkpoint"]
    assert Attack(acode.workspace).sql("SELECT count(*) FROM checkpoints") == [(0,)], "and hides nothing"


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_row_that_is_missing_is_refused_again_each_time_until_a_repair(
    acode: Acode, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """The refusals themselves must not bring a checkpoint back: it would hide that the others are gone."""
    monkeypatch.setattr(ck, "SNAPSHOT_BYTES_MIN", 100)
    monkeypatch.setattr(ck, "due_bytes", lambda row: 0)
    by_plan(acode)
    session_id = acode("session", "list", "--json").json[0]["session_id"]
    Attack(acode.workspace).sql(DAMAGES[damage])
    rows = Attack(acode.workspace).sql("SELECT count(*) FROM checkpoints")
    for time in (1, 2, 3, 4):
        assert acode("resume", session_id).exit_code == 20
        assert len(decisions(acode, session_id)) == time
    assert Attack(acode.workspace).sql("SELECT count(*) FROM checkpoints") == rows
    assert acode("session", "repair", session_id, "--yes").exit_code == 0
    (acode.workspace / "go").touch()
    assert acode("resume", session_id).exit_code == 0
    assert (acode.workspace / "ledger").read_text().split() == ["one", "two", "two"]


def test_supervision_records_it_too(acode: Acode) -> None:
    by_plan(acode)
    session_id = acode("session", "list", "--json").json[0]["session_id"]
    Attack(acode.workspace).sql(DAMAGES["all of them"])
    assert acode("supervise", session_id).exit_code == 20
    assert [one["actor"] for one in decisions(acode, session_id)] == ["system"]


def test_a_program_that_is_started_again_is_refused_and_that_is_recorded(acode: Acode) -> None:
    by_program(acode)
    session_id = acode("session", "list", "--json").json[0]["session_id"]
    Attack(acode.workspace).sql(DAMAGES["all of them"])
    ended = acode.process(program=[str(acode.workspace / "program.py")]).finish()
    assert ended.exit_code != 0 and CheckpointMissing.__name__ in ended.stderr
    assert [one["reason_code"] for one in decisions(acode, session_id)] == ["resume_missing_checkpoint"]
    assert (acode.workspace / "ledger").read_text().split() == ["one", "two"]


def test_a_foreign_run_is_refused_under_its_own_id_and_no_second_session_is_begun(acode: Acode) -> None:
    by_foreign_run(acode)
    Attack(acode.workspace).sql(DAMAGES["all of them"])
    asked = acode("resume", MEMORY, "--json", "--yes")
    assert asked.exit_code == 20 and asked.lines[-1]["data"]["reason_code"] == "resume_missing_checkpoint"
    assert Attack(acode.workspace).sql("SELECT count(*) FROM sessions") == [(1,)]


def test_a_log_that_was_changed_as_well_is_not_written_to(acode: Acode) -> None:
    by_plan(acode)
    session_id = acode("session", "list", "--json").json[0]["session_id"]
    attack = Attack(acode.workspace)
    attack.sql(DAMAGES["all of them"])
    attack.edit(attack.seq_of("step_failed"), "work", "work ")
    last = attack.last()
    assert acode("resume", session_id).exit_code == 20
    assert attack.last() == last

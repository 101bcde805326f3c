"""What a resume says, in which order, and what it hands to the steps that are left."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from acode.engine import session_commands
from acode.engine.environment import Report, validate
from acode.engine.preview import preview
from acode.engine.resume import resume
from acode.engine.session_list import resumable
from acode.engine.workspace_store import opened
from acode.engine.world import Options, Result
from acode.errors import NoResumableSession
from acode.events import types as ev
from acode.resume_point import Scenario, detect_scenario, find_resume_point
from acode.state import Mark, State
from acode.workspace import ChangedFile
from tests.cli.plans import GATE, THREE_TASKS, save
from tests.driver import Acode
from tests.lives import Life

NOTE = 'echo "$ACODE_STEP_ID" >> "$LEDGER"'
PLAN = f"""
title: In three
tasks:
  - title: t
    steps:
      - run: {NOTE}
        id: a
      - run: {NOTE}
        id: b
      - run: {NOTE}
        id: c
"""


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


@pytest.fixture
def stopped(acode: Acode, workspace: Path) -> str:
    """Three of six steps are done, the fourth failed and would now succeed."""
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "go.txt").write_text("go\n")
    return str(acode("session", "list", "--json").json[0]["session_id"])


def log(workspace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (workspace / ".agent/logs/acode.jsonl").read_text().splitlines()]


# Logged.


@pytest.mark.req("FR-011c-007", "BP-011c-12", "FR-040b-40", "SEC-040b-01")
def test_each_attempt_is_logged_with_session_scenario_checkpoint_skips_and_validation(
    acode: Acode, stopped: str, workspace: Path
) -> None:
    acode("resume", stopped)
    lines = {line["event"]: line for line in log(workspace)}
    resumed = lines["session_resume"]
    assert (resumed["session_id"], resumed["checkpoint_id"], resumed["skipped_steps"]) == (stopped, 3, 3)
    assert resumed["environment_valid"] is True
    assert (lines["resume_scenario"]["scenario"], lines["resume_scenario"]["session_id"]) == ("clean_shutdown", stopped)
    assert lines["environment_valid"]["total_files"] == 3
    (started,) = [one for one in acode("session", "history", stopped, "--json").json if one["type"] == "resume_started"]
    assert started["data"]["scenario"] == "clean_shutdown"


@pytest.mark.req("FR-011c-023", "INT-040b-01", "FR-040b-46", "FR-040b-47")
def test_the_plan_of_the_resume_is_durable_before_the_first_step_behind_its_point_begins(life: Life) -> None:
    life.cut_off(PLAN, "step_started", "t.b")
    seen: list[list[str]] = []
    life.ears.at("step_started", lambda: seen.append([one.type for one in life.history()]), "t.b")
    assert life.resume().exit_code == 0
    (before,) = seen
    assert before.index("resume_decision") < before.index("resume_started") < len(before) - 1
    (plan,) = life.events(ev.ResumeStarted)
    assert (plan.skipped_steps, plan.remaining_steps) == (1, 2)
    done_a = next(one for one in life.history() if isinstance(one.event, ev.StepCompleted))
    assert (plan.point_seq, plan.point_event_id) == (done_a.seq, done_a.event_id)
    after = [
        one.event.step for one in life.history() if one.seq > plan.replay_last if isinstance(one.event, ev.StepStarted)
    ]
    assert after == ["t.b", "t.c"]
    assert life.effects() == {"t.a": 1, "t.b": 1, "t.c": 1}


# Shown.


@pytest.mark.req("FR-040b-14")
def test_the_resume_point_is_shown_with_its_details(acode: Acode, stopped: str) -> None:
    shown = acode("resume", "--dry-run", stopped)
    assert "Last checkpoint: Task 2, Step 2" in shown.stdout + shown.stderr
    point = acode("resume", "--dry-run", stopped, "--json").json["resume_point"]
    last = [one for one in acode("session", "history", stopped, "--json").json if one["type"] == "step_completed"][-1]
    assert point == {"event_id": last["event_id"], "seq": last["seq"], "task": "validate", "step": "validate.2"}


@pytest.mark.req("FR-040b-57", "CODE-011c-08")
def test_progress_is_shown_step_by_step(acode: Acode, stopped: str, workspace: Path) -> None:
    (workspace / "go.txt").unlink()
    assert acode("resume", stopped).exit_code == 1
    (workspace / "go.txt").write_text("go\n")
    ended = acode("resume", stopped)
    assert ended.exit_code == 0
    for number in (4, 5, 6):
        assert f"[{number}/6]" in ended.stderr


# Handed over.


@pytest.mark.req("TERM-040b-01", "FR-040b-39")
def test_a_save_point_made_on_demand_is_the_checkpoint_that_is_resumed_from(
    acode: Acode, stopped: str, workspace: Path
) -> None:
    made = acode("session", "checkpoint", stopped, "--label", "before lunch", "--json").json
    found = acode("resume", "--dry-run", stopped, "--json").json["checkpoint"]
    assert (found["id"], found["seq"], found["valid"]) == (made["checkpoint_id"], made["seq"], True)
    assert acode("resume", stopped).exit_code == 0
    (line,) = [one for one in log(workspace) if one["event"] == "session_resume"]
    assert line["checkpoint_id"] >= made["checkpoint_id"]


@pytest.mark.req("FR-011c-013")
@pytest.mark.parametrize("how", ["answered before the crash", "answered while it waited"])
def test_an_approval_that_was_given_is_not_asked_for_again(life: Life, how: str) -> None:
    if how == "answered before the crash":
        life.person.to_gates = "yes"
        life.cut_off(GATE, "step_started", "ship.upload")
    else:
        life.run(GATE)
        session_commands.answer_gate(life.world(), life.id, None, granted=True, note="")
    life.person.to_gates = "no"
    life.person.asked.clear()
    assert life.resume().exit_code == 0
    assert life.person.asked == []
    assert life.text("shipped.txt") == "shipped\n"


@pytest.mark.req("IF-011c-03")
def test_the_result_says_how_it_ended_and_what_is_left(life: Life) -> None:
    life.run(
        PLAN.replace("id: b", "id: b\n        idempotent: true").replace(
            f"- run: {NOTE}\n        id: b", "- run: exit 4\n        id: b"
        )
    )
    result: Result = life.resume()
    assert (result.session_id, result.state, result.exit_code) == (life.id, State.PAUSED, 1)
    assert (result.executed_steps, result.skipped_steps, result.remaining_steps) == (0, 1, 2)
    assert result.error is not None and "exit status 4" in result.error.message
    assert result.next_action == f"acode resume {life.id[-8:]}"


@pytest.mark.req("IF-011c-04", "IF-040b-01")
def test_point_scenario_validation_and_options_are_parts_of_their_own(life: Life) -> None:
    life.put("in.txt", "in\n")
    life.cut_off("tasks: [{title: t, steps: [{read: in.txt}, {write: {path: x, content: x}}]}]", "step_started", "t.2")
    life.put("in.txt", "changed\n")
    found = life.look()
    assert found.session.session_id == life.id and found.session.state is State.EXECUTING
    assert found.checkpoint is not None and found.checkpoint.session_id == life.id
    assert found.survey is not None and found.environment is not None
    assert (found.survey.continuation.skipped_steps, found.survey.continuation.pending) == (("t.1",), ("t.2",))
    assert [one.path for one in found.environment.changed_files] == ["in.txt"]
    assert found.sync.status == "disabled"
    point = find_resume_point(found.session)
    assert isinstance(point, Mark) and point.step == "t.1"
    assert detect_scenario(found.session) is Scenario.MID_WRITE
    assert isinstance(found.environment, Report) and isinstance(found.environment.changed_files[0], ChangedFile)
    assert Options().validate_environment is None and callable(validate)


@pytest.mark.req("IF-011c-01")
def test_what_is_resumable_can_be_listed_looked_at_and_resumed(life: Life) -> None:
    assert life.run("tasks: [{title: done, steps: [{run: 'true'}]}]").exit_code == 0
    life.run("tasks: [{title: t, steps: [{run: 'test -e go'}]}]")
    here = life.world()
    assert [row.session_id for row in resumable(here)] == [life.id]
    before = life.history()
    seen = preview(here, life.id, Options())
    assert seen.survey is not None and seen.survey.continuation.pending == ("t.1",)
    assert life.history() == before, "looking changes nothing"
    life.put("go", "")
    assert resume(here, life.id, Options()).state is State.COMPLETED
    assert resumable(here) == []


@pytest.mark.req("IF-011c-01")
def test_a_resume_needs_no_id_where_the_most_recent_session_is_meant(acode: Acode, stopped: str) -> None:
    ended = acode("resume", "--yes")
    assert ended.exit_code == 0 and stopped[-8:] in ended.stderr


# Refused.


@pytest.mark.req("CODE-011c-01")
def test_nothing_to_resume_has_its_own_code_and_status(acode: Acode, tmp_path: Path) -> None:
    ended = acode("resume", "--last", "--json")
    assert ended.exit_code == 14
    assert ended.json["error"]["code"] == "ACODE-RESUME-001"
    with pytest.raises(NoResumableSession), opened(Life(tmp_path / "other").world(), look_only=True):
        pass


@pytest.mark.req("SCOPE-011c-01")
def test_nothing_is_resumed_that_nobody_asked_for(acode: Acode, stopped: str, workspace: Path) -> None:
    before = acode("session", "history", stopped, "--json").json
    acode("status")
    acode("session", "list")
    acode("explain")
    acode("doctor")
    assert acode("run", save(workspace, "tasks: [{title: other, steps: [{run: 'true'}]}]", "other.yml")).exit_code == 0
    assert acode("session", "history", stopped, "--json").json == before


CONNECTIONS: list[object] = []
LISTENING: list[bool] = []  # a hook of the interpreter cannot be taken off again


def note_connection(event: str, arguments: tuple[object, ...]) -> None:
    if LISTENING and event in ("socket.connect", "socket.getaddrinfo"):
        CONNECTIONS.append(arguments)


@pytest.mark.req("SCOPE-040b-01")
def test_nothing_is_shared_moved_or_taken_back_unless_somebody_wants_it(acode: Acode, stopped: str) -> None:
    sys.addaudithook(note_connection)
    LISTENING.append(True)
    try:
        assert acode("resume", stopped, "--remote").exit_code == 3, "another machine's log needs a server by name"
        assert acode("resume", stopped, "--json").exit_code == 0
    finally:
        LISTENING.clear()
    assert CONNECTIONS == []
    assert acode("status", stopped, "--json").json["sync"]["status"] == "disabled"
    kinds = {event["type"] for event in acode("session", "history", stopped, "--json").json}
    assert not kinds & {"steps_rolled_back", "undo_started", "plan_changed"}, "a resume only goes forward"


@pytest.mark.req("SCOPE-011c-04")
def test_a_resume_goes_on_to_the_end_and_cannot_be_asked_for_a_part(acode: Acode, stopped: str) -> None:
    for option in ("--from", "--to", "--only", "--step", "--until", "--skip"):
        assert acode("resume", stopped, option, "validate.2").exit_code == 2
    assert acode("resume", stopped).exit_code == 0
    shown = acode("session", "list", "--all", "--json").json[0]
    assert (shown["steps_done"], shown["steps_total"], shown["state"]) == (6, 6, "COMPLETED")

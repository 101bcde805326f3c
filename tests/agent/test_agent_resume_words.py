"""What a person reads when an agent's session is resumed: use case 1 of the resume seed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.town import Town, call, plan_turn, served, task_turns
from tests.driver import Acode

SCRIPT = {
    "models": ["scripted"],
    "turns": [
        plan_turn(
            {"id": "first", "title": "Begin"},
            {"id": "second", "title": "Finish", "needs": ["first"]},
            {"id": "third", "title": "Report", "needs": ["second"]},
        ),
        task_turns("Begin", {"calls": [call("write_file", path="a.txt", content="one\n")]}, {"text": "Begun."}),
        task_turns(
            "Finish",
            {"calls": [call("write_file", path="b.txt", content="b")]},
            {"text": "Finished.", "fault": {"status": 503, "times": 1}},
        ),
        task_turns("Report", {"text": "Reported."}),
    ],
}


@pytest.fixture
def town(acode: Acode, tmp_path: Path) -> Iterator[Town]:
    """A session that was interrupted at the third step of its second task."""
    with served(SCRIPT, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        ended = town.run("--approve-plan")
        assert ended.exit_code == 75
        assert re.search(r"^Task 1/3: Begin$", ended.stderr, re.MULTILINE), ended.stderr
        assert "\nPlan the work\n" in ended.stderr, "planning is above the user's plan, not one of its tasks"
        yield town


@pytest.mark.req("UC-011c-01", "OUT-011c-04")
def test_a_resume_names_the_skipped_tasks_their_time_the_place_it_goes_on_from_and_the_model(town: Town) -> None:
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    lines = [line.strip() for line in ended.stderr.splitlines()]
    assert "Loaded state: PAUSED at Task 2, Step 3" in lines
    assert any(re.fullmatch(r"Skipping: 1 completed task \(.+ of work\)", line) for line in lines), lines
    assert any(re.fullmatch(r"✓ Task 1: Begin \(skipped, took .+\)", line) for line in lines), lines
    assert "Continuing from Task 2, Step 3" in lines
    assert "✓ Model available (scripted)" in lines
    assert "Task 2/3: Finish" in lines and "Task 3/3: Report" in lines
    assert not any("Task 1/3" in line or "/4" in line for line in lines)


def test_planning_is_not_counted_among_the_tasks_of_the_plan(town: Town) -> None:
    status = town.acode("status", town.short, "--json").json
    (row,) = town.acode("session", "list", "--json").json
    assert (status["tasks_done"], status["tasks_total"]) == (row["tasks_done"], row["tasks_total"]) == (1, 3)
    assert "Progress: 1/3 tasks" in town.acode("status", town.short).stdout
    assert "Position: Task 2/3, Step 3" in town.acode("status", town.short).stdout
    look = town.acode("resume", "--dry-run", town.short, env=town.env).stdout
    assert "Skipping: 1 task (complete)" in look and "Remaining: 2 tasks" in look
    assert "Starting from: Task 2, Step 3 (second: Finish)" in look
    assert town.resume("--json").lines[0]["data"]["tasks"] == 3


def test_a_session_that_has_not_planned_yet_stands_before_its_first_task(acode: Acode, tmp_path: Path) -> None:
    turns = [{**plan_turn({"id": "only"}), "fault": {"status": 503, "times": 1}}, task_turns("Only", {"text": "Done."})]
    with served({"models": ["scripted"], "turns": turns}, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        assert town.run("--approve-plan").exit_code == 75
        assert (town.status()["tasks_done"], town.status()["tasks_total"]) == (0, 0)
        ended = town.resume()
        assert ended.exit_code == 0
        assert "Continuing from planning the work" in ended.stderr

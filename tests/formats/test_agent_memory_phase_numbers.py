"""Agent-memory runs whose phases are counted otherwise: read by their own numbering, refused where it is unclear."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from acode.formats.agent_memory import Findings, diagnose, read
from acode.formats.agent_memory.phase_numbers import parse_state
from tests.agent_memory import TWO, found_in, said, to_phase
from tests.arc import put
from tests.driver import Acode
from tests.foreign import MEMORY, done, ledger, own_events, put_driver, put_memory

UPDATED = "2026-01-15T14:40:00Z"
# The template of the pack at its head: its file counts to 11, its rules and events to 6.
LONG_NAMES = (
    *("intake", "prd", "bootstrap_detection", "dependency_check", "bootstrap_planning", "bootstrap_tasks"),
    *("bootstrap_approval", "development_planning", "development_approval", "execution", "cleanup", "consolidation"),
)
SHORT_NAMES = ("intake", "routing", "planning", "approval", "execution", "cleanup", "consolidation")


def workflow(number: int, names: tuple[str, ...], **more: Any) -> dict[str, Any]:
    phases = {f"phase_{n}_{name}": {"status": "pending"} for n, name in enumerate(names)}
    at = {"type": "development-only", "current_phase": number, "phase_name": names[number], "status": "in_progress"}
    return {"$schema": "agentic-workflow-state-v1", "updated_at": UPDATED, "workflow": at | more, "phases": phases}


def newer_run(workspace: Path, phase: int, state: dict[str, Any] | None, *, constitution: bool = True) -> Path:
    run = put_memory(workspace, approved=constitution)
    moves = [(n, n + 1) for n in range(phase)]
    events = [
        {"type": "phase_transition", "from_phase": a, "to_phase": b, "timestamp": f"2026-01-15T14:3{b}:00Z"}
        for a, b in moves
    ]
    put(run, "events/orchestrator/a.jsonl", "".join(json.dumps(event) + "\n" for event in events))
    if state is not None:
        put(run, "workflow-state.json", json.dumps(state))
    return run


def found(run: Path) -> Findings:
    return diagnose(read(run), datetime(2026, 1, 15, 18, tzinfo=UTC))


# Never closed with undone tasks.


@pytest.mark.parametrize("state", [None, workflow(4, SHORT_NAMES), workflow(9, LONG_NAMES), {}, {"workflow": 1}])
def test_a_run_in_phase_4_of_7_with_no_task_done_is_carried_on_or_refused_and_never_closed(
    acode: Acode, workspace: Path, state: dict[str, Any] | None
) -> None:
    put_driver(workspace, "agent-memory")
    run = newer_run(workspace, 4, state)
    ended = acode("resume", MEMORY, "--yes", "--json")
    if state and "phases" in state:
        assert ended.exit_code == 0, ended.stdout
        assert ledger(workspace) == done(MEMORY)
        moved = [(one["from_phase"], one["to_phase"]) for one in own_events(run) if one["type"] == "phase_transition"]
        assert moved == [(4, 5), (5, 6)]
    else:
        assert ended.exit_code == 10, ended.stdout
        assert ledger(workspace) == [] and ended.lines[-1]["data"]["state"] == "PAUSED"
    assert ("run_completed" in [one["type"] for one in own_events(run)]) == bool(ledger(workspace))


WORDS = ("created", "started", "implemented", "verified", "completed", "failed", "blocked")


def test_no_phase_and_no_state_of_the_tasks_ends_a_run_with_an_undone_task() -> None:
    for phase, one, two in itertools.product(range(12), WORDS, WORDS):
        events = [to_phase(phase), said(f"task-{one}", 1, "T001"), said(f"task-{two}", 2, "T002")]
        findings = found_in(*events, graph=TWO)
        if findings.done < findings.total:
            assert findings.next_action.do not in ("clean_up", "consolidate", "nothing"), (phase, one, two)
            assert findings.next_action.to_phase in (None, 1, 2)


# What each number means.


@pytest.mark.parametrize("names", [SHORT_NAMES, LONG_NAMES], ids=["short", "long"])
@pytest.mark.parametrize(
    ("event", "stage", "name"),
    [
        (0, 0, "intake"),
        (2, 1, "planning"),
        (3, 1, "approval"),
        (4, 2, "execution"),
        (5, 3, "cleanup"),
        (6, 4, "consolidation"),
    ],
)
def test_the_numbers_of_the_events_and_the_names_of_the_file_say_the_same(
    workspace: Path, names: tuple[str, ...], event: int, stage: int, name: str
) -> None:
    number = next(n for n in reversed(range(len(names))) if name in names[n] and "bootstrap" not in names[n])
    findings = found(newer_run(workspace, event, workflow(number, names)))
    assert (findings.phase, findings.stage) == (event, stage)


@pytest.mark.parametrize(("event", "state"), list(itertools.product(range(1, 7), range(7))))
def test_a_file_and_events_that_disagree_are_unclear_and_left_to_a_person(
    workspace: Path, event: int, state: int
) -> None:
    findings = found(newer_run(workspace, event, workflow(state, SHORT_NAMES)))
    stages = (0, None, 1, 1, 2, 3, 4)
    long = (0, 0, None, None, None, None, None)
    agreed = stages[state] is not None and stages[state] in (stages[event], long[event])
    assert findings.stage == (stages[state] if agreed else None)
    if not agreed:
        assert findings.next_action.do == "wait_for_person" and "acode cannot determine" in findings.next_action.summary


@pytest.mark.parametrize(
    "state",
    [
        workflow(4, SHORT_NAMES, status="completed"),
        workflow(4, SHORT_NAMES, type="bootstrap-only"),
        workflow(4, SHORT_NAMES, phase_name="cleanup"),
        workflow(4, ("a", "b", "c", "d", "e"), phase_name="something"),
        {"workflow": {"current_phase": True}},
        {"workflow": {"current_phase": 12, "phase_name": "execution"}},
        [],
    ],
)
def test_a_state_file_that_does_not_say_one_thing_is_unclear(workspace: Path, state: Any) -> None:
    findings = found(newer_run(workspace, 4, state))
    assert findings.stage is None and findings.next_action.do == "wait_for_person"
    assert findings.missing_artifacts == () and not findings.next_action.automatic


def test_without_the_file_a_later_number_or_a_bootstrap_event_tells_a_newer_run() -> None:
    findings = found_in(to_phase(4, 1), to_phase(5, 2), to_phase(4, 3), graph=TWO)
    assert (findings.phase, findings.stage, findings.next_action.task) == (4, 2, "T001")
    findings = found_in(said("bootstrap_gate_response", 1), to_phase(4, 3), graph=TWO)
    assert (findings.stage, findings.next_action.task) == (2, "T001")
    assert found_in(said("bootstrap_gate_response", 1), graph=TWO).next_action.do == "wait_for_person"
    assert found_in(to_phase(1, 1), said("dependency_check_started", 2), graph=TWO).stage is None


def test_the_gate_of_a_newer_run_is_its_phase_3_and_a_yes_leads_to_phase_4(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = newer_run(workspace, 3, workflow(3, SHORT_NAMES), constitution=False)
    waiting = acode("resume", MEMORY, "--yes", "--json")
    assert waiting.exit_code == 10 and "May phase 4 begin" in waiting.stdout and ledger(workspace) == []
    assert acode("session", "approve", MEMORY).exit_code == 0
    assert (own_events(run)[-1]["from_phase"], own_events(run)[-1]["to_phase"]) == (2, 4)
    put(run, "constitution.md", "Be good.\n")
    assert acode("status", MEMORY, "--json").json["phase"] == 4
    ended = acode("resume", MEMORY, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace) == done(MEMORY)


def test_a_plan_that_may_be_unapproved_is_asked_about_before_it_is_executed(acode: Acode, workspace: Path) -> None:
    """Counted from 0 to 6, phase 2 is the planning; nothing says that this run counts otherwise, or was approved."""
    put_driver(workspace, "agent-memory")
    run = newer_run(workspace, 2, None, constitution=False)
    assert acode("resume", MEMORY, "--yes").exit_code == 10 and ledger(workspace) == []
    assert acode("session", "approve", MEMORY).exit_code == 0
    put(run, "constitution.md", "Be good.\n")
    assert acode("resume", MEMORY).exit_code == 0
    assert ledger(workspace) == done(MEMORY)


def test_a_file_that_somebody_wrote_after_acode_moved_the_run_has_its_say_again(workspace: Path) -> None:
    run = newer_run(workspace, 4, workflow(4, SHORT_NAMES))
    event = {"type": "phase_transition", "to_phase": 5, "timestamp": "2026-01-15T15:00:00Z"}
    event |= {"details": {"phase_name": "cleanup"}}
    put(run, "events/acode/a.jsonl", json.dumps(event) + "\n")
    assert (found(run).phase, found(run).stage) == (5, 3)
    later = workflow(4, SHORT_NAMES) | {"updated_at": "2026-01-15T16:00:00Z"}
    put(run, "workflow-state.json", json.dumps(later))
    assert found(run).stage is None


def test_a_bootstrap_comes_first_and_what_follows_it_is_planned_by_the_tool_that_made_the_run(workspace: Path) -> None:
    run = newer_run(workspace, 4, workflow(4, SHORT_NAMES, type="unified"))
    tasks = [{"id": "D001", "dependencies": []}, {"id": "B001", "dependencies": []}]
    put(run, "task-graph.json", json.dumps({"tasks": tasks}))
    assert found(run).next_action.task == "B001"
    put(run, "task-graph.json", json.dumps({"tasks": tasks[1:]}))
    put(run, "events/x/a.jsonl", json.dumps(said("task_completed", 5, "B001")) + "\n")
    assert found(run).next_action.do == "wait_for_person"


def test_no_content_of_the_state_file_does_more_than_leave_the_phase_unclear() -> None:
    for data in (b"", b"\xff", b"[" * 100_000, b"null", b'{"workflow": {"current_phase": -1}}', b'{"workflow": []}'):
        assert parse_state(data, 0).problem

"""What people and drivers are told about an agent-memory run, and what acode tells the run."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from acode.formats.agent_memory import (
    Run,
    Stamp,
    as_json,
    diagnose,
    driver_outcome,
    events_on_failure,
    events_on_start,
    events_on_success,
    plan_approved,
    prompt,
    report,
    session_resumed,
)
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.values import Graph
from tests.agent_memory import NOW, TWO, Event, found_in, graph_of, run_of, said, to_phase

# The report.


@pytest.mark.req("PROTO-15", "PROTO-21")
def test_the_report_is_the_template_filled_with_the_findings() -> None:
    findings = found_in(to_phase(2), said("task_started", 4, "T001"), said("task_completed", 65, "T001"), graph=TWO)
    frame = "═" * 59
    assert (
        report(findings)
        == f"""{frame}
RESUMING RUN: 20260115-1000-x-a1b2

Current State:
- Phase: 2
- Tasks: 1/2 complete
- Last activity: 2026-01-15T11:05:00Z
- Last completed: T001 - Title of T001

Next Action:
- Execute task T002 - Title of T002

Continuing...
{frame}"""
    )


@pytest.mark.req("PROTO-15")
def test_the_report_of_a_run_without_events_claims_nothing() -> None:
    text = report(found_in(artifacts=()))
    assert "- Tasks: 0/0 complete\n- Last activity: none recorded\n- Last completed: none yet" in text


def test_the_report_says_what_it_waits_for_instead_of_claiming_to_go_on() -> None:
    findings = found_in(to_phase(1), artifacts=("prd.md", "plan.md"), graph=TWO)
    assert "Continuing... waits for the plan's approval" in report(findings)
    assert "Continuing... waits for a driver" in report(found_in(to_phase(2), graph=TWO), waits_for="a driver")


def test_nothing_that_is_shown_carries_control_characters() -> None:
    evil = "a\x1b[31mb\r\nc\u202ed\x00\u2028e\x9bf"
    graph = graph_of({"id": "T001", "title": evil}, {"id": "T\x1b", "title": "x"})
    findings = found_in(to_phase(2), said("task_completed", 1, "T001"), graph=graph)
    run = run_of(to_phase(2), said("task_failed", 1, "T001", details={"why": evil}), graph=graph)
    failed = diagnose(run, NOW)
    texts = [report(findings), *findings.warnings, failed.next_action.summary, *failed.warnings]
    texts += [
        json.dumps(as_json(findings), ensure_ascii=False),
        prompt(run, failed, failed.next_action, task_contract=evil),
    ]
    for text in texts:
        assert all(line.isprintable() for line in text.split("\n")), text
    assert "T\x1b" not in findings.tasks


@pytest.mark.req("PROTO-15")
def test_the_dry_run_document_has_the_fields_of_the_contract() -> None:
    findings = found_in(to_phase(2), said("task_completed", 1, "T001"), graph=TWO, artifacts=("prd.md", "plan.md"))
    assert as_json(findings) == {
        "phase": 2,
        "tasks": {"T001": "done", "T002": "pending"},
        "runnable": ["T002"],
        "last_activity": "2026-01-15T10:01:00Z",
        "last_completed": {"id": "T001", "title": "Title of T001"},
        "missing_artifacts": ["constitution.md"],
        "warnings": [],
    }
    assert as_json(found_in())["last_completed"] is None


def test_the_last_completed_task_is_the_latest_that_is_still_done() -> None:
    events = [said("task_completed", 1, "T001"), said("task_completed", 5, "T002"), said("task_started", 6, "T002")]
    completed = found_in(*events, graph=TWO).last_completed
    assert completed is not None
    assert completed.id == "T001"


# Carrying on.


def test_a_run_is_carried_to_its_end_by_taking_each_next_action() -> None:
    own: list[Event] = []
    taken = []
    artifacts: set[str] = set()
    graph: Graph | None = None
    for n in range(40):
        run = run_of(graph=graph, artifacts=sorted(artifacts), files={"acode": own})
        findings = diagnose(run, NOW)
        action = findings.next_action
        taken.append(action.task or action.artifact or action.do)
        stamp = Stamp(run_id="r", event_id=f"e{n:03d}", now=NOW + timedelta(minutes=n))
        if action.do == "nothing":
            break
        if action.do == "wait_for_approval":
            own.append(plan_approved(stamp))
            continue
        own += events_on_start(stamp, action)
        if action.artifact == "task-graph.json":
            graph = TWO
        elif action.artifact:
            artifacts.add(action.artifact)
        own += events_on_success(Stamp(run_id="r", event_id=f"e{n:03d}z", now=stamp.now), action)
    assert taken == [
        "prd.md", "enter_phase", "plan.md", "task-graph.json", "wait_for_approval", "constitution.md",
        "T001", "T002", "enter_phase", "clean_up", "consolidate", "nothing",
    ]  # fmt: skip


def test_a_failed_driver_is_recorded_in_the_runs_own_terms() -> None:
    stamp = Stamp(run_id="r", event_id="e", now=NOW)
    action = found_in(to_phase(2), graph=TWO).next_action
    (failed,) = events_on_failure(stamp, action, reason="exit status 3")
    assert (failed["type"], failed["event_type"], failed["task_id"]) == ("task_failed", "task-failed", "T001")
    (error,) = events_on_failure(stamp, found_in(to_phase(3), graph=TWO).next_action, reason="exit status 3")
    assert error["event_type"] == "execution-error"
    assert found_in(to_phase(2), graph=TWO, files={"acode": [failed]}).tasks["T001"] == "failed"


def test_a_drivers_own_events_stand_above_its_exit_status() -> None:
    action = found_in(to_phase(2), graph=TWO).next_action
    begun = said("task_started", 1, "T001")
    assert driver_outcome(run_of(to_phase(2), begun, graph=TWO), action) is None
    assert driver_outcome(run_of(to_phase(2), begun, said("task_blocked", 2, "T001"), graph=TWO), action) == "blocked"
    assert driver_outcome(run_of(to_phase(2), begun, said("task-failed", 2, "T001"), graph=TWO), action) == "failed"
    assert (
        driver_outcome(run_of(to_phase(2), begun, said("task-completed", 2, "T001"), graph=TWO), action) == "completed"
    )


def test_a_step_whose_artifact_is_not_there_has_not_succeeded() -> None:
    action = found_in(artifacts=()).next_action
    assert driver_outcome(run_of(artifacts=()), action) == "not_made"
    assert driver_outcome(run_of(artifacts=("prd.md",)), action) is None


def test_a_resumed_session_is_recorded_with_what_was_restored() -> None:
    findings = found_in(to_phase(2), said("task_completed", 1, "T001"), graph=TWO)
    event = session_resumed(Stamp(run_id="r", event_id="e", now=NOW), findings)
    assert event["event_type"] == "session-resumed"
    assert event["details"]["state_restored"] == {"phase": 2, "tasks_done": 1, "tasks_total": 2}


def test_a_tasks_prompt_holds_its_contract_the_artifacts_and_its_past() -> None:
    graph = graph_of({"id": "T001", "title": "Add it", "acceptance_criteria": ["it is there"]})
    run = run_of(to_phase(2), said("task_failed", 1, "T001", details={"reason": "no disk"}), graph=graph)
    findings = diagnose(run, NOW)
    text = prompt(run, findings, findings.next_action, task_contract="# the contract\n~~~~~ fenced")
    for part in (
        "Retry task T001 - Add it",
        "it is there",
        "no disk",
        "text of constitution.md",
        "text of plan.md",
        "# the contract",
    ):
        assert part in text
    assert "~~~~~~\n# the contract" in text


@pytest.mark.parametrize("phase", range(5))
def test_every_action_that_a_driver_takes_has_a_prompt_that_names_it(phase: int) -> None:
    run = run_of(
        to_phase(phase), artifacts=("prd.md", "constitution.md", "plan.md")[: 0 if phase == 0 else 3], graph=TWO
    )
    findings = diagnose(run, NOW)
    text = prompt(run, findings, findings.next_action)
    assert findings.next_action.summary in text.splitlines()[0]
    assert len(text.encode()) < 256 * 1024


@pytest.mark.req("PROTO-17")
def test_a_damaged_log_makes_the_prompt_ask_for_care() -> None:
    fold = EventFold()
    fold.fold_file("events/a/a.jsonl", "a", [(b"garbage", True), (json.dumps(to_phase(2)).encode(), True)])
    run = Run(run_id="r", path="/r", artifacts=run_of(graph=TWO).artifacts, graph=TWO, run_events=fold.run_events())
    findings = diagnose(run, NOW)
    assert findings.cautious
    assert findings.next_action.task == "T001"
    assert "Look at the files before you repeat any work" in prompt(run, findings, findings.next_action)

"""An approval of an agent-memory run is for plan.md and task-graph.json as they were: changed, they are asked about."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.arc import put
from tests.driver import Acode
from tests.foreign import MEMORY, done, ledger, own_events, put_driver, put_memory

BOTH_FILES = pytest.mark.parametrize("name", ["plan.md", "task-graph.json"])


def change(run: Path, name: str) -> None:
    """Another plan of the same shape: nothing but its bytes tells it from the approved one."""
    text = (run / name).read_text()
    (run / name).write_text(text.replace("The text", "Other text") if name == "plan.md" else text + " \n")


def approved_by_acode(acode: Acode, workspace: Path) -> Path:
    run = put_memory(workspace, approved=False)
    assert acode("resume", MEMORY, "--yes").exit_code == 10
    assert acode("session", "approve", MEMORY).exit_code == 0
    put(run, "constitution.md", "Be good.\n")
    return run


def approved_before_acode_carried_it(acode: Acode, workspace: Path) -> Path:
    run = put_memory(workspace, approved=False)
    assert acode("session", "approve", MEMORY).exit_code == 0
    put(run, "constitution.md", "Be good.\n")
    return run


def approved_elsewhere_and_taken_up(acode: Acode, workspace: Path) -> Path:
    run = put_memory(workspace)
    put(workspace, "fail", "T001")
    assert acode("resume", MEMORY, "--yes").exit_code == 1
    (workspace / "ledger.txt").unlink()
    return run


APPROVALS = pytest.mark.parametrize(
    "approved", [approved_by_acode, approved_before_acode_carried_it, approved_elsewhere_and_taken_up]
)


@BOTH_FILES
@APPROVALS
@pytest.mark.req("PROTO-11")
def test_what_changed_after_its_approval_is_not_executed_before_another(
    acode: Acode, workspace: Path, name: str, approved: Callable[[Acode, Path], Path]
) -> None:
    put_driver(workspace, "agent-memory")
    run = approved(acode, workspace)
    change(run, name)
    found = acode("resume", MEMORY, "--dry-run", "--json").json
    assert found["next_action"] == f"acode session approve {MEMORY}" and found["needs_human"] is True
    assert any(name in warning and "approved" in warning for warning in found["warnings"])
    again = acode("resume", MEMORY, "--yes", "--json")
    assert again.exit_code == 10, again.stdout
    assert again.lines[-1]["data"]["state"] == "AWAITING_APPROVAL" and ledger(workspace) == []
    assert acode("session", "approve", MEMORY).exit_code == 0
    ended = acode("resume", MEMORY, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace)[-len(done(MEMORY)) :] == done(MEMORY)


@APPROVALS
def test_an_unchanged_plan_is_not_asked_about_again(
    acode: Acode, workspace: Path, approved: Callable[[Acode, Path], Path]
) -> None:
    put_driver(workspace, "agent-memory")
    run = approved(acode, workspace)
    (run / "plan.md").write_bytes((run / "plan.md").read_bytes())
    assert acode("resume", MEMORY, "--yes").exit_code == 0
    assert ledger(workspace) == done(MEMORY)


def test_a_graph_that_a_driver_changes_is_asked_about_before_its_next_task(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = approved_by_acode(acode, workspace)
    put(workspace, "also", f"#!/bin/sh\n[ $ACODE_TASK != T001 ] || echo >> {run}/task-graph.json\n").chmod(0o755)
    assert acode("resume", MEMORY).exit_code == 10
    assert ledger(workspace) == ["T001 begun", "T001 done"]
    assert acode("session", "approve", MEMORY).exit_code == 0
    assert acode("resume", MEMORY).exit_code == 0
    assert ledger(workspace) == done(MEMORY)


def test_a_yes_is_for_what_was_asked_about_and_not_for_what_it_became_since(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace, approved=False)
    put(run, "constitution.md", "Be good.\n")
    assert acode("resume", MEMORY, "--yes").exit_code == 10
    change(run, "plan.md")
    said = acode("session", "approve", MEMORY)
    assert said.exit_code == 0 and "the text of plan.md is another now" in said.stdout
    assert acode("resume", MEMORY).exit_code == 10 and ledger(workspace) == []
    assert acode("session", "approve", MEMORY).exit_code == 0
    assert acode("resume", MEMORY).exit_code == 0
    assert ledger(workspace) == done(MEMORY)


def test_a_later_approval_by_the_tool_that_made_the_run_counts(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = approved_by_acode(acode, workspace)
    change(run, "plan.md")
    at = datetime.now(UTC).isoformat()
    event = {"type": "phase_transition", "from_phase": 1, "to_phase": 2, "timestamp": at, "trigger": "user_approval"}
    put(run, "events/orchestrator/b.jsonl", json.dumps(event) + "\n")
    assert acode("resume", MEMORY).exit_code == 0
    assert ledger(workspace) == done(MEMORY)


def test_the_approval_is_on_record_in_the_run_with_the_hashes_of_both_files(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = approved_by_acode(acode, workspace)
    approved = own_events(run)[-1]["details"]["approved"]
    assert set(approved) == {"plan.md", "task-graph.json"} and all(len(one) == 64 for one in approved.values())

"""Runs that other tools began, carried on by a driver: recorded in their own terms, gated, failing and mended."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest

from acode.formats.drive_run import filled
from tests.arc import CONTEXT_PATH, context, put, suspended, task
from tests.driver import Acode
from tests.foreign import (
    ARC,
    MEMORY,
    OPEN_PHASES,
    WORK,
    done,
    essence,
    ledger,
    own_events,
    put_arc,
    put_driver,
    put_foreign,
    put_memory,
    settled,
    tree,
)

BOTH = pytest.mark.parametrize("run", [ARC, MEMORY])


# Carrying on.


@BOTH
@pytest.mark.req("PROTO-04", "PROTO-12", "PROTO-13", "PROTO-14", "ARC-RESUME-01")
def test_a_run_is_carried_on_piece_by_piece_until_nothing_is_left(acode: Acode, workspace: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put_foreign(workspace, run)
    ended = acode("resume", run, "--yes", "--json")
    assert ended.exit_code == 0, ended.stderr
    assert ledger(workspace) == done(run)
    assert ended.lines[-1]["data"]["state"] == "COMPLETED"
    assert ended.lines[-1]["data"]["executed_steps"] == len(WORK[run])


def test_an_arc_phase_is_recorded_with_artifact_hash_times_and_totals(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace, started_at="2026-03-01T10:00:00.000Z")
    assert acode("resume", ARC, "--yes").exit_code == 0
    value = json.loads(checkpoint.read_text())
    work = value["phases"]["work"]
    assert work["status"] == "completed"
    assert work["artifact"] == f"tmp/arc/{ARC}/work-summary.md"
    digest = hashlib.sha256((workspace / work["artifact"]).read_bytes()).hexdigest()
    assert work["artifact_hash"] == digest
    assert work["started_at"] < work["completed_at"] < value["completed_at"] == value["updated_at"]
    assert set(value["totals"]["phase_times"]) == set(OPEN_PHASES)
    assert value["completed_at"] and value["totals"]["total_duration_ms"] > 0


@pytest.mark.req("PROTO-19", "PROTO-20")
def test_an_agent_memory_run_is_told_in_a_file_of_our_own_and_no_other_is_touched(
    acode: Acode, workspace: Path
) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    before = tree(run / "events" / "orchestrator")
    assert acode("resume", MEMORY, "--yes").exit_code == 0
    assert tree(run / "events" / "orchestrator") == before
    assert essence(run) == [
        ("task_started", "T001", None),
        ("task_completed", "T001", None),
        ("task_started", "T002", None),
        ("task_completed", "T002", None),
        ("phase_transition", None, 3),
        ("phase_transition", None, 4),
        ("run_completed", None, None),
    ]
    assert {event["actor"] for event in own_events(run)} == {"acode"}


def test_prompts_are_private_and_do_not_outlive_the_session(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    put(workspace, "also", '#!/bin/sh\nls -ld "$ACODE_PROMPT_FILE" "$(dirname "$ACODE_PROMPT_FILE")" >> modes\n').chmod(
        0o755
    )
    put_arc(workspace)
    assert acode("resume", ARC, "--yes").exit_code == 0
    modes = [line.split()[0][:10] for line in (workspace / "modes").read_text().splitlines()]
    assert set(modes) == {"-rw-------", "drwx------"}
    assert not list((workspace / ".agent" / "run").rglob("*.md"))


@pytest.mark.req("ARC-05", "ARC-SUSP-13")
def test_the_prompt_of_a_phase_names_the_plan_and_ends_with_the_suspended_context(
    acode: Acode, workspace: Path
) -> None:
    put_driver(workspace, "arc")
    put(workspace, "also", '#!/bin/sh\ncp "$ACODE_PROMPT_FILE" "prompt-$ACODE_TASK"\n').chmod(0o755)
    put(workspace, CONTEXT_PATH, context(body="Half of the parser is there."))
    checkpoint = put_arc(workspace, phases=suspended(task()))
    assert acode("resume", ARC, "--yes").exit_code == 0
    prompt = (workspace / "prompt-work").read_text()
    assert "Plan file: plans/a.md" in prompt
    assert "Half of the parser is there." in prompt.rpartition("begin saved context")[2]
    assert "saved context" not in (workspace / "prompt-mend").read_text()
    value = json.loads(checkpoint.read_text())
    assert value["phases"]["work"]["suspended_tasks"] == []
    assert value["acode"]["tasks"]["7"]["consumed"] is True


def test_phases_that_share_an_artifact_do_not_demote_each_other(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace, phases={"verify_mend": {"status": "pending"}})
    assert acode("resume", ARC, "--yes").exit_code == 0
    phases = json.loads(checkpoint.read_text())["phases"]
    assert phases["mend"]["artifact"] == phases["verify_mend"]["artifact"]
    assert phases["mend"]["artifact_hash"] == phases["verify_mend"]["artifact_hash"]
    assert acode("explain", ARC, "--json").json["demoted"] == []


def test_placeholders_are_whole_arguments_and_never_part_of_a_shell_line() -> None:
    values = {"prompt_file": "/p q", "run_id": "r", "task": "$(rm -rf x)"}
    assert filled("{prompt_file}", values) == "/p q"
    assert filled("--prompt-file={prompt_file}", values) == "--prompt-file=/p q"
    assert filled("do {task}; done", values) == "do {task}; done"
    assert filled("{task}", values) == "$(rm -rf x)"
    assert filled("{other}", values) == "{other}"


def test_a_demoted_phase_runs_again_and_the_decision_is_on_record(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    put(workspace, f"tmp/arc/{ARC}/plan-review.md", "edited by hand")
    review = {"status": "completed", "artifact": f"tmp/arc/{ARC}/plan-review.md", "artifact_hash": "sha256:" + "0" * 64}
    checkpoint = put_arc(workspace, phases={"plan_review": review})
    assert acode("resume", ARC, "--yes").exit_code == 0
    assert ledger(workspace)[0] == "plan_review begun"
    value = json.loads(checkpoint.read_text())
    assert value["acode"]["demoted"][0]["phase"] == "plan_review"
    assert value["phases"]["plan_review"]["artifact_hash"] != review["artifact_hash"]


def test_the_session_that_carries_a_run_is_sealed_and_verifies(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc", "agent-memory")
    put_memory(workspace)
    assert acode("resume", MEMORY, "--yes").exit_code == 0
    found = acode("session", "verify", MEMORY, "--json").json
    assert found["ok"] is True and found["problems"] == []


def test_supervise_retries_a_driver_under_the_policy(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc")
    settings = json.loads((workspace / ".agent/config.yml").read_text())
    settings["resume"] = {"cooldown_seconds": {"tool_failure": 0}}
    put(workspace, ".agent/config.yml", json.dumps(settings))
    put(workspace, "fail", "code_review")
    checkpoint = put_arc(workspace)
    ended = acode.process("supervise", ARC, "--yes").finish()
    assert ended.exit_code == 0, ended.stderr
    assert settled(checkpoint)["completed_at"] is True
    assert stat.S_IMODE((workspace / ".agent").stat().st_mode) == 0o700


# The gate.


@pytest.mark.req("PROTO-11")
def test_a_plan_waits_for_a_persons_yes_and_goes_on_after_it(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace, approved=False)
    waiting = acode("resume", MEMORY, "--yes", "--json")
    assert waiting.exit_code == 10 and ledger(workspace) == []
    assert waiting.lines[-1]["data"]["state"] == "AWAITING_APPROVAL"
    assert acode("session", "approve", MEMORY, "--note", "well done").exit_code == 0
    assert own_events(run)[-1]["trigger"] == "user_approval"
    put(run, "constitution.md", "Be good.\n")
    ended = acode("resume", MEMORY, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace) == done(MEMORY)
    assert sum(event.get("trigger") == "user_approval" for event in own_events(run)) == 1


def test_a_plan_can_be_approved_before_acode_has_carried_anything(acode: Acode, workspace: Path) -> None:
    put_memory(workspace, approved=False)
    assert acode("session", "approve", MEMORY).exit_code == 0
    assert acode("status", MEMORY, "--json").json["phase"] == 2
    assert acode("session", "approve", MEMORY).exit_code == 2


def test_a_yes_is_for_the_plan_as_it_was_and_a_changed_one_is_asked_about_again(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace, approved=False)
    assert acode("resume", MEMORY, "--yes").exit_code == 10
    (row,) = acode("session", "list", "--json").json
    # The yes reaches the session and, as after a crash, not the run.
    from acode.cli.early_flags import Flags
    from acode.cli.world import build_world
    from acode.engine.session_commands import answer_gate

    flags = Flags()
    flags.directory = str(workspace)
    answer_gate(build_world(flags), row["carrier"], None, granted=True, note="")
    (run / "plan.md").write_text("Another plan altogether.\n")
    again = acode("resume", MEMORY)
    assert again.exit_code == 10 and ledger(workspace) == []


def test_a_denied_plan_stays_at_its_gate(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    put_memory(workspace, approved=False)
    assert acode("session", "deny", MEMORY).exit_code == 2
    assert acode("resume", MEMORY, "--yes").exit_code == 10
    assert acode("session", "deny", MEMORY).exit_code == 0
    assert acode("status", MEMORY, "--json").json["state"] == "PAUSED"
    assert acode("resume", MEMORY).exit_code == 10
    assert ledger(workspace) == []


@pytest.mark.req("PROTO-16")
def test_a_plan_that_had_to_be_made_again_goes_back_to_the_gate(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    (run / "plan.md").unlink()
    put(workspace, "also", f"#!/bin/sh\n[ $ACODE_TASK != write_plan ] || echo new > {run}/plan.md\n").chmod(0o755)
    ended = acode("resume", MEMORY, "--yes")
    assert ended.exit_code == 10, ended.stderr
    assert ledger(workspace) == ["write_plan begun", "write_plan done"]
    assert acode("status", MEMORY, "--json").json["phase"] == 1


# Failing.


@BOTH
def test_a_failed_driver_pauses_the_session_and_is_recorded_in_the_run(acode: Acode, workspace: Path, run: str) -> None:
    put_driver(workspace, "arc", "agent-memory")
    second = WORK[run][1]
    put(workspace, "fail", second)
    place = put_foreign(workspace, run)
    failed = acode("resume", run, "--yes", "--json")
    assert failed.exit_code == 1
    assert failed.lines[-1]["data"]["reason_code"] == "step_failed"
    if run == ARC:
        entry = json.loads(place.read_text())["phases"][second]
        assert entry["status"] == "failed" and entry["completed_at"] is None
    else:
        assert own_events(place)[-1]["type"] == "task_failed"
        assert "exit status 3" in own_events(place)[-1]["details"]["reason"]
    again = acode("resume", run, "--json")
    assert again.exit_code == 0, again.stdout
    expected = done(run)
    expected.insert(2, f"{second} begun")
    assert ledger(workspace) == expected


def test_a_driver_that_was_mended_in_the_settings_is_the_one_that_is_retried(acode: Acode, workspace: Path) -> None:
    put_arc(workspace)
    put(workspace, ".agent/config.yml", json.dumps({"drivers": {"arc": {"command": ["./missing"]}}}))
    assert acode("resume", ARC, "--yes").exit_code == 1
    put_driver(workspace, "arc")
    ended = acode("resume", ARC, "--yes", "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace) == done(ARC)


def test_a_driver_that_ran_out_of_time_is_recorded_as_such(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "arc", timeout=0.3)
    put(workspace, "hold", "work")
    checkpoint = put_arc(workspace)
    ended = acode("resume", ARC, "--yes", "--json")
    assert ended.exit_code == 1 and ended.lines[-1]["data"]["error"]["code"] == "ACODE-STEP-002"
    assert json.loads(checkpoint.read_text())["phases"]["work"]["status"] == "timeout"
    put_driver(workspace, "arc", timeout=60)
    assert acode("resume", ARC, "--yes").exit_code == 0
    assert json.loads(checkpoint.read_text())["phases"]["work"]["status"] == "completed"


def test_success_without_the_artifact_that_was_to_be_made_is_none(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    (run / "prd.md").unlink()
    ended = acode("resume", MEMORY, "--yes")
    assert ended.exit_code == 1 and "prd.md is not there" in ended.stderr
    assert ledger(workspace) == ["write_prd begun", "write_prd done"]
    assert own_events(run)[-1]["type"] == "execution_error"


def test_a_task_that_the_driver_blocked_is_not_completed_and_a_person_is_asked_for(
    acode: Acode, workspace: Path
) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    event = '{"type":"task_blocked","task_id":"T001","timestamp":"2099-01-01T00:00:00Z"}'
    (run / "events" / "worker").mkdir()
    put(workspace, "also", f"#!/bin/sh\necho '{event}' > {run}/events/worker/a.jsonl\n").chmod(0o755)
    ended = acode("resume", MEMORY, "--yes", "--json")
    assert ended.exit_code == 10
    assert ended.lines[-1]["data"]["reason_code"] == "nothing_runnable"
    assert not [one for one in own_events(run) if one["type"] == "task_completed"]


def test_a_run_that_asks_for_the_same_task_for_ever_does_not_get_it_for_ever(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    run = put_memory(workspace)
    event = {"type": "task_started", "task_id": "T001", "timestamp": "2099-01-01T00:00:00Z"}
    put(run, "events/worker/a.jsonl", json.dumps(event) + "\n")
    ended = acode("resume", MEMORY, "--yes")
    assert ended.exit_code == 1 and "asks for it again" in ended.stderr
    assert ledger(workspace) == ["T001 begun", "T001 done"]


def test_an_acode_that_let_the_run_go_is_no_live_owner_although_its_number_is_alive(
    acode: Acode, workspace: Path
) -> None:
    put_driver(workspace, "arc")
    checkpoint = put_arc(workspace)
    put(workspace, "fail", "work")
    assert acode.process("resume", ARC, "--yes").finish().exit_code == 1
    lock = checkpoint.with_name(".acode.lock")
    value = json.loads(checkpoint.read_text())
    assert lock.read_text() == str(value["owner_pid"])
    # As if the number had been used again: process 1 is alive and not acode.
    lock.write_text("1")
    checkpoint.write_text(json.dumps({**value, "owner_pid": 1}))
    assert acode("resume", ARC, "--dry-run", "--json").json["refusals"] == []
    assert acode("resume", ARC).exit_code == 0

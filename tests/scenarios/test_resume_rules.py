"""The verification scenarios of the resume rules: shutdown, crash, mismatch, loop, fresh start, interrupt."""

from __future__ import annotations

import signal

import pytest

from tests.scenarios.conftest import AT_THE_DOOR, NOTE, Stage

GATED = f"""
title: Gated
tasks:
  - title: Before
    steps:
      - run: {NOTE}
        id: first
  - title: After
    steps:
      - approve: Go on?
      - run: {NOTE}
        id: second
"""


# acode itself, in a process that ends by kill -9 when its first step is about to begin.
KILLED_BEFORE_ITS_FIRST_STEP = """
import os, signal, sys
from acode.cli import main
from acode.engine import walk

walk.perform_step = lambda *args, **more: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


@pytest.mark.req("SCN-040b-01", "FR-040b-31", "FR-040b-36", "FR-040b-46", "FR-040b-13")
def test_after_a_clean_shutdown_it_goes_on_with_the_next_step_and_repeats_nothing(stage: Stage) -> None:
    assert stage.acode("run", stage.plan(GATED)).exit_code == 10
    session = stage.sessions()[0]["session_id"]
    last = [event for event in stage.history(session) if event["type"] == "step_completed"][-1]
    look = stage.acode("resume", "--dry-run", session, "--json").json
    assert look["scenario"] == "clean_shutdown"
    assert look["resume_point"] == {
        "event_id": last["event_id"],
        "seq": last["seq"],
        "task": "before",
        "step": "before.first",
    }
    assert stage.acode("session", "approve", session).exit_code == 0
    assert stage.acode("resume", session).exit_code == 0
    assert stage.ledger() == {"before.first": 1, "after.second": 1}
    assert [line["session_id"] for line in stage.log_lines() if line["event"] == "session_resume"] == [session]


@pytest.mark.req("SCN-040b-02", "FR-040b-32", "FR-040b-37", "FR-040b-03", "FR-040b-42")
def test_after_a_crash_in_the_middle_the_incomplete_step_is_found_and_done_again(stage: Stage) -> None:
    plan = stage.plan(
        f"""
        title: Crash
        tasks:
          - title: Work
            steps:
              - run: {NOTE}
                id: done
              - run: {AT_THE_DOOR}; echo made > out.txt
                id: open
                outputs: [out.txt]
        """
    )
    running = stage.acode.process("run", plan)
    running.wait_for_line("│ at the door")
    running.kill_everything()
    session = stage.sessions()[0]["session_id"]
    look = stage.acode("resume", "--dry-run", session, "--json").json
    assert (look["scenario"], look["interruption_class"]) == ("mid_operation", "process_crash")
    assert [one["step"] for one in look["in_flight"]] == ["work.open"]
    assert look["in_progress"]["action"] == "rollback_and_retry"
    stage.open_door()
    assert stage.acode("resume", session).exit_code == 0
    assert stage.ledger()["work.done"] == 1
    assert (stage.workspace / "out.txt").read_text() == "made\n"
    settled = [event for event in stage.history(session) if event["type"] == "step_settled"]
    assert [(event["step"], event["data"]["outcome"]) for event in settled] == [("work.open", "rolled_back")]


@pytest.mark.req("SCN-040b-03", "FR-040b-20", "FR-040b-21", "FR-040b-22", "FR-040b-23")
def test_a_file_changed_by_somebody_else_is_found_named_logged_and_needs_a_person(stage: Stage) -> None:
    (stage.workspace / "input.txt").write_text("as it was\n")
    plan = stage.plan(GATED.replace(f"- run: {NOTE}\n        id: first", "- read: input.txt"))
    assert stage.acode("run", plan).exit_code == 10
    session = stage.sessions()[0]["session_id"]
    stage.acode("session", "approve", session)
    (stage.workspace / "input.txt").write_text("as somebody else wants it\n")
    refused = stage.acode("resume", session, "--json")
    assert refused.exit_code == 17
    error = refused.lines[-1]["data"]["error"]
    assert [one["path"] for one in error["details"]["mismatches"]] == ["input.txt"]
    assert any(line["level"] == "error" and "input.txt" in str(line) for line in stage.log_lines())
    assert stage.ledger() == {}
    assert stage.acode("resume", session, "--changed-files", "continue").exit_code == 0
    assert stage.ledger() == {"after.second": 1}


@pytest.mark.req("SCN-040b-04", "FR-040b-52", "FR-040b-55", "FR-040b-56", "NFR-040b-30")
def test_a_resume_loop_ends_at_the_limit_with_an_escalation_to_a_person(stage: Stage) -> None:
    assert stage.acode("run", stage.plan("title: Loop\ntasks: [{title: t, steps: [{run: exit 3}]}]")).exit_code == 1
    session = stage.sessions()[0]["session_id"]
    assert [stage.acode("resume", session).exit_code for _ in range(3)] == [1, 1, 1]
    ended = stage.acode("resume", session)
    assert ended.exit_code == 18
    assert "exit status 3" in ended.stderr
    assert f"acode resume {session[-8:]} --force" in ended.stderr
    assert stage.sessions()[0]["escalated"] is True
    assert stage.sessions()[0]["state"] == "PAUSED"
    assert any(line["level"] == "critical" for line in stage.log_lines())


@pytest.mark.req("SCN-040b-05", "FR-040b-09", "FAIL-040b-01", "STATE-011c-02")
def test_a_session_that_never_started_a_step_starts_fresh_without_an_error(stage: Stage) -> None:
    """Killed between the session's creation and its first step; the process is stopped there, not raced against."""
    plan = stage.plan(f"title: Fresh\ntasks: [{{id: t, steps: [{{run: '{NOTE}', id: only}}]}}]")
    running = stage.acode.process("run", plan, program=["-c", KILLED_BEFORE_ITS_FIRST_STEP])
    assert running.finish().exit_code == -signal.SIGKILL
    (found,) = stage.sessions()
    kinds = [event["type"] for event in stage.history(found["session_id"])]
    assert kinds[0] == "session_created" and "step_started" not in kinds
    look = stage.acode("resume", "--dry-run", found["session_id"], "--json").json
    assert (look["scenario"], look["resume_point"]) == ("fresh_start", None)
    assert (look["skipped_steps"], look["remaining_steps"]) == ([], ["t.only"])
    assert stage.acode("resume", found["session_id"]).exit_code == 0
    assert stage.ledger() == {"t.only": 1}
    (started,) = [event for event in stage.history(found["session_id"]) if event["type"] == "resume_started"]
    assert started["data"]["scenario"] == "fresh_start"


@pytest.mark.req("SCN-040b-06", "FR-040b-34", "FR-040b-39", "SCN-011c-01")
def test_ctrl_c_pauses_at_the_step_boundary_and_resume_loses_nothing(stage: Stage) -> None:
    plan = stage.plan(
        f"""
        title: Interrupt
        tasks:
          - title: Work
            steps:
              - run: {AT_THE_DOOR}
                id: one
              - run: {NOTE}
                id: two
        """
    )
    running = stage.acode.process("run", plan)
    running.wait_for_line("│ at the door")
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after step work.one")
    stage.open_door()
    ended = running.finish()
    assert ended.exit_code == 130
    session = stage.sessions()[0]["session_id"]
    assert ended.stderr.rstrip().splitlines()[-1] == f"To resume: acode resume {session[-8:]}"
    look = stage.acode("resume", "--dry-run", session, "--json").json
    assert (look["scenario"], look["interruption_class"]) == ("user_interrupt", None)
    assert look["checkpoint"]["seq"] == look["resume_point"]["seq"] or look["checkpoint"]["valid"]
    assert stage.acode("resume", "--last").exit_code == 0
    assert stage.ledger() == {"work.one": 1, "work.two": 1}

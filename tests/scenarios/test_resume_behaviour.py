"""The user verification scenarios and use cases of the resume behaviour, with real processes and signals."""

from __future__ import annotations

import signal

import pytest

from tests.driver import Running
from tests.scenarios.conftest import AT_THE_DOOR, NOTE, Stage


def three_tasks(stage: Stage, name: str = "plan.yml", title: str = "Three tasks") -> Running:
    """Two tasks done, the third in the middle of its command."""
    plan = stage.plan(
        f"""
        title: {title}
        tasks:
          - title: First
            steps:
              - run: {NOTE}
              - write: {{path: {name}.first.txt, content: "first\\n"}}
          - title: Second
            steps:
              - run: {NOTE}
          - title: Third
            steps:
              - run: {NOTE}
                id: before
              - run: {AT_THE_DOOR}; echo end > {name}.third.txt
                id: held
                outputs: ["{name}.third.txt"]
              - read: {name}.third.txt
        """,
        name,
    )
    running = stage.acode.process("run", plan, "--new")
    running.wait_for_line("│ at the door")
    return running


def interrupted(stage: Stage, running: Running, number: int = signal.SIGTERM) -> str:
    running.signal(number)
    running.wait_for_line("Pausing after")
    stage.open_door()
    running.finish()
    stage.door.unlink()
    return str(stage.sessions()[0]["session_id"])


@pytest.mark.req("SCN-011c-02", "FR-011c-002", "CLI-011c-02")
def test_the_session_that_is_named_is_resumed_and_no_other(stage: Stage) -> None:
    first = interrupted(stage, three_tasks(stage, "a.yml", "A"))
    second = interrupted(stage, three_tasks(stage, "b.yml", "B"))
    assert first != second
    assert stage.acode("resume", first[-8:]).exit_code == 0
    states = {one["session_id"]: one["state"] for one in stage.sessions()}
    assert (states[first], states[second]) == ("COMPLETED", "PAUSED")


@pytest.mark.req("SCN-011c-03", "FR-011c-019", "FR-011c-020", "FR-011c-058")
def test_only_what_is_left_is_executed_and_the_rest_is_shown_as_skipped(stage: Stage) -> None:
    session = interrupted(stage, three_tasks(stage))
    ended = stage.acode("resume", session)
    assert ended.exit_code == 0
    assert set(stage.ledger().values()) == {1}
    assert "Skipping: Task 1 (complete)" in ended.stderr
    assert "Skipping: Task 3, Steps 1-2 (complete)" in ended.stderr
    assert "Starting from: Task 3, Step 3" in ended.stderr
    assert "Remaining: 1 step" in ended.stderr


@pytest.mark.req("SCN-011c-04", "FR-011c-004", "CODE-011c-02", "STATE-011c-06", "STATE-011c-08")
def test_a_terminal_session_is_refused_by_name_and_with_its_own_exit_code(stage: Stage) -> None:
    plan = stage.plan("title: Done\ntasks: [{title: t, steps: [{write: {path: x, content: x}}]}]")
    assert stage.acode("run", plan).exit_code == 0
    done = stage.sessions()[0]["session_id"]
    refused = stage.acode("resume", done)
    assert refused.exit_code == 15
    assert "Cannot resume COMPLETED session" in refused.stderr
    assert stage.acode("run", stage.plan("title: Gate\ntasks: [{title: t, steps: [{approve: ok?}]}]")).exit_code == 10
    gate = stage.sessions()[0]["session_id"]
    assert stage.acode("session", "cancel", gate).exit_code == 0
    assert stage.acode("resume", gate).exit_code == 15


@pytest.mark.req("SCN-011c-05", "FR-011c-005", "FR-011c-006", "CODE-011c-03", "FR-011c-055")
def test_a_second_terminal_is_refused_and_told_who_holds_the_session(stage: Stage) -> None:
    running = three_tasks(stage)
    session = stage.sessions()[0]["session_id"]
    refused = stage.acode("resume", session)
    assert refused.exit_code == 16
    assert "is locked by another process" in refused.stderr
    assert f"pid {running.pid}" in refused.stderr
    stage.open_door()
    assert running.finish().exit_code == 0
    assert set(stage.ledger().values()) == {1}


@pytest.mark.req("SCN-011c-08", "FR-011c-009", "FR-011c-021", "FR-011c-028", "NFR-011c-010")
def test_after_kill_9_of_everything_it_resumes_from_the_checkpoint_and_ends_byte_for_byte_the_same(
    stage: Stage,
) -> None:
    stage.open_door()
    undisturbed = three_tasks(stage)
    assert undisturbed.finish().exit_code == 0
    expected = stage.files()
    for path in ("plan.yml.first.txt", "plan.yml.third.txt"):
        (stage.workspace / path).unlink()
    stage.ledger_file.unlink()
    stage.door.unlink()
    three_tasks(stage).kill_everything()
    stage.open_door()
    assert stage.acode("resume", "--last", "--yes").exit_code == 0
    assert stage.files() == expected
    # The step that was rolled back ran twice, as its declaration allows; nothing that was complete ran again.
    assert stage.ledger() == {"first.1": 1, "second.1": 1, "third.before": 1, "third.held": 2}


def test_only_acode_killed_its_command_is_waited_for_and_not_started_again(stage: Stage) -> None:
    running = three_tasks(stage)
    running.kill()
    resumed = stage.acode.process("resume", "--last", "--yes")
    resumed.wait_for_line("still running")
    stage.open_door()
    assert resumed.finish().exit_code == 0
    assert stage.ledger()["third.held"] == 1


@pytest.mark.req("SCN-011c-10", "NFR-011c-006", "BP-011c-19", "INV-011c-01")
def test_resumed_interrupted_and_resumed_again_nothing_is_done_twice(stage: Stage) -> None:
    session = interrupted(stage, three_tasks(stage), signal.SIGINT)
    plan = stage.plan(
        f"""
        title: Again
        tasks:
          - title: Work
            steps:
              - run: {NOTE}
              - run: {AT_THE_DOOR}
                id: a
              - run: {NOTE}
                id: b
        """,
        "again.yml",
    )
    assert stage.acode("resume", session).exit_code == 0
    running = stage.acode.process("run", plan)
    running.wait_for_line("│ at the door")
    again = interrupted(stage, running)
    for _ in range(2):  # resume, and pause at once; one that was done before it heard of the pause has ended
        process = stage.acode.process("resume", again)
        process.wait_for_line("Resuming session")
        process.signal(signal.SIGINT)
        if process.finish().exit_code == 0:
            break
    stage.acode("resume", again)
    assert stage.ledger()["work.b"] == 1
    assert stage.ledger()["work.a"] == 1
    assert {one["session_id"] for one in stage.sessions()} == {session, again}


@pytest.mark.req("UC-011c-01", "OUT-011c-01", "FR-011c-056")
def test_sigterm_pauses_and_the_resume_names_what_it_skips_and_the_time_it_took(stage: Stage) -> None:
    running = three_tasks(stage)
    running.signal(signal.SIGTERM)
    running.wait_for_line("Pausing after step third.held")
    stage.open_door()
    assert running.finish().exit_code == 143
    session = stage.sessions()[0]
    assert (session["state"], session["tasks_done"], session["steps_done"]) == ("PAUSED", 2, 5)
    ended = stage.acode("resume", "--last", "--yes")
    assert "Loaded state: PAUSED at Task 3, Step 3" in ended.stderr
    assert "of work" in ended.stderr
    assert "First (skipped" in ended.stderr


@pytest.mark.req("UC-011c-03", "FR-011c-018", "FR-011c-026")
def test_power_cut_resume_ctrl_c_resume_each_time_from_the_newest_checkpoint(stage: Stage) -> None:
    three_tasks(stage).kill_everything()
    first = stage.acode("resume", "--dry-run", "--json").json
    assert first["in_progress"]["action"] == "rollback_and_retry"
    resumed = stage.acode.process("resume", "--last", "--yes")
    resumed.wait_for_line("│ at the door")
    resumed.signal(signal.SIGINT)
    resumed.wait_for_line("Pausing after")
    stage.open_door()
    assert resumed.finish().exit_code == 130
    second = stage.acode("resume", "--dry-run", "--json").json
    assert second["checkpoint"]["id"] > first["checkpoint"]["id"]
    assert second["environment"]["changed_files"] == []
    assert stage.acode("resume", "--last", "--yes").exit_code == 0
    assert (stage.workspace / "plan.yml.third.txt").read_text() == "end\n"

"""The policy loop around real children: cool-downs waited out, limits kept, signals passed on, somebody told."""

from __future__ import annotations

import itertools
import json
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from acode.policy import Decision, Reason
from acode.supervise import FINAL, FRUITLESS_MAX, ChildEnd, Standing, Step, final_step, next_step, supervise
from tests.driver import Acode, Running
from tests.tampering import Attack
from tests.variants import first_of

# Pure.


def decision(reason: Reason, wait_s: int = 0) -> Decision:
    return Decision(
        eligible=reason is Reason.ALLOWED,
        reason=reason,
        attempt=1,
        attempts_max=3,
        cooldown_s_remaining=wait_s,
        actor="system",
        run_state="in_progress",
    )


ENDS = (None, ChildEnd(exit_code=None, signal="SIGKILL"), *(ChildEnd(exit_code=code) for code in (*FINAL, 1, 16, 75)))


@pytest.mark.parametrize("reason", Reason)
def test_the_childs_word_comes_first_and_then_the_policy(reason: Reason) -> None:
    for end, locked, fruitless in itertools.product(ENDS, (False, True), range(FRUITLESS_MAX + 1)):
        standing = Standing(decision=decision(reason, 17), state="PAUSED", locked=locked)
        step = final_step(end) or next_step(end, standing, fruitless=fruitless)
        code = end.exit_code if end else None
        if code in FINAL:
            assert (step.do, step.exit_code) == ("end", code)
        elif locked or code == 16:
            assert (step.do, step.seconds) == ("wait", 2.0)
        elif reason is Reason.COOLDOWN:
            assert (step.do, step.seconds) == ("wait", 17)
        elif (fruitless and code == 1) or fruitless >= FRUITLESS_MAX:
            assert (step.do, step.exit_code) == ("end", 1)
        else:
            # What is refused is started too: the child records the refusal, and its exit status ends the loop.
            assert step == Step(do="start", why=str(reason))


@pytest.mark.parametrize("end", ENDS)
def test_an_ended_session_ends_the_loop_with_its_own_status(end: ChildEnd | None) -> None:
    step = final_step(end) or next_step(end, Standing(decision=None, state="FAILED", exit_code=1))
    assert step.do == "end"
    assert step.exit_code == (end.exit_code if end is not None and end.exit_code in FINAL else 1)


class Loop:
    """The loop with children and looks that the test lines up; what is not lined up repeats the last one."""

    def __init__(self, ends: list[ChildEnd], looks: list[Standing]) -> None:
        self.ends, self.looks = ends, looks
        self.children = 0
        self.waited: list[float] = []
        self.stop_in_countdown = False
        self.stopped = False

    def go(self, *, locked_s_max: float = 60.0, first: bool = False) -> int:
        return supervise(
            first=self._child if first else None,
            resume=self._child,
            look=lambda: self.looks.pop(0) if len(self.looks) > 1 else self.looks[0],
            count_down=self._wait,
            stopped=lambda: self.stopped,
            emit=lambda notice: None,
            locked_s_max=locked_s_max,
        )

    def _child(self) -> ChildEnd:
        self.children += 1
        assert self.children < 20, "it spins"
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def _wait(self, seconds: float, why: str) -> bool:
        self.waited.append(seconds)
        assert len(self.waited) < 50, "it waits for ever"
        return not self.stop_in_countdown


def standing(reason: Reason = Reason.ALLOWED, wait_s: int = 0, resumes: int = 0, **more: Any) -> Standing:
    return Standing(decision=decision(reason, wait_s), state="PAUSED", resumes=resumes, **more)


def test_a_child_that_has_said_the_last_word_is_believed_where_nobody_can_look() -> None:
    assert Loop([DONE], []).go(first=True) == 0


FAILED, DEAD, DONE = ChildEnd(exit_code=1), ChildEnd(exit_code=None, signal="SIGKILL"), ChildEnd(exit_code=0)


def test_each_cool_down_is_waited_out_before_the_next_child() -> None:
    looks = [standing(Reason.COOLDOWN, 30), standing(), standing(Reason.COOLDOWN, 60, 1), standing(resumes=1)]
    loop = Loop([FAILED, DEAD, DONE], [*looks, standing(resumes=2)])
    assert loop.go(first=True) == 0
    assert (loop.children, loop.waited) == (3, [30, 60])


def test_a_cool_down_that_does_not_pass_by_waiting_is_asked_about_by_a_child() -> None:
    """The clock was ahead when the run ended: only a refusal on record gives the cool-down a beginning."""
    cooling = standing(Reason.COOLDOWN, 30)
    loop = Loop([ChildEnd(exit_code=75), DONE], [cooling, cooling, cooling, standing()])
    assert loop.go() == 0
    assert (loop.children, loop.waited) == (2, [30, 30])


def test_waiting_for_a_lock_is_not_waiting_for_the_cool_down() -> None:
    looks = [standing(Reason.COOLDOWN, 30, locked=True), standing(Reason.COOLDOWN, 28), standing()]
    loop = Loop([DONE], looks)
    assert (loop.go(), loop.children) == (0, 1)
    assert loop.waited[-1] == 28


def test_a_child_that_cannot_even_begin_is_not_started_for_ever() -> None:
    assert Loop([FAILED], [standing()]).go() == 1
    dying = Loop([DEAD], [standing()])
    assert dying.go() == 1
    assert dying.children == FRUITLESS_MAX


def test_children_that_begin_and_die_are_left_to_the_policy() -> None:
    looks = [standing(resumes=number) for number in range(12)]
    loop = Loop([DEAD] * 10 + [ChildEnd(exit_code=18)], looks)
    assert loop.go() == 18
    assert loop.children == 11


def test_somebody_elses_lock_is_waited_for_no_longer_than_its_time() -> None:
    loop = Loop([DONE], [standing(locked=True)])
    assert loop.go(locked_s_max=9.0) == 16
    assert loop.children == 0 and sum(loop.waited) <= 9.0
    freed = Loop([DONE], [standing(locked=True), standing(locked=True), standing()])
    assert freed.go() == 0


def test_children_that_are_refused_are_waited_for_as_long_as_a_lock_however_many_they_are() -> None:
    """A command that lives on, or a server that does not say who has the session, refuses every child for a while."""
    refused = ChildEnd(exit_code=16)
    assert Loop([*[refused] * (FRUITLESS_MAX + 2), DONE], [standing()]).go() == 0
    loop = Loop([refused], [standing()])
    assert loop.go(locked_s_max=9.0) == 16
    assert loop.children > FRUITLESS_MAX


def test_whoever_stops_the_countdown_or_the_pause_between_children_stops_the_loop() -> None:
    loop = Loop([DONE], [standing(Reason.COOLDOWN, 30)])
    loop.stop_in_countdown = True
    assert (loop.go(), loop.children) == (130, 0)
    between = Loop([DONE], [standing()])
    between.stopped = True
    assert (between.go(), between.children) == (130, 0)


# Real children.

QUICK = {f"ACODE_RESUME_COOLDOWN_SECONDS_{name}": "0" for name in ("TOOL_FAILURE", "TIMEOUT", "PROCESS_CRASH")}
COUNT = "echo x >> tries"
# Kills the acode that started it, its keeper and itself, the first time it runs.
SUICIDE = (
    "[ -e once ] && exit 0; touch once;"
    r' kill -9 $(sed "s/.*\"pid\":\([0-9]*\).*/\1/" .agent/locks/$ACODE_SESSION_ID.1) $PPID $$'
)


def plan(workspace: Path, command: str, declared: str = "idempotent: true") -> Path:
    path = workspace / "plan.yml"
    path.write_text(
        "title: Supervised\ntasks:\n  - id: t\n    steps:\n"
        "      - write: {path: first.txt, content: first}\n"
        f"      - run: >-\n          {command}\n        id: work\n        {declared}\n"
        "      - write: {path: last.txt, content: last}\n"
    )
    return path


def session_of(acode: Acode) -> dict[str, Any]:
    found: dict[str, Any] = acode("session", "list", "--all", "--json").json[0]
    return found


def history(acode: Acode) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = acode("session", "history", session_of(acode)["session_id"], "--json").json
    return events


def decisions(acode: Acode) -> list[tuple[str | None, str]]:
    found = [event["data"] for event in history(acode) if event["type"] == "resume_decision"]
    return [(one["interruption_class"], one["reason_code"]) for one in found]


def log(workspace: Path, event: str) -> list[dict[str, Any]]:
    lines = (workspace / ".agent/logs/acode.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if line["event"] == event]


@pytest.mark.req("POL-CLASS-04", "POL-GOAL-01")
def test_a_child_killed_by_sigkill_is_resumed_after_its_cool_down_and_finishes(acode: Acode, workspace: Path) -> None:
    env = QUICK | {"ACODE_RESUME_COOLDOWN_SECONDS_PROCESS_CRASH": "1"}
    ended = acode.process("supervise", plan(workspace, f"{COUNT}; {SUICIDE}"), env=env).finish()
    assert ended.exit_code == 0, ended.stderr
    assert "The child was killed by SIGKILL" in ended.stderr
    assert "Waiting 1 s (cool-down)" in ended.stderr
    assert (workspace / "tries").read_text() == "x\nx\n"
    assert decisions(acode) == [("process_crash", "resume_allowed")]
    at = {event["type"]: datetime.fromisoformat(event["at"]) for event in history(acode) if event["step"] == "t.work"}
    decided = next(event for event in history(acode) if event["type"] == "resume_decision")
    started = next(event for event in history(acode) if event["type"] == "step_started" and event["step"] == "t.work")
    waited = datetime.fromisoformat(decided["at"]) - datetime.fromisoformat(started["at"])
    assert waited.total_seconds() >= 1.0 and "step_completed" in at
    assert [line["signal"] for line in log(workspace, "child_ended")] == ["SIGKILL", None]


@pytest.mark.req("POL-CLASS-02")
def test_a_child_that_ran_out_of_time_is_resumed(acode: Acode, workspace: Path) -> None:
    command = f"{COUNT}; [ -e once ] || (touch once; exec sleep 60)"
    path = plan(workspace, command, "idempotent: true\n        timeout: 0.3")
    assert acode.process("supervise", path, env=QUICK).finish().exit_code == 0
    assert decisions(acode) == [("timeout", "resume_allowed")]
    assert (workspace / "tries").read_text() == "x\nx\n"


@pytest.mark.req("POL-ESC-04", "POL-ESC-02", "NFR-040b-16", "NFR-040b-17", "FAIL-040b-07")
def test_a_failing_tool_is_escalated_at_the_limit_with_a_checklist_and_force_recovers_it(
    acode: Acode, workspace: Path
) -> None:
    path = plan(workspace, f"{COUNT}; echo cannot reach the moon; [ -e mended ] || exit 3")
    ended = acode.process("supervise", path, env=QUICK).finish()
    assert ended.exit_code == 18
    assert (workspace / "tries").read_text() == "x\n" * 4, "once, and three attempts"
    assert [code for _, code in decisions(acode)] == ["resume_allowed"] * 3 + ["resume_attempt_limit_reached"]
    assert {cls for cls, _ in decisions(acode)} == {"tool_failure"}
    name = session_of(acode)["short_id"]
    assert (session_of(acode)["escalated"], session_of(acode)["state"]) == (True, "PAUSED")
    for words in (
        "Last failure: step t.work",
        "ended with exit status 3",
        "│ cannot reach the moon",
        "What to do:",
        f"1. Read what happened: acode explain {name}",
        "2. Try the command by hand and fix its cause:",
        f"acode resume {name} --force",
        f"acode session abandon {name}",
    ):
        assert words in ended.stderr
    again = acode.process("supervise", path, env=QUICK).finish()
    assert again.exit_code == 18, "escalated for everyone"
    assert acode("status", "--json").json["decision"]["run_state"] == "resume_escalated"
    (workspace / "mended").touch()
    forced = acode("resume", name, "--force", "--reason", "mended")
    assert forced.exit_code == 0
    assert [event["data"]["reason"] for event in history(acode) if event["type"] == "forced"] == ["mended"]


@pytest.mark.req("POL-INT-02", "POL-ESC-04")
def test_the_reason_code_stands_in_what_people_and_programs_read(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "exit 3"))
    refused = acode("resume", "--last", "--auto", "--json")
    assert refused.exit_code == 75
    end = refused.lines[-1]["data"]
    assert end["reason_code"] == "resume_blocked_cooldown"
    assert 0 < end["error"]["details"]["cooldown_seconds_remaining"] <= 30
    said = acode("resume", "--last", "--auto")
    assert said.exit_code == 75 and "s remain" in said.stderr
    status = acode("status", "--json").json["decision"]
    assert (status["reason_code"], status["eligible"]) == ("resume_blocked_cooldown", False)
    assert 0 < status["cooldown_seconds_remaining"] <= 30
    assert "resume_blocked_cooldown" in acode("status").stdout
    assert "resume_blocked_cooldown" in acode("explain").stdout
    for _ in range(4):
        escalated = acode("resume", "--last", "--json")
    assert escalated.exit_code == 18
    details = escalated.lines[-1]["data"]["error"]["details"]
    assert details["reason_code"] == "resume_attempt_limit_reached"
    assert details["remedy"]["failed_step"] == "t.work" and details["remedy"]["exit_status"] == 3


def waiting(acode: Acode, workspace: Path) -> Running:
    """A supervisor in its countdown, without a terminal."""
    running = acode.process("supervise", plan(workspace, "exit 3"))
    running.wait_for_line(r"Waiting \d+ s \(cool-down\)")
    return running


@pytest.mark.parametrize(("number", "code"), first_of((signal.SIGINT, 130), (signal.SIGTERM, 143)))
def test_a_signal_during_the_countdown_ends_it_and_names_the_way_on(
    acode: Acode, workspace: Path, number: int, code: int
) -> None:
    running = waiting(acode, workspace)
    running.signal(number)
    ended = running.finish()
    assert ended.exit_code == code
    assert ended.stderr.rstrip().endswith(f"To resume: acode resume {session_of(acode)['short_id']}")
    assert decisions(acode) == [], "nothing was attempted"


@pytest.mark.parametrize(("number", "code"), first_of((signal.SIGTERM, 143), (signal.SIGINT, 130)))
def test_a_signal_while_a_child_runs_reaches_it_once(acode: Acode, workspace: Path, number: int, code: int) -> None:
    command = "echo under way; while [ ! -e go ]; do sleep 0.02; done"
    running = acode.process("supervise", plan(workspace, command))
    running.wait_for_line("│ under way")
    running.signal(number)
    running.wait_for_line("Pausing after step t.work")
    (workspace / "go").touch()
    assert running.finish().exit_code == code
    assert session_of(acode)["state"] == "PAUSED"
    assert [event["data"]["signal"] for event in history(acode) if event["type"] == "session_paused"] == [
        signal.Signals(number).name
    ]


def test_a_users_pause_is_left_alone_and_disabled_means_disabled(acode: Acode, workspace: Path) -> None:
    command = "echo under way; while [ ! -e go ]; do sleep 0.02; done"
    running = acode.process("run", plan(workspace, command))
    running.wait_for_line("│ under way")
    running.signal(signal.SIGINT)
    running.wait_for_line("Pausing after")
    (workspace / "go").touch()
    running.finish()
    ended = acode.process("supervise", "--last").finish()
    assert ended.exit_code == 13 and "paused by SIGINT" in ended.stderr
    assert decisions(acode)[-1] == (None, "resume_paused_by_user")
    off = acode("resume", "--last", "--auto", env={"ACODE_RESUME_ENABLED": "false"})
    assert off.exit_code == 13 and decisions(acode)[-1][1] == "resume_disabled"
    assert acode("resume", "--last").exit_code == 0, "a person may"


def test_supervising_a_plan_carries_its_unfinished_session_on(acode: Acode, workspace: Path) -> None:
    path = plan(workspace, "[ -e go ]")
    acode("run", path)
    first = session_of(acode)["session_id"]
    (workspace / "go").touch()
    ended = acode.process("supervise", path, env=QUICK).finish()
    assert ended.exit_code == 0
    assert f"Supervising session {first[-8:]}" in ended.stderr
    assert [one["session_id"] for one in acode("session", "list", "--all", "--json").json] == [first]


def test_a_name_that_nobody_has_is_an_error_for_people_and_for_machines(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "exit 1"))
    ended = acode("supervise", "nobody")
    assert ended.exit_code == 14 and ended.stderr.startswith("error: no session here is called nobody")
    assert acode("supervise", "nobody", "--json").json["error"]["exit_code"] == 14


def test_a_session_that_has_ended_is_left_and_it_is_said(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "true"))
    ended = acode("supervise", session_of(acode)["session_id"])
    assert (ended.exit_code, ended.stderr) == (0, "Nothing is left to do: the session is COMPLETED\n")


def test_the_json_lines_of_a_supervisor_begin_and_end_also_without_a_child(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "true"))
    session = session_of(acode)["session_id"]
    ended = acode("supervise", session, "--json")
    first, last = ended.lines
    assert (ended.exit_code, first["event"], last["event"]) == (0, "session_start", "session_end")
    assert (first["session_id"], last["session_id"]) == (session, session)
    end = {"state": "COMPLETED", "exit_code": 0, "reason_code": "completed", "next_action": "", "error": None}
    assert last["data"] == {**end, "executed_steps": 0, "skipped_steps": 0}


def test_a_supervisor_stopped_in_its_countdown_ends_the_json_lines_itself(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "exit 3"))
    running = acode.process("supervise", session_of(acode)["session_id"], "--json")
    running.wait_for_line(r"Waiting \d+ s \(cool-down\)")
    running.signal(signal.SIGTERM)
    ended = running.finish()
    first, last = ended.lines
    assert (ended.exit_code, first["event"], last["event"]) == (143, "session_start", "session_end")
    assert (last["data"]["exit_code"], last["data"]["reason_code"]) == (143, "paused_by_user")
    assert last["data"]["next_action"] == f"acode resume {session_of(acode)['short_id']}"


def test_a_plan_below_where_the_caller_stands_is_supervised_too(acode: Acode, workspace: Path) -> None:
    (workspace / ".agent").mkdir()
    (workspace / "sub").mkdir()
    path = plan(workspace, "true")
    path.rename(workspace / "sub" / "plan.yml")
    assert acode.process("supervise", "plan.yml", cwd=workspace / "sub").finish().exit_code == 0
    assert (workspace / "last.txt").exists()


def test_a_session_that_another_process_carries_on_is_waited_for_and_then_left(acode: Acode, workspace: Path) -> None:
    command = "echo under way; while [ ! -e go ]; do sleep 0.02; done"
    owner = acode.process("run", plan(workspace, command))
    owner.wait_for_line("│ under way")
    env = {"ACODE_SESSION_LOCK_TIMEOUT_SECONDS": "1"}
    ended = acode.process("supervise", "--last", env=env).finish()
    assert ended.exit_code == 16
    assert "may still be at work elsewhere after" in ended.stderr and "[ACODE-RESUME-003]" in ended.stderr
    (workspace / "go").touch()
    assert owner.finish().exit_code == 0


def test_a_session_that_no_attempt_can_begin_ends_the_supervision(acode: Acode, workspace: Path) -> None:
    """A rollback was interrupted: every resume is refused before it is counted, so no limit would ever stop it."""
    (workspace / "plan.yml").write_text("tasks: [{id: t, steps: [{run: 'true', undo: exit 1}, {run: exit 1}]}]\n")
    acode("run", "plan.yml")
    session = session_of(acode)["session_id"]
    assert acode("session", "rollback", session, "--yes").exit_code == 1
    began = time.monotonic()
    ended = acode.process("supervise", session, env=QUICK).finish()
    assert ended.exit_code == 1 and "Finish it first: acode session rollback" in ended.stderr
    assert time.monotonic() - began < 10.0


@pytest.mark.req("BP-011c-14")
def test_what_cannot_pass_by_itself_ends_the_supervision_at_once(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "[ -e go ]"))
    (workspace / "go").touch()
    Attack(workspace).sql("PRAGMA user_version = 999")
    ended = acode.process("supervise", "--last", env=QUICK).finish()
    assert ended.exit_code == 20 and "Upgrade acode" in ended.stderr
    assert not (workspace / "last.txt").exists()


# Somebody is told.


def notifying(workspace: Path, command: str) -> None:
    (workspace / ".agent").mkdir(exist_ok=True)
    (workspace / ".agent" / "config.yml").write_text(f"notify:\n  command: {json.dumps(command)}\n")


def escalated(acode: Acode, workspace: Path) -> None:
    acode("run", plan(workspace, "echo the key is $API_TOKEN; exit 3"))
    for _ in range(4):
        acode("resume", "--last")


@pytest.mark.req("SEC-040b-02")
def test_an_escalation_and_a_mismatch_reach_the_notify_command_as_json(
    acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "hunter2-hunter2-hunter2-hunter2")
    monkeypatch.setenv("ACODE_CHECKPOINT_SECRET", "s" * 64)
    notifying(workspace, "cat >> ../alerts; env >> ../alert-env")
    assert acode("config", "trust").exit_code == 0
    escalated(acode, workspace)
    (workspace / "first.txt").write_text("somebody else\n")
    acode("resume", "--last", "--force", "--changed-files", "abort")
    told = [json.loads(line) for line in (workspace.parent / "alerts").read_text().splitlines()]
    assert [(one["level"], one["event"]) for one in told] == [
        *[("error", "failed"), ("critical", "escalated"), ("error", "state_mismatch")]
    ]
    _, critical, mismatch = told
    name = session_of(acode)["short_id"]
    assert (critical["short_id"], critical["title"], critical["next_action"]) == (
        name,
        "Supervised",
        f"acode explain {name}",
    )
    assert critical["data"]["reason_code"] == "resume_attempt_limit_reached"
    assert critical["data"]["remedy"]["failed_step"] == "t.work"
    assert [one["path"] for one in mismatch["data"]["changed_files"]] == ["first.txt"]
    assert "hunter2" not in json.dumps(told)
    assert "ACODE_CHECKPOINT_SECRET" not in (workspace.parent / "alert-env").read_text()


def test_a_notify_command_that_nobody_trusts_is_not_run(acode: Acode, workspace: Path) -> None:
    notifying(workspace, "touch ../ran")
    escalated(acode, workspace)
    assert session_of(acode)["escalated"] and not (workspace.parent / "ran").exists()

"""The step in flight is settled by evidence: keeper, hash, probe, declaration; where there is none, by a person."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acode.engine import session_commands
from acode.engine.survey import Survey
from acode.engine.world import StopSwitch
from acode.errors import OutcomeUnknown, StepStillRunning
from acode.events import types as ev
from acode.plan import Settlement, Strategy
from acode.state import State
from acode.steps import keeper, keeper_notes
from acode.workspace import temp_name
from tests.driver import kill_and_wait
from tests.lives import Life, alive, end_all_in, until

# It says that it has begun, does half of its work, and waits for the door.
HALF = 'echo half > out.txt; echo "$ACODE_STEP_ID" >> "$LEDGER"; echo begun; while [ ! -e door ]; do sleep 0.01; done'


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    yield made
    made.put("door", "")  # whatever still waits ends by itself


def one_step(declared: str = "", command: str = f"{HALF}; echo whole > out.txt") -> str:
    return f"""
tasks:
  - title: t
    steps:
      - run: {command}
        id: work
        {declared}
      - write: {{path: end.txt, content: end}}
"""


def in_the_middle(life: Life, declared: str = "") -> None:
    """acode is gone, its command and the keeper are in the middle of their work."""
    life.cut_off(one_step(declared), "step_output", "t.work")


def survey(life: Life, **options: Any) -> Survey:
    found = life.look(**options).survey
    assert found is not None
    return found


def in_flight(life: Life, **options: Any) -> Settlement:
    (one,) = survey(life, **options).continuation.in_flight
    return one


def mark_of(life: Life) -> keeper_notes.Mark:
    (directory,) = [one for one in life.path(".agent/run").iterdir() if (one / "started").exists()]
    mark = keeper_notes.read_mark(directory)
    assert mark is not None and mark.command is not None
    return mark


def kill_all(life: Life) -> None:
    """The keeper and its command die without a word."""
    mark = mark_of(life)
    assert mark.command is not None
    kill_and_wait(mark.keeper)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(mark.command, signal.SIGKILL)
    until(lambda: not alive(mark.command or 0))


# read and write.


@pytest.mark.req("FR-040b-35", "FAIL-040b-03", "INV-011c-05", "FR-011c-024")
def test_a_read_in_flight_is_read_again_from_its_beginning(life: Life) -> None:
    life.put("in.txt", "in\n")
    life.cut_off("tasks: [{title: t, steps: [{read: in.txt}]}]", "step_started", "t.1")
    assert (in_flight(life).outcome, in_flight(life).action) == ("not_applied", "retry")
    assert life.resume().exit_code == 0
    assert life.settled("t.1") == ["not_applied"]
    assert [one.attempt for one in life.events(ev.StepStarted)] == [1, 2]


WRITE = "tasks: [{title: t, steps: [{write: {path: a.txt, content: new}}]}]"


@pytest.mark.req("FR-011c-025", "SCN-011c-09")
def test_a_write_that_was_done_is_not_done_again(life: Life) -> None:
    life.put("a.txt", "old")
    life.cut_off(WRITE, "step_started", "t.1")
    life.put("a.txt", "new")
    before = life.path("a.txt").stat()
    assert survey(life).scenario == "mid_write"
    assert life.resume().exit_code == 0
    after = life.path("a.txt").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    assert life.settled("t.1") == ["applied"] and life.attempts("t.1") == 1
    (done,) = life.events(ev.StepCompleted)
    assert done.settled


@pytest.mark.parametrize("before", ["old", None])
def test_a_write_that_was_not_done_is_done_under_the_next_key(life: Life, before: str | None) -> None:
    if before is not None:
        life.put("a.txt", before)
    life.cut_off(WRITE, "step_started", "t.1")
    key = life.events(ev.StepStarted)[0].key
    life.put(temp_name("a.txt", key), "ne")  # the writer was killed while it wrote beside the file
    assert in_flight(life).outcome == "not_applied"
    assert life.resume().exit_code == 0
    assert life.text("a.txt") == "new"
    assert [path.name for path in life.path(".").iterdir() if path.name.startswith(".acode-tmp")] == []
    assert [one.key.rsplit(":", 1)[1] for one in life.events(ev.StepStarted)] == ["1", "2"]


def test_the_leftover_beside_a_write_that_was_done_goes_too(life: Life) -> None:
    life.cut_off(WRITE, "step_started", "t.1")
    leftover = life.put(temp_name("a.txt", life.events(ev.StepStarted)[0].key), "x")
    life.put("a.txt", "new")
    assert life.resume().exit_code == 0
    assert not leftover.exists()


@pytest.mark.parametrize(
    ("answer", "ends_as", "attempts"), [("applied", "theirs", 1), ("not_applied", "new", 2), ("retry", "new", 2)]
)
def test_a_third_content_at_a_write_is_a_persons_decision(life: Life, answer: str, ends_as: str, attempts: int) -> None:
    life.put("a.txt", "old")
    life.cut_off(WRITE, "step_started", "t.1")
    life.put("a.txt", "theirs")
    for options in ({}, {"force": True}, {"actor": "system"}):
        with pytest.raises(OutcomeUnknown, match="changed by somebody else") as caught:
            life.resume(**options)
        assert caught.value.exit_code == 19
    assert life.text("a.txt") == "theirs"
    session_commands.resolve(life.world(), life.id, "t.1", answer, note="I looked", force=False)
    assert life.resume().exit_code == 0
    assert (life.text("a.txt"), life.attempts("t.1")) == (ends_as, attempts)


# A command with its keeper.


def test_a_command_that_lives_on_is_waited_for_and_not_started_again(life: Life) -> None:
    in_the_middle(life)
    assert in_flight(life).action == "wait" and "still running, pid" in in_flight(life).evidence
    life.ears.at("step_waiting", lambda: life.put("door", ""))
    ended = life.resume()
    assert ended.exit_code == 0
    assert (ended.executed_steps, ended.skipped_steps) == (1, 1), "every step of the plan is one or the other"
    assert life.effects() == {"t.work": 1} and life.attempts("t.work") == 1
    assert life.settled("t.work") == ["applied"]
    (done, _) = life.events(ev.StepCompleted)
    assert done.output is not None and done.output.tail == "begun\n", "what it said is kept"


def test_a_command_that_failed_after_acode_died_is_a_failed_step(life: Life) -> None:
    life.cut_off(one_step(command=f"{HALF}; [ -e mended ] || exit 3"), "step_output", "t.work")
    life.put("door", "")
    until(lambda: in_flight(life).action != "wait")
    assert in_flight(life).outcome == "not_applied" and "exit status 3" in in_flight(life).evidence
    with pytest.raises(OutcomeUnknown, match="not idempotent"):
        life.resume(actor="system")
    life.put("mended", "")
    assert life.resume().exit_code == 0, "a person's resume is the decision to try it again"
    (failed,) = life.events(ev.StepFailed)
    assert (failed.reason, failed.exit_status) == ("exit", 3)
    assert life.effects() == {"t.work": 2}


def test_a_person_cannot_settle_a_command_that_still_runs_without_force(life: Life) -> None:
    in_the_middle(life)
    with pytest.raises(StepStillRunning) as caught:
        session_commands.resolve(life.world(), life.id, "t.work", "not_applied", note="", force=False)
    assert caught.value.exit_code == 16
    named = f"acode session resolve {life.id[-8:]} t.work --applied|--not-applied|--retry --force"
    assert named in (caught.value.hint or ""), caught.value.hint
    assert life.settled("t.work") == []
    session_commands.resolve(life.world(), life.id, "t.work", "applied", note="I know", force=True)
    assert life.settled("t.work") == ["applied"]
    assert life.resume().exit_code == 0
    assert life.effects() == {"t.work": 1}


def test_a_command_whose_keeper_alone_was_killed_is_seen_to_run(life: Life) -> None:
    in_the_middle(life)
    mark = mark_of(life)
    kill_and_wait(mark.keeper)
    assert in_flight(life).action == "wait" and f"pid {mark.command}" in in_flight(life).evidence
    life.ears.at("step_waiting", lambda: life.put("door", ""))
    result = life.resume()
    assert (result.exit_code, result.state) == (19, State.PAUSED), "it ended, and nobody was there to see how"
    assert life.effects() == {"t.work": 1}


@pytest.fixture
def unending(life: Life, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    """A command beyond its time-out: its keeper would have stopped it, but was killed."""
    life.cut_off(one_step("timeout: 0.2", command=f"trap '' TERM; {HALF}"), "step_output", "t.work")
    kill_and_wait(mark_of(life).keeper)
    monkeypatch.setattr(keeper, "KILL_AFTER_S", 0.0)
    yield life
    end_all_in(life.place)


def test_waiting_for_a_command_ends_at_its_time_out(unending: Life) -> None:
    result = unending.resume()
    assert (result.exit_code, result.reason_code) == (16, "step_still_running")
    assert unending.effects() == {"t.work": 1}


def test_waiting_for_a_command_uses_up_no_attempt_however_often(unending: Life) -> None:
    for _ in range(4):  # more often than there are attempts
        assert unending.resume().exit_code == 16
    found = survey(unending)
    assert found.decision.eligible and found.decision.attempt == 1
    command = mark_of(unending).command or 0
    unending.put("door", "")
    until(lambda: not alive(command))
    with pytest.raises(OutcomeUnknown):  # and not Escalated
        unending.resume()


# A command without its keeper.


@pytest.mark.req("FR-040b-23", "FR-040b-45", "SEC-040b-06")
def test_without_any_evidence_it_is_refused_to_everyone_and_recorded_once(life: Life) -> None:
    in_the_middle(life)
    kill_all(life)
    for options in ({}, {"force": True}, {"actor": "system"}, {}):
        with pytest.raises(OutcomeUnknown, match="nothing shows whether it took effect") as caught:
            life.resume(**options)
        assert caught.value.exit_code == 19
        assert "acode session resolve" in (caught.value.hint or "")
    assert life.settled("t.work") == ["unknown"]
    assert life.events(ev.ResumeStarted) == [], "a refused attempt is none"
    assert life.effects() == {"t.work": 1}


@pytest.mark.parametrize(("answer", "effects"), [("applied", 1), ("not_applied", 2), ("retry", 2)])
def test_a_persons_word_settles_it_and_is_recorded_with_its_note(life: Life, answer: str, effects: int) -> None:
    in_the_middle(life)
    kill_all(life)
    session_commands.resolve(life.world(), life.id, "t.work", answer, note="I asked the server", force=False)
    outcome = {"applied": "applied", "not_applied": "not_applied", "retry": "retry_accepted"}[answer]
    (said,) = [one for one in life.history() if isinstance(one.event, ev.StepSettled)]
    assert (said.actor, said.event.outcome, said.event.note) == ("user", outcome, "I asked the server")
    life.put("door", "")
    assert life.resume().exit_code == 0
    assert life.effects() == {"t.work": effects}


@pytest.mark.parametrize(("answer", "effects"), [("applied", 1), ("not_applied", 2), ("retry", 2), ("stop", None)])
def test_a_person_at_the_terminal_is_asked(life: Life, answer: Any, effects: int | None) -> None:
    in_the_middle(life)
    kill_all(life)
    life.put("door", "")
    life.person.to_unknown = answer
    if effects is None:
        with pytest.raises(OutcomeUnknown):
            life.resume()
        assert life.effects() == {"t.work": 1}
    else:
        assert life.resume().exit_code == 0
        assert life.effects() == {"t.work": effects}
    assert life.person.asked == ["unknown t.work"]


@pytest.mark.parametrize("how", ["setting", "defaults"])
def test_a_repeat_can_be_accepted_beforehand_and_is_recorded(life: Life, how: str) -> None:
    plan = one_step()
    if how == "setting":
        life.settings["resume.unknown_outcome"] = "retry"
    else:
        plan = f"defaults: {{idempotent: true}}\n{plan}"
    life.cut_off(plan, "step_output", "t.work")
    kill_all(life)
    life.put("door", "")
    assert in_flight(life).action == "retry"
    assert life.resume().exit_code == 0
    assert life.settled("t.work") == ["retry_accepted"]
    assert life.effects() == {"t.work": 2}


@pytest.mark.parametrize(
    ("probe", "outcome", "effects"), [("grep -q t.work", "applied", 1), ("! grep -q t.work", "not_applied", 2)]
)
def test_a_probe_tells_what_became_of_it(life: Life, probe: str, outcome: str, effects: int) -> None:
    in_the_middle(life, f"""probe: '{probe} "$LEDGER"'""")
    kill_all(life)
    life.put("door", "")
    assert in_flight(life).outcome == outcome
    assert life.resume(actor="user").exit_code == 0
    assert life.effects() == {"t.work": effects}


def test_a_probe_that_says_neither_yes_nor_no_leaves_it_unknown(life: Life) -> None:
    in_the_middle(life, "probe: exit 2")
    kill_all(life)
    with pytest.raises(OutcomeUnknown, match="answered 2, which says nothing"):
        life.resume()


@pytest.mark.req("FR-011c-026")
def test_partial_outputs_are_put_back_and_what_stood_there_is_kept(life: Life) -> None:
    life.put("out.txt", "before\n")
    in_the_middle(life, "outputs: [out.txt]")
    kill_all(life)
    assert (in_flight(life).outcome, in_flight(life).action) == ("partial", "rollback_and_retry")
    seen: list[str] = []
    life.ears.at("step_rolled_back", lambda: seen.append(life.text("out.txt")))
    life.put("door", "")
    assert life.resume().exit_code == 0
    assert seen == ["before\n"], "before the command ran again"
    assert life.text("out.txt") == "whole\n"
    (settled,) = [one for one in life.events(ev.StepSettled) if one.step == "t.work"]
    assert (str(settled.outcome), settled.restored) == ("rolled_back", ("out.txt",))
    (saved,) = life.events(ev.RollbackStarted)[0].saved
    assert saved.path == "out.txt" and saved.size == len("half\n")


@pytest.mark.req("FR-011c-027", "IF-011c-02")
@pytest.mark.parametrize("how", ["flag", "setting"])
def test_the_strategy_retry_repeats_without_putting_anything_back(life: Life, how: str) -> None:
    life.put("out.txt", "before\n")
    in_the_middle(life, "outputs: [out.txt]")
    kill_all(life)
    life.put("door", "")
    if how == "setting":
        life.settings["resume.in_progress_strategy"] = "retry"
    seen: list[str] = []
    life.ears.at("step_started", lambda: seen.append(life.text("out.txt")), "t.work")
    strategy = Strategy.RETRY if how == "flag" else None
    assert life.resume(strategy=strategy).exit_code == 0
    assert seen == ["half\n"]
    assert life.settled("t.work") == ["retry_accepted"]


@pytest.mark.parametrize(("answer", "found"), [("rollback", "before\n"), ("retry", "half\n")])
def test_the_strategy_prompt_asks_and_does_what_is_answered(life: Life, answer: Any, found: str) -> None:
    life.put("out.txt", "before\n")
    in_the_middle(life, "outputs: [out.txt]")
    kill_all(life)
    life.put("door", "")
    life.person.to_strategy = answer
    seen: list[str] = []
    life.ears.at("step_started", lambda: seen.append(life.text("out.txt")), "t.work")
    assert life.resume(strategy=Strategy.PROMPT).exit_code == 0
    assert life.person.asked == ["strategy t.work"]
    assert seen == [found]


@pytest.mark.parametrize("options", [{}, {"actor": "system"}])
def test_the_strategy_prompt_and_nobody_to_ask_is_19_and_uses_no_attempt(life: Life, options: dict[str, Any]) -> None:
    in_the_middle(life, "outputs: [out.txt]")
    kill_all(life)
    with pytest.raises(OutcomeUnknown, match="a person chooses how to continue") as caught:
        life.resume(strategy=Strategy.PROMPT, **options)
    assert caught.value.exit_code == 19 and "--strategy rollback" in (caught.value.hint or "")
    assert life.events(ev.ResumeStarted) == []


# Stopped in the middle.


@pytest.mark.req("POL-CLASS-02")
def test_a_time_out_stops_the_whole_group_and_is_settled_like_a_step_in_flight(life: Life) -> None:
    command = f"sh -c 'echo $$ > child; exec sleep 60' & {HALF}"
    result = life.run(one_step("timeout: 0.3", command=command))
    assert (result.exit_code, result.state) == (1, State.PAUSED)
    assert result.error is not None and result.error.code == "ACODE-STEP-002"
    child = int(life.text("child"))
    until(lambda: not alive(child))
    found = survey(life)
    assert found.interruption.cls == "timeout"
    assert in_flight(life).outcome == "unknown" and "stopped by its timeout" in in_flight(life).evidence
    with pytest.raises(OutcomeUnknown):
        life.resume()
    assert life.effects() == {"t.work": 1}


def test_outputs_of_a_command_that_ran_out_of_time_are_put_back_before_the_next_attempt(life: Life) -> None:
    life.run(one_step("timeout: 0.3\n        outputs: [out.txt]"))
    assert life.text("out.txt") == "half\n", "left for whoever wants to look"
    life.put("door", "")
    seen: list[bool] = []
    life.ears.at("step_started", lambda: seen.append(life.path("out.txt").exists()), "t.work")
    assert life.resume().exit_code == 0
    assert seen == [False]
    assert life.text("out.txt") == "whole\n"


def test_the_second_ctrl_c_stops_the_command_and_the_step_stays_open(life: Life) -> None:
    stop = StopSwitch(time.monotonic, 30.0)

    def press_twice() -> None:
        stop.press("SIGINT")
        stop.press("SIGINT")

    life.ears.at("step_output", press_twice, "t.work")
    result = life.run(one_step("outputs: [out.txt]"), stop=stop)
    assert (result.exit_code, result.state) == (130, State.PAUSED)
    found = survey(life)
    assert (found.scenario, found.interruption.cls, found.interruption.by_person) == ("user_interrupt", None, True)
    assert in_flight(life).action == "rollback_and_retry"
    life.put("door", "")
    assert life.resume().exit_code == 0
    assert life.events(ev.ResumeStarted)[0].counted is False


def test_who_is_patient_and_who_is_not() -> None:
    now = 0.0
    stop = StopSwitch(lambda: now, 30.0)
    stop.press("SIGINT")
    now = 100.0
    assert stop.at_boundary() and not stop.at_once(), "one Ctrl+C waits for the step, however long it takes"
    stop.press("SIGTERM")
    assert not stop.at_once() and stop.signal == "SIGTERM"
    now = 129.0
    assert not stop.at_once()
    now = 130.0
    assert stop.at_once(), "who has less patience is given the grace, from when they asked"
    eager = StopSwitch(lambda: now, 30.0)
    eager.stops_at_once = True
    assert not eager.at_once()
    eager.press("SIGINT")
    assert eager.at_once(), "whoever is killed soon after the signal waits for no step"
    hurried = StopSwitch(lambda: now, 30.0)
    hurried.press("SIGTERM")
    hurried.press("SIGINT")
    assert hurried.at_once() and hurried.signal == "SIGTERM"


# Failed steps, and tries.

COUNTING = """
tasks:
  - title: t
    steps:
      - run: echo "$ACODE_STEP_ID" >> "$LEDGER"; echo "$ACODE_ATTEMPT" >> tries; exit 1
        id: work
        idempotent: true
        retry: {attempts: 3, backoff_seconds: 0}
"""


@pytest.mark.req("INT-040b-02")
def test_the_count_of_tries_survives_a_resume(life: Life) -> None:
    life.cut_off(COUNTING, "step_retry")
    assert life.effects() == {"t.work": 1}
    result = life.resume()
    assert (result.exit_code, result.state) == (1, State.PAUSED)
    assert life.effects() == {"t.work": 3}, "three in all, not three more"
    assert life.text("tries").split() == ["1", "2", "3"]
    life.resume()
    assert life.effects() == {"t.work": 4}, "a person's resume is one more try, not three"


def test_a_step_that_may_not_be_repeated_is_not_tried_again(life: Life) -> None:
    life.run(COUNTING.replace("idempotent: true", "idempotent: false"))
    assert life.effects() == {"t.work": 1}


def test_outputs_of_a_failed_step_are_left_to_look_at_and_put_back_before_the_next_attempt(life: Life) -> None:
    life.put("out.txt", "before\n")
    command = "cat out.txt >> seen; echo half > out.txt; [ -e mended ]"
    life.run(one_step("outputs: [out.txt]", command=command))
    assert life.text("out.txt") == "half\n"
    life.put("mended", "")
    assert life.resume().exit_code == 0
    assert life.text("seen") == "before\nbefore\n"
    assert life.settled("t.work") == ["not_applied", "rolled_back"]


# What a command finds after a resume.

SPEAKING = """
title: Speaking
tasks:
  - title: t
    steps:
      - run: echo hello
        id: first
      - approve: ok?
      - run: cat "$ACODE_OUTPUTS/t.first" > heard.txt; ls -A "$ACODE_OUTPUTS" > listed.txt; env > env.txt; pwd > pwd.txt
        id: second
        env: {COLOUR: green}
        cwd: sub
"""


@pytest.mark.req("FR-040b-48", "FR-040b-49")
@pytest.mark.parametrize("lost", ["all", "one", "half", "swapped", "link", "nothing"])
def test_a_resumed_step_finds_what_it_would_have_found(life: Life, lost: str) -> None:
    life.path("sub").mkdir()
    life.run(SPEAKING)
    outputs = life.path(f".agent/run/{life.id}/outputs")
    if lost == "all":
        (outputs / "t.first").unlink()
        outputs.rmdir()
    elif lost == "one":
        (outputs / "t.first").unlink()
    elif lost == "half":
        (outputs / "t.first").write_text("he")
    elif lost == "swapped":
        (outputs / "t.first").write_text("other")
        (outputs / "t.strange").write_text("of no finished step")
    elif lost == "link":
        (outputs / "t.first").unlink()
        (outputs / "t.first").symlink_to(life.put("elsewhere", "hello\n"))
    life.path("plan.yml").unlink()
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0
    assert life.text("sub/heard.txt") == "hello\n"
    assert life.text("sub/listed.txt") == "t.first\n"
    assert life.text("sub/pwd.txt").strip() == os.path.realpath(life.path("sub"))
    env = dict(line.split("=", 1) for line in life.text("sub/env.txt").splitlines() if "=" in line)
    key = f"{life.id}:t.second:1"
    assert (env["COLOUR"], env["ACODE_SESSION_ID"], env["ACODE_STEP_ID"]) == ("green", life.id, "t.second")
    assert (env["ACODE_ATTEMPT"], env["ACODE_IDEMPOTENCY_KEY"]) == ("1", key)


# The keeper's own troubles.


def test_a_command_killed_by_a_signal_without_a_name_is_settled_too(life: Life) -> None:
    result = life.run(one_step(command="kill -40 $$"))
    assert result.error is not None and "killed by signal 40" in result.error.message
    assert in_flight(life).outcome == "unknown"


def test_a_request_to_stop_that_comes_before_the_command_reaches_it(life: Life) -> None:
    """Nobody wants to stop at the boundary before it; the moment its start is told, somebody does, at once."""

    class Late(StopSwitch):
        def at_boundary(self) -> bool:
            return bool(life.ears.events("step_started"))

        at_once = at_boundary

    result = life.run(one_step("outputs: [out.txt]"), stop=Late(time.monotonic, 30.0))
    assert (result.exit_code, result.state) == (130, State.PAUSED)
    until(lambda: in_flight(life).action != "wait")
    assert in_flight(life).action in ("rollback_and_retry", "retry")

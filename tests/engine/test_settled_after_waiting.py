"""A step that failed after acode had died is treated as if acode had seen it fail: refused, ended or tried again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.engine import session_commands
from acode.errors import OutcomeUnknown, StepFailed
from acode.events import types as ev
from acode.state import State
from tests.lives import Life

# It notes its effect, says that it has begun, waits for the door, and fails unless it was mended.
FAILING = (
    'echo "$ACODE_STEP_ID" >> "$LEDGER"; echo begun; while [ ! -e door ]; do sleep 0.01; done; [ -e mended ] || exit 3'
)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path)
    made.settings["resume.cooldown_seconds.process_crash"] = 0
    made.settings["resume.cooldown_seconds.tool_failure"] = 0
    yield made
    made.put("door", "")  # whatever still waits ends by itself


def plan(declared: str = "", *, on_failure: str = "pause") -> str:
    return f"""
on_failure: {on_failure}
tasks:
  - title: t
    steps:
      - run: '{FAILING}'
        id: work
        {declared}
      - write: {{path: end.txt, content: end}}
"""


def fails_while_it_is_waited_for(life: Life, declared: str = "", *, on_failure: str = "pause") -> None:
    life.cut_off(plan(declared, on_failure=on_failure), "step_output", "t.work")
    life.ears.at("step_waiting", lambda: life.put("door", ""))


# An automatic attempt that waits.


def test_an_automatic_attempt_that_waited_does_not_repeat_what_then_failed(life: Life) -> None:
    fails_while_it_is_waited_for(life)
    result = life.resume(actor="system")
    assert (result.exit_code, result.reason_code) == (19, "resume_non_idempotent_step")
    assert isinstance(result.error, OutcomeUnknown) and "acode resume" in (result.error.hint or "")
    assert [one.body.action for one in life.ears.events("step_settled")] == ["ask"], "no repeat is announced"
    assert life.effects() == {"t.work": 1}
    with pytest.raises(OutcomeUnknown, match="may not be repeated automatically"):
        life.resume(actor="system")
    assert life.effects() == {"t.work": 1}


def test_a_refusal_after_waiting_is_on_record_and_uses_up_no_attempt(life: Life) -> None:
    fails_while_it_is_waited_for(life)
    life.resume(actor="system")
    allowed, refused = life.events(ev.ResumeDecision)
    assert (allowed.eligible, refused.eligible) == (True, False)
    assert refused.reason_code == "resume_non_idempotent_step" and refused.attempt == 1
    (failed,) = life.events(ev.StepFailed)
    assert (failed.reason, failed.exit_status) == ("exit", 3)
    found = life.look().survey
    assert found is not None and found.decision.attempt == 1


def test_a_person_may_repeat_what_an_automatic_attempt_left_alone(life: Life) -> None:
    fails_while_it_is_waited_for(life)
    assert life.resume(actor="system").state is State.PAUSED
    life.put("mended", "")
    assert life.resume().exit_code == 0
    assert life.effects() == {"t.work": 2} and life.text("end.txt") == "end"


@pytest.mark.parametrize("declared", ["idempotent: true", "outputs: [out.txt]"])
def test_what_may_be_repeated_is_repeated_after_the_waiting_too(life: Life, declared: str) -> None:
    life.cut_off(plan(declared), "step_output", "t.work")
    life.ears.at("step_waiting", lambda: life.put("door", ""))
    life.ears.at("step_failed", lambda: life.put("mended", ""))
    assert life.resume(actor="system").exit_code == 0
    assert life.effects() == {"t.work": 2}


# A plan that ends with its first failure.


@pytest.mark.parametrize("actor", ["user", "system"])
@pytest.mark.parametrize("declared", ["", "idempotent: true"])
def test_a_failure_that_nobody_saw_ends_a_plan_that_aborts(life: Life, actor: str, declared: str) -> None:
    life.cut_off(plan(declared, on_failure="abort"), "step_output", "t.work")
    life.ears.at("step_waiting", lambda: life.put("door", ""))
    result = life.resume(actor=actor)
    assert (result.state, result.reason_code) == (State.FAILED, "step_failed")
    assert isinstance(result.error, StepFailed) and "exit status 3" in result.error.message
    assert life.effects() == {"t.work": 1} and not life.path("end.txt").exists()
    assert [one.body.action for one in life.ears.events("step_settled")] == ["end"], "no repeat is announced"


@pytest.mark.parametrize("actor", ["user", "system"])
def test_a_failure_that_was_not_said_to_be_the_end_is_the_end_all_the_same(life: Life, actor: str) -> None:
    life.put("door", "")
    life.cut_off(plan(on_failure="abort"), "step_failed", "t.work")
    assert life.events(ev.SessionFailed) == []
    assert life.resume(actor=actor).state is State.FAILED
    assert life.effects() == {"t.work": 1}


def test_a_step_of_a_plan_that_aborts_still_gets_the_tries_it_declares(life: Life) -> None:
    declared = "idempotent: true\n        retry: {attempts: 2}"
    life.cut_off(plan(declared, on_failure="abort"), "step_output", "t.work")
    life.ears.at("step_waiting", lambda: life.put("door", ""))
    assert life.resume().state is State.FAILED
    assert life.effects() == {"t.work": 2}


def test_a_person_who_accepts_a_repeat_gets_it_in_a_plan_that_aborts(life: Life) -> None:
    life.put("door", "")
    life.cut_off(plan(on_failure="abort"), "step_failed", "t.work")
    life.put("mended", "")
    session_commands.resolve(life.world(), life.id, "t.work", "retry", note="mended", force=False)
    assert life.resume().exit_code == 0
    assert life.effects() == {"t.work": 2}

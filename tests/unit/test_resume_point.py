"""The resume point: found in the log only, the same for the same log, with the scenario and the class of the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acode.errors import CannotContinue, TerminalState
from acode.events import types as ev
from acode.policy import Facts, Limits, Reason, decide
from acode.resume_point import (
    PAUSED_BY_ACODE,
    PAUSED_BY_PERSON,
    Scenario,
    classify,
    detect_scenario,
    find_resume_point,
)
from acode.state import State
from tests.builders import (
    at,
    awaiting,
    born,
    by_user,
    completed,
    crash,
    created,
    decided,
    did,
    executing,
    failed,
    finished,
    gate,
    id_of,
    passing,
    paused,
    resumed,
    session,
    settled,
    started,
    write,
)

# The point.


@pytest.mark.req("FR-040b-01", "FR-040b-08", "FR-040b-15")
def test_the_point_is_the_last_completed_event_with_its_id() -> None:
    """UT-040b-01, UT-040b-04"""
    now = session(created("a", "b", "c"), did("a", "b"), started("c"))
    point = find_resume_point(now)
    assert point is not None
    assert (now.id_of(point), point.seq, point.type, point.step, point.task) == (
        id_of(7),
        7,
        "step_completed",
        "main.b",
        "main",
    )


@pytest.mark.req("FR-040b-02", "FR-040b-05")
def test_only_a_completion_completes() -> None:
    """UT-040b-02: start, failure and settlement are no completion markers."""
    words: list[Any] = [created("a", "b"), did("a")]
    point = find_resume_point(session(*words))
    for more in (started("b"), failed("b"), started("b", 2), settled("b", "unknown", 2), paused("error"), resumed()):
        words.append(more)
        assert find_resume_point(session(*words)) == point
    words += [executing(), completed("b", 2)]
    assert find_resume_point(session(*words)) != point


@pytest.mark.req("FR-040b-03", "FR-040b-04", "FR-011c-010")
def test_a_step_without_an_end_is_identified_and_not_taken_for_done() -> None:
    """UT-040b-03"""
    now = session(created("a", "b"), did("a"), started("b"), crash())
    assert list(now.in_flight) == ["main.b"]
    assert not now.done("main.b")
    point = find_resume_point(now)
    assert point is not None and point.step == "main.a"


@pytest.mark.req("FR-040b-09", "FAIL-040b-01", "SCN-040b-05")
@pytest.mark.parametrize(
    "words", [[born()], created("a")[:2], created("a"), [*created("a"), paused()], [*created("a"), decided(False)]]
)
def test_without_a_started_step_it_is_a_fresh_start_and_no_error(words: list[Any]) -> None:
    """UT-040b-05"""
    now = session(words)
    assert find_resume_point(now) is None
    assert detect_scenario(now) is Scenario.FRESH_START


@pytest.mark.req("FR-040b-07", "FR-040b-11", "FR-040b-12")
def test_the_same_log_gives_the_same_one_point() -> None:
    """UT-040b-06"""
    words = (created("a", "b", "c"), did("a", "b"), started("c"))
    points = {find_resume_point(session(*words)) for _ in range(5)}
    assert len(points) == 1
    later = (*words, passing(86_400), decided(False), decided(False))
    assert {find_resume_point(session(*later))} == points


@pytest.mark.req("FR-040b-06")
def test_the_boundaries_of_an_operation_are_its_start_and_its_end() -> None:
    words = [*created("a"), started("a"), completed("a")]
    in_flight = [list(session(words[:count]).in_flight) for count in range(1, len(words) + 1)]
    assert in_flight == [[], [], [], ["main.a"], []]


def test_a_finished_step_that_was_taken_back_is_no_resume_point_any_more() -> None:
    def back(to: str | None, step: str) -> Any:
        return by_user(ev.StepsRolledBack(to=to, steps=(step,)))

    words = (created("a", "b"), did("a", "b"), by_user(paused()))
    point = find_resume_point(session(*words, back("main.a", "main.b")))
    assert point is not None and (point.type, point.step) == ("steps_rolled_back", None)
    assert find_resume_point(session(*words, back(None, "main.b"), back(None, "main.a"))) is None


def test_a_completion_that_a_repair_does_not_believe_is_no_resume_point_any_more() -> None:
    doubt = ev.Quarantined(seqs=(7,), reason="damaged", steps=("main.b",), opened=(started("b"),))
    now = session(created("a", "b"), did("a", "b"), by_user(doubt))
    point = find_resume_point(now)
    assert point is not None and (point.type, point.seq) == ("quarantined", 8)
    assert now.in_flight["main.b"].unknown == "damaged"
    elsewhere = ev.Quarantined(seqs=(4,), reason="damaged")
    unmoved = find_resume_point(session(created("a", "b"), did("a", "b"), by_user(elsewhere)))
    assert unmoved is not None and unmoved.seq == 7


# Scenarios.

WRITING = (created(write("a"), "b"), started("a", kind="write"), crash())
SCENARIOS: list[tuple[str, tuple[Any, ...], Scenario]] = [
    ("crash before any step", (created("a"), crash()), Scenario.FRESH_START),
    ("waits for an approval", (created(gate("a")), awaiting("a")), Scenario.CLEAN_SHUTDOWN),
    ("step failed", (created("a"), started("a"), failed("a"), paused("step_failed")), Scenario.CLEAN_SHUTDOWN),
    ("time-out", (created("a"), started("a"), failed("a", reason="timeout"), paused("timeout")), "clean_shutdown"),
    ("denied", (created(gate("a")), awaiting("a"), paused("denied")), Scenario.CLEAN_SHUTDOWN),
    ("disk full", (created("a", "b"), did("a"), paused("disk_full")), Scenario.CLEAN_SHUTDOWN),
    ("Ctrl+C", (created("a", "b"), did("a"), by_user(paused("user", signal="SIGINT"))), Scenario.USER_INTERRUPT),
    ("SIGTERM", (created("a", "b"), did("a"), paused("signal", signal="SIGTERM")), Scenario.USER_INTERRUPT),
    ("stopped mid-step", (created("a"), started("a"), failed("a", reason="signal"), paused()), "user_interrupt"),
    ("crash in a command", (created("a"), started("a"), crash()), Scenario.MID_OPERATION),
    ("crash between steps", (created("a", "b"), did("a"), crash()), Scenario.MID_OPERATION),
    ("crash in a write", WRITING, Scenario.MID_WRITE),
    ("crash in an edit", (created("a"), started("a", kind="edit"), crash()), Scenario.MID_WRITE),
    ("crash after a resume", (*WRITING, resumed(), settled("a", "not_applied"), crash()), Scenario.MID_OPERATION),
    ("crash after a pause", (created("a", "b"), did("a"), paused(), resumed(), executing(), crash()), "mid_operation"),
    ("refusals since", (*WRITING, decided(False), decided(False)), Scenario.MID_WRITE),
]


@pytest.mark.req("FR-040b-31", "FR-040b-32", "FR-040b-33", "FR-040b-34")
@pytest.mark.parametrize(("words", "scenario"), [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS])
def test_every_end_of_a_log_fits_one_scenario(words: tuple[Any, ...], scenario: str) -> None:
    """UT-040b-10"""
    assert detect_scenario(session(*words)) == scenario


def test_every_scenario_occurs() -> None:
    assert {row[2] for row in SCENARIOS} == set(Scenario)


@pytest.mark.req("FR-040b-33")
def test_a_temporary_file_of_ours_makes_a_crash_a_crash_in_a_write() -> None:
    now = session(created("a", "b"), did("a"), crash())
    assert detect_scenario(now, temp_left=True) is Scenario.MID_WRITE


@pytest.mark.req("FR-040b-41", "IF-040b-02")
@pytest.mark.parametrize(
    "impossible",
    [
        {"state": State.CREATED, "started_any": True},
        {"state": State.PLANNING, "started_any": True},
        {"state": State.PAUSED, "pause": None},
        {"state": State.AWAITING_APPROVAL},
    ],
    ids=lambda fields: fields["state"],
)
def test_an_end_that_fits_no_scenario_is_an_error_by_name(impossible: dict[str, Any]) -> None:
    now = msgspec.structs.replace(session(created("a"), started("a")), **impossible)
    with pytest.raises(CannotContinue, match="ends in no way acode knows") as caught:
        detect_scenario(now)
    assert caught.value.code == "ACODE-RESUME-006"
    assert "session history" in caught.value.hint


@pytest.mark.req("FR-011c-004", "STATE-011c-06", "STATE-011c-07", "STATE-011c-08")
@pytest.mark.parametrize("end", [finished(), ev.SessionFailed(reason="x"), ev.SessionCancelled()])
@pytest.mark.parametrize("after", [(), (decided(False),)], ids=["at the end", "audit events behind it"])
def test_a_crash_after_the_final_event_answers_already_finished(end: Any, after: tuple[Any, ...]) -> None:
    """Should_Reject_Terminal_States"""
    with pytest.raises(TerminalState, match="has ended") as caught:
        detect_scenario(session(created("a"), did("a"), end, after, crash()))
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-RESUME-002", 15)


@pytest.mark.req("FR-011c-003", "STATE-011c-01", "STATE-011c-02", "STATE-011c-04", "STATE-011c-05")
@pytest.mark.parametrize(
    ("words", "state", "scenario"),
    [
        ([born()], State.CREATED, Scenario.FRESH_START),
        (created("a")[:2], State.PLANNING, Scenario.FRESH_START),
        (created("a"), State.EXECUTING, Scenario.FRESH_START),
        ([*created("a"), started("a")], State.EXECUTING, Scenario.MID_OPERATION),
        ([*created("a", "b"), *did("a"), paused()], State.PAUSED, Scenario.USER_INTERRUPT),
    ],
)
def test_every_state_that_is_not_terminal_can_be_resumed(words: list[Any], state: State, scenario: Scenario) -> None:
    """Should_Resume_Paused_Session"""
    now = session(words)
    assert (now.state, detect_scenario(now)) == (state, scenario)
    asked = decide(now, classify(now), Limits(), now=at(10_000), actor="user", facts=Facts())
    assert asked.reason is Reason.ALLOWED


@pytest.mark.req("STATE-011c-03")
def test_a_session_that_waits_at_a_gate_can_be_resumed() -> None:
    assert detect_scenario(session(created(gate("a")), awaiting("a"))) is Scenario.CLEAN_SHUTDOWN


# Classes.


def ended(*words: Any, **facts: Any) -> Any:
    return classify(session(*words), **facts)


@pytest.mark.req("POL-CLASS-01")
def test_a_command_that_exits_non_zero_is_a_tool_failure() -> None:
    found = ended(
        created("a"), started("a"), failed("a", exit_status=2), paused("step_failed", "tool_failure", step="main.a")
    )
    assert found.cls == "tool_failure" and found.known and not found.by_person
    assert found.evidence == "step main.a: it failed (event 5)"


@pytest.mark.req("POL-CLASS-02")
def test_a_step_out_of_time_is_a_timeout() -> None:
    found = ended(created("a"), started("a"), failed("a", reason="timeout"), paused("timeout", "timeout"))
    assert found.cls == "timeout" and found.known


@pytest.mark.req("POL-CLASS-03")
def test_a_lost_context_is_a_context_reset() -> None:
    found = ended(created("a"), started("a"), crash(), context_lost="the conversation is gone")
    assert (found.cls, found.evidence) == ("context_reset", "the conversation is gone")


@pytest.mark.req("POL-CLASS-04")
@pytest.mark.parametrize("words", [(created("a"),), (created("a"), started("a")), (created("a", "b"), did("a"))])
def test_a_log_without_an_ending_is_a_crash(words: tuple[Any, ...]) -> None:
    found = ended(*words, crash())
    assert found.cls == "process_crash" and found.known
    assert "no pause" in found.evidence


@pytest.mark.req("POL-CLASS-06")
def test_every_pause_acode_knows_is_put_into_exactly_one_class_or_needs_none() -> None:
    for reason in PAUSED_BY_PERSON | PAUSED_BY_ACODE:
        for interruption in (None, "tool_failure"):
            found = ended(created("a"), started("a"), failed("a"), paused(reason, interruption))
            person = reason in PAUSED_BY_PERSON
            assert found.known
            assert found.by_person is person
            assert found.cls == (None if person else interruption)


@pytest.mark.req("POL-CLASS-05")
def test_a_pause_for_a_reason_nobody_knows_cannot_be_classified() -> None:
    found = ended(created("a"), did("a"), paused("moon_phase"))
    assert (found.cls, found.known) == (None, False)
    assert "moon_phase" in found.evidence


def test_a_gate_is_no_interruption() -> None:
    found = ended(created(gate("a")), awaiting("a"))
    assert (found.cls, found.known, found.by_person) == (None, True, False)


def test_a_persons_pause_has_no_class_and_names_the_signal() -> None:
    assert ended(created("a"), did("a"), paused("user", signal="SIGINT")).evidence == "paused by SIGINT"
    assert ended(created("a"), did("a"), by_user(paused())).evidence == "paused by the user"


def test_the_evidence_names_the_event_or_the_message_it_rests_on() -> None:
    """It is what a person reads first; it must point at something."""
    crashes = {
        "the log ends with step_started of main.a (event 4) and no pause": [started("a")],
        "the log ends with session_executing (event 3) and no pause": [],
    }
    for evidence, words in crashes.items():
        assert ended(created("a"), words, crash()).evidence == evidence
    pauses = {
        "the disk is full": paused("disk_full", "tool_failure", message="the disk is full"),
        "paused: disk full": paused("disk_full", "tool_failure"),
        "paused: step failed": paused("step_failed", "tool_failure"),
    }
    for evidence, pause in pauses.items():
        assert ended(created("a", "b"), did("a"), pause).evidence == evidence
    failure = (created("a"), started("a"), failed("a"))
    assert ended(*failure, paused("error", message="something else")).evidence == "something else"
    assert ended(*failure, paused("timeout", "timeout")).evidence == "step main.a: it failed (event 5)"


# When it happened.


def test_a_pause_happened_when_it_was_said() -> None:
    found = ended(created("a"), started("a"), failed("a"), paused("step_failed", "tool_failure"), decided(False))
    assert found.at == at(6)
    touched = at(500)
    assert classify(session(created("a"), paused("error")), lock_touched_at=touched).at == at(3)


@pytest.mark.parametrize(("touched", "when"), [(None, 3), (-100, 3), (2, 3), (3, 3), (60, 60)])
def test_a_crash_happened_at_the_later_of_last_event_and_last_sign_of_life(touched: float | None, when: float) -> None:
    found = ended(created("a"), started("a"), crash(), lock_touched_at=None if touched is None else at(touched))
    assert found.at == at(when)


def test_a_refused_attempt_does_not_move_the_time_of_a_crash() -> None:
    before = ended(created("a"), started("a"), crash())
    after = ended(created("a"), started("a"), crash(), passing(30), decided(False), passing(30), decided(False))
    assert after.at == before.at


# What is said where it cannot go on.


def test_an_ended_session_is_named_with_the_way_to_a_new_one() -> None:
    with pytest.raises(TerminalState) as refused:
        detect_scenario(session(created("a"), did("a"), finished()))
    assert refused.value.message == "Cannot resume COMPLETED session 0000cafe: it has ended"
    assert refused.value.hint == "Start a new session: acode run"


def test_an_end_that_fits_nothing_is_named_with_all_that_is_known() -> None:
    odd = msgspec.structs.replace(session(created("a"), started("a"), paused("user")), pause=None)
    with pytest.raises(CannotContinue) as refused:
        detect_scenario(odd)
    assert refused.value.message.startswith(
        "the log of session 0000cafe ends in no way acode knows: state PAUSED after"
    )
    assert refused.value.hint == "Look at it: acode session history 0000cafe"
    assert refused.value.details == {"state": "PAUSED", "seq": odd.seq}


@pytest.mark.parametrize("before", [(), (paused("user", None),)])
def test_a_rollback_that_was_cut_off_is_why_it_stopped_whatever_it_was_before(before: tuple[Any, ...]) -> None:
    undo = ev.UndoStarted(step="main.a", attempt=1, key="")
    words = (created("a"), did("a"), *before, by_user(undo))
    found = classify(session(*words))
    assert found.cls is ev.InterruptionClass.PROCESS_CRASH and not found.by_person
    last = session(*words).last_lifecycle
    assert last is not None and found.at == last.at
    assert found.evidence == "a rollback was interrupted while step main.a was being undone"
    lost = classify(session(*words), context_lost="the conversation is gone")
    assert lost.evidence == "the conversation is gone"


def test_a_wait_for_an_approval_is_no_interruption_and_says_so() -> None:
    found = classify(session(created(gate("g")), awaiting("g")))
    assert (found.cls, found.evidence, found.at) == (None, "waits for an approval", at(3))
    granted = ev.ApprovalGranted(step="main.g", question="Go?", action_digest="d")
    found = classify(session(created(gate("g")), awaiting("g"), granted))
    assert (found.cls, found.evidence) == (None, "waited for an approval, which was given")


def test_a_lost_context_is_dated_by_the_last_thing_that_happened() -> None:
    now = session(created("a"), did("a"))
    found = classify(now, context_lost="the conversation is gone")
    assert now.last_lifecycle is not None and found.at == now.last_lifecycle.at


def test_a_server_that_asked_for_patience_is_given_it() -> None:
    found = classify(session(created("a"), started("a"), paused("rate_limit", "tool_failure", retry_after_s=77)))
    assert found.retry_after_s == 77


def test_a_session_that_died_while_a_person_was_asked_and_another_task_worked_has_crashed() -> None:
    words = (created("a", gate("g")), started("a"), awaiting("g"))
    now = session(*words)
    assert detect_scenario(now) is Scenario.MID_OPERATION
    assert classify(now).cls is ev.InterruptionClass.PROCESS_CRASH
    waits = session(*words, completed("a"))
    assert detect_scenario(waits) is Scenario.CLEAN_SHUTDOWN and classify(waits).cls is None

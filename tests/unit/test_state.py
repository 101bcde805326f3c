"""The fold: the state machine as a table, what an event means, and what the fold refuses to guess."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from acode.errors import BadTransition, ReplayDisorder, SequenceGap
from acode.events import parse_key
from acode.events import types as ev
from acode.state import TERMINAL, TRANSITIONS, Session, State, advance, begin, fold
from tests.builders import (
    OTHER_SESSION,
    SESSION,
    awaiting,
    born,
    by_user,
    completed,
    crash,
    created,
    decided,
    did,
    envelope,
    executing,
    failed,
    finished,
    gate,
    id_of,
    log,
    passing,
    paused,
    plan,
    resumed,
    session,
    settled,
    started,
    task,
    task_done,
)

S = State

# The state machine as it is written down: every row that is not here is forbidden. PAUSED → FAILED is the one addition
# to the written table: a paused session can be abandoned by a person.
ALLOWED = {
    S.CREATED: "PLANNING PAUSED FAILED CANCELLED",
    S.PLANNING: "AWAITING_APPROVAL EXECUTING PAUSED FAILED CANCELLED",
    S.AWAITING_APPROVAL: "EXECUTING PAUSED FAILED CANCELLED",
    S.EXECUTING: "AWAITING_APPROVAL PAUSED COMPLETED FAILED CANCELLED",
    S.PAUSED: "PLANNING AWAITING_APPROVAL EXECUTING CANCELLED FAILED",
    S.COMPLETED: "",
    S.FAILED: "",
    S.CANCELLED: "",
}
WAYS_THERE: dict[State, list[Any]] = {
    S.CREATED: [born()],
    S.PLANNING: created("a")[:2],
    S.AWAITING_APPROVAL: [*created("a"), awaiting("a")],
    S.EXECUTING: created("a"),
    S.PAUSED: [*created("a"), paused()],
    S.COMPLETED: [*created("a"), finished()],
    S.FAILED: [*created("a"), ev.SessionFailed(reason="x")],
    S.CANCELLED: [*created("a"), ev.SessionCancelled()],
}
ENTERING: dict[State, Any] = {
    S.PLANNING: ev.SessionPlanned(tasks=1, steps=1, plan_digest="d"),
    S.AWAITING_APPROVAL: awaiting("a"),
    S.EXECUTING: executing(),
    S.PAUSED: paused(),
    S.COMPLETED: finished(),
    S.FAILED: ev.SessionFailed(reason="x"),
    S.CANCELLED: ev.SessionCancelled(),
}
# Said again in the state it leads to, these two are no transition: replanning, and asking at the next gate.
STAYING = {(S.PLANNING, S.PLANNING), (S.AWAITING_APPROVAL, S.AWAITING_APPROVAL)}


@pytest.mark.parametrize("to", list(ENTERING))
@pytest.mark.parametrize("start", list(State))
def test_every_transition_is_allowed_or_refused_as_the_table_says(start: State, to: State) -> None:
    before = session(WAYS_THERE[start])
    assert before.state is start
    event = envelope(ENTERING[to], before.seq + 1, before.updated_at + timedelta(seconds=1))
    if to in ALLOWED[start].split() or (start, to) in STAYING:
        assert fold([event], start=before).state is to
    else:
        with pytest.raises(BadTransition, match=f"from {start} to {to}") as caught:
            fold([event], start=before)
        assert caught.value.code == "ACODE-SESSION-001"


def test_the_table_in_the_code_is_the_table_that_is_written_down() -> None:
    assert {state: set(row.split()) for state, row in ALLOWED.items()} == {
        state: set(row) for state, row in TRANSITIONS.items()
    }
    assert {state for state, row in TRANSITIONS.items() if not row} == TERMINAL


def test_an_event_that_is_refused_changes_nothing() -> None:
    ended = session(created("a"), finished())
    before = copy.deepcopy(ended)
    with pytest.raises(BadTransition):
        advance(ended, envelope(paused(), ended.seq + 1, ended.updated_at + timedelta(seconds=1)))
    assert ended == before


def test_a_pause_remembers_the_state_it_interrupted() -> None:
    assert session(created("a")[:2], paused()).before_pause is S.PLANNING
    assert session(created("a"), paused()).before_pause is S.EXECUTING
    assert session(created("a"), awaiting("a"), paused()).before_pause is S.AWAITING_APPROVAL


def test_what_was_paused_for_is_forgotten_when_it_goes_on() -> None:
    waiting = session(created("a"), awaiting("a"))
    assert waiting.waiting_for is not None
    going = session(created("a"), awaiting("a"), paused(), executing())
    assert going.pause is None and going.waiting_for is None


# What the fold refuses to guess.


@pytest.mark.req("FAIL-040b-05")
@pytest.mark.parametrize("missing", range(5))
def test_a_gap_anywhere_is_an_error_and_never_an_empty_log(missing: int) -> None:
    whole = log(created("a", "b"), did("a"), started("b"))
    del whole[missing]
    with pytest.raises(SequenceGap) as caught:
        fold(whole)
    assert caught.value.exit_code == 20


def test_an_empty_log_is_an_error() -> None:
    with pytest.raises(SequenceGap, match="empty"):
        fold([])


def test_an_event_said_twice_is_an_error() -> None:
    whole = log(created("a"), started("a"))
    with pytest.raises(SequenceGap):
        fold([*whole, whole[-1]])


def test_an_event_of_another_session_is_an_error() -> None:
    mine, other = log(created("a")), log(created("a"), started("a"), session_id=OTHER_SESSION)
    with pytest.raises(SequenceGap, match=OTHER_SESSION):
        fold([*mine, other[3]])


def test_a_log_begins_with_the_creation() -> None:
    with pytest.raises(SequenceGap, match="session_executing"):
        begin(envelope(executing(), 1))
    with pytest.raises(SequenceGap):
        begin(envelope(born(), 2))


# Order.


@pytest.mark.req("FR-011c-034", "FR-011c-038")
def test_an_event_that_is_earlier_than_the_one_before_it_is_reported() -> None:
    """Should_Order_By_Timestamp"""
    whole = log(created("a"), started("a"))
    whole[3] = msgspec.structs.replace(whole[3], at=whole[2].at - timedelta(microseconds=1))
    with pytest.raises(ReplayDisorder, match="event 4") as caught:
        fold(whole)
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-LOG-005", 20)


@pytest.mark.req("FR-011c-035")
def test_at_the_same_time_the_event_id_decides() -> None:
    """Should_Use_EventId_Tiebreaker"""
    whole = log(created("a"), started("a"))
    same_time = msgspec.structs.replace(whole[3], at=whole[2].at)
    assert fold([*whole[:3], same_time]).seq == 4
    with pytest.raises(ReplayDisorder):
        fold([*whole[:3], msgspec.structs.replace(same_time, named_id=id_of(2))])
    with pytest.raises(ReplayDisorder):
        fold([*whole[:3], msgspec.structs.replace(same_time, named_id=whole[2].event_id)])


@pytest.mark.req("FR-011c-036")
def test_replaying_a_log_gives_the_same_state_every_time() -> None:
    """Should_Produce_Deterministic_State"""
    words = (created("a", "b"), did("a"), started("b"), failed("b"), paused("step_failed", "tool_failure"), resumed())
    assert session(*words) == session(*words)
    assert msgspec.json.encode(session(*words)) == msgspec.json.encode(session(*words))


def test_a_fold_leaves_its_start_alone() -> None:
    start = session(created("a", "b"), did("a"))
    before = copy.deepcopy(start)
    rest = log(created("a", "b"), did("a"), started("b"), failed("b"))[5:]
    fold(rest, start=start)
    assert start == before


# Steps.


@pytest.mark.req("FR-011c-015")
def test_the_fold_holds_tasks_steps_and_position() -> None:
    """Should_Include_All_State"""
    now = session(created(plan(task("a", "x"), task("b", "y", "z"))), did("a.x"), task_done("a"), did("b.y"))
    assert (now.steps_done, now.steps_total, now.tasks_done, now.tasks_total) == (2, 3, 1, 2)
    assert now.last_completed is not None and now.last_completed.step == "b.y"
    assert now.records is not None and {*now.records.steps} == {"a.x", "b.y"}


@pytest.mark.req("FR-011c-030")
def test_completed_steps_are_told_from_the_others() -> None:
    """Should_Detect_Completed_Steps"""
    now = session(created("a", "b", "c"), did("a"), started("b"), failed("b"))
    assert [now.done(f"main.{name}") for name in "abc"] == [True, False, False]


def test_a_step_is_in_flight_from_its_start_to_its_end() -> None:
    assert list(session(created("a"), started("a")).in_flight) == ["main.a"]
    assert session(created("a"), did("a")).in_flight == {}


def test_several_steps_can_be_in_flight_in_the_order_of_their_starts() -> None:
    now = session(created("a", "b", "c"), started("b"), started("a"), started("c"), completed("a"))
    assert list(now.in_flight) == ["main.b", "main.c"]


@pytest.mark.parametrize("reason", ["exit", "error"])
def test_a_step_that_ended_by_itself_has_failed_and_is_gated(reason: str) -> None:
    now = session(created("a"), started("a"), failed("a", reason=reason))
    record = now.record("main.a")
    assert record is not None
    assert (record.status, record.resume_approved, record.failures) == ("failed", False, 1)
    assert now.in_flight == {}


@pytest.mark.parametrize("reason", ["timeout", "signal"])
def test_a_step_that_was_stopped_is_still_open(reason: str) -> None:
    now = session(created("a"), started("a"), failed("a", reason=reason))
    flight = now.in_flight["main.a"]
    assert flight.stopped is not None and flight.stopped.reason == reason
    assert now.record("main.a") is None


@pytest.mark.parametrize("outcome", ["not_applied", "rolled_back", "retry_accepted"])
def test_a_settlement_clears_a_step_in_flight_for_its_next_attempt(outcome: str) -> None:
    now = session(created("a"), started("a"), settled("a", outcome))
    record = now.record("main.a")
    assert now.in_flight == {} and record is not None
    assert (record.status, record.resume_approved) == ("pending", True)
    assert now.next_attempt("main.a") == 2


def test_an_unknown_outcome_keeps_the_step_in_flight_and_says_so() -> None:
    now = session(created("a"), started("a"), settled("a", "unknown"))
    assert now.in_flight["main.a"].unknown == "as it was found"
    assert now.next_attempt("main.a") == 1


def test_an_applied_settlement_waits_for_its_completion() -> None:
    assert "main.a" in session(created("a"), started("a"), settled("a", "applied")).in_flight
    now = session(created("a"), started("a"), settled("a", "applied"), completed("a", settled=True))
    assert now.in_flight == {} and now.done("main.a")


@pytest.mark.parametrize("answer", ["not_applied", "retry_accepted"])
def test_a_persons_word_on_a_failed_step_approves_its_repetition(answer: str) -> None:
    now = session(created("a"), started("a"), failed("a"), by_user(settled("a", answer)))
    record = now.record("main.a")
    assert record is not None and record.resume_approved and record.status == "pending"


def test_failures_are_counted_over_attempts_and_forgotten_with_success() -> None:
    twice = (created("a"), started("a"), failed("a"), started("a", 2), failed("a", 2))
    record = session(*twice).record("main.a")
    assert record is not None and record.failures == 2
    again = session(*twice, started("a", 3))
    assert again.in_flight["main.a"].failures == 2
    done = session(*twice, started("a", 3), completed("a", 3)).record("main.a")
    assert done is not None and done.failures == 0


def test_outputs_of_a_failed_attempt_are_remembered_until_they_are_put_back() -> None:
    image = ev.PreImage(path="x", kind="absent")
    words = (created("a"), started("a", before=(image,)), failed("a"))
    record = session(*words).record("main.a")
    assert record is not None and record.left_behind is not None and record.left_behind.before == (image,)
    cleared = session(*words, settled("a", "rolled_back")).record("main.a")
    assert cleared is not None and cleared.left_behind is None


def test_the_latest_failure_is_kept_for_the_person_and_gone_with_the_next_success() -> None:
    words = (created("a"), started("a"), failed("a", exit_status=3, output=ev.Output(tail="no such file")))
    failure = session(*words).failure
    assert failure is not None
    assert (failure.step, failure.exit_status, failure.tail) == ("main.a", 3, "no such file")
    assert session(*words, started("a", 2), completed("a", 2)).failure is None


def test_a_failure_is_not_hidden_by_the_end_of_a_step_that_ran_beside_it() -> None:
    words = (created("a", "b", "c"), started("a"), started("b"), failed("a", exit_status=3), completed("b"))
    failure = session(*words).failure
    assert failure is not None and failure.step == "main.a"
    assert session(*words, started("c"), completed("c")).failure is None, "a step that began after it goes past it"


def test_files_are_known_as_the_last_event_saw_them() -> None:
    def seen(size: int) -> tuple[ev.FileState, ...]:
        return (ev.FileState(path="x", sha256=str(size), size=size),)

    words = [created("a", "b"), started("a"), completed("a", files=seen(1)), started("b")]
    sizes = []
    for more in ([], [ev.ChangesAccepted(files=seen(2))], failed("b", files=seen(3))):
        words += [more]
        records = session(*words).records
        assert records is not None
        sizes.append(records.manifest["x"].size)
    assert sizes == [1, 2, 3]


def test_an_approval_is_the_last_word_on_its_gate() -> None:
    yes = ev.ApprovalGranted(step="main.a", question="Go?", action_digest="d")
    no = ev.ApprovalDenied(step="main.a", question="Go?", action_digest="d")
    for words, granted in (([yes], True), ([no], False), ([yes, no], False), ([no, yes], True)):
        records = session(created(gate("a")), awaiting("a"), words).records
        assert records is not None
        assert records.approvals["main.a"].granted is granted
        assert records.approvals["main.a"].action_digest == "d"


def test_steps_that_were_taken_back_are_pending_with_a_new_key_and_no_grant() -> None:
    back = ev.StepsRolledBack(to="main.a", steps=("main.b",), tasks=("main",))
    yes = ev.ApprovalGranted(step="main.b", question="Go?", action_digest="d")
    now = session(created("a", "b"), did("a"), yes, did("b"), task_done(), by_user(back))
    assert now.records is not None
    assert (now.steps_done, now.tasks_done, now.done("main.b")) == (1, 0, False)
    assert now.next_attempt("main.b") == 2
    assert "main.b" not in now.records.approvals


# Idempotency keys.


@pytest.mark.req("FR-011c-032", "FR-011c-033")
def test_the_attempt_grows_only_after_a_settlement_so_the_key_survives_a_restart() -> None:
    now = session(created("a"), started("a"), crash(), resumed())
    flight = now.in_flight["main.a"]
    assert parse_key(flight.started.key) == (SESSION, "main.a", 1)
    assert now.next_attempt("main.a") == 1
    assert (
        session(created("a"), started("a"), crash(), resumed(), settled("a", "not_applied")).next_attempt("main.a") == 2
    )


@pytest.mark.req("FR-011c-029")
def test_each_attempt_has_a_key_of_its_own() -> None:
    words: list[Any] = [created("a")]
    keys = []
    for attempt in range(1, 5):
        assert session(*words).next_attempt("main.a") == attempt
        keys.append(started("a", attempt).key)
        words += [started("a", attempt), settled("a", "rolled_back", attempt)]
    assert len(set(keys)) == 4


# Attempts.


def counters(now: Session) -> tuple[int, int, int, int]:
    return now.resumes_since_progress, now.resumes_counted, now.resumes_automatic, now.resumes


@pytest.mark.req("FR-040b-51", "SEC-040b-05")
def test_resumes_are_counted_since_the_last_progress_and_in_all() -> None:
    words: list[Any] = [created("a", "b"), started("a"), crash(), resumed(), crash(), resumed(automatic=True)]
    assert counters(session(*words)) == (2, 2, 1, 2)
    words += [settled("a", "not_applied"), started("a", 2), completed("a", 2)]
    assert counters(session(*words)) == (0, 2, 1, 2)
    words += [started("b"), crash(), resumed()]
    assert counters(session(*words)) == (1, 3, 1, 3)


def test_refused_attempts_previews_and_user_pauses_are_not_counted() -> None:
    now = session(
        created("a"), did("a"), by_user(paused()), decided(False), decided(False), resumed(counted=False), executing()
    )
    assert counters(now) == (0, 0, 0, 1)


def test_a_resume_that_only_waited_and_gave_up_is_no_attempt() -> None:
    gave_up = ev.ResumeWithdrawn(step="main.a")
    words: list[Any] = [created("a", "b", "c"), started("a"), crash(), resumed(), crash(), resumed(automatic=True)]
    assert counters(session(*words, gave_up)) == (1, 1, 0, 2)
    assert counters(session(*words, gave_up, gave_up)) == (1, 1, 0, 2), "no more is taken off than it was counted for"
    assert counters(session(*words, gave_up, resumed(counted=False), gave_up)) == (1, 1, 0, 3)
    assert counters(session(*words, completed("a"), gave_up)) == (0, 1, 0, 2), "it had made progress before it waited"


def test_only_new_furthest_progress_lets_the_attempts_count_anew() -> None:
    """A step done again after it was taken back is no progress: otherwise a loop of both would never end."""
    back = ev.StepsRolledBack(to=None, steps=("main.a",))
    words = (created("a", "b"), did("a"), by_user(back), crash(), resumed(), started("a", 2), completed("a", 2))
    assert session(*words).resumes_since_progress == 1
    assert session(*words, did("b")).resumes_since_progress == 0


def test_an_escalation_lasts_until_new_progress() -> None:
    up = ev.EscalatedToPerson(reason_code="resume_attempt_limit_reached", attempt=3)
    words = (created("a", "b"), started("a"), failed("a"), paused("step_failed", "tool_failure"), up)
    assert session(*words).escalated
    assert session(*words, resumed(), executing()).escalated
    assert not session(*words, resumed(), executing(), started("a", 2), completed("a", 2)).escalated
    assert session(*words).state is S.PAUSED


# Events that say nothing about the work.


@pytest.mark.req("FAIL-040b-06")
def test_an_unknown_event_is_remembered_unless_it_declares_itself_ignorable() -> None:
    strange, idle = ev.Unknown(type="approval_revoked"), ev.Unknown(type="weather", ignorable=True)
    assert session(created("a"), strange).unknown_types == {4: "approval_revoked"}
    assert session(created("a"), idle).unknown_types == {}


def test_the_last_lifecycle_event_judges_the_end_and_audit_events_do_not() -> None:
    now = session(created("a"), started("a"), crash(), passing(600), decided(False), ev.Forced(what="x"))
    assert now.last_lifecycle is not None
    assert (now.last_lifecycle.type, now.last_lifecycle.seq) == ("step_started", 4)
    assert now.seq == 6


@pytest.mark.req("INV-011c-01", "INV-011c-04")
def test_session_id_and_task_description_never_change() -> None:
    whole = log(created("a"), did("a"), by_user(paused()), resumed(), executing(), finished())
    for cut in range(1, len(whole) + 1):
        now = fold(whole[:cut])
        assert now.session_id == SESSION
        assert now.created is not None and now.created.task == "A plan"

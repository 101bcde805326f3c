"""What the fold keeps of each event, field by field, and what its errors say: a resume reads nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from acode.errors import BadTransition, MissingArtifacts, ReplayDisorder, SequenceGap
from acode.events import types as ev
from acode.state import NESTED, Mark, Session, State, StepRecord, advance, fold
from tests.builders import (
    OWNER,
    SESSION,
    at,
    awaiting,
    by_user,
    completed,
    created,
    did,
    envelope,
    executing,
    failed,
    finished,
    gate,
    id_of,
    log,
    paused,
    plan,
    resumed,
    session,
    settled,
    started,
    task,
    task_done,
)

FILE = ev.FileState(path="x", sha256="5" * 64, size=5)
BEFORE = (ev.PreImage(path="x", kind="absent"),)


def kept(now: Session) -> Any:
    assert now.records is not None
    return now.records


def record(now: Session, step: str = "main.a") -> StepRecord:
    found = now.record(step)
    assert found is not None
    return found


def born(kind: Any) -> ev.SessionCreated:
    return ev.SessionCreated(title="Tidy up", task="key-1", source="arc", kind=kind, owner=OWNER, acode_version="0")


# The beginning.


@pytest.mark.parametrize(
    ("kind", "run_id"), [("plan", ""), ("foreign", "key-1"), ("library", "key-1"), ("agent", "key-1")]
)
def test_a_session_is_born_with_what_its_creation_says(kind: str, run_id: str) -> None:
    now = session(born(kind))
    assert (now.title, now.source, now.kind, now.run_id) == ("Tidy up", "arc", kind, run_id)
    assert (now.created_at, now.updated_at, now.last_event_id) == (at(0), at(0), "")
    assert session(born(kind), paused()).created_at == at(0)


def test_the_mark_of_a_creation_does_not_take_the_words_of_the_user_for_a_task() -> None:
    assert session(born("plan")).last_lifecycle == Mark(seq=1, at=at(0), type="session_created")


def test_the_mark_of_a_completion_names_its_task_and_step() -> None:
    now = session(created("a"), did("a"))
    assert now.last_completed == now.last_lifecycle
    assert now.last_completed == Mark(seq=5, at=at(4), type="step_completed", task="main", step="main.a")


def test_the_id_of_a_marked_event_follows_from_its_place_and_time_unless_its_row_names_it() -> None:
    now = session(created("a"), did("a"))
    assert now.last_completed is not None
    assert now.id_of(now.last_completed) == id_of(5)
    assert now.id_of(msgspec.structs.replace(now.last_completed, event_id="named")) == "named"


# Errors name the place, so that a person can look there and a program can act on it.


def test_a_gap_is_told_with_the_number_that_is_missing_and_the_one_that_stands_there() -> None:
    whole = log(created("a"), did("a"))
    with pytest.raises(SequenceGap) as caught:
        fold([*whole[:3], whole[4]])
    assert caught.value.details == {"expected": 4, "found": 5}


def test_an_empty_log_is_told_in_words() -> None:
    with pytest.raises(SequenceGap) as caught:
        fold([])
    assert caught.value.message == "the log is empty: not even the creation of the session is there"


def test_a_disorder_is_told_with_its_number() -> None:
    whole = log(created("a"), started("a"))
    with pytest.raises(ReplayDisorder) as caught:
        fold([*whole[:3], msgspec.structs.replace(whole[3], at=whole[0].at)])
    assert caught.value.details == {"seq": 4}


@pytest.mark.parametrize(
    "event",
    [
        ev.SessionPlanned(tasks=1, steps=1, plan_digest="d"),
        executing(),
        awaiting("a"),
        paused(),
        finished(),
        ev.SessionFailed(reason="x"),
        ev.SessionCancelled(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_forbidden_transition_is_told_with_its_number(event: Any) -> None:
    ended = session(created("a"), finished())
    with pytest.raises(BadTransition, match=r"^event 5: ") as caught:
        advance(ended, envelope(event, 5, ended.updated_at + timedelta(seconds=1)))
    assert caught.value.details == {"seq": 5}


def test_a_plan_that_is_gone_is_told_with_the_way_out() -> None:
    now = session(born("plan"))
    with pytest.raises(MissingArtifacts) as caught:
        now.steps()
    assert caught.value.message == f"the plan snapshot of session {SESSION[-8:]} is gone"
    anew = "acode run --new - (and the plan on stdin)"
    assert caught.value.hint == f"Restore .agent/blobs from a backup, or start again: {anew}"


# A session that was loaded from a small checkpoint knows counters and no records.


def test_without_records_nothing_is_known_of_a_step() -> None:
    small = session(created("a"), did("a"))
    small.records = None
    assert small.record("main.a") is None and not small.done("main.a")


# Steps.


@pytest.mark.parametrize(
    ("kind", "step", "flying", "is_open"),
    [
        ("agent", "a", ("a",), True),
        ("agent", "a", (), False),
        ("agent", "a", ("b",), False),
        ("agent", f"a{NESTED}1", ("a", f"a{NESTED}1"), False),
        ("library", "a", ("a",), False),
    ],
)
def test_only_an_agents_task_that_has_not_ended_is_an_open_task(
    kind: str, step: str, flying: tuple[str, ...], is_open: bool
) -> None:
    words = [msgspec.structs.replace(started(one), step=one) for one in flying]
    assert session(born(kind), words).is_open_task(step) is is_open


def test_a_start_is_kept_with_its_place_and_time() -> None:
    now = session(created("a"), started("a"))
    flight = now.in_flight["main.a"]
    assert (flight.seq, flight.at, flight.failures, now.last_attempted) == (4, at(3), 0, "main.a")


def test_a_step_that_ends_without_a_start_is_done_all_the_same() -> None:
    """A gate has no effect that would have to be announced: its answer is its end."""
    now = session(created(gate("a")), awaiting("a"), completed("a"))
    assert now.done("main.a") and now.last_attempted == "main.a"


def test_an_end_is_kept_with_its_place() -> None:
    assert record(session(created("a"), did("a"))) == StepRecord(status="completed", attempt=1, seq=5)


def test_of_a_completion_its_output_and_its_files_are_kept() -> None:
    output = ev.Output(blob="2" * 64, bytes=3, tail="ok\n")
    now = session(created("a", "b"), started("a"), completed("a", output=output, files=(FILE,)), did("b"))
    assert kept(now).outputs == {"main.a": output}
    assert kept(now).manifest == {"x": FILE}


def test_the_time_of_a_task_is_the_sum_of_its_steps() -> None:
    words = [word for step, ms in (("a", 20), ("b", 3)) for word in (started(step), completed(step, duration_ms=ms))]
    assert kept(session(created("a", "b"), words)).task_ms == {"main": 23}


def test_each_finished_task_counts() -> None:
    now = session(created(plan(task("a", "x"), task("b", "y"))), did("a.x"), task_done("a"), did("b.y"), task_done("b"))
    assert now.tasks_done == 2


def test_files_of_a_programs_step_are_kept_although_the_step_is_not() -> None:
    done = msgspec.structs.replace(completed("a", files=(FILE,)), step="a")
    assert kept(session(born("library"), done)).manifest == {"x": FILE}


# Failures and settlements.


def test_the_latest_failure_is_told_in_full() -> None:
    words = failed("a", reason="signal", signal="SIGKILL", touched=("y",))
    failure = session(created("a"), started("a"), words).failure
    assert failure is not None
    assert (failure.step, failure.reason, failure.message, failure.seq) == ("main.a", "signal", "it failed", 5)
    assert (failure.at, failure.exit_status, failure.signal, failure.tail) == (at(4), None, "SIGKILL", "")
    assert failure.touched == ("y",)


def test_files_that_a_settlement_saw_are_kept() -> None:
    saw = msgspec.structs.replace(settled("a", "rolled_back"), files=(FILE,))
    assert kept(session(created("a"), started("a"), saw)).manifest == {"x": FILE}


def test_a_settlement_is_kept_with_its_place_and_the_failures_before_it() -> None:
    now = session(created("a"), started("a"), failed("a", reason="timeout"), settled("a", "rolled_back"))
    assert record(now) == StepRecord(status="pending", attempt=1, seq=6, resume_approved=True, failures=1)


def test_a_word_on_a_step_that_is_not_in_flight_keeps_its_failures() -> None:
    once = (created("a"), started("a"), failed("a"))
    assert record(session(*once, by_user(settled("a", "retry_accepted")))).failures == 1
    assert record(session(created("a"), by_user(settled("a", "not_applied")))).failures == 0


def test_a_persons_word_on_a_step_that_just_failed_is_an_approval() -> None:
    """The crash came between the failure and its settlement: a person settles it, and need not be asked again."""
    failure = failed("a")[0]
    assert record(session(created("a"), started("a"), failure, settled("a", "not_applied"))).status == "failed"
    by_person = record(session(created("a"), started("a"), failure, by_user(settled("a", "not_applied"))))
    assert (by_person.status, by_person.resume_approved) == ("pending", True)


def test_an_attempt_that_was_cleared_has_left_nothing_behind() -> None:
    assert record(session(created("a"), started("a", before=BEFORE), settled("a", "rolled_back"))).left_behind is None
    assert record(session(created("a"), started("a", kind="sql"), failed("a"))).left_behind is None


def test_a_failed_command_before_which_nothing_stood_at_its_outputs_may_have_left_some() -> None:
    begun = started("a")
    assert record(session(created("a"), begun, failed("a"))).left_behind == begun
    assert record(session(created("a"), begun, failed("a"), settled("a", "rolled_back"))).left_behind is None


@pytest.mark.parametrize("answer", ["not_applied", "retry_accepted"])
@pytest.mark.parametrize("ended", ["cut off", "failed", "timeout"])
def test_a_command_that_a_person_wants_repeated_has_left_its_outputs_behind(ended: str, answer: str) -> None:
    begun = started("a", before=BEFORE)
    words = {"cut off": [], "failed": failed("a"), "timeout": failed("a", reason="timeout")}[ended]
    now = session(created("a"), begun, *words, by_user(settled("a", answer)))
    assert record(now).left_behind == begun
    assert record(session(created("a"), begun, *words, by_user(settled("a", "rolled_back")))).left_behind is None


def test_a_repeat_that_the_strategy_accepts_is_one_over_what_was_left() -> None:
    now = session(created("a"), started("a", before=BEFORE), settled("a", "retry_accepted"))
    assert record(now).left_behind is None


def test_an_answer_is_kept_with_its_place() -> None:
    yes = ev.ApprovalGranted(step="main.a", question="Go?", action_digest="d")
    assert kept(session(created(gate("a")), awaiting("a"), yes)).approvals["main.a"].seq == 5


# Resumes and escalations.


def test_each_automatic_resume_counts_and_the_last_one_is_known_by_its_place() -> None:
    now = session(created("a"), started("a"), resumed(automatic=True), resumed(automatic=True))
    assert (now.resumes_automatic, now.last_resume_seq) == (2, 8)


def test_neither_progress_nor_the_end_leaves_an_escalation_standing() -> None:
    up = ev.EscalatedToPerson(reason_code="resume_attempt_limit_reached", attempt=3)
    assert session(created("a"), up, did("a")).escalated is False
    assert session(created("a"), up, finished()).escalated is False


# Steps that were taken back.


def taken_back(*steps: str, **said: Any) -> ev.StepsRolledBack:
    return ev.StepsRolledBack(to=None, steps=steps, **said)


def test_a_step_that_was_taken_back_waits_for_the_attempt_after_its_last() -> None:
    words = (created("a"), started("a"), failed("a"), started("a", 2), completed("a", 2))
    now = session(*words, by_user(taken_back("main.a")))
    assert record(now) == StepRecord(status="pending", attempt=2, seq=now.seq, resume_approved=True)
    assert now.last_completed is None


def test_a_programs_step_that_was_taken_back_had_its_first_attempt() -> None:
    done = [msgspec.structs.replace(word, step="a") for word in did("a")]
    now = session(born("library"), done, by_user(taken_back("a", tasks=("a",))))
    assert record(now, "a").attempt == 1 and now.next_attempt("a") == 2
    assert (now.steps_done, now.tasks_done) == (0, 0)


def test_what_a_step_left_in_the_records_goes_with_it() -> None:
    output = ev.Output(tail="ok\n")
    words = (created("a"), started("a"), completed("a", output=output, duration_ms=9), task_done())
    now = session(*words, by_user(taken_back("main.a", tasks=("main",), files=(FILE,))))
    assert (kept(now).outputs, kept(now).task_ms, kept(now).manifest) == ({}, {}, {"x": FILE})


def test_a_taking_back_is_open_from_its_announcement_to_its_end() -> None:
    undo = ev.UndoStarted(step="main.a", attempt=1, key="k")
    words = (created("a"), did("a"), by_user(undo))
    assert session(*words).undoing == undo
    assert session(*words, by_user(taken_back("main.a"))).undoing is None


@pytest.mark.parametrize("answer", [ev.Settled.APPLIED, ev.Settled.RETRY_ACCEPTED])
def test_what_a_person_says_of_an_undo_stands_until_the_undo_begins_again_or_the_step_is_taken_back(
    answer: ev.Settled,
) -> None:
    undo = ev.UndoStarted(step="main.a", attempt=1, key="k")
    said = by_user(ev.UndoSettled(step="main.a", attempt=1, outcome=answer))
    words = (created("a"), did("a"), by_user(undo), said)
    assert (session(*words).undoing, session(*words).undo_answer) == (undo, answer)
    again = ev.UndoStarted(step="main.a", attempt=2, key="k2")
    for after, left in ((by_user(again), again), (by_user(taken_back("main.a")), None)):
        assert (session(*words, after).undoing, session(*words, after).undo_answer) == (left, None)


def test_an_undo_without_effect_is_as_if_it_had_never_begun() -> None:
    undo = ev.UndoStarted(step="main.a", attempt=1, key="k")
    said = by_user(ev.UndoSettled(step="main.a", attempt=1, outcome=ev.Settled.NOT_APPLIED))
    now = session(created("a"), did("a"), by_user(undo), said)
    assert (now.undoing, now.undo_answer, now.steps_done) == (None, None, 1)


# A repair.


def test_a_step_that_a_repair_opens_is_in_flight_from_there_whether_or_not_it_was_known() -> None:
    now = session(created("a"), ev.Quarantined(seqs=(9,), reason="damaged", opened=(started("a"),)))
    assert (now.in_flight["main.a"].seq, now.in_flight["main.a"].at) == (now.seq, now.updated_at)
    words = (created("a"), started("a"), completed("a", output=ev.Output(tail="ok\n")))
    again = session(*words, ev.Quarantined(seqs=(5,), reason="damaged", opened=(started("a"),)))
    assert kept(again).outputs == {} and again.state is State.EXECUTING

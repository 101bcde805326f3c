"""The fold of sessions without a plan file: a program's steps, a model's requests; and of logs that were repaired."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from acode.events import types as ev
from acode.plan import Strategy, continue_plan
from acode.resume_point import Scenario, detect_scenario
from acode.state import NESTED, AcceptedPast, Session
from acode.state.source import AGENT
from tests import builders
from tests.builders import OWNER, created, paused, resumed, session

INNER = f"a{NESTED}1"


def by_a_program(*words: Any, kind: Any = "library") -> Session:
    born = ev.SessionCreated(title="Work", task="Work", kind=kind, owner=OWNER, acode_version="0")
    planned = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")
    return session(born, planned, ev.SessionExecuting(reason="run"), *words)


def bare(event: Any, step: str) -> Any:
    """A program names its steps itself: what stands before a dot is the step that asked for this one."""
    return msgspec.structs.replace(event, step=step)


def started(step: str, attempt: int = 1, **more: Any) -> Any:
    return bare(builders.started(step, attempt, **more), step)


def completed(step: str, attempt: int = 1, **more: Any) -> Any:
    return bare(builders.completed(step, attempt, **more), step)


def failed(step: str) -> list[Any]:
    return [bare(event, step) for event in builders.failed(step)]


def did(*steps: str) -> list[Any]:
    return [word for step in steps for word in (started(step), completed(step))]


# Steps that a program asks for.


def test_finished_steps_of_a_program_are_counted_and_not_kept() -> None:
    now = by_a_program(did("a", "b"))
    assert (now.steps_done, now.steps_total, now.tasks_done, now.tasks_total) == (2, 2, 2, 2)
    assert now.records is not None and now.records.steps == {}


def test_a_step_in_flight_is_one_more_that_is_known_of() -> None:
    assert by_a_program(did("a"), started("b"), started("c")).steps_total == 3


def test_a_step_within_a_step_is_a_step_and_no_task() -> None:
    now = by_a_program(started("a"), started(INNER), completed(INNER), completed("a"))
    assert (now.steps_done, now.tasks_done, now.tasks_total) == (2, 1, 1)


def test_a_step_with_a_past_keeps_the_completion_that_counts() -> None:
    now = by_a_program(started("a"), failed("a"), started("a", 2), completed("a", 2))
    assert now.records is not None
    record = now.records.steps["a"]
    assert (record.status, record.attempt, record.seq) == ("completed", 2, now.seq)


def test_of_an_agents_session_its_tasks_are_kept_and_what_is_within_them_is_not() -> None:
    now = by_a_program(started("a"), started(INNER), completed(INNER), completed("a"), kind="agent")
    assert now.records is not None and set(now.records.steps) == {"a"}
    assert now.records.steps["a"].seq == now.seq


def test_a_failure_that_the_program_handled_is_the_steps_outcome() -> None:
    open_failure = by_a_program(started("a"), failed("a"))
    assert open_failure.records is not None and not open_failure.records.steps["a"].handled
    now = by_a_program(started("a"), failed("a"), ev.FailureHandled(step="a"))
    assert now.records is not None
    record = now.records.steps["a"]
    assert record.handled and record.status == open_failure.records.steps["a"].status
    nothing = by_a_program(did("a"), ev.FailureHandled(step="a"))
    assert nothing.records is not None and nothing.records.steps == {}


# A model's work.


def spent(tokens: int, usd: float | None) -> ev.Spent:
    return ev.Spent(input_tokens=tokens, output_tokens=2 * tokens, usd=usd)


def test_what_requests_cost_is_added_up_and_an_unknown_price_counts_as_nothing() -> None:
    words = [started("a", kind="model"), completed("a", spent=spent(10, 0.5))]
    words += [started("b", kind="model"), completed("b", spent=spent(5, None))]
    talk = by_a_program(words, kind="agent").conversation
    assert talk is not None
    assert (talk.requests, talk.input_tokens, talk.output_tokens, talk.usd, talk.last) == (2, 15, 30, 0.5, "b")


def test_a_context_that_was_shortened_twice_at_one_place_is_noted_once() -> None:
    short = ev.ContextCompacted(step="a", reason="long")
    other = ev.ContextCompacted(step="b", reason="long")
    talk = by_a_program(short, short, other, kind="agent").conversation
    assert talk is not None and talk.compacted == ("a", "b")


@pytest.mark.parametrize(
    ("step", "kind", "progress"),
    [("a", "model", True), (INNER, "model", False), (INNER, "call", False), (INNER, "write", True)],
)
def test_an_agents_attempts_count_anew_after_a_task_or_an_effect_and_not_after_mere_talk(
    step: str, kind: str, progress: bool
) -> None:
    now = by_a_program(
        paused("error", "tool_failure"), resumed(), started(step, kind=kind), completed(step), kind="agent"
    )
    assert now.resumes_since_progress == (0 if progress else 1)


def test_a_changed_plan_brings_its_own_counts_and_is_read_by_its_name() -> None:
    changed = ev.PlanChanged(plan_blob="f" * 64, plan_digest="d", tasks=5, steps=9)
    now = session(created("a"), changed)
    assert (now.plan, now.plan_blob, now.tasks_total, now.steps_total) == (None, "f" * 64, 5, 9)


def test_the_plan_of_an_agent_counts_the_planning_too_and_never_less_than_is_done() -> None:
    changed = ev.PlanChanged(plan_blob="f" * 64, plan_digest="d", tasks=2, steps=0)
    assert by_a_program(changed, kind="agent").tasks_total == 2 + AGENT.planning_tasks
    many = [word for number in range(9) for word in did(f"t{number}")]
    assert by_a_program(many, changed, kind="agent").tasks_total == 9


# Where such a session goes on.


def test_of_an_agents_plan_finished_tasks_are_skipped_and_the_others_are_pending() -> None:
    now = by_a_program(did("x"), kind="agent")
    now.plan = builders.plan(builders.task("x", "1"), builders.task("y", "1", "2"))
    left = continue_plan(now, {}, strategy=Strategy.ROLLBACK, retry_unknown=False)
    assert (left.skipped_tasks, left.skipped_steps, left.pending) == (("x",), ("x.1",), ("y.1", "y.2"))


@pytest.mark.parametrize(("kind", "scenario"), [("write", Scenario.MID_WRITE), ("run", Scenario.MID_OPERATION)])
def test_an_agent_that_was_cut_off_while_planning_was_in_the_middle_of_something(kind: str, scenario: Scenario) -> None:
    born = ev.SessionCreated(title="Work", task="Work", kind="agent", owner=OWNER, acode_version="0")
    planned = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")
    assert detect_scenario(session(born, planned, started("a", kind=kind))) is scenario


def waiting(step: str) -> Any:
    return bare(builders.awaiting(step), step)


def test_a_program_that_asks_within_a_step_has_stopped_cleanly() -> None:
    assert detect_scenario(by_a_program(started("a"), waiting(f"a{NESTED}g"))) is Scenario.CLEAN_SHUTDOWN


def test_a_program_that_asks_while_another_step_runs_was_in_the_middle_of_that_one() -> None:
    words = (started("a"), started("b", kind="write"), waiting(f"a{NESTED}g"))
    assert detect_scenario(by_a_program(*words)) is Scenario.MID_WRITE


def test_a_plan_that_waits_at_a_gate_with_a_step_in_flight_was_cut_off_in_the_middle() -> None:
    """Another task of it ran at the same time: what became of its step is settled like any other."""
    now = session(created("a", builders.gate("g")), builders.started("a"), builders.awaiting("g"))
    assert detect_scenario(now) is Scenario.MID_OPERATION


# A repaired log.


def repaired(**said: Any) -> ev.Quarantined:
    return ev.Quarantined(**{"seqs": (), "reason": "damaged", **said})


def test_repairs_add_to_what_is_not_believed() -> None:
    first = repaired(seqs=(4,), gaps=((6, 7),), heads=((4, "aa"),))
    second = repaired(seqs=(5,), gaps=((9, 9),), heads=((5, "bb"),))
    now = session(created("a"), first, second)
    assert now.quarantined == (4, 5)
    assert now.gaps == ((6, 7), (9, 9))
    assert now.heads == {4: "aa", 5: "bb"}
    assert now.accepted is None


def test_a_past_that_was_accepted_is_known_by_its_hashes() -> None:
    now = session(created("a"), repaired(through=3, first_sha256="f", past_sha256="p"))
    assert now.accepted == AcceptedPast(through=3, first_sha256="f", past_sha256="p")


def test_a_step_that_may_have_run_is_open_again_and_its_results_are_gone() -> None:
    now = session(created("a", "b"), builders.did("a"), repaired(seqs=(4,), opened=(builders.started("a"),)))
    assert now.records is not None
    assert "main.a" in now.in_flight and "main.a" not in now.records.steps and "main.a" not in now.records.outputs
    assert now.started_any and now.last_attempted == "main.a"
    flight = now.in_flight["main.a"]
    assert (flight.seq, flight.unknown) == (now.seq, None)


def test_a_step_that_a_lost_event_was_about_is_unknown_and_no_trace_speaks_for_it() -> None:
    now = session(
        created("a"), builders.started("a", boot_id="this one"), repaired(seqs=(9,), steps=("main.a", "main.z"))
    )
    flight = now.in_flight["main.a"]
    assert (flight.unknown, flight.started.boot_id) == ("damaged", "")
    assert "main.z" not in now.in_flight


def test_the_counts_of_a_repair_replace_what_was_counted() -> None:
    counts = ev.Counts(steps_done=1, steps_total=2, tasks_done=3, tasks_total=4)
    now = session(created("a", "b"), builders.did("a", "b"), repaired(seqs=(4,), counts=counts))
    assert (now.steps_done, now.steps_total, now.tasks_done, now.tasks_total) == (1, 2, 3, 4)


@pytest.mark.parametrize(("steps_done", "anew"), [(1, True), (0, False)])
def test_the_point_is_the_repair_where_the_last_completion_is_not_believed(steps_done: int, anew: bool) -> None:
    log = [*created("a", "b"), *builders.did("a", "b")]
    counts = ev.Counts(steps_done=steps_done, steps_total=2, tasks_done=0, tasks_total=1)
    now = session(log, repaired(seqs=(len(log),), counts=counts))
    assert (now.last_completed is not None and now.last_completed.seq == now.seq) is anew
    assert anew or now.last_completed is None
    elsewhere = session(log, repaired(seqs=(4,), counts=counts))
    assert elsewhere.last_completed is not None and elsewhere.last_completed.seq == len(log)
    opened = session(log, repaired(opened=(builders.started("b"),), counts=counts))
    assert (opened.last_completed is not None and opened.last_completed.seq == opened.seq) is anew


@pytest.mark.parametrize(
    ("said", "void"),
    [
        ({"seqs": (4,)}, True),
        ({"gaps": ((4, 5),)}, True),
        ({"lost": (4, 5)}, True),
        ({"through": 3}, True),
        ({"steps": ("main.a",)}, False),
    ],
    ids=["damage", "gap", "rollback", "lost key", "nothing lost"],
)
def test_no_approval_outlives_what_is_not_believed(said: dict[str, Any], void: bool) -> None:
    granted = ev.ApprovalGranted(step="main.g", question="Go?", action_digest="d")
    now = session(created("a"), granted, repaired(**said))
    assert now.records is not None and (now.records.approvals == {}) is void

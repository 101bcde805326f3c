"""An edited plan beside what was done: steps kept, replaced, added and removed, and the changes that are refused."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acode.events import types as ev
from acode.events.definition import Plan, Retry, Step, Task
from acode.plan import Action
from acode.plan_replacement import Conflict, Replacement, as_replaced, compare_plans, event_of
from acode.state import Session, fold
from tests.builders import created, did, failed, gate, log, paused, plan, run, session, started, task

OLD = plan(task("a", run("a.1", "one"), run("a.2", "two"), run("a.3", "thre"), run("a.4", "four")))


def stopped(made: Plan = OLD) -> Session:
    """Two steps are done, the third has failed."""
    found = session(created(made), did("a.1"), did("a.2"), started("a.3"), failed("a.3"), paused("step_failed"))
    found.plan = made
    return found


def edited(*steps: Step) -> Plan:
    return plan(task("a", *steps))


def conflicts(found: Replacement) -> list[tuple[str, str]]:
    return [(one.step, one.why) for one in found.conflicts]


def test_a_failed_step_may_be_edited_and_the_finished_ones_are_kept() -> None:
    found = compare_plans(stopped(), edited(run("a.1", "one"), run("a.2", "two"), run("a.3", "three"), run("a.4", "4")))
    assert (found.kept, found.replaced, found.added, found.removed) == (("a.1", "a.2"), ("a.3", "a.4"), (), ())
    assert not found.conflicts


def test_steps_that_were_never_started_may_be_added_and_removed() -> None:
    found = compare_plans(stopped(), edited(*OLD.tasks[0].steps[:3], run("a.5", "five")))
    assert (found.added, found.removed, found.conflicts) == (("a.5",), ("a.4",), ())


@pytest.mark.parametrize("name", ["a.1", "a.3"])
def test_a_step_that_was_started_cannot_be_removed(name: str) -> None:
    found = compare_plans(stopped(), edited(*(step for step in OLD.tasks[0].steps if step.id != name)))
    assert conflicts(found) == [(name, "removed")]


def test_a_finished_step_that_changed_is_named() -> None:
    found = compare_plans(stopped(), edited(run("a.1", "other"), *OLD.tasks[0].steps[1:]))
    assert found.conflicts == (Conflict(step="a.1", why="changed"),)


def test_a_finished_step_with_another_undo_has_changed() -> None:
    one = msgspec.structs.replace(OLD.tasks[0].steps[0], undo="rm it")
    assert conflicts(compare_plans(stopped(), edited(one, *OLD.tasks[0].steps[1:]))) == [("a.1", "changed")]


def test_title_timeout_and_retries_of_finished_steps_are_not_compared_and_stay_as_they_were_done() -> None:
    steps = [
        msgspec.structs.replace(step, title="A title", timeout_s=9.0, retry=Retry(attempts=5), idempotent=True)
        for step in OLD.tasks[0].steps
    ]
    found = compare_plans(stopped(), edited(*steps))
    assert (found.kept, found.replaced, found.conflicts) == (("a.1", "a.2"), ("a.3", "a.4"), ())
    first, *_, last = found.plan.tasks[0].steps
    assert first == msgspec.structs.replace(OLD.tasks[0].steps[0], title="A title")
    assert last == steps[-1]


def test_an_insertion_that_shifts_default_ids_is_told_with_the_id_that_the_definition_has_now() -> None:
    found = compare_plans(stopped(), edited(run("a.1", "new"), run("a.2", "one"), run("a.3", "two"), run("a.4", "x")))
    assert found.conflicts == (
        Conflict(step="a.1", why="shifted", now="a.2"),
        Conflict(step="a.2", why="shifted", now="a.3"),
    )


def test_a_definition_that_stood_elsewhere_before_makes_no_shift() -> None:
    twice = edited(run("a.1", "one"), run("a.2", "two"), run("a.3", "thre"), run("a.4", "one"))
    found = compare_plans(stopped(twice), edited(run("a.1", "other"), *twice.tasks[0].steps[1:]))
    assert conflicts(found) == [("a.1", "changed")]


def test_a_step_with_an_id_of_its_own_may_be_inserted_before_finished_ones() -> None:
    found = compare_plans(stopped(), edited(run("a.new", "new"), *OLD.tasks[0].steps))
    assert (found.added, found.conflicts) == (("a.new",), ())


def test_a_step_whose_evidence_shows_that_it_took_effect_counts_as_finished() -> None:
    now = session(created(OLD), did("a.1"), started("a.2"))
    now.plan = OLD
    other = edited(run("a.1", "one"), run("a.2", "other"), *OLD.tasks[0].steps[2:])
    assert conflicts(compare_plans(now, other, {"a.2": Action.SKIP})) == [("a.2", "changed")]
    assert compare_plans(now, other, {"a.2": Action.RETRY}).replaced == ("a.2",)
    assert conflicts(compare_plans(now, other, {"a.2": Action.WAIT})) == [("a.2", "running")]
    assert not compare_plans(now, OLD, {"a.2": Action.WAIT}).conflicts


# Gates.

GATED = plan(task("a", run("a.1", "one"), gate("a.ask"), run("a.2", "two"), run("a.3", "three")))


def passed() -> Session:
    """The gate is passed, and one step behind it is done."""
    now = session(created(GATED), did("a.1"), did("a.ask"), did("a.2"), started("a.3"), failed("a.3"))
    now.plan = GATED
    return now


def test_a_passed_gate_whose_covered_definitions_changed_is_asked_again() -> None:
    now = passed()
    changed = edited(*GATED.tasks[0].steps[:3], run("a.3", "other"))
    found = compare_plans(now, changed)
    assert found.reopened == ("a.ask",)
    ahead = as_replaced(now, found, event_of(now, found, plan_blob="b", title="A plan"))
    assert not ahead.done("a.ask") and ahead.done("a.2") and ahead.steps_done == now.steps_done - 1
    assert now.done("a.ask"), "looking ahead changes nothing"


@pytest.mark.parametrize(
    "steps",
    [
        GATED.tasks[0].steps,
        tuple(msgspec.structs.replace(step, title="Named") for step in GATED.tasks[0].steps),
        (run("a.new", "before the gate"), *GATED.tasks[0].steps),
    ],
    ids=["the same", "other titles", "a step before the gate"],
)
def test_a_passed_gate_with_the_same_definitions_behind_it_stays_passed(steps: tuple[Step, ...]) -> None:
    assert compare_plans(passed(), edited(*steps)).reopened == ()


def test_a_gate_at_which_the_session_waits_cannot_be_taken_out() -> None:
    waiting = ev.SessionAwaitingApproval(step="a.ask", question="Go?", action_digest="d")
    now = session(created(GATED), did("a.1"), waiting)
    now.plan = GATED
    without = edited(GATED.tasks[0].steps[0], *GATED.tasks[0].steps[2:])
    assert conflicts(compare_plans(now, without)) == [("a.ask", "asked")]
    early = session(created(GATED))
    early.plan = GATED
    assert compare_plans(early, without).removed == ("a.ask",)


# The event.


def test_behind_the_event_a_failed_step_may_run_again_and_its_attempt_grows() -> None:
    now = stopped()
    found = compare_plans(now, edited(*OLD.tasks[0].steps[:2], run("a.3", "three"), run("a.4", "four")))
    after = replaced(now, found)
    record = after.record("a.3")
    assert record is not None and (record.status, record.resume_approved, record.failures) == ("pending", True, 0)
    assert after.next_attempt("a.3") == 2
    assert after.failure is None and after.plan_blob == "b" and after.title == "Mended"
    assert after.plan_origin is not None and after.plan_origin.path == "/mended.yml"


def test_tasks_are_counted_by_the_new_plan() -> None:
    old = plan(task("a", run("a.1")), task("b", run("b.1"), needs=["a"]))
    now = session(created(old), did("a.1"), ev.TaskCompleted(task="a"))
    now.plan = old
    more = plan(task("a", run("a.1"), run("a.2")), task("b", run("b.1"), needs=["a"]), task("c", run("c.1")))
    after = replaced(now, compare_plans(now, more))
    assert (after.tasks_done, after.tasks_total, after.steps_done, after.steps_total) == (0, 3, 1, 4)
    again = replaced(after, compare_plans(after, old))
    assert (again.tasks_done, again.tasks_total) == (1, 2)


def replaced(now: Session, found: Replacement) -> Session:
    event = event_of(now, found, plan_blob="b", title="Mended", plan_path="/mended.yml", plan_sha256="s")
    return as_replaced(now, found, event)


@given(cut=st.integers(min_value=1, max_value=8))
def test_any_cut_of_a_log_with_a_replaced_plan_folds_to_the_same_session(cut: int) -> None:
    found = compare_plans(stopped(), edited(*OLD.tasks[0].steps[:2], run("a.3", "three")))
    event = event_of(stopped(), found, plan_blob="b", title="Mended")
    said = log(created(OLD), did("a.1"), did("a.2"), started("a.3"), failed("a.3"), event, started("a.3", 2))
    assert fold(said[cut:], start=fold(said[:cut])) == fold(said)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = draw(st.lists(st.sampled_from(["1", "2", "3", "4", "5"]), unique=True, min_size=1))
    steps = tuple(run(f"a.{name}", draw(st.sampled_from(["x", "y"]))) for name in names)
    return Plan(title="p", tasks=(Task(id="a", title="a", steps=steps),))


@given(old=plans(), new=plans(), done=st.integers(min_value=0, max_value=5))
def test_every_step_of_both_plans_is_accounted_for_once_and_no_finished_one_is_lost(
    old: Plan, new: Plan, done: int
) -> None:
    names = [step.id for step in old.tasks[0].steps]
    now = session(created(old), *(did(name) for name in names[:done]))
    now.plan = old
    before = copy.deepcopy(now)
    found = compare_plans(now, new)
    told = [*found.kept, *found.replaced, *found.added, *(one.step for one in found.conflicts if one.why != "removed")]
    wanted = [step.id for step in new.tasks[0].steps]
    assert sorted({*told} & {*wanted}) == sorted(wanted)
    assert now == before
    if not found.conflicts:
        kept = {step.id: step for step in found.plan.tasks[0].steps}
        assert all(kept[step.id].action == step.action for step in old.tasks[0].steps if now.done(step.id))

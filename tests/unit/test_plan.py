"""The continuation: what is skipped, how a step in flight is treated, what is left, and what a grant allows."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import CannotContinue
from acode.events import types as ev
from acode.events.definition import (
    Call,
    Commit,
    Plan,
    Sql,
    Step,
    definition_digest,
    digest,
    digest_of_plan,
    execution_order,
)
from acode.plan import (
    Action,
    Continuation,
    Finding,
    Outcome,
    Settlement,
    Strategy,
    approval_digest,
    continue_plan,
    covered_by,
    repeatable,
    settle,
)
from acode.state import Session
from tests.builders import (
    OTHER_SESSION,
    OWNER,
    completed,
    created,
    did,
    failed,
    gate,
    plan,
    read,
    run,
    session,
    started,
    task,
    task_done,
    write,
)

THREE = plan(task("a", "1", "2"), task("b", "1", needs=["a"]), task("c", "1", "2", needs=["b"]))


def going_on(
    now: Session, strategy: Strategy = Strategy.ROLLBACK, retry_unknown: bool = False, **found: Finding
) -> Any:
    findings = {step.replace("_", "."): finding for step, finding in found.items()}
    return continue_plan(now, findings, strategy=strategy, retry_unknown=retry_unknown)


def finding(outcome: str, **more: Any) -> Finding:
    return Finding(outcome=Outcome(outcome), evidence="as found", **more)


# The way that is left.


@pytest.mark.req("FR-011c-022", "IF-011c-06")
def test_at_the_beginning_everything_is_pending_in_the_plans_order() -> None:
    assert going_on(session(created(THREE))) == Continuation(
        skipped_tasks=(), skipped_steps=(), in_flight=(), pending=("a.1", "a.2", "b.1", "c.1", "c.2")
    )


@pytest.mark.req("FR-011c-019", "FR-011c-020", "FR-011c-030")
def test_completed_tasks_and_steps_are_skipped_and_the_rest_is_queued() -> None:
    """Should_Skip_Completed"""
    now = session(created(THREE), did("a.1", "a.2"), task_done("a"), did("b.1"), task_done("b"), did("c.1"))
    found = going_on(now)
    assert found.skipped_tasks == ("a", "b")
    assert found.skipped_steps == ("a.1", "a.2", "b.1", "c.1")
    assert found.pending == ("c.2",)


@pytest.mark.req("FR-040b-47", "NFR-040b-12", "NFR-040b-13", "FR-011c-022")
def test_at_every_length_of_the_log_each_step_is_either_skipped_or_pending() -> None:
    """Should_Build_Continuation_Plan"""
    words = [*created(THREE), *did("a.1", "a.2", "b.1", "c.1", "c.2")]
    every = [step.id for step in session(words).steps()]
    for length in range(3, len(words) + 1):
        now = session(words[:length])
        flying = {step.replace(".", "_"): finding("not_applied", repeatable=True) for step in now.in_flight}
        found = going_on(now, **flying)
        assert sorted((*found.skipped_steps, *found.pending)) == sorted(every)
        assert not set(found.skipped_steps) & set(found.pending)
        assert found.skipped_steps == tuple(every[: len(found.skipped_steps)])


@pytest.mark.req("FR-011c-021")
def test_a_step_in_flight_that_took_effect_is_skipped_and_one_that_did_not_is_pending() -> None:
    now = session(created(THREE), did("a.1"), started("a.2"))
    applied = going_on(now, a_2=finding("applied"))
    assert applied.skipped_tasks == ("a",) and applied.pending[0] == "b.1"
    assert applied.in_progress == Settlement(
        step="a.2", kind="run", outcome=Outcome.APPLIED, action=Action.SKIP, evidence="as found"
    )
    open_ = going_on(now, a_2=finding("not_applied", repeatable=True))
    assert open_.skipped_tasks == () and open_.pending[0] == "a.2"


@pytest.mark.req("FR-011c-031", "FR-011c-053")
def test_a_completed_step_is_pending_in_no_continuation() -> None:
    now = session(created(THREE), did("a.1"), started("a.2"))
    for outcome, strategy, retry in itertools.product(Outcome, Strategy, (True, False)):
        assert "a.1" not in going_on(now, strategy, retry, a_2=finding(outcome)).pending


def test_several_steps_in_flight_are_settled_in_the_order_of_their_starts() -> None:
    now = session(created(THREE), started("c.1"), started("a.1"))
    found = going_on(now, a_1=finding("applied"), c_1=finding("unknown"))
    assert [one.step for one in found.in_flight] == ["c.1", "a.1"]
    assert found.needs_person and found.in_progress is not None and found.in_progress.step == "c.1"


@pytest.mark.req("CODE-011c-06")
@pytest.mark.parametrize("words", [did("z.9"), [started("z.9")]])
def test_a_log_with_steps_that_its_plan_does_not_hold_is_not_continued(words: list[Any]) -> None:
    with pytest.raises(CannotContinue, match=r"z\.9") as caught:
        going_on(session(created(THREE), words), z_9=finding("applied"))
    assert caught.value.code == "ACODE-RESUME-006"


# The step in flight.

FOUND: list[tuple[Finding, dict[Strategy, Action]]] = [
    (finding("applied"), dict.fromkeys(Strategy, Action.SKIP)),
    (finding("applied", rolls_back=True), dict.fromkeys(Strategy, Action.SKIP)),
    (
        finding("not_applied"),
        {Strategy.ROLLBACK: Action.RETRY, Strategy.RETRY: Action.RETRY, Strategy.PROMPT: Action.ASK},
    ),
    (
        finding("partial", rolls_back=True),
        {Strategy.ROLLBACK: Action.ROLLBACK_AND_RETRY, Strategy.RETRY: Action.RETRY, Strategy.PROMPT: Action.ASK},
    ),
    (
        finding("unknown", repeatable=True),
        {Strategy.ROLLBACK: Action.RETRY, Strategy.RETRY: Action.RETRY, Strategy.PROMPT: Action.ASK},
    ),
    (
        finding("unknown", repeatable=True, rolls_back=True),
        {Strategy.ROLLBACK: Action.ROLLBACK_AND_RETRY, Strategy.RETRY: Action.RETRY, Strategy.PROMPT: Action.ASK},
    ),
    (finding("unknown"), dict.fromkeys(Strategy, Action.ASK)),
]


@pytest.mark.req("FR-011c-026", "FR-011c-027", "FR-011c-028")
@pytest.mark.parametrize(("found", "actions"), FOUND, ids=lambda value: str(getattr(value, "outcome", "")))
def test_the_evidence_and_the_strategy_decide_what_becomes_of_it(
    found: Finding, actions: dict[Strategy, Action]
) -> None:
    for strategy, action in actions.items():
        assert settle("a.1", "run", found, strategy=strategy, retry_unknown=False).action is action


@pytest.mark.parametrize("strategy", Strategy)
def test_an_unknown_outcome_is_repeated_only_where_that_was_configured(strategy: Strategy) -> None:
    found = finding("unknown")
    assert settle("a.1", "run", found, strategy=strategy, retry_unknown=False).action is Action.ASK
    assert settle("a.1", "run", found, strategy=strategy, retry_unknown=True).action is Action.RETRY


@pytest.mark.parametrize("strategy", Strategy)
def test_an_unknown_outcome_is_repeated_over_what_it_left_only_where_the_strategy_says_so(strategy: Strategy) -> None:
    found = finding("unknown", rolls_back=True)
    assert settle("a.1", "run", found, strategy=strategy, retry_unknown=False).action is Action.ASK
    action = Action.ROLLBACK_AND_RETRY if strategy is Strategy.ROLLBACK else Action.RETRY
    assert settle("a.1", "run", found, strategy=strategy, retry_unknown=True).action is action


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("strategy", Strategy)
def test_a_command_that_still_runs_is_waited_for_whatever_else_is_known(outcome: Outcome, strategy: Strategy) -> None:
    found = finding(outcome, still_running=True, repeatable=True, rolls_back=True)
    assert settle("a.1", "run", found, strategy=strategy, retry_unknown=True).action is Action.WAIT


@pytest.mark.req("FR-011c-024")
@pytest.mark.parametrize(
    ("step", "may"),
    [
        (read("a"), True),
        (write("a"), True),
        (gate("a"), True),
        (Step(id="a.1", action=Sql(file="x.sql", database="x.db")), True),
        (Step(id="a.1", action=Commit(message="m")), True),
        (run("a"), False),
        (run("a", idempotent=True), True),
        (run("a", probe="test -f x"), True),
        (run("a", outputs=("x",)), True),
    ],
)
def test_a_failed_step_is_repeated_by_itself_only_where_it_carries_its_evidence(step: Step, may: bool) -> None:
    assert repeatable(step) is may


# The order.


def test_tasks_run_in_file_order_as_soon_as_their_needs_are_done() -> None:
    made = plan(task("d", "1", needs=["b", "c"]), task("b", "1", needs=["a"]), task("c", "1"), task("a", "1"))
    assert [one.id for one in execution_order(made)] == ["c", "a", "b", "d"]


@pytest.mark.parametrize("needs", [("a", "a"), ("b", "a"), ("b", "nobody")])
def test_tasks_that_wait_for_each_other_are_an_error(needs: tuple[str, str]) -> None:
    made = plan(task("a", "1", needs=[needs[0]]), task("b", "1", needs=[needs[1]]))
    with pytest.raises(CannotContinue, match="wait for each other"):
        execution_order(made)


@st.composite
def graphs(draw: st.DrawFn) -> Plan:
    """A plan whose tasks need only tasks of a hidden order, written down in any other order."""
    count = draw(st.integers(1, 8))
    tasks = []
    for number in range(count):
        needs = draw(st.sets(st.integers(0, number - 1))) if number else set()
        tasks.append(task(f"t{number}", "1", "2", needs=[f"t{one}" for one in sorted(needs)]))
    return plan(*draw(st.permutations(tasks)))


@settings(deadline=None)
@given(graphs())
def test_the_one_order_holds_every_task_once_and_after_its_needs(made: Plan) -> None:
    order = [one.id for one in execution_order(made)]
    assert sorted(order) == sorted(one.id for one in made.tasks)
    for one in made.tasks:
        assert all(order.index(need) < order.index(one.id) for need in one.needs)
    assert order == [one.id for one in execution_order(made)]


# Grants.


def covered(made: Plan, name: str) -> list[str]:
    order = execution_order(made)
    found = next(step for one in order for step in one.steps if step.id == name)
    return [step.id for _, step in covered_by(order, found)]


def test_a_grant_covers_the_rest_of_its_task_and_the_tasks_that_need_it() -> None:
    made = plan(
        task("a", "1", gate("a.g"), "2"),
        task("b", "1", needs=["a"]),
        task("c", "1", needs=["b"]),
        task("alone", "1"),
    )
    assert covered(made, "a.g") == ["a.2", "b.1", "c.1"]


def test_a_grant_ends_at_the_next_gate_of_its_own_task() -> None:
    made = plan(task("a", gate("a.g"), "1", gate("a.h"), "2"), task("b", "1", needs=["a"]))
    assert covered(made, "a.g") == ["a.1"]
    assert covered(made, "a.h") == ["a.2", "b.1"]


def test_a_grant_ends_at_the_next_gate_on_each_way_of_a_diamond() -> None:
    """Behind the gate of `left` another grant is needed, but `right` leads to `end` without one."""
    made = plan(
        task("top", gate("top.g"), "1"),
        task("left", "1", gate("left.g"), "2", needs=["top"]),
        task("right", "1", needs=["top"]),
        task("end", "1", needs=["left", "right"]),
        task("beyond", "1", needs=["left"]),
    )
    assert covered(made, "top.g") == ["top.1", "left.1", "right.1", "end.1"]
    assert covered(made, "left.g") == ["left.2", "end.1", "beyond.1"]


def test_a_gate_on_both_ways_of_a_diamond_keeps_the_first_grant_from_its_end() -> None:
    made = plan(
        task("top", gate("top.g"), "1"),
        task("left", gate("left.g"), "1", needs=["top"]),
        task("right", gate("right.g"), "1", needs=["top"]),
        task("end", "1", needs=["left", "right"]),
    )
    assert covered(made, "top.g") == ["top.1"]
    assert covered(made, "left.g") == ["left.1", "end.1"]
    assert covered(made, "right.g") == ["right.1", "end.1"]


def test_a_gate_that_ends_its_task_covers_what_needs_the_task() -> None:
    made = plan(task("a", "1", gate("a.g")), task("b", "1", needs=["a"]))
    assert covered(made, "a.g") == ["b.1"]


GATED = plan(task("a", gate("a.g"), "1", "2"), task("b", "1", needs=["a"]))
CHANGED = {
    "another question": plan(task("a", gate("a.g", "Sure?"), "1", "2"), task("b", "1", needs=["a"])),
    "another command": plan(task("a", gate("a.g"), run("a.1", "rm -rf x"), "2"), task("b", "1", needs=["a"])),
    "another command behind": plan(task("a", gate("a.g"), "1", "2"), task("b", run("b.1", "x"), needs=["a"])),
    "a declaration": plan(task("a", gate("a.g"), run("a.1", idempotent=True), "2"), task("b", "1", needs=["a"])),
    "another order": plan(task("a", gate("a.g"), "2", "1"), task("b", "1", needs=["a"])),
    "a step more": plan(task("a", gate("a.g"), "1", "2", "3"), task("b", "1", needs=["a"])),
    "a step less": plan(task("a", gate("a.g"), "1"), task("b", "1", needs=["a"])),
    "a task more": plan(task("a", gate("a.g"), "1", "2"), task("b", "1", needs=["a"]), task("c", "1", needs=["b"])),
    "a need less": plan(task("a", gate("a.g"), "1", "2"), task("b", "1")),
    "a gate in between": plan(task("a", gate("a.g"), "1", gate("a.h"), "2"), task("b", "1", needs=["a"])),
}


def allowed_by(made: Plan, session_id: str | None = None) -> str:
    now = session(created(made))
    if session_id is not None:
        now = msgspec.structs.replace(now, session_id=session_id)
    return approval_digest(now, made.tasks[0].steps[0])


@pytest.mark.req("NFR-011c-012")
@pytest.mark.parametrize("change", CHANGED)
def test_a_grant_does_not_survive_a_change_of_what_was_asked(change: str) -> None:
    assert allowed_by(CHANGED[change]) != allowed_by(GATED)


@pytest.mark.req("NFR-011c-012")
def test_a_grant_of_one_session_is_none_in_another() -> None:
    assert allowed_by(GATED, OTHER_SESSION) != allowed_by(GATED)


def test_a_grant_survives_what_does_not_depend_on_it() -> None:
    before = plan(task("z", "1"), *GATED.tasks)
    other = plan(task("z", run("z.1", "something else")), *GATED.tasks)
    digests = [approval_digest(session(created(one)), GATED.tasks[0].steps[0]) for one in (GATED, before, other)]
    assert len(set(digests)) == 1


def test_a_grant_stays_good_under_a_later_version() -> None:
    """The hash stands in sealed approvals: computed in another way, all that were given would be void."""
    assert allowed_by(GATED) == "22284e4fdea8637b5e1f9731541f93fa4d6432400b149e71fff47533768f2042"


def test_a_grant_holds_for_the_files_as_they_were_when_it_was_given() -> None:
    now, at = session(created(GATED)), GATED.tasks[0].steps[0]
    some, other = approval_digest(now, at, {"m.sql": "aa"}), approval_digest(now, at, {"m.sql": "bb"})
    assert len({some, other, approval_digest(now, at)}) == 3
    assert approval_digest(now, at, {}) == approval_digest(now, at)
    assert some == "9e9864b587108cbbb445dc6fa53dec300ff00223bf0c5045c0cae812e6286f88", "it stands in sealed approvals"


# What the strategy and the settings say is what happens.


@pytest.mark.parametrize(
    ("strategy", "action"),
    [(Strategy.ROLLBACK, "rollback_and_retry"), (Strategy.RETRY, "retry"), (Strategy.PROMPT, "ask")],
)
def test_the_strategy_reaches_the_step_in_flight(strategy: Strategy, action: str) -> None:
    now = session(created(THREE), started("a.1"))
    left = going_on(now, strategy, a_1=finding("partial", rolls_back=True))
    assert left.in_progress.action == action


@pytest.mark.parametrize(("retry_unknown", "action"), [(True, "retry"), (False, "ask")])
def test_the_setting_for_unknown_outcomes_reaches_the_step_in_flight(retry_unknown: bool, action: str) -> None:
    now = session(created(THREE), started("a.1"))
    left = going_on(now, retry_unknown=retry_unknown, a_1=finding("unknown"))
    assert left.in_progress.action == action
    assert left.needs_person is not retry_unknown


def by_a_program(*words: Any, kind: Any = "library") -> Session:
    """A session whose steps a program asks for: there is no plan."""
    born = ev.SessionCreated(title="Work", task="Work", kind=kind, owner=OWNER, acode_version="0")
    planned = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")
    return session(born, planned, ev.SessionExecuting(reason="run"), *words)


def test_of_a_programs_session_what_was_left_open_is_pending_and_nothing_is_skipped() -> None:
    """What else there is to do, only the program knows."""
    now = by_a_program(started("p.1"), completed("p.1"), started("p.2"), failed("p.2"), started("p.3"), started("p.4"))
    left = going_on(now, p_3=finding("applied"), p_4=finding("not_applied"))
    assert left == Continuation(
        skipped_tasks=(),
        skipped_steps=(),
        in_flight=(
            Settlement(step="p.3", kind="run", outcome=Outcome.APPLIED, action=Action.SKIP, evidence="as found"),
            Settlement(step="p.4", kind="run", outcome=Outcome.NOT_APPLIED, action=Action.RETRY, evidence="as found"),
        ),
        pending=("p.4", "p.2"),
    )


def test_of_an_agents_session_the_tasks_of_its_plan_that_are_not_done_are_pending() -> None:
    words: list[Any] = [*did("a"), started("b"), *failed("b")]
    tasks = [msgspec.structs.replace(word, step=word.step.removeprefix("main.")) for word in words]
    left = going_on(msgspec.structs.replace(by_a_program(*tasks, kind="agent"), plan=THREE))
    assert (left.skipped_tasks, left.skipped_steps) == (("a",), ("a.1", "a.2"))
    assert left.pending == ("b", "b.1", "c.1", "c.2")


def test_steps_that_the_plan_does_not_hold_are_named_with_the_way_out() -> None:
    strangers = [word for number in range(6) for word in did(f"x.{number}")]
    with pytest.raises(CannotContinue) as refused:
        going_on(session(created(THREE), strangers))
    assert refused.value.message.endswith("the plan does not: x.0, x.1, x.2, x.3, x.4")
    assert refused.value.hint == "The plan snapshot and the log do not belong together: acode session verify"


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_call_is_repeated_by_itself_only_where_it_says_so(idempotent: bool) -> None:
    assert repeatable(Step(id="a.1", action=Call(function="f"), idempotent=idempotent)) is idempotent


def test_a_title_changes_no_digest_and_a_plan_without_titles_keeps_the_one_it_had() -> None:
    titled = msgspec.structs.replace(
        GATED,
        tasks=tuple(
            msgspec.structs.replace(
                one, steps=tuple(msgspec.structs.replace(step, title=f"Title of {step.id}") for step in one.steps)
            )
            for one in GATED.tasks
        ),
    )
    assert digest_of_plan(titled) == digest_of_plan(GATED) == digest(GATED)
    for before, after in zip(GATED.tasks[0].steps, titled.tasks[0].steps, strict=True):
        assert before != after and definition_digest(before) == definition_digest(after)
    granted = [approval_digest(session(created(one)), one.tasks[0].steps[0]) for one in (GATED, titled)]
    assert granted[0] == granted[1]
    assert b"title" not in msgspec.json.encode(GATED.tasks[0].steps[0])

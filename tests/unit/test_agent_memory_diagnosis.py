"""Where an agent-memory run stands and what comes next: pure functions over values made in memory."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.formats.agent_memory import (
    Run,
    Stamp,
    as_json,
    diagnose,
    events_on_success,
    plan_approved,
    prompt,
    repair,
    report,
)
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.graph import parse_graph
from acode.formats.agent_memory.values import Graph
from tests.agent_memory import ALL_ARTIFACTS, NOW, TWO, Event, found_in, graph_of, run_of, said, to_phase

WORDS = ("created", "claimed", "implemented", "verified", "completed", "failed", "blocked")

ALL_DONE = (said("task_completed", 1, "T001"), said("task_completed", 2, "T002"))

# Task states.


@pytest.mark.req("PROTO-09")
@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ([], "pending"),
        (["task_created"], "pending"),
        (["task_started"], "in_progress"),
        (["task_started", "task_completed"], "done"),
        (["task_started", "task_failed"], "failed"),
        (["task_started", "task_blocked"], "blocked"),
        (["task_started", "task_failed", "task_started"], "in_progress"),
        (["task_completed", "task_started"], "in_progress"),
        (["task_completed", "task_created"], "done"),
        (["task_blocked", "task_ready"], "blocked"),
    ],
)
def test_the_latest_event_of_a_task_decides_its_state(kinds: list[str], state: str) -> None:
    findings = found_in(*(said(kind, n, "T001") for n, kind in enumerate(kinds)), graph=TWO)
    assert findings.tasks == {"T001": state, "T002": "pending"}


@pytest.mark.req("PROTO-09")
@pytest.mark.parametrize("key", ["type", "event_type"])
@pytest.mark.parametrize("join", ["_", "-"])
@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("claimed", "in_progress"),
        ("started", "in_progress"),
        ("implemented", "in_progress"),
        ("verified", "done"),
        ("completed", "done"),
        ("failed", "failed"),
        ("failure", "failed"),
        ("verification-failed", "failed"),
        ("blocked", "blocked"),
    ],
)
def test_every_dialect_is_read(key: str, join: str, word: str, state: str) -> None:
    kind = f"task-{word}".replace("-", join)
    event = {key: kind, "task_id": "T001", "timestamp": "2026-01-15T10:00:00Z", "actor": "executor", "details": {}}
    assert found_in(event, graph=TWO).tasks["T001"] == state


@pytest.mark.req("PROTO-09")
def test_verified_is_done_although_another_task_is_said_to_be_completed() -> None:
    findings = found_in(said("task-verified", 1, "T001"), said("task-completed", 2, "T002"), graph=TWO)
    assert findings.tasks == {"T001": "done", "T002": "done"}
    assert findings.last_completed is not None and findings.last_completed.id == "T002"


@pytest.mark.req("PROTO-09")
def test_verified_is_not_done_where_this_task_was_completed_before_and_taken_up_again() -> None:
    words = ("task-completed", "task-verification-failed", "task-started", "task-verified")
    findings = found_in(*(said(kind, n, "T001") for n, kind in enumerate(words)), graph=TWO)
    assert findings.tasks["T001"] == "in_progress"


def test_no_event_of_another_task_changes_the_state_of_a_task() -> None:
    """Every pair of events of a task, each by acode or another actor, beside every event of the other task."""

    def state(*events: tuple[str, str, str]) -> str:
        files: dict[str, list[Event]] = {"acode": [], "executor": []}
        for minute, (task, word, actor) in enumerate(events):
            files[actor].append(said(f"task-{word}", minute, task))
        return found_in(graph=TWO, files=files).tasks["T001"]

    one = [("T001", *event) for event in itertools.product(WORDS, ("acode", "executor"))]
    other = [("T002", *event) for event in itertools.product(WORDS, ("acode", "executor"))]
    for own in [*((event,) for event in one), *itertools.product(one, one)]:
        alone = state(*own)
        for event in other:
            assert state(*own, event) == alone, (own, event)


def test_a_late_verification_does_not_turn_a_completed_task_back() -> None:
    findings = found_in(said("task-completed", 1, "T001"), said("task-verified", 2, "T001"), graph=TWO)
    assert findings.tasks["T001"] == "done"


def test_acodes_own_completion_does_not_turn_the_verified_tasks_of_others_back() -> None:
    theirs = [said("task-verified", 1, "T001")]
    ours = [said("task_completed", 9, "T002")]
    findings = diagnose(run_of(*theirs, graph=TWO, files={"acode": ours}), NOW)
    assert findings.tasks == {"T001": "done", "T002": "done"}


@given(st.permutations(range(6)), st.permutations(["a", "b", "c"]))
def test_the_order_in_which_lines_and_files_are_read_changes_nothing(order: list[int], actors: list[str]) -> None:
    events = [
        said("task_started", 1, "T001", event_id="1"),
        said("task_completed", 2, "T001", event_id="2"),
        said("task_started", 3, "T002", event_id="3"),
        said("task_failed", 3, "T002", event_id="4"),
        to_phase(2, 0),
        to_phase(1, 0) | {"timestamp": "2026-01-15T09:00:00Z"},
    ]
    files = {actor: [events[n] for n in order if n % 3 == i] for i, actor in enumerate(sorted(actors))}
    shuffled = {actor: files[actor] for actor in actors}
    findings = found_in(graph=TWO, files=shuffled)
    assert findings.tasks == {"T001": "done", "T002": "failed"}
    assert findings.phase == 2
    assert findings.last_activity == datetime(2026, 1, 15, 10, 3, tzinfo=UTC)


@pytest.mark.parametrize(("first", "second", "state"), [("a", "b", "failed"), ("b", "a", "in_progress")])
def test_equal_times_are_ordered_by_event_id(first: str, second: str, state: str) -> None:
    events = [said("task_started", 1, "T001", event_id=first), said("task_failed", 1, "T001", event_id=second)]
    assert found_in(*events, graph=TWO).tasks["T001"] == state


def test_equal_times_without_ids_are_ordered_by_actor_then_line() -> None:
    files = {
        "b": [said("task_blocked", 1, "T001")],
        "a": [said("task_failed", 1, "T001"), said("task_started", 1, "T001")],
    }
    assert found_in(graph=TWO, files=files).tasks["T001"] == "blocked"
    assert found_in(graph=TWO, files={"a": files["a"]}).tasks["T001"] == "in_progress"


def test_an_event_without_a_time_takes_its_place_after_the_line_before_it() -> None:
    untimed = {"type": "task_completed", "task_id": "T001", "event_id": "0"}
    before = said("task_started", 5, "T001", event_id="z")
    assert found_in(before, untimed, graph=TWO).tasks["T001"] == "done"
    later = said("task_failed", 6, "T001")
    assert found_in(before, untimed, later, graph=TWO).tasks["T001"] == "failed"
    findings = found_in(before, untimed, graph=TWO)
    assert findings.last_activity == datetime(2026, 1, 15, 10, 5, tzinfo=UTC)
    assert any("events/executor/a.jsonl line 2: 1 event without a usable timestamp" in w for w in findings.warnings)


@pytest.mark.parametrize(
    "stamp",
    [
        "2026-01-15T10:07:00Z",
        "2026-01-15T12:07:00+02:00",
        "2026-01-15 10:07:00",
        1768471620,
        1768471620000,
        1768471620.0,
    ],
)
def test_times_are_compared_as_moments(stamp: object) -> None:
    findings = found_in({"type": "task_started", "task_id": "T001", "timestamp": stamp}, graph=TWO)
    assert as_json(findings)["last_activity"] == "2026-01-15T10:07:00Z"


def test_the_same_events_in_two_files_change_nothing() -> None:
    event = said("task_completed", 1, "T001", event_id="e1")
    once, twice = run_of(event, graph=TWO), run_of(event, graph=TWO, files={"orchestrator": [event, event]})
    assert diagnose(once, NOW).tasks == diagnose(twice, NOW).tasks


# Runnable tasks.


@pytest.mark.req("PROTO-10")
def test_runnable_is_what_has_its_dependencies_done_and_is_neither_done_nor_blocked() -> None:
    graph = graph_of(
        ("DONE", []), ("BLOCKED", []), ("FAILED", []), ("BEGUN", ["DONE"]), ("FREE", ["DONE"]), ("WAITS", ["BLOCKED"])
    )
    events = [said(f"task_{word}", 1, task) for word, task in
              [("completed", "DONE"), ("blocked", "BLOCKED"), ("failed", "FAILED"), ("started", "BEGUN")]]  # fmt: skip
    assert found_in(*events, graph=graph).runnable == ("FAILED", "BEGUN", "FREE")


@pytest.mark.req("PROTO-10")
def test_runnable_agrees_with_the_rule_on_every_state_of_three_tasks() -> None:
    graph = graph_of(("A", []), ("B", ["A"]), ("C", ["A", "B"]))
    words = {"pending": None, "in_progress": "started", "done": "completed", "failed": "failed", "blocked": "blocked"}
    for states in itertools.product(words, repeat=3):
        named = dict(zip("ABC", states, strict=True))
        events = [said(f"task_{words[state]}", 1, task) for task, state in named.items() if words[state]]
        findings = found_in(to_phase(2), *events, graph=graph)
        needs = {"A": (), "B": ("A",), "C": ("A", "B")}
        expected = [
            task for task, state in named.items()
            if state not in {"done", "blocked"} and all(named[need] == "done" for need in needs[task])
        ]  # fmt: skip
        assert findings.tasks == named
        assert list(findings.runnable) == expected


def test_the_second_shape_of_the_graph_is_read_too() -> None:
    data = {
        "metadata": {"run_id": "x", "version": "1.0"},
        "tasks": [
            {"id": "T002", "title": "second", "dependencies": ["T001"], "dependents": [], "files": {"allowed": ["a"]}},
            {"id": "T001", "title": "first", "dependencies": [], "dependents": ["T002"], "estimates": {"hours": 1}},
        ],
        "execution_order": [["T001"], ["T002"]],
    }
    graph = parse_graph(b"\xef\xbb\xbf" + json.dumps(data).encode())
    assert isinstance(graph, Graph)
    assert [task.id for task in graph.tasks] == ["T002", "T001"]
    assert found_in(graph=graph).runnable == ("T001",)


def test_the_next_task_is_of_the_earliest_plan_phase_then_in_graph_order() -> None:
    graph = graph_of({"id": "LATE", "phase": 2}, {"id": "EARLY", "phase": 1}, {"id": "ALSO", "phase": 1})
    findings = found_in(to_phase(2), graph=graph)
    assert findings.runnable == ("LATE", "EARLY", "ALSO")
    assert findings.next_action.task == "EARLY"


def test_plan_phases_beside_the_tasks_count_as_well() -> None:
    data = {
        "tasks": [{"id": "A"}, {"id": "B"}],
        "phases": [{"number": 1, "tasks": ["B"]}, {"number": 2, "tasks": ["A"]}],
    }
    graph = parse_graph(json.dumps(data).encode())
    assert isinstance(graph, Graph)
    assert found_in(to_phase(2), graph=graph).next_action.task == "B"


def test_cycles_are_reported_and_never_run() -> None:
    graph = graph_of(("A", ["C"]), ("B", ["A"]), ("C", ["B"]), ("D", ["A"]), ("E", ["E"]), ("F", []))
    findings = found_in(to_phase(2), graph=graph)
    assert findings.runnable == ("F",)
    circles = [w for w in findings.warnings if "circle" in w]
    assert len(circles) == 2
    assert "A → C → B → A" in circles[0]
    assert "E → E" in circles[1]


@given(st.dictionaries(st.sampled_from("ABCDEFGH"), st.lists(st.sampled_from("ABCDEFGHX"), max_size=4), min_size=1))
def test_a_reported_cycle_is_one_and_a_graph_without_report_has_none(edges: dict[str, list[str]]) -> None:
    graph = graph_of(*edges.items())
    from acode.formats.agent_memory.graph import cycles

    found = cycles(graph.tasks)
    for cycle in found:
        assert cycle[0] == cycle[-1]
        assert all(after in edges[before] for before, after in itertools.pairwise(cycle))
    done: set[str] = set()
    while more := {
        name for name, needs in edges.items() if name not in done and {n for n in needs if n in edges} <= done
    }:
        done |= more
    assert bool(found) == (done != set(edges))


def test_an_unknown_dependency_is_reported_and_its_task_never_runs() -> None:
    findings = found_in(to_phase(2), graph=graph_of(("A", ["GONE"])))
    assert findings.runnable == ()
    assert any("task A depends on GONE" in w for w in findings.warnings)
    assert findings.next_action.do == "wait_for_person"
    assert "A waits for GONE" in findings.next_action.summary


def test_dependencies_that_are_no_list_keep_a_task_from_running() -> None:
    findings = found_in(
        to_phase(2), graph=graph_of({"id": "A", "dependencies": "B"}, {"id": "C", "dependencies": [{}]})
    )
    assert findings.runnable == ()


def test_tasks_that_only_events_know_are_shown_but_not_run() -> None:
    findings = found_in(to_phase(2), said("task_started", 1, "H001"), graph=TWO)
    assert findings.tasks == {"T001": "pending", "T002": "pending", "H001": "in_progress"}
    assert findings.runnable == ("T001",)
    assert findings.total == 2
    assert any("H001" in w for w in findings.warnings)


def test_without_a_graph_the_tasks_of_the_events_stand_in_order_of_their_first_event() -> None:
    files = {
        "a": [said("task_started", 5, "LATE"), said("task_completed", 9, "EARLY")],
        "b": [said("task-created", 1, "EARLY")],
    }
    findings = found_in(to_phase(2), files=files)
    assert list(findings.tasks.items()) == [("EARLY", "done"), ("LATE", "in_progress")]
    assert (findings.done, findings.total, findings.runnable) == (1, 2, ())


def test_a_task_named_twice_in_the_graph_is_the_first_one() -> None:
    graph = graph_of(("A", []), ("A", ["B"]), ("B", []))
    assert [(task.id, task.dependencies) for task in graph.tasks] == [("A", ()), ("B", ())]
    assert any("names task A twice" in warning for warning in graph.warnings)


@pytest.mark.parametrize(
    "data",
    [b"", b"nope", b"[]", b"{}", b'{"tasks": {}}', b'{"tasks": []}', b'{"tasks": [{}]}', b"[" * 100_000, b"\xff\xfe"],
)
def test_a_graph_that_cannot_be_used_is_a_reason_not_a_crash(data: bytes) -> None:
    assert isinstance(parse_graph(data), str)


# Phases and next actions.


@pytest.mark.req("PROTO-11")
def test_phase_0_continues_the_prd_and_then_goes_on_to_planning() -> None:
    assert found_in(artifacts=()).next_action.do == "write_prd"
    action = found_in(artifacts=("prd.md",)).next_action
    assert (action.do, action.to_phase) == ("enter_phase", 1)


@pytest.mark.req("PROTO-11")
def test_phase_1_makes_plan_and_graph_and_then_waits_for_approval() -> None:
    assert found_in(to_phase(1), artifacts=("prd.md",)).next_action.do == "write_plan"
    assert found_in(to_phase(1), artifacts=("prd.md", "plan.md")).next_action.do == "break_down_tasks"
    findings = found_in(to_phase(1), artifacts=("prd.md", "plan.md"), graph=TWO)
    assert findings.next_action.do == "wait_for_approval"
    assert not findings.next_action.automatic
    assert findings.missing_artifacts == ()


@pytest.mark.req("PROTO-11")
def test_an_approval_older_than_the_plan_phase_does_not_open_the_gate() -> None:
    passed = {"event_type": "phase-gate-passed", "details": {"phase": 1, "approved_by": "user"}}
    early = passed | {"timestamp": "2026-01-15T09:00:00Z"}
    late = passed | {"timestamp": "2026-01-15T11:00:00Z"}
    there = {"artifacts": ("prd.md", "plan.md"), "graph": TWO}
    assert found_in(early, to_phase(1), **there).next_action.do == "wait_for_approval"
    assert found_in(to_phase(1), late, **there).next_action.to_phase == 2


@pytest.mark.req("PROTO-12")
@pytest.mark.parametrize(
    ("word", "summary"),
    [(None, "Execute task T001"), ("started", "Continue task T001"), ("failed", "Retry task T001")],
)
def test_phase_2_takes_the_next_runnable_task(word: str | None, summary: str) -> None:
    events = [said(f"task_{word}", 1, "T001")] if word else []
    action = found_in(to_phase(2), *events, graph=TWO).next_action
    assert (action.do, action.task, action.automatic) == ("run_task", "T001", True)
    assert action.summary == f"{summary} - Title of T001"


@pytest.mark.req("PROTO-12")
def test_phase_2_with_every_task_done_goes_on_to_phase_3_and_with_a_blocked_one_waits_for_a_person() -> None:
    done = [said("task_completed", 1, "T001"), said("task_completed", 2, "T002")]
    assert found_in(to_phase(2), *done, graph=TWO).next_action.to_phase == 3
    action = found_in(to_phase(2), said("task_blocked", 1, "T001"), graph=TWO).next_action
    assert (action.do, action.automatic) == ("wait_for_person", False)
    assert "T001 is blocked" in action.summary
    assert "T002 waits for T001" in action.summary


@pytest.mark.req("PROTO-13")
def test_phase_3_re_runs_clean_up_and_pr_preparation() -> None:
    action = found_in(to_phase(3), *ALL_DONE, graph=TWO).next_action
    assert (action.do, action.summary) == ("clean_up", "Re-run clean-up and PR preparation")


@pytest.mark.req("PROTO-14")
def test_phase_4_runs_memory_consolidation_and_nothing_once_that_is_done() -> None:
    assert found_in(to_phase(4), *ALL_DONE, graph=TWO).next_action.do == "consolidate"
    findings = found_in(to_phase(4), said("consolidation-completed", 5), graph=TWO)
    assert (findings.next_action.do, findings.ending) == ("nothing", "completed")


def test_the_latest_transition_is_the_phase_whatever_its_place_in_the_file() -> None:
    assert found_in(to_phase(3, 30), to_phase(2, 10), graph=TWO).phase == 3
    assert found_in(to_phase(2, 10), to_phase(1, 30), graph=TWO).phase == 1
    assert found_in(graph=TWO).phase == 0


@pytest.mark.parametrize(
    ("events", "phase"),
    [
        ([{"event_type": "phase-started", "details": {"phase": 2}}], 2),
        ([{"type": "phase_transition", "details": {"to_phase": 3}}], 3),
        ([{"type": "phase_transition", "to_phase": "2"}], 2),
        ([{"event_type": "phase-complete", "details": {"phase": 1}}], 2),
        ([{"event_type": "phase-complete", "details": {"phase": 4}}], 4),
        ([{"event_type": "phase-started", "details": {"phase": 2}}, {"event_type": "phase-completed", "phase": 1}], 2),
        ([{"type": "phase_transition", "to_phase": 12}], 0),
        ([{"type": "phase_transition", "to_phase": True}], 0),
        ([{"type": "phase_transition", "to_phase": None}], 0),
    ],
)
def test_the_phase_is_found_in_every_dialect_and_odd_ones_are_skipped(events: list[Event], phase: int) -> None:
    stamped = [event | {"timestamp": f"2026-01-15T10:0{n}:00Z"} for n, event in enumerate(events)]
    assert found_in(*stamped, graph=TWO).phase == phase


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("run_completed", "completed"),
        ("run-complete", "completed"),
        ("run-failed", "failed"),
        ("run_cancelled", "cancelled"),
    ],
)
def test_a_run_ends_by_its_last_word_and_lives_on_when_work_follows(kind: str, ending: str) -> None:
    assert found_in(to_phase(2), said(kind, 5), graph=TWO).ending == ending
    findings = found_in(to_phase(2), said(kind, 5), said("task_started", 6, "T001"), graph=TWO)
    assert findings.ending is None
    assert findings.next_action.task == "T001"


@pytest.mark.req("PROTO-16")
@pytest.mark.parametrize(
    ("missing", "do"),
    [
        ("prd.md", "write_prd"),
        ("plan.md", "write_plan"),
        ("task-graph.json", "break_down_tasks"),
        ("constitution.md", "write_constitution"),
    ],
)
def test_a_missing_artifact_is_made_again_by_the_step_that_makes_it(missing: str, do: str) -> None:
    artifacts = tuple(name for name in ALL_ARTIFACTS if name != missing)
    findings = found_in(to_phase(2), artifacts=artifacts, graph=None if missing == "task-graph.json" else TWO)
    assert findings.missing_artifacts == (missing,)
    assert findings.next_action.do == do
    assert [action.artifact for action in repair(findings)] == [missing]
    assert f"{missing} is missing: re-run the step" in findings.next_action.summary


@pytest.mark.req("PROTO-16")
def test_several_missing_artifacts_are_made_in_the_order_in_which_one_follows_from_the_other() -> None:
    findings = found_in(to_phase(2), artifacts=())
    assert [action.artifact for action in repair(findings)] == [
        "prd.md",
        "plan.md",
        "task-graph.json",
        "constitution.md",
    ]


def test_an_artifact_that_an_event_says_was_made_is_missed_before_its_phase_ends() -> None:
    findings = found_in(to_phase(1), said("plan_created", 2), artifacts=("prd.md",))
    assert findings.missing_artifacts == ("plan.md",)
    created = said("artifact-created", 2, details={"artifact_path": ".agent-memory/runs/x/prd.md"})
    assert found_in(created, artifacts=()).missing_artifacts == ("prd.md",)


def test_a_plan_made_anew_goes_back_to_the_gate() -> None:
    stamp = Stamp(run_id="r", event_id="e", now=NOW)
    before = found_in(to_phase(2), artifacts=("prd.md", "constitution.md"), graph=TWO)
    written = events_on_success(stamp, before.next_action)
    after = found_in(to_phase(2), graph=TWO, files={"acode": list(written)})
    assert after.phase == 1
    assert after.next_action.do == "wait_for_approval"
    approved = [*written, plan_approved(Stamp(run_id="r", event_id="f", now=NOW + timedelta(minutes=1)))]
    assert found_in(to_phase(2), graph=TWO, files={"acode": approved}).next_action.task == "T001"


@pytest.mark.req("PROTO-18")
def test_a_very_old_run_is_stale_and_a_review_is_suggested() -> None:
    run = run_of(to_phase(2, 0), graph=TWO)
    at = datetime(2026, 1, 15, 10, 0, tzinfo=UTC)
    assert not diagnose(run, at + timedelta(days=7)).stale
    stale = diagnose(run, at + timedelta(days=7, seconds=1))
    assert stale.stale
    assert "7 days ago (stale after 7); review" in stale.warnings[0]
    assert diagnose(run, at + timedelta(days=2), stale_after_days=1).stale


def test_an_event_from_the_future_is_no_sign_of_age_but_is_told() -> None:
    findings = diagnose(run_of(to_phase(2), graph=TWO), datetime(2026, 1, 14, tzinfo=UTC))
    assert not findings.stale
    assert "in the future" in findings.warnings[0]


def test_work_without_a_recorded_phase_is_told() -> None:
    assert any(
        "no event says that the run left phase 0" in w
        for w in found_in(said("task_started", 1, "T001"), graph=TWO).warnings
    )


def test_an_ordinary_run_has_no_warnings() -> None:
    events = [said("run-started", 0), said("prd_created", 0), to_phase(1, 1), said("plan_created", 2)]
    events += [said("task_graph_created", 2), to_phase(2, 3), said("task_started", 4, "T001")]
    events += [said("checkpoint-created", 4), said("task_completed", 5, "T001")]
    assert found_in(*events, graph=TWO).warnings == ()


# Whatever is in the files.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
odd_events = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["task_started", "phase_transition", "run-failed", "artifact-created"]) | json_values,
        "event_type": st.sampled_from(["task-completed", "task-verified", "phase-gate-passed"]) | json_values,
        "task_id": st.sampled_from(["T001", "T002", ""]) | json_values,
        "timestamp": st.sampled_from(["2026-01-15T10:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
        | json_values,
        "event_id": json_values,
        "actor": json_values,
        "to_phase": json_values,
        "phase": json_values,
        "details": json_values,
    },
)
odd_tasks = st.fixed_dictionaries(
    {}, optional={"id": st.sampled_from(["A", "B"]) | json_values, "title": json_values, "phase": json_values,
                  "dependencies": st.lists(st.sampled_from(["A", "B", "C"])) | json_values}
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | odd_events.map(lambda event: json.dumps(event).encode()), max_size=8),
    st.binary(max_size=80) | st.lists(odd_tasks, max_size=4).map(lambda tasks: json.dumps({"tasks": tasks}).encode()),
)
def test_no_content_makes_reading_or_diagnosing_crash(lines: list[bytes], graph_bytes: bytes) -> None:
    fold = EventFold()
    fold.fold_file("events/x/a.jsonl", "x", [(line, True) for line in lines])
    graph = parse_graph(graph_bytes)
    run = Run(
        run_id="r",
        path="/r",
        artifacts={},
        graph=graph if isinstance(graph, Graph) else None,
        run_events=fold.run_events(),
    )
    findings = diagnose(run, NOW)
    json.dumps(as_json(findings))
    assert len(report(findings).split("\n")) == 14
    assert prompt(run, findings, findings.next_action).encode()
    assert set(findings.runnable) <= set(findings.tasks)

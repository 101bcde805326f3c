"""Tasks of a plan at the same time: needs, limits, failures, gates, pauses, and whose work a changed file is."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from acode.engine.session_list import rows
from acode.engine.workspace_store import opened
from acode.engine.world import Nobody, StopSwitch
from acode.events import types as ev
from acode.plan import Action
from acode.state import State
from tests.crash.grounds import git
from tests.lives import Killed, Life, end_all_in, until


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def plan(*tasks: str, parallel: int = 3, more: str = "") -> str:
    """Each task is “name: needs: steps”, with steps in YAML on lines of their own."""
    return f"title: Parallel\nparallel: {parallel}\n{more}tasks:\n" + "".join(tasks)


def task(name: str, *steps: str, needs: str = "") -> str:
    return f"  - id: {name}\n    needs: [{needs}]\n    steps:\n" + "".join(f"      - {{{step}}}\n" for step in steps)


def meet(mine: str, *others: str) -> str:
    """A line that ends only where the others run at the same time."""
    return f"touch ../{mine}.here; " + "; ".join(f"while [ ! -e ../{one}.here ]; do sleep 0.02; done" for one in others)


def order(life: Life) -> list[str]:
    """Starts and ends of steps as the log has them."""
    signs = {ev.StepStarted: "+", ev.StepCompleted: "-", ev.StepFailed: "!"}
    return [f"{signs[type(one.event)]}{one.event.step}" for one in life.history() if type(one.event) in signs]


def note(name: str) -> str:
    return f'echo {name} >> \\"$LEDGER\\"'


# At the same time, and not too many.


def test_tasks_whose_needs_are_done_run_at_the_same_time(life: Life) -> None:
    a, b = task("a", f'run: "{meet("a", "b")}"'), task("b", f'run: "{meet("b", "a")}"')
    last = task("last", "run: 'true'", needs="a, b")
    assert life.run(plan(a, b, last)).exit_code == 0
    said = order(life)
    assert set(said[:2]) == {"+a.1", "+b.1"} and said[-2:] == ["+last.1", "-last.1"]
    assert [one.task for one in life.events(ev.TaskCompleted)][-1] == "last"
    assert len(life.events(ev.TaskCompleted)) == 3


def test_no_more_tasks_run_at_the_same_time_than_the_plan_allows(life: Life) -> None:
    tasks = [task(name, f'run: "{note(name)}"', f"write: {{path: {name}.txt, content: x}}") for name in "abcdef"]
    assert life.run(plan(*tasks, parallel=2)).exit_code == 0
    open_tasks: set[str] = set()
    for one in life.history():
        if isinstance(one.event, ev.StepStarted):
            open_tasks.add(one.event.task)
        if isinstance(one.event, ev.TaskCompleted):
            open_tasks.discard(one.event.task)
        assert len(open_tasks) <= 2
    assert life.effects() == dict.fromkeys("abcdef", 1)


def test_a_plan_without_parallel_runs_one_task_after_the_other(life: Life) -> None:
    tasks = [task(name, "run: 'true'") for name in "abc"]
    assert life.run(plan(*tasks, parallel=1)).exit_code == 0
    assert order(life) == ["+a.1", "-a.1", "+b.1", "-b.1", "+c.1", "-c.1"]


def test_the_completion_that_ends_the_plan_is_durable(life: Life) -> None:
    tasks = [task(name, f'run: "{meet(name, *others)}"') for name, others in (("a", "b"), ("b", "a"))]
    durable = dict[str, int]()
    for step in ("a.1", "b.1"):
        life.ears.at("step_completed", lambda name=step: durable.update({name: life.ears.durable_seq}), step)
    assert life.run(plan(*tasks)).exit_code == 0
    seqs = {one.event.step: one.seq for one in life.history() if isinstance(one.event, ev.StepCompleted)}
    first, last = seqs
    assert durable[last] >= seqs[last] and durable[first] < seqs[first], "which one is the last, its end shows"


def test_two_commits_are_made_one_after_the_other(life: Life) -> None:
    git(life.place / "workspace", "init", "-q", "-b", "main", "--template=")
    life.env |= {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    commit = "commit: {message: %s, paths: [%s.txt]}"
    tasks = [task(name, f"write: {{path: {name}.txt, content: x}}", commit % (name, name)) for name in "abcd"]
    assert life.run(plan(*tasks, parallel=4)).exit_code == 0
    said = [one for one in order(life) if one.endswith(".2")]
    assert [one[0] for one in said] == ["+", "-"] * 4, said
    assert sorted(git(life.place / "workspace", "log", "--format=%s").split()) == list("abcd")


def test_two_steps_on_one_sqlite_file_are_applied_one_after_the_other(life: Life) -> None:
    for name in "ab":
        life.put(f"{name}.sql", f"create table {name} (n);\n")
    tasks = [task(name, f"sql: {{database: app.db, file: {name}.sql}}") for name in "ab"]
    assert life.run(plan(*tasks)).exit_code == 0
    assert [one[0] for one in order(life)] == ["+", "-", "+", "-"]


# Failures.


def test_a_failure_lets_the_others_end_their_step_and_begins_no_other(life: Life) -> None:
    slow = f'run: "touch ../b.here; while [ ! -e ../a.failed ]; do sleep 0.02; done; {note("b")}"'
    fails = f'run: "{meet("a", "b")}; exit 3"'

    def a_failed() -> bool:
        with opened(life.world(), look_only=True) as store:
            (running,) = store.session_ids()
            return any(isinstance(one.event, ev.StepFailed) for one, _, _ in store.events(running))

    def let_b_end() -> None:
        until((life.place / "b.here").exists)
        until(a_failed)
        (life.place / "a.failed").touch()

    watching = threading.Thread(target=let_b_end)
    watching.start()
    result = life.run(
        plan(task("a", fails), task("b", slow, f'run: "{note("late")}"'), task("c", "run: 'true'"), parallel=2)
    )
    watching.join()
    assert (result.exit_code, result.state, result.reason_code) == (1, State.PAUSED, "step_failed")
    assert result.error is not None and result.error.details["step"] == "a.1"
    assert life.effects() == {"b": 1}
    assert order(life)[-1] == "-b.1" and "+c.1" not in order(life)
    assert life.look().session.failure is not None, "the end of another task's step hides no failure"
    (life.place / "workspace" / "mended").touch()
    again = life.resume()
    assert again.exit_code == 1 and life.effects() == {"b": 1, "late": 1}, "what does not depend on it goes on"


def test_all_that_failed_at_the_same_time_is_told(life: Life) -> None:
    tasks = [task(name, f'run: "{meet(name, *others)}; exit 3"') for name, others in (("a", "b"), ("b", "a"))]
    result = life.run(plan(*tasks))
    assert result.error is not None and "failed too" in result.error.message
    decision = life.look(actor="system").survey
    assert decision is not None and decision.decision.reason_code == "resume_non_idempotent_step"


def test_an_automatic_attempt_repeats_no_failed_step_that_another_task_hides(life: Life) -> None:
    """The one attempted last carries its own evidence; the failed one before it does not."""
    slow = 'run: "touch ../b.here; while [ ! -e ../a.failed ]; do sleep 0.02; done", idempotent: true'
    fails = f'run: "{meet("a", "b")}; touch ../a.failed; exit 3"'
    life.run(plan(task("a", fails), task("b", slow)))
    found = life.look(actor="system").survey
    assert found is not None and not found.decision.eligible and found.unsafe_step == "a.1"


def test_a_plan_that_ends_with_its_first_failure_ends_when_the_others_have(life: Life) -> None:
    slow = f'run: "touch ../b.here; while [ ! -e ../a.failed ]; do sleep 0.02; done; {note("b")}"'
    fails = f'run: "{meet("a", "b")}; touch ../a.failed; exit 3"'
    result = life.run(plan(task("a", fails), task("b", slow), more="on_failure: abort\n"))
    assert (result.exit_code, result.state) == (1, State.FAILED)
    assert life.effects() == {"b": 1} and life.look().session.in_flight == {}


def test_a_retry_that_waits_ends_with_the_failure_of_another_task(life: Life) -> None:
    flaky = 'run: "touch ../b.here; exit 3", idempotent: true, retry: {attempts: 5, backoff_seconds: 600}'
    fails = f'run: "{meet("a", "b")}; exit 4"'
    began = time.monotonic()
    result = life.run(plan(task("a", fails), task("b", flaky)))
    assert result.error is not None and result.error.details["step"] == "a.1"
    assert time.monotonic() - began < 300
    assert life.attempts("b.1") == 1


# Gates.


def test_a_gate_holds_back_only_what_depends_on_it(life: Life) -> None:
    gate = task("a", "approve: Ship?", f'run: "{note("shipped")}"')
    free = task("b", f'run: "{note("one")}"', f'run: "{note("two")}"')
    behind = task("c", f'run: "{note("behind")}"', needs="a")
    result = life.run(plan(gate, free, behind), answers=Nobody())
    assert (result.exit_code, result.state) == (10, State.AWAITING_APPROVAL)
    assert life.effects() == {"one": 1, "two": 1}
    assert len(life.events(ev.SessionAwaitingApproval)) == 1, "it is told when it can be answered"
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0
    assert life.effects() == {"one": 1, "two": 1, "shipped": 1, "behind": 1}


def test_a_person_is_asked_while_other_tasks_run(life: Life) -> None:
    """The other task ends only after the answer."""
    gate = task("a", "approve: Ship?", "run: touch ../answered")
    slow = task("b", 'run: "while [ ! -e ../answered ]; do sleep 0.02; done"')
    life.person.to_gates = "yes"
    assert life.run(plan(gate, slow)).exit_code == 0
    assert order(life).index("-b.1") > order(life).index("-a.1"), "the gate was answered meanwhile"


@pytest.mark.parametrize("more", ["", "on_failure: abort\n"])
def test_a_no_is_on_record_at_once_and_ends_the_run_when_the_others_have(life: Life, more: str) -> None:
    gate = task("a", "run: 'while [ ! -e ../b.here ]; do sleep 0.02; done'", "approve: Ship?")
    slow = f'run: "touch ../b.here; while [ ! -e ../denied ]; do sleep 0.02; done; {note("b")}"'
    life.person.to_gates = "no"
    life.ears.at("approval_request", (life.place / "denied").touch)
    result = life.run(plan(gate, task("b", slow, f'run: "{note("late")}"'), more=more))
    assert (result.exit_code, result.reason_code) == (12, "approval_denied")
    assert result.state is (State.FAILED if more else State.PAUSED)
    assert life.effects() == {"b": 1}


# Pauses and kills.


def test_a_pause_waits_for_every_step_and_begins_none(life: Life) -> None:
    stop = StopSwitch(time.monotonic, 30.0)
    tasks = [
        task(name, f'run: "{meet(name, *others)}; {note(name)}"', f'run: "{note(name * 2)}"')
        for name, others in (("a", "b"), ("b", "a"))
    ]
    life.ears.at("step_started", lambda: stop.press("SIGINT"), "b.1")
    result = life.run(plan(*tasks), stop=stop)
    assert (result.exit_code, result.state) == (130, State.PAUSED)
    assert life.effects() == {"a": 1, "b": 1} and life.look().session.in_flight == {}
    assert life.resume().exit_code == 0
    assert life.effects() == {"a": 1, "b": 1, "aa": 1, "bb": 1}


def test_steps_cut_off_at_the_same_time_are_each_settled_by_their_own_evidence(life: Life) -> None:
    """acode dies with three in flight. One ends by itself after that, one can be rolled back, one nobody knows."""
    life.put("out.txt", "before\n")
    wait = "while [ ! -e ../on ]; do sleep 0.02; done"
    ends = f'run: "{note("a")}; while kill -0 $RUNNER 2> /dev/null; do sleep 0.02; done; {note("ended")}"'
    tasks = (
        task("a", ends),
        task("b", f'run: "echo half > out.txt; {note("b")}; {wait}; echo whole > out.txt", outputs: [out.txt]'),
        task("c", f'run: "{note("c")}; {wait}"'),
    )
    cut_off_in_flight(life, plan(*tasks), {"a", "b", "c"})
    found = life.look().survey
    assert found is not None
    actions = {one.step: one.action for one in found.continuation.in_flight}
    assert actions == {"a.1": Action.SKIP, "b.1": Action.ROLLBACK_AND_RETRY, "c.1": Action.ASK}
    (life.place / "on").touch()
    life.person.to_unknown = "applied"
    assert life.resume().exit_code == 0
    assert life.effects() == {"a": 1, "ended": 1, "b": 2, "c": 1}
    assert life.person.asked == ["unknown c.1"]
    assert life.text("out.txt") == "whole\n"


def cut_off_in_flight(life: Life, text: str, begun: set[str]) -> None:
    """acode is killed when each of these has left its effect, and when one of them has ended, everything else is."""
    child = os.fork()
    if child == 0:
        life.env["RUNNER"] = str(os.getpid())
        try:
            life.run(text)
        finally:
            os._exit(70)
    until(lambda: set(life.effects()) == begun)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(lambda: any((life.path(".agent") / "run").glob("*/status")))
    end_all_in(life.place)
    life.id = rows(life.world())[0].session_id


def test_a_session_that_died_while_a_person_was_asked_is_settled_and_asks_again(life: Life) -> None:
    gate = task("a", "run: 'while [ ! -e ../b.here ]; do sleep 0.02; done'", "approve: Ship?")
    slow = task(
        "b", f'run: "touch ../b.here; {note("b")}; while [ ! -e ../on ]; do sleep 0.02; done", idempotent: true'
    )

    def die_when_asked(*_: object) -> None:
        (life.place / "on").touch()
        raise Killed

    life.ears.at("approval_request", die_when_asked)
    with pytest.raises(Killed):
        life.run(plan(gate, slow))
    life.id = life.ears.notices[-1].session_id
    life.person.to_gates = "yes"
    assert life.resume().exit_code == 0


# Whose work a changed file is.


def test_a_file_that_changed_while_several_steps_ran_is_blamed_on_none_of_them(life: Life) -> None:
    life.put("known.txt", "before\n")
    first = task("first", "read: known.txt")
    changes = f'run: "{meet("a", "b")}; echo changed > known.txt; touch ../changed"'
    looks = 'run: "{}; while [ ! -e ../changed ]; do sleep 0.02; done; touch ../b.ends"'.format(meet("b", "a"))
    result = life.run(plan(first, task("a", changes, needs="first"), task("b", looks, needs="first")))
    assert result.exit_code == 0
    assert [one.touched for one in life.events(ev.StepCompleted)] == [(), (), ()]
    (accepted,) = life.events(ev.ChangesAccepted)
    assert accepted.reason == "changed while steps a.1 and b.1 ran" and accepted.files[0].path == "known.txt"
    assert any("nothing shows which of them" in one.body.message for one in life.ears.events("warning"))


def test_a_change_at_the_declared_output_of_another_step_is_left_to_that_step(life: Life) -> None:
    life.put("out.txt", "before\n")
    first = task("first", "read: out.txt")
    line = f"{meet('a', 'b')}; echo made > out.txt; touch ../made; while [ ! -e ../b.done ]; do sleep 0.02; done"
    makes = f'run: "{line}", outputs: [out.txt]'
    looks = f'run: "{meet("b", "a")}; while [ ! -e ../made ]; do sleep 0.02; done"'
    life.ears.at("step_completed", (life.place / "b.done").touch, "b.1")
    assert life.run(plan(first, task("a", makes, needs="first"), task("b", looks, needs="first"))).exit_code == 0
    by_step = {one.step: [state.path for state in one.files] for one in life.events(ev.StepCompleted)}
    assert by_step["b.1"] == [] and by_step["a.1"] == ["out.txt"]
    assert life.events(ev.ChangesAccepted) == []


def test_a_file_that_a_step_looked_at_is_not_recorded_as_older_than_another_step_left_it(life: Life) -> None:
    """The look at the workspace and its record lie apart: what others recorded in between is newer."""
    life.put("known.txt", "before\n")
    gate = task("end", "approve: Go?", needs="a, b")
    first = task("first", "read: known.txt")
    writes = task(
        "a",
        'run: "{}"'.format(meet("a", "b")),
        *(f"write: {{path: known.txt, content: v{n}}}" for n in range(5)),
        needs="first",
    )
    looks = task("b", 'run: "{}"'.format(meet("b", "a")), *(["run: 'true', idempotent: true"] * 5), needs="first")
    assert life.run(plan(first, writes, looks, gate), answers=Nobody()).exit_code == 10
    life.person.to_gates = "yes"
    result = life.resume()
    assert result.exit_code == 0 and "changes" not in life.person.asked

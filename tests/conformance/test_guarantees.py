"""Each guarantee of a step, stated once and run against every source of steps.

A new source of steps is done when this suite passes for it. The table at the end of the run shows guarantee × source.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acode.engine.held_session import Held
from acode.events import types as ev
from acode.store.journal import Journal
from tests.conformance.every_source import every_source
from tests.conformance.sources import Source
from tests.conformance.steps import KILL_ACODE, KILL_ALL, Step, note, wait_for
from tests.driver import WAIT_S_MAX
from tests.tampering import Attack
from tests.variants import first_of

KILLED = -signal.SIGKILL
NOBODY_TO_ASK = 10
LOCK_LOST = 16
TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"


def wait_until(true: Callable[[], bool], *, what: str) -> None:
    """Poll until the call gives something; the machine may be busy, so the bound is generous."""
    until = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < until, f"never seen: {what}"
        time.sleep(0.01)


# Recorded before it acts, never repeated when done.


@every_source()
def test_a_step_is_on_record_before_it_acts(source: Source) -> None:
    source.in_every_life(lambda: note_syncs(source))
    status = source.run(Step(name="pay", line=f"{note('pay')}; {KILL_ALL}"))
    assert status == KILLED
    assert source.effects() == ["pay"]
    assert len(source.starts()) == 1, "what has acted was begun on record"
    assert source.in_flight
    assert synced(source) == [("start", True)], "a power cut does not take the record of what may not be repeated"


def note_syncs(source: Source) -> None:
    """Planted in the process of the session: whether the start of a step is synced before its end is recorded, and its
    end before anything else is. What a task beside it appends in between ends no wait."""
    append, settle = Journal.append, Journal.settle
    waiting: dict[tuple[str, str], int] = {}

    def note(self: Journal) -> None:
        with open(source.place / "synced", "a", encoding="utf-8") as notes:
            for (what, step), seq in list(waiting.items()):
                notes.write(f"{what} {step} {self.durable_seq >= seq}\n")

    def appending(self: Journal, *events: ev.Known, **how: Any) -> Any:
        if not all(source.is_beside(event) for event in events):
            note(self)
            waiting.clear()
        appended = append(self, *events, **how)
        for one in appended:
            event, names = one.event, {step for _, step in noted(source)}
            if isinstance(event, ev.StepStarted) and source.acts(event):
                waiting["start", event.step] = one.seq
            if isinstance(event, ev.StepCompleted) and event.step in names:
                waiting["end", event.step] = one.seq
        note(self)
        return appended

    def settling(self: Journal, *arguments: Any, **how: Any) -> None:
        settle(self, *arguments, **how)
        note(self)

    Journal.append, Journal.settle = appending, settling  # type: ignore[method-assign]  # in this process alone


def noted(source: Source) -> dict[tuple[str, str], bool]:
    """What was noted last of each start and end."""
    place = source.place / "synced"
    lines = [line.split() for line in place.read_text().splitlines()] if place.exists() else []
    return {(what, step): is_synced == "True" for what, step, is_synced in lines}


def synced(source: Source) -> list[tuple[str, bool]]:
    return [(what, is_synced) for (what, _), is_synced in noted(source).items()]


@every_source("idempotent")
def test_a_step_that_is_told_to_be_done_is_on_record_after_a_power_cut(source: Source) -> None:
    """One sync for each step: where a repeat does no harm, that of the start is left out, and the end has it."""
    source.in_every_life(lambda: note_syncs(source))
    assert source.run(*(Step(name=name, line=note(name), idempotent=True) for name in ("one", "two"))) == 0
    assert [what for what, _ in synced(source)] == ["start", "end"] * 2
    pairs = zip(synced(source)[::2], synced(source)[1::2], strict=True)
    assert [start or end for (_, start), (_, end) in pairs] == [True, True]


@every_source("outputs")
def test_a_step_that_changes_the_workspace_is_on_record_after_a_power_cut(source: Source) -> None:
    source.in_every_life(lambda: note_syncs(source))
    assert source.run(Step(name="make", line="echo made > out.txt", idempotent=True, outputs=("out.txt",))) == 0
    assert synced(source)[0] == ("start", True), "or the next life would take the change for somebody else's"


@every_source()
def test_a_finished_step_is_never_repeated(source: Source) -> None:
    steps = Step(name="one", line=note("one")), Step(name="two", line=f"{note('two')}; {KILL_ALL}")
    assert source.run(*steps) == KILLED
    assert source.command("session", "resolve", source.session_id, source.in_flight, "--applied") == 0
    assert source.resume() == 0
    assert source.effects() == ["one", "two"]


@every_source()
def test_no_step_is_skipped(source: Source) -> None:
    steps = [Step(name=name, line=note(name)) for name in ("one", "two", "three")]
    assert source.run(*steps) == 0
    assert source.effects() == ["one", "two", "three"]


# The step in flight.


@every_source("keeper")
def test_a_command_that_outlives_acode_is_settled_by_its_keeper(source: Source) -> None:
    steps = Step(name="one", line=f"{KILL_ACODE}; {note('one')}"), Step(name="two", line=note("two"))
    assert source.run(*steps) == KILLED
    wait_until(lambda: source.effects() == ["one"], what="the command's effect")
    assert source.resume() == 0
    assert source.effects() == ["one", "two"]


@every_source()
def test_an_unknown_outcome_is_asked_and_not_repeated(source: Source) -> None:
    assert source.run(Step(name="pay", line=f"{note('pay')}; {KILL_ALL}")) == KILLED
    assert source.resume() == 19
    assert source.resume() == 19
    assert source.effects() == ["pay"]


@every_source("long name")
def test_a_step_whose_name_is_too_long_for_a_file_is_settled_like_any_other(source: Source) -> None:
    assert source.run(Step(name="付" * 80, line=f"{note('pay')}; {KILL_ALL}")) == KILLED
    assert source.resume() == 19
    assert source.command("session", "resolve", source.session_id, source.in_flight, "--applied") == 0
    assert source.resume() == 0
    assert source.effects() == ["pay"]


@every_source()
def test_a_step_is_repeated_only_after_a_recorded_decision(source: Source) -> None:
    once = source.place / "once"
    line = f'{note("pay")}; if [ ! -e "{once}" ]; then touch "{once}"; {KILL_ALL}; fi'
    assert source.run(Step(name="pay", line=line)) == KILLED
    assert source.resume() == 19
    assert source.command("session", "resolve", source.session_id, source.in_flight, "--retry") == 0
    assert source.resume() == 0
    assert source.effects() == ["pay", "pay"]
    first, second = (
        at for at, one in enumerate(source.history()) if isinstance(one, ev.StepStarted) and source.acts(one)
    )
    decided = [one.outcome for one in source.history()[first:second] if isinstance(one, ev.StepSettled)]
    assert decided[-1] is ev.Settled.RETRY_ACCEPTED


# Guards before and after.


@every_source()
def test_an_owner_whose_lock_was_broken_does_not_act(source: Source) -> None:
    """It slept between the record of the start and the act, and somebody else has the session by then."""
    asleep, awake = source.place / "asleep", source.place / "awake"
    source.in_every_life(lambda: sleep_after_start(source, number=2, asleep=asleep, awake=awake))
    source.arrange((Step(name="one", line=note("one")), Step(name="two", line=note("two"))))
    owner = source.start()
    wait_until(asleep.exists, what="the start of the second step")
    assert source.command("session", "unlock", source.session_id, "--force") == 0
    awake.touch()
    status = source.finish(owner)
    assert source.effects() == ["one"]
    assert status == LOCK_LOST


def sleep_after_start(source: Source, *, number: int, asleep: Path, awake: Path) -> None:
    """Planted in the process of the session: it sleeps right after it has recorded the start of a step.

    Behind the anchor too, which is written only now and then, and not by an owner whose lock was broken.
    """
    append, settle = Journal.append, Held.settle
    seen = source.place / "starts-seen"  # a step may be begun by a process of its own

    def appending(self: Journal, *events: ev.Known, **how: Any) -> Any:
        with open(seen, "a", encoding="utf-8") as file:
            file.write("." * sum(isinstance(one, ev.StepStarted) and source.acts(one) for one in events))
        return append(self, *events, **how)

    def settling(self: Held, *arguments: Any) -> None:
        settle(self, *arguments)
        if seen.exists() and seen.stat().st_size == number and not asleep.exists():
            asleep.touch()
            wait_until(awake.exists, what="the end of its sleep")

    Journal.append, Held.settle = appending, settling  # type: ignore[method-assign]  # in this process alone


@every_source("lock during the act")
def test_an_owner_whose_lock_is_broken_during_the_act_is_told_so(source: Source) -> None:
    """Nothing more is recorded or done, and the message names the lock: the disk is not at fault."""
    go = source.place / "go"
    source.arrange((Step(name="one", line=f"{note('one')}; {wait_for(go)}"), Step(name="two", line=note("two"))))
    owner = source.start()
    wait_until(lambda: source.effects() == ["one"], what="the act")
    assert source.command("session", "unlock", source.session_id, "--force") == 0
    go.touch()
    assert source.finish(owner) == LOCK_LOST
    assert source.effects() == ["one"]
    assert source.in_flight


@every_source()
def test_a_step_that_removes_the_log_ends_the_session_as_lost(source: Source) -> None:
    steps = Step(name="clean", line=f"{note('clean')}; rm -rf .agent"), Step(name="pay", line=note("pay"))
    assert source.run(*steps) == 20
    assert source.effects() == ["clean"], "nothing more is done that nobody could find on record"
    assert "is gone" in source.said
    assert source.resume() == 20, "what is lost is not begun anew"
    assert source.effects() == ["clean"]


@every_source("retry")
def test_a_step_with_a_retry_that_removes_the_log_ends_the_session_as_lost(source: Source) -> None:
    """Of a program's step something is declared: it is not a plain one."""
    clean = Step(name="clean", line=f"{note('clean')}; rm -rf .agent", idempotent=True, retry=(2, 1.0))
    status = source.run(clean, Step(name="pay", line=note("pay")))
    assert source.effects() == ["clean"]
    assert status == 20


@every_source("failure ends")
def test_a_failing_step_that_removes_the_log_ends_the_session_as_lost(source: Source) -> None:
    steps = Step(name="clean", line=f"{note('clean')}; rm -rf .agent; exit 3"), Step(name="pay", line=note("pay"))
    assert source.run(*steps) == 20
    assert source.effects() == ["clean"]


@every_source("cwd")
def test_a_step_works_inside_the_workspace(source: Source) -> None:
    outside = source.place / "outside"
    outside.mkdir()
    (source.workspace / "link").symlink_to(outside)
    assert source.run(Step(name="one", line=note("one"), cwd="link")) not in (0, 70)
    assert source.effects() == []


# Waiting, retries, time.


@every_source("retry")
def test_ctrl_c_is_obeyed_while_a_retry_waits(source: Source) -> None:
    step = Step(name="flaky", line=f"{note('flaky')}; exit 3", idempotent=True, retry=(3, 300.0))
    source.arrange((step,))
    first = source.start()
    wait_until(lambda: failed(source), what="the first failure on record")
    os.kill(first, signal.SIGKILL)
    source.finish(first)
    again = source.start()  # as `acode resume` does, where the source has that
    wait_until(lambda: len(source.effects()) == 2 and len(source.events(ev.StepFailed)) == 2, what="the second failure")
    os.kill(again, signal.SIGINT)
    assert source.finish(again) == 130
    assert len(source.effects()) == 2


@every_source("pause")
def test_a_pause_lets_the_step_in_flight_end_and_no_other_begin(source: Source) -> None:
    go = source.place / "go"
    line = f"{note('one')}; {wait_for(go)}; {note('ended')}"
    source.arrange((Step(name="one", line=line), Step(name="two", line=note("two"))))
    running = source.start()
    wait_until(lambda: source.effects() == ["one"], what="the act")
    assert source.command("session", "pause", source.session_id) == 0
    go.touch()
    assert source.finish(running) == 130
    assert source.effects() == ["one", "ended"], "nothing is interrupted, and nothing begins"
    assert source.resume() == 0
    assert source.effects() == ["one", "ended", "two"]


@every_source("retry")
def test_a_pause_from_another_terminal_is_obeyed_while_a_retry_waits(source: Source) -> None:
    """Also where Ctrl+C is ignored, as in the background of a script."""
    source.in_every_life(ignore_ctrl_c)
    source.arrange((Step(name="flaky", line=f"{note('flaky')}; exit 3", idempotent=True, retry=(3, 300.0)),))
    running = source.start()
    wait_until(lambda: failed(source), what="the failure on record")
    assert source.command("session", "pause", source.session_id) == 0
    assert source.finish(running) == 130
    assert source.effects() == ["flaky"]


def ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def failed(source: Source) -> bool:
    return source.effects() != [] and bool(source.events(ev.StepFailed))


@every_source("retry")
def test_attempts_are_counted_over_kills(source: Source) -> None:
    line = f'{note("flaky")}; if [ $(wc -l < "$LEDGER") = 2 ]; then {KILL_ALL}; fi; exit 3'
    step = Step(name="flaky", line=line, idempotent=True, retry=(3, 0.0))
    assert source.run(step) == KILLED
    assert source.resume() == 1
    assert len(source.events(ev.StepFailed)) == 3, "the failure before the kill counts, and the kill is no failure"
    assert [one.attempt for one in source.starts()] == [1, 2, 3, 4]
    assert [one.attempt for one in source.events(ev.StepSettled)] == [1, 2, 3, 4], "each attempt is settled once"
    assert len(source.effects()) == 4


@every_source("failure ends")
def test_a_step_out_of_time_is_not_taken_for_done(source: Source) -> None:
    step = Step(name="slow", line=f"{note('begun')}; exec sleep 30", timeout_s=0.3)
    status = source.run(step)
    assert source.effects() == ["begun"]
    assert status in (1, 19)
    assert [one.step for one in source.events(ev.StepCompleted)] == []
    assert source.resume() == 19, "it was stopped in the middle: a person is asked before it is repeated"
    assert source.effects() == ["begun"]


@every_source("retry", "retry after timeout")
def test_an_attempt_out_of_time_is_followed_by_the_next_only_with_a_decision_on_record(source: Source) -> None:
    line = f'{note("try")}; if [ $(wc -l < "$LEDGER") = 1 ]; then exec sleep 30; fi'
    assert source.run(Step(name="slow", line=line, idempotent=True, retry=(9, 0.0), timeout_s=0.5)) == 0
    assert len(source.effects()) > 1
    kinds = (ev.StepStarted, ev.StepFailed, ev.StepSettled)
    first = [one for one in source.history() if isinstance(one, kinds) and one.step == "slow"][:4]
    assert [type(one) for one in first] == [ev.StepStarted, ev.StepFailed, ev.StepSettled, ev.StepStarted]
    assert isinstance(first[2], ev.StepSettled) and first[2].outcome is ev.Settled.RETRY_ACCEPTED


# Files.


@every_source("outputs")
def test_an_attempt_finds_its_outputs_as_the_first_one_did(source: Source) -> None:
    """A failed attempt leaves what it made to be looked at; the next one must not take it for done."""
    once = source.place / "once"
    looks = f"[ -e out.txt ] && {note('leftover')}"
    line = f'{looks}; echo half > out.txt; if [ ! -e "{once}" ]; then touch "{once}"; exit 3; fi'
    assert source.run(Step(name="make", line=line, outputs=("out.txt",))) == 1
    assert (source.workspace / "out.txt").exists()
    assert source.resume() == 0
    assert source.effects() == []


@every_source("outputs")
def test_a_change_by_another_session_is_not_taken_for_the_change_of_a_step(source: Source) -> None:
    go = source.place / "go"
    wait = f"{note('two')}; {wait_for(go)}"
    source.arrange((Step(name="one", line="echo one > known.txt", outputs=("known.txt",)), Step(name="two", line=wait)))
    running = source.start()
    wait_until(lambda: source.effects() == ["two"], what="the second step")
    session_id = source.session_id
    other = {"title": "Other", "tasks": [{"id": "other", "steps": [{"write": {"path": "known.txt", "content": "x"}}]}]}
    (source.workspace / "other.yml").write_text(json.dumps(other))
    assert source.command("run", "other.yml") == 0
    go.touch()
    assert source.finish(running) == 0
    history = source.history(session_id)
    assert [one.touched for one in history if isinstance(one, ev.StepCompleted)] == [(), ()]
    accepted = [one.path for event in history if isinstance(event, ev.ChangesAccepted) for one in event.files]
    assert accepted == ["known.txt"]


# Gates.


@every_source("gate")
def test_nothing_behind_a_gate_begins_before_it_is_granted(source: Source) -> None:
    assert source.run(Step(name="ask", gate="Deploy?"), Step(name="deploy", line=note("deploy"))) == NOBODY_TO_ASK
    assert source.effects() == []
    assert source.command("session", "approve", source.session_id) == 0
    assert source.resume() == 0
    assert source.effects() == ["deploy"]
    kinds = (ev.SessionAwaitingApproval, ev.ApprovalGranted, ev.SessionExecuting, ev.StepStarted)
    order = [one for one in source.history() if isinstance(one, kinds)]
    begun = next(at for at, one in enumerate(order) if isinstance(one, ev.StepStarted) and source.acts(one))
    waited = max(at for at, one in enumerate(order) if isinstance(one, ev.SessionAwaitingApproval))
    assert ev.ApprovalGranted in [type(one) for one in order[waited:begun]]
    assert ev.SessionExecuting in [type(one) for one in order[waited:begun]], "a session that acts does not wait"


@every_source("gate", "gate of its own")
def test_a_grant_for_something_else_opens_no_gate(source: Source) -> None:
    assert source.run(Step(name="ask", gate="Deploy?"), Step(name="deploy", line=note("deploy"))) == NOBODY_TO_ASK
    assert source.command("session", "approve", source.session_id) == 0
    source.ask_for_something_else()
    assert source.resume() == NOBODY_TO_ASK
    assert source.effects() == []


# Secrets.


@every_source()
def test_a_secret_that_a_step_prints_is_on_no_record(source: Source) -> None:
    step = Step(name="leak", line=f"{note('leak')}; printf 'token %s\\n' ghp_0123456789abcdefghij''ABCDEFGHIJ012345")
    source.run(step)
    assert source.effects() == ["leak"]
    assert TOKEN not in source.said
    assert records_with(source, TOKEN) == []


@every_source("failure ends")
def test_a_secret_that_a_failure_names_is_on_no_record(source: Source) -> None:
    line = f"{note('leak')}; printf 'token %s\\n' ghp_0123456789abcdefghij''ABCDEFGHIJ012345; exit 3"
    assert source.run(Step(name="leak", line=line)) == 1
    assert source.effects() == ["leak"]
    assert records_with(source, TOKEN) == []


def records_with(source: Source, text: str) -> list[str]:
    """Files of acode that hold it, but for the private ones that a session uses again and removes at its end."""
    found = []
    for directory in (source.workspace / ".agent", source.place / "state"):
        for path in directory.rglob("*"):
            if path.is_file() and "blobs" not in path.parts and text.encode() in path.read_bytes():
                found.append(os.fspath(path.relative_to(source.place)))
    return found


# A failure.


@every_source("failure ends")
def test_a_failed_step_is_repeated_when_a_person_resumes(source: Source) -> None:
    once = source.place / "once"
    line = f'{note("try")}; if [ ! -e "{once}" ]; then touch "{once}"; exit 3; fi'
    assert source.run(Step(name="try", line=line), Step(name="after", line=note("after"))) == 1
    assert source.resume() == 0
    assert source.effects() == ["try", "try", "after"]
    assert len(source.events(ev.StepSettled)) >= 1, "the failure was settled as not applied"


# Tampering.


@every_source()
def test_a_changed_row_is_detected_before_it_is_used(source: Source) -> None:
    steps = Step(name="one", line=note("one")), Step(name="two", line=f"{note('two')}; {KILL_ALL}")
    assert source.run(*steps) == KILLED
    attack = Attack(source.workspace)
    attack.edit(attack.seq_of("step_started"), '"step":"', '"attempt":2,"step":"')
    assert source.resume() == 20
    assert source.effects() == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    first_of(("step_started", '"step":"', '"attempt":2,"step":"'), ("session_created", '"task":"', '"task":"x')),
    ids=["later", "first"],
)
@every_source()
def test_a_damaged_session_is_not_begun_a_second_time(source: Source, kind: str, old: str, new: str) -> None:
    """What cannot be trusted may have done the work: beginning anew beside it is a decision of a person."""
    steps = Step(name="one", line=note("one")), Step(name="two", line=f"{note('two')}; {KILL_ALL}")
    assert source.run(*steps) == KILLED
    attack = Attack(source.workspace)
    attack.edit(attack.seq_of(kind), old, new)
    assert source.begin_again() == 20
    assert source.effects() == ["one", "two"]

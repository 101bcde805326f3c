"""Each guarantee of a step, stated once and run against every source of steps.

A new source of steps is done when this suite passes for it. The table at the end of the run shows guarantee × source.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from acode.events import types as ev
from acode.store.journal import Journal
from tests.conformance.every_source import every_source
from tests.conformance.sources import Source
from tests.conformance.steps import KILL_ACODE, KILL_ALL, Step, note
from tests.driver import WAIT_S_MAX
from tests.tampering import Attack

KILLED = -signal.SIGKILL
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
    status = source.run(Step(name="pay", line=f"{note('pay')}; {KILL_ALL}"))
    assert status == KILLED
    assert source.effects() == ["pay"]
    assert len(source.starts()) == 1, "what has acted was begun on record"
    assert source.in_flight


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
    steps = Step(name="one", line=note("one")), Step(name="two", line=note("two"))
    source.in_every_life(lambda: break_lock_after_start(source, number=2))
    assert source.run(*steps) not in (0, 70, KILLED)
    assert source.effects() == ["one"]


def break_lock_after_start(source: Source, *, number: int) -> None:
    """Planted in the processes of the session: its lock is broken right after one has recorded the start of a step."""
    append = Journal.append
    seen = source.place / "starts-seen"  # a step may be begun by a process of its own

    def planted(self: Journal, *events: ev.Known, **how: object) -> object:
        appended = append(self, *events, **how)  # type: ignore[arg-type]
        begun = sum(isinstance(one, ev.StepStarted) and source.acts(one) for one in events)
        with open(seen, "a", encoding="utf-8") as file:
            file.write("." * begun)
        if begun and seen.stat().st_size == number:
            source.forget_wrappers()
            assert source.command("session", "unlock", self.session.session_id, "--force") == 0
        return appended

    Journal.append = planted  # type: ignore[method-assign, assignment]  # in this process alone


@every_source()
def test_a_step_that_removes_the_log_ends_the_session_as_lost(source: Source) -> None:
    steps = Step(name="clean", line=f"{note('clean')}; rm -rf .agent"), Step(name="pay", line=note("pay"))
    assert source.run(*steps) == 20
    assert source.effects() == ["clean"], "nothing more is done that nobody could find on record"
    assert "is gone" in source.said
    assert source.resume() == 20, "what is lost is not begun anew"
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
    assert len(source.effects()) == 4


@every_source("failure ends")
def test_a_step_out_of_time_is_not_taken_for_done(source: Source) -> None:
    step = Step(name="slow", line=f"{note('begun')}; exec sleep 30", timeout_s=0.3)
    status = source.run(step)
    assert source.effects() == ["begun"]
    assert status in (1, 19)
    assert [one.step for one in source.events(ev.StepCompleted)] == []


# Secrets.


@every_source()
def test_a_secret_that_a_step_prints_is_on_no_record(source: Source) -> None:
    step = Step(name="leak", line=f"{note('leak')}; printf 'token %s\\n' ghp_0123456789abcdefghij''ABCDEFGHIJ012345")
    source.run(step)
    assert source.effects() == ["leak"]
    assert TOKEN not in source.said
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
    attack.edit(attack.seq_of("step_started"), '"attempt":1', '"attempt":2')
    assert source.resume() == 20
    assert source.effects() == ["one", "two"]


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [("step_started", '"attempt":1', '"attempt":2'), ("session_created", '"task":"', '"task":"x')],
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

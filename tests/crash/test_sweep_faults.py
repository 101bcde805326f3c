"""Every file system call fails, once and for ever: a named error, nothing acknowledged lost, a clean end later."""

from __future__ import annotations

import itertools
import os
import resource
from datetime import timedelta
from errno import EIO
from functools import partial

import pytest

from tests.crash.conftest import Prepare, Tell
from tests.crash.fault_sweeps import badly_ended, clock_sweep, fault_sweep, faults_of, lost_sync_sweep, spread
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Search
from tests.crash.harness.ptracer import trace
from tests.crash.sweeps import Judge, Tally
from tests.crash.table import ALONE, CASES, STILL

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]

FAULTS_MIN = 25
GIT_FAULTS = 300


def test_a_call_that_fails_ends_in_a_named_error_and_a_later_start_ends_as_undisturbed(
    prepare: Prepare, tell: Tell
) -> None:
    total = Tally()
    for name in [name for name in STILL if name in ALONE][1::2]:  # power cuts are tried with the others in the gate
        ready = prepare(CASES[name])
        faults = faults_of(ready)
        total.add(fault_sweep(ready, spread(faults, 1 if CASES[name].sparse else 2)))
    tell("failing calls", total)
    assert total.violations == []
    assert total.faults >= FAULTS_MIN


def test_a_call_that_fails_beside_commands_of_ones_own_repeats_none_of_them(prepare: Prepare, tell: Tell) -> None:
    """What cannot be read of a command is not taken for one that never began."""
    total = Tally()
    beside = [name for name in ALONE if CASES[name].lively and not CASES[name].sparse]
    for number, name in enumerate(beside[::2]):
        ready = prepare(CASES[name])
        total.add(fault_sweep(ready, spread(faults_of(ready), 1, seed=number)))
    tell("failing calls beside commands", total)
    assert total.violations == []
    assert total.calls["not met"] <= 1 and total.faults >= 6


def test_a_keeper_whose_calls_fail_leaves_nothing_that_would_be_repeated(prepare: Prepare, tell: Tell) -> None:
    ready = prepare(CASES["run commands"])
    total = fault_sweep(ready, spread(faults_of(ready, helpers=True), 3))
    tell("failing calls of a keeper", total)
    assert total.violations == []
    assert total.faults == 3


@pytest.mark.release
def test_a_model_is_not_told_of_a_command_that_the_machine_could_not_start(prepare: Prepare, tell: Tell) -> None:
    """Its beginning cannot be noted: that ends the run by name, and the next one begins the command."""
    ready = prepare(CASES["agent works"])
    naming = [one for one in faults_of(ready, helpers=True) if (one.call, one.error) == ("rename", EIO)]
    total = fault_sweep(ready, naming[:1])
    tell("a command whose beginning cannot be noted", total)
    assert total.violations == []
    assert total.faults == 1


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].waits])  # what it waits for would fail too
def test_every_call_that_fails_with_every_error(prepare: Prepare, tell: Tell, name: str) -> None:
    ready = prepare(CASES[name])
    faults = faults_of(ready)
    total = fault_sweep(ready, faults)
    tell(f"every call with every error, {name}, {len(faults)} pairs", total)
    assert total.violations == []
    assert total.calls["not met"] == 0, "every pair was met"


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["run commands", "rollback with undo", "agent works", "run commits"])
def test_every_call_that_fails_in_a_process_that_works_for_it(prepare: Prepare, tell: Tell, name: str) -> None:
    """The keeper's; of git, which is not acode's, a spread."""
    ready = prepare(CASES[name])
    faults = faults_of(ready, helpers=True)
    total = fault_sweep(ready, spread(faults, GIT_FAULTS) if name == "run commits" else faults)
    tell(f"calls of helpers, {name}, {len(faults)} pairs", total)
    assert total.violations == []
    assert total.calls["not met"] == 0, "every pair was met"


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", STILL)
def test_every_failed_fsync_and_every_power_cut_behind_it(prepare: Prepare, tell: Tell, name: str) -> None:
    search = Search(exhaustive_pieces_max=2, random_choices=1, name_choices_max=4, every_state=3)
    total = lost_sync_sweep(prepare(CASES[name]), search)
    tell(f"every failed fsync, then a power cut, {name}", total)
    assert total.violations == []


@pytest.mark.parametrize(
    "name",
    [
        "approve",
        *(pytest.param(name, marks=pytest.mark.release) for name in ("run files", "run databases", "rollback")),
    ],
)
def test_with_too_few_file_descriptors_it_says_so_and_later_ends_as_undisturbed(prepare: Prepare, name: str) -> None:
    ready = prepare(CASES[name])
    tally, refused, done = Tally(), 0, False

    def with_few(free: int) -> object:
        opened = {int(number) for number in os.listdir("/proc/self/fd")}
        limit = next(itertools.islice((number for number in itertools.count() if number not in opened), free, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        return ready.act()

    for free in range(1, 40):
        ready.fresh()
        ended = trace(partial(with_few, free), wanted=lambda stop: False)
        said = ready.place.words_heard().decode() + ready.place.words_said()
        tally.violations += badly_ended(ended, said)
        Judge(ready, tally).here(ready.place.words_heard(), f"{free} free descriptors")
        refused += ended.exit_code not in ready.case.ends_with
        done = ended.exit_code in ready.case.ends_with
        if done:
            break
    assert tally.violations == []
    assert refused and done, "too few at first, and enough in the end"


@pytest.mark.parametrize(
    "jump",
    [timedelta(hours=-2), *(pytest.param(timedelta(days=days), marks=pytest.mark.release) for days in (-400, 400))],
)
def test_a_clock_that_jumps_between_and_during_runs_changes_no_end(prepare: Prepare, jump: timedelta) -> None:
    tally = clock_sweep(prepare(CASES["run files"]), jump)
    assert tally.violations == []
    assert tally.kills >= 6

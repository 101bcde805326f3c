"""Commands that reach a server or a model: killed at what they send and receive.

The release sweep of `test_sweep_kills.py` kills them at every call.
The other side lives on: it may have done what it was asked, or never have heard of it. Carried on, both sides agree.
"""

from __future__ import annotations

import pytest

from tests.crash.conftest import Prepare, Tell
from tests.crash.fault_sweeps import fault_sweep, faults_of, spread
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Search
from tests.crash.sweeps import Tally, kill_sweep, power_sweep, snapshot_sweep
from tests.crash.table import AGENT, CASES, FLEET_QUICK, SHARED

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]

TALK = ("sendto", "recvfrom")
KILLS_MIN = 6


@pytest.mark.req("FR-011c-053")
def test_killed_while_a_server_is_spoken_to_both_sides_end_as_undisturbed(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for number, case in enumerate(SHARED):
        total.add(kill_sweep(prepare(case), every=150, first=number, only=TALK))
    tell("real kills at what is said to PostgreSQL", total)
    assert total.violations == []
    assert total.kills >= KILLS_MIN
    assert {f"{call}/{phase}" for call in TALK for phase in ("entry", "exit")} <= total.calls.keys()


@pytest.mark.release
def test_killed_at_work_in_a_fleet_every_command_ends_as_an_undisturbed_one(prepare: Prepare, tell: Tell) -> None:
    """One kill each, at another part of the run; the release sweep takes every call of every command."""
    total = Tally()
    for number, name in enumerate(FLEET_QUICK, 1):
        total.add(kill_sweep(prepare(CASES[name]), most=1, first=number * 1000 // 7, only=TALK))
    tell("real kills in a fleet", total)
    assert total.violations == []
    assert total.kills >= len(FLEET_QUICK) - 1, "one that waits may have fewer stops the second time"


def test_a_session_that_comes_down_is_whole_after_a_kill_a_power_cut_or_a_sick_disk(
    prepare: Prepare, tell: Tell
) -> None:
    ready = prepare(CASES["pull"])
    total = snapshot_sweep(ready, every=12)
    search = Search(
        exhaustive_pieces_max=2, random_choices=1, name_choices_max=4, sector_bytes=4096, every_op=30, every_state=3
    )
    total.add(power_sweep(ready, search))
    total.add(fault_sweep(ready, spread(faults_of(ready), 6)))
    tell("pull: snapshots, power cuts and failing calls", total)
    assert total.violations == []
    assert total.states and total.faults


def test_an_agent_killed_anywhere_asks_and_does_everything_once(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for case in AGENT:
        ready = prepare(case)
        total.add(snapshot_sweep(ready, every=240))
        total.add(kill_sweep(ready, every=160, first=5, only=TALK))
    tell("an agent: snapshots and real kills", total)
    assert total.violations == []
    assert total.kills >= 2

"""Every command killed at its system calls, in snapshots and for real, and again while it recovers.

The gate stops every second command at all of its calls and looks at a spread of the states that it finds; it kills the
others for real. The release sweep takes all states, kills at all calls for real, and all pairs of a first and a second
kill.
Commands that reach a server or a model have a gate of their own, `test_sweep_servers.py`; the release sweep here is
theirs too.
"""

from __future__ import annotations

import pytest

from tests.crash.conftest import Prepare, Tell
from tests.crash.harness import needs_ptrace
from tests.crash.sweeps import Tally, double_kill_sweep, double_sweep, kill_sweep, snapshot_sweep
from tests.crash.table import ALONE, CASES, COPIED, MANY_AT_ONCE, QUICK

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]

ALL = pytest.mark.parametrize("name", CASES)
# In the gate these are killed for real only: each of their stops takes long beside processes or threads of their own.
TOO_LONG = {name for name, case in CASES.items() if case.sparse and case.lively} | set(MANY_AT_ONCE)
SNAPSHOTS = [name for name in ALONE if name in COPIED and name not in TOO_LONG][::2]
SNAPSHOT_BOUNDARIES_MIN = 5_000
REAL_KILLS_MIN = 30
PARTS, RECOVERY_PARTS = 4, 10  # of a release sweep, so that what is reached is told on the way
DOUBLE_BOUNDARIES_MIN = 1_500


@pytest.mark.req("NFR-011c-005", "NFR-011c-008", "BP-011c-16", "FR-040b-33", "NFR-040b-11")
def test_killed_at_any_system_call_every_command_ends_as_an_undisturbed_one(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for number, name in enumerate(SNAPSHOTS):
        case = CASES[name]
        every = 60 if case.sparse else 36 if case.followed else 18 if case.lively else 6
        total.add(snapshot_sweep(prepare(case), every=every, first=number % every))
    tell("snapshots at every system call of every command", total)
    assert total.violations == []
    assert total.boundaries >= SNAPSHOT_BOUNDARIES_MIN


@pytest.mark.req("NFR-011c-009", "NFR-040b-12", "NFR-040b-13", "SCN-040b-02", "INV-011c-06")
def test_killed_for_real_every_command_ends_as_an_undisturbed_one(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for number, name in enumerate(name for name in ALONE if name not in SNAPSHOTS):
        case = CASES[name]
        total.add(kill_sweep(prepare(case), most=1, first=number * 37))
    tell("real kills", total)
    assert total.violations == []
    assert total.kills >= REAL_KILLS_MIN


@pytest.mark.req("NFR-011c-006", "NFR-011c-007", "FR-011c-061", "SCN-011c-10", "NFR-011c-010")
def test_killed_again_while_recovering_it_still_ends_as_an_undisturbed_run(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for name in QUICK[::3]:
        total.add(double_sweep(prepare(CASES[name]), every=300, judge_every=8, first=11))
    for name in ("run files", "approve", "rollback"):
        total.add(double_kill_sweep(prepare(CASES[name]), every=220, second_every=130))
    tell("killed again while recovering", total)
    assert total.violations == []
    assert total.boundaries >= DOUBLE_BOUNDARIES_MIN and total.kills > 10


@pytest.mark.release
@pytest.mark.timeout(0)
@ALL
@pytest.mark.parametrize("part", range(PARTS))
def test_killed_for_real_at_every_system_call(prepare: Prepare, tell: Tell, name: str, part: int) -> None:
    total = kill_sweep(prepare(CASES[name]), every=PARTS, first=part)
    tell(f"every kill, {name}, part {part + 1} of {PARTS}", total)
    assert total.violations == [] and total.kills


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].lively and CASES[name].beside is None])
def test_killed_for_real_with_everything_it_started(prepare: Prepare, tell: Tell, name: str) -> None:
    total = kill_sweep(prepare(CASES[name]), keeper_too=True)
    tell(f"every kill of all processes, {name}", total)
    assert total.violations == [] and total.kills


@pytest.mark.release
@pytest.mark.timeout(0)
def test_killed_with_its_commands_at_any_system_call_of_theirs(prepare: Prepare, tell: Tell) -> None:
    total = snapshot_sweep(prepare(CASES["run commands"]), everything=True)
    tell("snapshots at every system call of everything, run commands", total)
    assert total.violations == [] and total.boundaries


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", COPIED)
def test_every_state_that_a_kill_leaves_ends_as_an_undisturbed_run(prepare: Prepare, tell: Tell, name: str) -> None:
    total = snapshot_sweep(prepare(CASES[name]))
    tell(f"snapshots at every system call, {name}", total)
    assert total.violations == [] and total.boundaries


@pytest.mark.release
@pytest.mark.timeout(0)
@ALL
def test_killed_for_real_and_killed_for_real_while_recovering(prepare: Prepare, tell: Tell, name: str) -> None:
    total = double_kill_sweep(prepare(CASES[name]), every=11, second_every=13)
    tell(f"two real kills, {name}", total)
    assert total.violations == []


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", COPIED)
@pytest.mark.parametrize("part", range(RECOVERY_PARTS))
def test_killed_at_every_system_call_of_every_recovery(prepare: Prepare, tell: Tell, name: str, part: int) -> None:
    total = double_sweep(prepare(CASES[name]), every=RECOVERY_PARTS, first=part)
    tell(f"every kill of every recovery, {name}, part {part + 1} of {RECOVERY_PARTS}", total)
    assert total.violations == []

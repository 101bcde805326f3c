"""The sweeps have teeth: each planted bug is reported by the sweep that is named for it, and by none without it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from errno import EIO
from pathlib import Path

import pytest

from acode.engine import make_world
from acode.engine.session_list import rows
from tests.conformance.planted import CATALOGUE as IN_THE_LIFECYCLE
from tests.crash.case import Prepared
from tests.crash.conftest import Prepare, Tell
from tests.crash.fault_sweeps import clock_sweep, fault_sweep, faults_of, lost_sync_sweep, spread
from tests.crash.harness import needs_ptrace
from tests.crash.harness.faults import SHORT
from tests.crash.harness.power import Metadata, Search
from tests.crash.harness.ptracer import trace
from tests.crash.oracle import LOG
from tests.crash.planted import CATALOGUE, Planted
from tests.crash.planted_by_test import CATALOGUE as BY_TEST
from tests.crash.planted_by_test import FoundByTest
from tests.crash.planted_deep import CATALOGUE as DEEP_HERE
from tests.crash.planted_deep import OWN_CASES
from tests.crash.planted_shared import CATALOGUE as SHARED
from tests.crash.planted_together import CATALOGUE as TOGETHER
from tests.crash.sweeps import Judge, Tally, kill_sweep, power_sweep, recorded, snapshot_sweep
from tests.crash.table import CASES
from tests.crash.tamper_sweeps import tamper_sweep

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

BUGS_MIN, ALL_BUGS_MIN = 15, 87
BUGS_OF_ALL_KINDS_MIN = 125  # with those of tests/conformance
# Caught as surely and more slowly than the others: these are for the release sweep.
SLOW = ("run commits", "resume hung", "resume probed", "resolve applied", "resolve not-applied")
SLOW_BUGS = (
    "tried again in place",
    "log not full",
    "anchored first",
    "journal mode not read back",
    "room made over the last frame",
    "failed sync swallowed",
    "temp file left",
    "short write taken for whole",
    # The first four have a counterpart among the bugs of the lifecycle, in tests/conformance.
    "told before synced",
    "completion before effect",
    "start not durable",
    "effect before start",
    "unreadable note taken for absent",
)
ALL_CASES = {**CASES, **OWN_CASES}
DEEP = (*DEEP_HERE, *SHARED)
TALK = ("sendto", "recvfrom", "pwrite64")
Note = Callable[[str, object], None]
TAMPERED, COOLING_DOWN = 20, 75


FEW = Search(exhaustive_pieces_max=1, random_choices=0, sector_bytes=4096)


def power(metadata: Metadata) -> Callable[[Prepared], Tally]:
    search = replace(FEW, metadata=metadata, name_choices_max=8)
    long = replace(search, every_state=11)
    return lambda ready: power_sweep(ready, long if ready.case.name.startswith("run") else search, limit=1)


def short_writes(ready: Prepared) -> Tally:
    return fault_sweep(ready, [one for one in faults_of(ready) if one.error == SHORT and one.call == "write"], limit=1)


def failing_looks(ready: Prepared) -> Tally:
    """From the last to the first: what is known of a step is looked at late."""
    looks = [one for one in faults_of(ready) if (one.call, one.error, one.forever) == ("newfstatat", EIO, False)]
    return fault_sweep(ready, looks[::-1], limit=1)


def failing_writes(ready: Prepared) -> Tally:
    once = [one for one in faults_of(ready) if (one.error, one.forever) == (EIO, False)]
    return fault_sweep(ready, [one for one in once if one.call in ("pwrite64", "fdatasync")], limit=1)


def holding(is_it: Callable[[str], bool]) -> Callable[[Prepared], Tally]:
    """Of the states that a kill of everything leaves, those in which such a file lies."""
    return lambda ready: snapshot_sweep(
        ready, everything=True, limit=1, only=lambda state: any(map(is_it, state.disk.entries))
    )


def half_an_output(ready: Prepared) -> Tally:
    """Of the states that a kill of everything leaves, those in which a command was in the middle of its output."""
    return snapshot_sweep(
        ready, everything=True, limit=1, only=lambda state: state.disk.bytes_of("workspace/out.txt") == b"half\n"
    )


def behind_a_completion(ready: Prepared) -> Tally:
    """The states in which the last that was heard is that a step is done."""
    last = b'{"event":"step_completed"'
    return snapshot_sweep(ready, limit=1, only=lambda state: state.heard.rstrip().rpartition(b"\n")[2].startswith(last))


def killed_beside_its_command(ready: Prepared) -> Tally:
    """acode is killed alone as soon as its command has begun: that one lives on, and has its effect later."""
    tally = Tally(limit=1)
    ready.fresh()
    running = os.fork()
    if running == 0:
        os._exit(ready.place.traced(*ready.words))
    while not list((ready.place.workspace / ".agent").glob("run/*/started")):
        time.sleep(0.005)
    os.kill(running, signal.SIGKILL)
    os.waitpid(running, 0)
    tally.kills += 1
    Judge(ready, tally).here(ready.place.words_heard(), "killed beside its command")
    return tally


def older_database(ready: Prepared) -> Tally:
    """The command has ended, and the database is put back to what it was before, as from a backup."""
    tally = Tally(limit=1, states=1)
    ready.fresh()
    ready.act_here()
    for stale in (ready.place.root / "workspace/.agent").glob("workspace.db*"):
        stale.unlink()
    for path, entry in ready.ground.entries.items():
        if path.startswith(LOG):
            (ready.place.root / path).write_bytes(entry.content)
    found = [row.error for row in rows(ready.place.world())]
    ended = ready.place.acode("resume", ready.place.names["id"], "--json", "--no-input")
    if ended.exit_code != TAMPERED:
        tally.violations.append(f"{ready.case}: an older database was taken for the newest: {ended.exit_code} {found}")
    return tally


def power_while_it_waits(ready: Prepared) -> Tally:
    """Behind the word that the last command has begun, which is said when a flush has made that safe."""
    recording = recorded(ready)
    said = [at for at, op in enumerate(recording.ops) if op.kind == "heard" and b'"step_started"' in op.data]
    return power_sweep(ready, replace(FEW, window=range(said[-1], said[-1] + 1)), recording=recording, limit=1)


def cool_down(ready: Prepared) -> Tally:
    """A crash of a while ago: who comes too early is refused, and does not make the others wait any longer."""
    tally = Tally(limit=1)
    ready.fresh()
    words = ("resume", ready.place.names["id"], "--auto", "--json", "--no-input")
    answers = [ready.place.acode(*words).exit_code]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_world, "now", lambda: datetime.now(UTC) + timedelta(seconds=30))
        ended = ready.place.acode(*words)
    answers.append(ended.exit_code)
    tally.states = len(answers)
    if answers != [COOLING_DOWN, 0]:
        tally.violations.append(
            f"{ready.case}: a refused attempt has moved the crash: {answers}, {ended.stdout[-900:]}"
        )
    return tally


def named(planted: Planted) -> str:
    return f"{planted.bug}, {planted.case}"


def assert_caught(ready: Prepared, planted: Planted, note: Note) -> None:
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        tally = SWEEPS[planted.sweep](ready)
    assert tally.violations, f"{planted.bug} went unnoticed by {planted.sweep}: {tally}"
    note("sweep", f"planted: {planted.bug}; caught by {planted.sweep}: {tally.violations[0][:120]!r}")


def settle_down(ready: Prepared) -> None:
    """What goes on beside an undisturbed command comes to its own end."""
    if ready.case.afterwards is not None:
        ready.case.afterwards(ready.place)


SWEEPS: dict[str, Callable[[Prepared], Tally]] = {
    "snapshots": lambda ready: snapshot_sweep(ready, every=3 if ready.case.followed else 1, limit=1),
    "real kills": lambda ready: kill_sweep(ready, every=23, limit=1),
    "power, ordered names": power("ordered"),
    "power, strict names": power("strict"),
    "failed fsyncs and power": lambda ready: lost_sync_sweep(
        ready, replace(FEW, name_choices_max=2, every_op=3, every_state=27), limit=1
    ),
    "short writes": short_writes,
    "a clock that jumps": lambda ready: clock_sweep(ready, timedelta(hours=-2), kills=2, limit=1),
    "tampering": lambda ready: tamper_sweep(ready, every=5, limit=1),
    "failing looks": failing_looks,
    "kills at what is written": lambda ready: kill_sweep(ready, every=3, only=("pwrite64", "fdatasync"), limit=1),
    "kills at what is said": lambda ready: kill_sweep(ready, every=2, only=TALK, limit=1),
    "kills at the ledger": lambda ready: kill_sweep(ready, every=5, only=("write", "fsync"), limit=1),
    "behind a completion": behind_a_completion,
    "half an output": half_an_output,
    "killed beside its command": killed_beside_its_command,
    "locks of git's": holding(lambda path: path.startswith("workspace/.git/") and path.endswith(".lock")),
    "an index in the making": holding(lambda path: "/.git/index.acode" in path),
    "an older database": older_database,
    "failing writes": failing_writes,
    "power while it waits": power_while_it_waits,
    "a cool-down": cool_down,
    "failing calls": lambda ready: fault_sweep(ready, spread(faults_of(ready), 25), limit=1),
}


def is_slow(planted: Planted) -> bool:
    return planted.case in SLOW or planted.bug in SLOW_BUGS


@pytest.mark.parametrize(
    "planted",
    [pytest.param(one, marks=pytest.mark.release) if is_slow(one) else one for one in CATALOGUE],
    ids=named,
)
def test_a_planted_bug_is_caught(prepare: Prepare, planted: Planted, record_property: Note) -> None:
    assert_caught(prepare(CASES[planted.case]), planted, record_property)


@pytest.mark.parametrize("planted", BY_TEST, ids=str)
def test_a_bug_that_no_kill_meets_is_caught_by_the_test_that_is_named_for_it(
    tmp_path: Path, planted: FoundByTest, record_property: Note
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        with pytest.raises(AssertionError) as caught:
            planted.test(tmp_path, patch)
    record_property("sweep", f"planted: {planted.bug}; caught by {planted.test.__name__}: {str(caught.value)[:120]!r}")


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("planted", TOGETHER, ids=named)
def test_a_bug_of_steps_at_once_or_of_agents_is_caught(
    prepare: Prepare, planted: Planted, record_property: Note
) -> None:
    assert_caught(prepare(CASES[planted.case]), planted, record_property)


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("planted", DEEP, ids=named)
def test_a_deep_bug_is_caught(prepare: Prepare, planted: Planted, record_property: Note) -> None:
    ready = prepare(ALL_CASES[planted.case])
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        ready.fresh()
        ended = trace(ready.act, alone=ready.case.alone)
        settle_down(ready)
    assert ended.exit_code in ready.case.ends_with, f"it already fails when nothing is done to it: {ended.error}"
    assert_caught(ready, planted, record_property)


def test_the_catalogue_is_large_enough() -> None:
    bugs = [planted.bug for planted in (*CATALOGUE, *DEEP, *TOGETHER, *BY_TEST)]
    assert len({planted.bug for planted in CATALOGUE if not is_slow(planted)}) >= BUGS_MIN
    assert len(set(bugs)) >= ALL_BUGS_MIN
    assert len(set(bugs)) + len({planted.bug for planted in IN_THE_LIFECYCLE}) >= BUGS_OF_ALL_KINDS_MIN
    assert not {planted.bug for planted in CATALOGUE} & {planted.bug for planted in DEEP}


# Done to every command without a bug by sweeps of their own, the first of them whole and the others more densely.
OWN_SWEEPS = ("snapshots", "power, ordered names", "real kills", "failing looks", "failing calls", "a clock that jumps")
WITHOUT = sorted({(one.sweep, one.case) for one in CATALOGUE if one.sweep not in OWN_SWEEPS})
QUICKLY = {(one.sweep, one.case) for one in CATALOGUE if not is_slow(one)} - {("power, strict names", "rollback")}


DEEP_WITHOUT = sorted({(planted.sweep, planted.case) for planted in DEEP} - set(WITHOUT))


@pytest.mark.parametrize(
    ("sweep", "case"),
    [pair if pair in QUICKLY else pytest.param(*pair, marks=pytest.mark.release) for pair in WITHOUT],
    ids=str,
)
def test_without_a_bug_the_same_sweep_reports_nothing(prepare: Prepare, tell: Tell, sweep: str, case: str) -> None:
    tally = SWEEPS[sweep](prepare(CASES[case]))
    tell(f"no bug planted: {sweep}, {case}", tally)
    assert tally.violations == []


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("sweep", "case"), DEEP_WITHOUT, ids=str)
def test_without_a_deep_bug_the_same_sweep_reports_nothing(prepare: Prepare, tell: Tell, sweep: str, case: str) -> None:
    tally = SWEEPS[sweep](prepare(ALL_CASES[case]))
    tell(f"no bug planted: {sweep}, {case}", tally)
    assert tally.violations == []

"""The sweeps have teeth: each planted bug is reported by the sweep that is named for it, and by none without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from errno import EIO

import pytest

from tests.crash.case import Prepared
from tests.crash.conftest import Prepare, Tell
from tests.crash.fault_sweeps import clock_sweep, fault_sweep, faults_of, lost_sync_sweep, spread
from tests.crash.harness import needs_ptrace
from tests.crash.harness.faults import SHORT
from tests.crash.harness.power import Metadata, Search
from tests.crash.planted import CATALOGUE, Planted
from tests.crash.sweeps import Tally, kill_sweep, power_sweep, snapshot_sweep
from tests.crash.table import CASES
from tests.crash.tamper_sweeps import tamper_sweep

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

BUGS_MIN = 20


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
    "failing calls": lambda ready: fault_sweep(ready, spread(faults_of(ready), 25), limit=1),
}


@pytest.mark.parametrize("planted", CATALOGUE, ids=lambda planted: f"{planted.bug}, {planted.case}")
def test_a_planted_bug_is_caught(
    prepare: Prepare, planted: Planted, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    ready = prepare(CASES[planted.case])
    with monkeypatch.context() as patch:
        planted.plant(patch)
        tally = SWEEPS[planted.sweep](ready)
    assert tally.violations, f"{planted.bug} went unnoticed by {planted.sweep}: {tally}"
    record_property("sweep", f"planted: {planted.bug}; caught by {planted.sweep}: {tally.violations[0][:120]!r}")


def test_the_catalogue_is_large_enough() -> None:
    assert len({planted.bug for planted in CATALOGUE}) >= BUGS_MIN


# Done to every command without a bug by sweeps of their own, the first of them whole and the others more densely.
OWN_SWEEPS = ("snapshots", "power, ordered names", "real kills", "failing looks", "failing calls", "a clock that jumps")
WITHOUT = sorted({(planted.sweep, planted.case) for planted in CATALOGUE if planted.sweep not in OWN_SWEEPS})


@pytest.mark.parametrize(("sweep", "case"), WITHOUT, ids=str)
def test_without_a_bug_the_same_sweep_reports_nothing(prepare: Prepare, tell: Tell, sweep: str, case: str) -> None:
    tally = SWEEPS[sweep](prepare(CASES[case]))
    tell(f"no bug planted: {sweep}, {case}", tally)
    assert tally.violations == []

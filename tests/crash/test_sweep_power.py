"""The power fails behind every operation on the disk: nothing acknowledged is lost, every change is explained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.crash.conftest import METADATA, Prepare, Tell
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Metadata, Search
from tests.crash.sweeps import Tally, power_sweep, recorded
from tests.crash.table import ALONE, CASES, POWERED, STILL, UNSYNCED

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]

GATE = Search(exhaustive_pieces_max=2, random_choices=1, name_choices_max=4, sector_bytes=4096)
STATES_MIN = 300
DENSER = {"strict": 1, "ordered": 6}  # names in journal order, which only the sweep tries, allow fewer states
LONG = ("run files", "run databases", "run to gate", "program", "program at length", "resume", "gc")
PARTS = 4


@pytest.mark.req("NFR-011c-005", "FR-040b-38", "FR-011c-017", "UC-011c-03")
def test_after_a_power_cut_nothing_acknowledged_is_lost_and_it_ends_the_same(prepare: Prepare, tell: Tell) -> None:
    total = Tally()
    for name in [name for name in STILL if name in ALONE][::2]:  # the calls of the others fail in the gate
        every_op = 99 if name.startswith(("run", "program")) or CASES[name].sparse else 27
        search = replace(GATE, every_op=every_op, every_state=8 if name in LONG or CASES[name].sparse else 1)
        total.add(power_sweep(prepare(CASES[name]), search))
    tell("power cuts", total)
    assert total.violations == []
    assert total.states >= STATES_MIN


@METADATA
def test_after_a_power_cut_a_command_has_its_effect_once(prepare: Prepare, tell: Tell, metadata: Metadata) -> None:
    """Its keeper and the command itself write to the disk that loses what they have not synced."""
    search = replace(GATE, metadata=metadata, every_op=41 // DENSER[metadata], every_state=23 // DENSER[metadata])
    total = power_sweep(prepare(POWERED), search)
    tell(f"power cuts around a command, {metadata} names", total)
    assert total.violations == []
    assert total.states > 50


@METADATA
def test_after_a_power_cut_a_finished_commands_outputs_are_there(
    prepare: Prepare, tell: Tell, metadata: Metadata
) -> None:
    """The command syncs nothing; that it has succeeded must not outlive what it made, changed or removed."""
    search = replace(GATE, metadata=metadata, every_op=19 // DENSER[metadata], every_state=23 // DENSER[metadata])
    total = power_sweep(prepare(UNSYNCED), search)
    tell(f"power cuts around a command that syncs nothing, {metadata} names", total)
    assert total.violations == []
    assert total.states > 50


def test_a_keeper_that_forgot_to_sync_the_outputs_would_be_caught(prepare: Prepare) -> None:
    ready = prepare(UNSYNCED)
    recording = recorded(ready)
    (sync,) = [index for index, op in enumerate(recording.ops) if op.kind == "sync_all"]
    search = replace(GATE, window=range(sync, len(recording.ops)))
    assert power_sweep(ready, search, recording=recording.without(sync), limit=1).violations


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("model", [("ordered", 4096), ("strict", 4096), ("ordered", 512), ("strict", 512)])
@pytest.mark.parametrize("name", [*STILL, POWERED.name, UNSYNCED.name])
def test_after_any_power_cut_nothing_acknowledged_is_lost(
    prepare: Prepare, tell: Tell, name: str, model: tuple[Metadata, int], part: int
) -> None:
    metadata, sector_bytes = model
    search = Search(
        metadata=metadata,
        sector_bytes=sector_bytes,
        exhaustive_pieces_max=4,
        random_choices=2,
        name_choices_max=16,
        garbage=sector_bytes == 512,
        every_op=PARTS,
        first_op=part,
    )
    powered = {case.name: case for case in (POWERED, UNSYNCED)}
    total = power_sweep(prepare(CASES.get(name) or powered[name]), search)
    tell(f"power cuts, {name}, {metadata} names, sectors of {sector_bytes}, part {part + 1} of {PARTS}", total)
    assert total.violations == []

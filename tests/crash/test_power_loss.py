"""The power fails behind every operation on the disk: nothing acknowledged is lost, every change is explained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Search, power_cuts
from tests.crash.harness.recording import Recording, record
from tests.crash.harness.snapshots import fast_directory
from tests.crash.test_kill_sweep import FILES, undisturbed
from tests.crash.workload import Workload, at_the_end, right_after, workspace_bytes

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

SMALL = Search(exhaustive_pieces_max=1, random_choices=1, name_choices_max=2, every_op=3)
TWO_WRITES = Workload(
    files={"old.txt": "before\n"},
    plan="""
title: Two writes
tasks:
  - title: write
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - write: {path: new/file.txt, content: "made\\n"}
""",
)


@pytest.fixture
def place() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory / "place"


def recorded(place: Path, workload: Workload = TWO_WRITES) -> Recording:
    workload.fresh(place)
    heard = place.parent / "heard"
    heard.unlink(missing_ok=True)
    return record(lambda: workload.run(place, heard), place, heard=heard)


def judge(place: Path, workload: Workload, search: Search, *, look_every: int, finish_every: int) -> int:
    """States are looked at as they are; of some, the session is carried on to its end."""
    expected = undisturbed(workload, place)
    recording = recorded(place, workload)
    again = place.parent / "again"
    states = 0
    for number, cut in enumerate(power_cuts(recording, search)):
        if number % look_every:
            continue
        cut.disk.put(again)
        states += 1
        assert right_after(again, workload.files, cut.heard) == [], (
            f"state {number}, cut after {cut.op.kind} {cut.op.path}"
        )
        if states % finish_every == 0:
            workload.finish(again)
            found = workspace_bytes(again)
            if found != {path: text.encode() for path, text in workload.files.items()} or cut.heard:
                assert at_the_end(again, workload, expected) == [], (
                    f"state {number}, cut after {cut.op.kind} {cut.op.path}"
                )
    return states


@pytest.mark.req("NFR-011c-005", "FR-040b-38", "FR-011c-017", "UC-011c-03")
def test_after_a_power_cut_nothing_acknowledged_is_lost_and_the_run_ends_as_undisturbed(place: Path) -> None:
    assert judge(place, TWO_WRITES, SMALL, look_every=12, finish_every=7) > 300


@pytest.mark.release
@pytest.mark.timeout(3600)
def test_after_any_power_cut_nothing_acknowledged_is_lost_and_the_run_ends_as_undisturbed(place: Path) -> None:
    for metadata in ("ordered", "strict"):
        search = Search(exhaustive_pieces_max=4, random_choices=4, name_choices_max=16, metadata=metadata)  # type: ignore[arg-type]
        assert judge(place, FILES, search, look_every=1, finish_every=5) > 10_000


def test_a_sync_of_the_log_that_is_left_out_is_caught(place: Path) -> None:
    """Teeth: without the syncs of the write-ahead log something that was acknowledged is lost in some state."""
    recording = recorded(place)
    wals = [index for index in recording.syncs() if recording.ops[index].path.endswith("workspace.db-wal")]
    assert wals
    careless = recording
    for index in reversed(wals):
        careless = careless.without(index)
    again = place.parent / "again"
    for cut in power_cuts(careless, SMALL):
        cut.disk.put(again)
        if right_after(again, TWO_WRITES.files, cut.heard):
            return
    raise AssertionError("no state betrays that the log was never synced")

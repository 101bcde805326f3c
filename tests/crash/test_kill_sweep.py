"""Killed at every system call that changes anything, and again while recovering: the end is always the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import killed, stops_of
from tests.crash.harness.snapshots import fast_directory
from tests.crash.workload import Workload, at_the_end, ledger, right_after, workspace_bytes

pytestmark = [needs_ptrace, pytest.mark.timeout(600)]

FILES = Workload(
    files={"old.txt": "before\n", "kept.txt": "kept\n"},
    plan="""
title: Files
tasks:
  - title: write
    steps:
      - write: {path: old.txt, content: "after\\n"}
      - read: kept.txt
      - write: {path: new/deep/file.txt, content: "made\\n", mode: "0600"}
      - read: new/deep/file.txt
      - write: {path: old.txt, content: "after that\\n"}
""",
)

NOTE = 'echo "$ACODE_IDEMPOTENCY_KEY" >> "$LEDGER"'
COMMANDS = Workload(
    files={"in.txt": "1\n2\n3\n"},
    plan=f"""
title: Commands
tasks:
  - title: work
    steps:
      - run: {NOTE}
        id: undeclared
      - run: wc -l < in.txt > out.txt; {NOTE}
        id: outputs
        outputs: [out.txt]
      - run: {NOTE}
        id: probed
        probe: grep -q ":work.probed:" "$LEDGER"
      - read: out.txt
""",
    once=("work.undeclared", "work.outputs", "work.probed"),
)


@pytest.fixture
def place() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory / "place"


def undisturbed(workload: Workload, place: Path) -> dict[str, bytes]:
    workload.fresh(place)
    workload.run(place)
    assert at_the_end(place, workload, workspace_bytes(place)) == []
    return workspace_bytes(place)


def sweep(workload: Workload, place: Path, *, every: int = 1) -> int:
    """Kill acode at the wanted stops, one run each, and judge what is left right after and at the end."""
    expected = undisturbed(workload, place)
    workload.fresh(place)
    stops = len(stops_of(lambda: workload.run(place)))
    kills = 0
    for number in range(0, stops, every):
        workload.fresh(place)
        killed(lambda: workload.run(place), number)
        kills += 1
        assert right_after(place, workload.files) == [], f"right after kill {number} of {stops}"
        if not list((place / "workspace" / ".agent").glob("workspace.db")):
            continue  # killed before there was a session: nothing to resume, nothing done
        asked = workload.finish(place)
        assert asked == [], f"kill {number}: a person was asked about {asked}, though a keeper knew"
        if (place / "ledger").exists() or ledger(place) or workspace_bytes(place) != _as_found(workload):
            assert at_the_end(place, workload, expected) == [], f"after kill {number} of {stops}"
    return kills


def _as_found(workload: Workload) -> dict[str, bytes]:
    return {path: text.encode() for path, text in workload.files.items()}


@pytest.mark.req("NFR-011c-005", "NFR-011c-010", "BP-011c-16", "FR-040b-33", "INV-011c-06")
def test_killed_at_every_system_call_files_end_as_in_an_undisturbed_run(place: Path) -> None:
    assert sweep(FILES, place) > 100


@pytest.mark.req("NFR-011c-008", "NFR-011c-009", "NFR-040b-12", "NFR-040b-13", "SCN-040b-02")
def test_killed_at_system_calls_around_commands_every_effect_happens_exactly_once(place: Path) -> None:
    assert sweep(COMMANDS, place, every=9) > 20


@pytest.mark.release
def test_killed_at_every_system_call_around_commands_every_effect_happens_exactly_once(place: Path) -> None:
    assert sweep(COMMANDS, place) > 200


@pytest.mark.req("NFR-011c-006", "NFR-011c-007", "FR-011c-061", "SCN-011c-10")
def test_killed_again_while_recovering_it_still_ends_as_an_undisturbed_run(place: Path) -> None:
    expected = undisturbed(FILES, place)
    FILES.fresh(place)
    stops = len(stops_of(lambda: FILES.run(place)))
    for first in range(7, stops, 29):
        FILES.fresh(place)
        killed(lambda: FILES.run(place), first)
        recovery = len(stops_of(lambda: FILES.finish(place) and None))
        for second in range(3, recovery, 23):
            FILES.fresh(place)
            killed(lambda: FILES.run(place), first)
            killed(lambda: FILES.finish(place) and None, second)
            FILES.finish(place)
            if workspace_bytes(place) != _as_found(FILES):
                assert at_the_end(place, FILES, expected) == [], f"killed at {first}, then at {second} of the recovery"

"""What a worker's machine can lack: room on its disk, and the newest key."""

from __future__ import annotations

import os
import sys

import pytest

from acode.seal import SECRET_VARIABLE
from tests.fleets import Fleet
from tests.machines import Machine

# In a process with mounts of its own, so that none is left behind; as tests/disks.py, for a program.
ON_A_SMALL_DISK = """
import os, sys
from pathlib import Path
from acode.cli import main
from tests.disks import mounted
place = Path(os.environ["ACODE_TEST_DISK"])
place.mkdir()
sys.exit(main(sys.argv[1:]) if mounted(place) else 77)
"""


def gated(fleet: Fleet, word: str) -> str:
    return f"""
title: Gated
tasks:
  - title: Work
    steps:
      - run: "echo {word} >> {fleet.ledger}"
      - approve: Go on?
      - run: "echo behind {word} >> {fleet.ledger}"
"""


def test_a_session_for_which_a_worker_has_no_room_is_parked_and_continues_where_there_is(fleet: Fleet) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    writes = "\n".join(f"      - write: {{path: f{number}, content: {str(number) * 45_000}}}" for number in range(5))
    plan = f"""
title: Large
tasks:
  - title: Work
    steps:
      - run: "echo once >> {fleet.ledger}"
{writes}
      - run: "cat f* f* f* f* > all"
        outputs: [all]
"""
    session_id = fleet.submit(plan)
    small = fleet.host("small", ACODE_TEST_DISK=str(fleet.place / "disk"))
    worker = small.program(ON_A_SMALL_DISK, "worker", "--name", "small", "--root", fleet.place / "disk" / "root")
    row = fleet.wait(session_id, "parked")
    assert row["ended_with"] == 17 and "No space left" in row["reason"], row
    worker.kill_everything()
    assert fleet.laptop("fleet", "retry", session_id).exit_code == 0
    fleet.host("roomy").work()
    fleet.wait(session_id, "done")
    assert fleet.lines() == ["once"]


@pytest.mark.release
def test_a_rotated_key_is_taken_up_by_workers_that_have_it_and_by_no_others(fleet: Fleet) -> None:
    host, late = fleet.host("one"), fleet.host("late")
    for machine in (fleet.laptop, host, late):
        del machine.env[SECRET_VARIABLE]
    first = fleet.submit(gated(fleet, "first"))
    for machine in (host, late):
        bring_keys(fleet, machine)
    host.work()
    fleet.wait(first, "parked")
    assert fleet.laptop("key", "rotate", "--json").exit_code == 0
    bring_keys(fleet, host)
    assert fleet.laptop("session", "approve", first).exit_code == 0
    fleet.wait(first, "done")
    second = fleet.submit(gated(fleet, "second"), "--queue", "other")
    refused = late.work("--queue", "other").finish()
    assert refused.exit_code == 20 and "key" in refused.stderr
    assert fleet.row(second)["state"] == "queued" and fleet.lines() == ["first", "behind first"]


def bring_keys(fleet: Fleet, machine: Machine) -> None:
    exported = fleet.laptop("key", "export")
    assert exported.exit_code == 0, exported
    keys = fleet.place / "keys"
    keys.write_text(exported.stdout)
    assert machine("key", "import", keys).exit_code == 0

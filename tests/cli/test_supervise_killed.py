"""A supervisor that is killed alone and started again reports what its orphaned child did, and repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.plans import save, slow
from tests.driver import Acode
from tests.variants import first_of


def states(acode: Acode) -> list[str]:
    return [row["state"] for row in acode("session", "list", "--all", "--json").json]


@pytest.mark.parametrize("ended", first_of(True, False), ids=["orphan has ended", "orphan still runs"])
def test_a_supervisor_started_again_joins_the_session_of_its_orphaned_child(
    acode: Acode, workspace: Path, ended: bool
) -> None:
    plan = save(workspace, slow())
    first = acode.process("supervise", plan)
    first.wait_for_line("under way")
    first.kill()
    if not ended:
        again = acode.process("supervise", plan)
        again.wait_for_line("Supervising session")
    (workspace / "go.txt").write_text("go\n")
    while states(acode) != ["COMPLETED"]:
        pass
    code = acode("supervise", plan).exit_code if ended else again.finish().exit_code
    assert (code, states(acode)) == (0, ["COMPLETED"]), "reported once, and not repeated"
    assert acode("supervise", plan).exit_code == 0
    assert states(acode) == ["COMPLETED"] * 2, "an acknowledged end stops no new run"


def test_new_begins_a_session_whatever_no_supervisor_has_reported(acode: Acode, workspace: Path) -> None:
    plan = save(workspace, slow())
    first = acode.process("supervise", plan)
    first.wait_for_line("under way")
    first.kill()
    (workspace / "go.txt").write_text("go\n")
    while states(acode) != ["COMPLETED"]:
        pass
    assert acode("supervise", plan, "--new").exit_code == 0
    assert states(acode) == ["COMPLETED"] * 2

"""Taking a command back touches its declared outputs and nothing else, whatever its completion has recorded."""

from __future__ import annotations

from pathlib import Path

from acode.engine.create import run_plan
from acode.engine.rollback import roll_back
from tests.worlds import plan_file, world

PLAN = """
title: Known files
tasks:
  - title: work
    steps:
      - write: {path: known.txt, content: "changed\\n"}
      - run: touch known.txt; echo made > out.txt
        id: command
        outputs: [out.txt]
      - run: test -f go
"""


def test_a_known_file_that_a_command_only_touched_stays_when_the_command_is_taken_back(tmp_path: Path) -> None:
    the_world = world(tmp_path)
    (the_world.workspace / "known.txt").write_text("the user's\n")
    result = run_plan(the_world, plan_file(PLAN))
    assert result.exit_code == 1
    taken = roll_back(world(tmp_path), result.session_id, "work.1")
    assert taken.restored == ("out.txt",)
    assert (the_world.workspace / "known.txt").read_text() == "changed\n"
    assert not (the_world.workspace / "out.txt").exists()
    roll_back(world(tmp_path), result.session_id, None)
    assert (the_world.workspace / "known.txt").read_text() == "the user's\n"

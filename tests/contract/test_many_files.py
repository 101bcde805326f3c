"""A command that leaves thousands of files is a step like any other: no event grows over its limit."""

from __future__ import annotations

from pathlib import Path

from acode.engine import run_plan
from acode.engine.carry_on import resume
from acode.engine.take_back import roll_back
from acode.engine.world import Options
from tests.worlds import plan_file, world

FILES = 3_000
MAKE = f"mkdir -p made && cd made && seq -f %0200.0f {FILES} | while read n; do echo $n > $n; done"


def test_thousands_of_outputs_are_recorded_and_taken_back(tmp_path: Path) -> None:
    plan = plan_file(
        f"""
title: Many
tasks:
  - title: make
    steps:
      - run: '{MAKE}'
        id: files
        outputs: ["made/**"]
      - run: test -f go
        id: wait
"""
    )
    result = run_plan(world(tmp_path), plan)
    assert result.exit_code == 1
    the_world = world(tmp_path)
    (the_world.workspace / "go").touch()
    (the_world.workspace / "made" / f"{7:0200d}").write_text("mine\n")
    taken = roll_back(the_world, result.session_id, None)
    assert len(taken.restored) >= FILES - 1
    assert [path[-1] for path in taken.kept if path != "made"] == ["7"]
    assert resume(world(tmp_path), result.session_id, Options(changed_files="continue")).exit_code == 0
    assert len(list((the_world.workspace / "made").iterdir())) == FILES


def test_outputs_without_a_pre_image_are_never_taken_for_new(tmp_path: Path) -> None:
    """More files stood there than pre-images are kept of: taking the step back must not remove what was the user's."""
    made = tmp_path / "workspace" / "made"
    made.mkdir(parents=True)
    for number in range(1_500):
        (made / f"{number:04d}").write_text("the user's\n")
    plan = plan_file(
        """
title: Change many
tasks:
  - title: change
    steps:
      - run: for f in made/*; do echo more >> "$f"; done
        outputs: ["made/**"]
      - run: test -f go
"""
    )
    result = run_plan(world(tmp_path), plan)
    assert result.exit_code == 1
    roll_back(world(tmp_path), result.session_id, None)
    assert len(list(made.iterdir())) == 1_500

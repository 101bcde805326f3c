"""A command that leaves thousands of files is a step like any other: no event grows over its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from acode.engine.create import run_plan
from acode.engine.resume import resume
from acode.engine.rollback import roll_back
from acode.engine.world import Options
from acode.errors import NotWritable
from acode.events import types as ev
from acode.events.definition import Run, Step
from acode.plan import Outcome
from acode.steps import run as commands
from acode.workspace import Listing
from tests.lives import Life, end_all_in
from tests.sites import Bench
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


# More of them than are recorded.

MANY = 12
LOOP = f"mkdir -p out; for n in $(seq {MANY}); do echo x >> out/$n; done"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTPUT_FILES_MAX", 5)


@pytest.mark.usefixtures("few")
def test_a_rollback_takes_all_outputs_back_however_many_there_are(tmp_path: Path) -> None:
    life = Life(tmp_path)
    wait = "echo begun; while [ ! -e door ]; do sleep 0.01; done"
    plan = f"tasks: [{{title: t, steps: [{{run: '{LOOP}; {wait}', id: make, outputs: [out/**]}}]}}]"
    life.cut_off(plan, "step_output", "t.make")
    end_all_in(life.place)
    life.put("door", "")
    seen: list[bool] = []
    life.ears.at("step_started", lambda: seen.append(life.path("out").exists()), "t.make")
    assert life.resume().exit_code == 0
    assert seen == [False], "the second attempt finds nothing of the first"
    assert {path.read_text() for path in life.path("out").iterdir()} == {"x\n"}


@pytest.mark.usefixtures("few")
def test_outputs_that_are_too_many_to_be_recorded_are_counted_and_told_of(tmp_path: Path) -> None:
    life = Life(tmp_path)
    result = life.run(f"tasks: [{{title: t, steps: [{{run: '{LOOP}', outputs: [out/**]}}, {{approve: ok?}}]}}]")
    (completed,) = life.events(ev.StepCompleted)
    assert (len(completed.files), completed.unrecorded) == (5, MANY + 1 - 5), "the directory is one of them"
    told = [one.body.message for one in life.ears.events("warning")]
    assert [words for words in told if "8 of them are not compared" in words]
    roll_back(life.world(), result.session_id, None)
    assert len(list(life.path("out").iterdir())) == completed.unrecorded
    told = [one.body.message for one in life.ears.events("warning")]
    assert told[-1] == "8 outputs of step t.1 are not recorded and stay where they are"


def test_outputs_that_cannot_all_be_seen_are_not_called_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New files in a directory that cannot be read would stay, and be taken for what stood there before."""
    step = Step(id="main.one", action=Run(command="echo half > out; kill -9 $$", outputs=("out",)))
    (tmp_path / "workspace").mkdir()
    bench = Bench(tmp_path / "workspace", tmp_path / "state", step)
    started = bench.start(step)
    bench.execute(step, started)
    assert bench.look(step, started).outcome is Outcome.PARTIAL
    hidden = Listing(paths=("out",), complete=False, unreadable=("out/locked",))  # root reads any directory
    monkeypatch.setattr(commands, "matching_paths", lambda root, patterns: hidden)
    found = bench.look(step, started)
    assert found.outcome is Outcome.UNKNOWN and not found.repeatable and "out/locked cannot be read" in found.evidence
    with pytest.raises(NotWritable, match="out/locked cannot be read"):
        commands.roll_back(step, bench.site(), started)
    assert (bench.workspace / "out").exists()
    bench.close()

"""Outputs given as a pattern belong to their command in every attempt, also in one that was begun after a rollback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from acode.engine import rollback as engine_rollback
from acode.errors import ChangedFiles
from acode.events import types as ev
from acode.workspace import rollback
from tests.lives import Killed, Life, end_all_in

PLAN = """
tasks:
  - title: t
    steps:
      - write: {path: config.ini, content: "safe=1\\n"}
      - run: >-
          test ! -e out/made.txt && test ! -e made.o || exit 9;
          mkdir -p out deep/gen; echo half > out/made.txt; echo half > made.o; echo half > deep/gen/made.c;
          if [ -e fails ]; then rm fails; exit 1; fi;
          echo begun; while [ ! -e door ]; do sleep 0.01; done;
          echo whole > out/made.txt; echo whole > made.o; echo whole > deep/gen/made.c
        id: work
        outputs: ["out/**", "*.o", "**/gen/*.c"]
        retry: {attempts: 3, backoff_seconds: 0}
      - approve: Go on?
"""


def begun_again_after_a_kill(life: Life) -> None:
    life.cut_off(PLAN, "step_output", "t.work")
    end_all_in(life.place)
    cut_off_again(life)


def begun_again_by_retry(life: Life) -> None:
    life.put("fails", "")
    life.cut_off(PLAN, "step_output", "t.work")
    end_all_in(life.place)


def begun_again_after_a_rollback(life: Life) -> None:
    life.put("door", "")
    assert life.run(PLAN).exit_code == 10
    engine_rollback.roll_back(life.world(), life.id, "t.1")
    life.path("door").unlink()
    cut_off_again(life)


def cut_off_again(life: Life) -> None:
    life.ears.at("step_output", life.die, "t.work")
    with pytest.raises(Killed):
        life.resume()
    end_all_in(life.place)


WAYS = [begun_again_after_a_kill, begun_again_by_retry, begun_again_after_a_rollback]
Way = Callable[[Life], None]


@pytest.mark.parametrize(
    ("way", "present"),
    [
        *((way, True) for way in WAYS),
        (WAYS[0], False),
        *(pytest.param(way, False, marks=pytest.mark.release) for way in WAYS[1:]),
    ],
)
def test_a_command_begun_again_and_killed_is_not_taken_for_somebody_else(
    tmp_path: Path, way: Way, present: bool
) -> None:
    life = Life(tmp_path)
    if present:
        life.put("out/theirs.txt", "theirs\n")
        life.put("theirs.o", "theirs\n")
    way(life)
    life.put("door", "")
    assert life.resume().exit_code == 10, "it waits at its gate"
    assert (life.text("out/made.txt"), life.text("made.o")) == ("whole\n", "whole\n")
    assert life.attempts("t.work") == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_change_beside_its_outputs_is_still_somebody_elses(tmp_path: Path, way: Way) -> None:
    life = Life(tmp_path)
    way(life)
    life.put("door", "")
    life.put("config.ini", "safe=0\n")
    with pytest.raises(ChangedFiles) as refused:
        life.resume()
    assert "config.ini" in refused.value.message and "made" not in refused.value.message


def test_a_failed_attempt_is_rolled_back_where_nothing_stood_at_the_pattern(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.put("door", "")
    life.put("fails", "")
    fails_once = "test ! -e made.o && echo half > made.o; test ! -e fails || { rm fails; exit 1; }"
    only = (
        f"tasks: [{{title: t, steps: [{{run: '{fails_once}', id: work, outputs: ['*.o'], retry: {{attempts: 2}}}}]}}]"
    )
    assert life.run(only).exit_code == 0
    assert life.attempts("t.work") == 2
    assert [one.restored for one in life.events(ev.StepSettled) if one.step == "t.work"] == [(), ("made.o",)]


def test_a_rollback_of_a_failed_attempt_that_was_cut_off_is_no_strangers_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed among the files that it puts back, for a literal output and for one that the command had removed."""
    life = Life(tmp_path)
    life.put("gone.txt", "before\n")
    life.put("fails", "")
    half = "echo half > made.txt; echo half > made.o; rm -f gone.txt; test ! -e fails || exit 1"
    plan = f"tasks: [{{title: t, steps: [{{run: '{half}', id: work, outputs: [made.txt, gone.txt, '*.o']}}]}}]"
    assert life.run(plan).exit_code == 1
    life.path("fails").unlink()
    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(rollback._Rollback, "_did", lambda *_: life.die())  # the first path was put back just now
            life.resume()
    assert life.resume().exit_code == 0
    assert life.text("made.txt") == "half\n" and not life.path("gone.txt").exists()

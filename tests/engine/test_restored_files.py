"""Before a command with outputs runs again, what the attempt before left there is put back, whoever decided on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acode.engine import session_commands
from acode.errors import OutcomeUnknown
from acode.events import types as ev
from tests.lives import Life, end_all_in

FAILS = "tasks: [{title: t, steps: [{run: 'echo line >> out.txt; test -e door', id: work, outputs: [out.txt]}]}]"
WAITS = """
tasks:
  - title: t
    steps:
      - run: echo line >> out.txt; echo begun; while [ ! -e door ]; do sleep 0.01; done
        id: work
        outputs: [out.txt]
        probe: exit 3
"""


def cut_off(life: Life) -> None:
    """Gone with its keeper, and the probe cannot tell."""
    life.cut_off(WAITS, "step_output", "t.work")
    end_all_in(life.place)
    life.put("door", "")


def finish(life: Life) -> None:
    assert life.resume().exit_code == 0
    assert life.text("out.txt") == "line\n", "as an undisturbed run would have left it"


@pytest.mark.parametrize("answer", [None, "not_applied", "retry"])
def test_a_failed_command_is_repeated_on_clean_outputs_whatever_a_person_said_before(
    tmp_path: Path, answer: Any
) -> None:
    life = Life(tmp_path)
    assert life.run(FAILS).exit_code == 1
    life.put("door", "")
    if answer is not None:
        session_commands.resolve(life.world(), life.id, "t.work", answer, note="", force=False)
        assert life.text("out.txt") == "line\n", "left to look at until then"
    finish(life)


@pytest.mark.parametrize("answer", ["not_applied", "retry"])
def test_a_command_of_which_nobody_knew_is_repeated_on_clean_outputs(tmp_path: Path, answer: str) -> None:
    life = Life(tmp_path)
    cut_off(life)
    with pytest.raises(OutcomeUnknown, match="answered 3, which says nothing"):
        life.resume()
    session_commands.resolve(life.world(), life.id, "t.work", answer, note="", force=False)
    finish(life)


@pytest.mark.parametrize("answer", ["not_applied", "retry"])
def test_so_it_is_where_the_person_is_asked_at_the_terminal(tmp_path: Path, answer: Any) -> None:
    life = Life(tmp_path)
    cut_off(life)
    life.person.to_unknown = answer
    finish(life)


def test_so_it_is_where_the_repeat_was_accepted_beforehand_and_that_is_recorded(tmp_path: Path) -> None:
    life = Life(tmp_path)
    cut_off(life)
    life.settings["resume.unknown_outcome"] = "retry"
    finish(life)
    (settled,) = [one for one in life.events(ev.StepSettled) if one.step == "t.work"]
    assert (str(settled.outcome), settled.restored) == ("retry_accepted", ("out.txt",))


def test_a_person_who_says_that_it_happened_keeps_what_it_made(tmp_path: Path) -> None:
    life = Life(tmp_path)
    cut_off(life)
    life.person.to_unknown = "applied"
    finish(life)
    assert life.attempts("t.work") == 1

"""A write in flight is settled by all that it was to leave: the content, the mode, and nothing beside them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from acode.engine import session_commands
from acode.events import types as ev
from acode.workspace import temp_name
from tests.lives import Life


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path)


def write(mode: str = "") -> str:
    given = f", mode: {mode}" if mode else ""
    return f"tasks: [{{title: t, steps: [{{write: {{path: a.txt, content: new{given}}}}}]}}]"


def test_a_write_that_only_changes_the_mode_is_not_taken_for_done_by_its_content(life: Life) -> None:
    life.put("a.txt", "new").chmod(0o644)
    life.cut_off(write("'0755'"), "step_started", "t.1")
    survey = life.look().survey
    assert survey is not None
    (found,) = survey.continuation.in_flight
    assert (found.outcome, found.action) == ("not_applied", "retry") and "0644 instead of 0755" in found.evidence
    assert life.resume().exit_code == 0
    assert stat.S_IMODE(life.path("a.txt").stat().st_mode) == 0o755
    assert life.settled("t.1") == ["not_applied"]


def test_a_write_that_gave_content_and_mode_is_not_done_again(life: Life) -> None:
    life.cut_off(write("'0600'"), "step_started", "t.1")
    life.put("a.txt", "new").chmod(0o600)
    assert life.resume().exit_code == 0
    assert life.settled("t.1") == ["applied"] and life.attempts("t.1") == 1


@pytest.mark.parametrize("answer", ["not_applied", "retry"])
def test_a_persons_word_on_a_write_takes_its_leftover_away_and_nothing_else(life: Life, answer: str) -> None:
    life.put("a.txt", "old")
    life.cut_off(write(), "step_started", "t.1")
    leftover = life.put(temp_name("a.txt", life.events(ev.StepStarted)[0].key), "ne")
    life.put("a.txt", "theirs")
    session_commands.resolve(life.world(), life.id, "t.1", answer, note="", force=False)
    assert not leftover.exists() and life.text("a.txt") == "theirs"
    assert life.resume().exit_code == 0
    assert life.text("a.txt") == "new"

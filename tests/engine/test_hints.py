"""A hint is one action in two forms: a command that can be typed, or a call that a program can make."""

from __future__ import annotations

import typing

import pytest

import acode
from acode.engine import hints

PLAN = hints.Subject(name="0a1b2c3d", key="", only_by_program=False)
PROGRAM = hints.Subject(name="0a1b2c3d", key="nightly", only_by_program=True)
ACTIONS: list[hints.Action] = [
    hints.Resume(),
    hints.GrantAttempt(),
    hints.AcceptChanges(),
    hints.Resolve(step="t.1"),
    hints.Resolve(step="t.1", in_words=True),
    hints.ChooseStrategy(step="t.1"),
    hints.Approve(),
    hints.FinishRollback(to="t.1"),
    hints.FinishRollback(to=None),
    hints.BringBlobsBack(),
    hints.ReplacePlan(file="plan.yml"),
    hints.ReplacePlan(file="my plan.yml", forced=True),
    hints.Resolve(step="t.1", by_hand=True),
]


def test_every_action_is_among_those_tried_here() -> None:
    assert {type(action) for action in ACTIONS} == set(typing.get_args(hints.Action))


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_a_session_that_only_its_program_resumes_is_never_to_be_resumed_by_a_command(action: hints.Action) -> None:
    assert "acode resume" in hints.as_command(hints.Resume(), PLAN)
    for form in (hints.as_command(action, PROGRAM), hints.as_call(action, PROGRAM)):
        assert ("acode resume" not in form and "nightly" in form) or "acode session" in form


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_a_call_that_a_hint_names_exists_in_the_library(action: hints.Action) -> None:
    form = hints.as_call(action, PROGRAM)
    names = [word.partition("(")[0].removeprefix("acode.") for word in form.split() if word.startswith("acode.")]
    assert all(hasattr(acode, name) for name in names), form

"""One kill with a real small model instead of the scripted one: what it is told, what it does, what acode lets happen.

Opt-in: `python3 dev.py test agents --model`. The other trials choose what a model does; here nobody does. One model of
this size is no measure of others.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents import small_model
from tests.agents.client import client_of
from tests.agents.outcome import Outcome, looked_at, recorded_events
from tests.agents.trial import Killing, Trial, install_acode, kill_in_call, resume, trial

pytestmark = pytest.mark.agents

PROMPT = "Run this command, once: sh deploy.sh"
KILLING = Killing(kind="command", since="effect", after_s=0.1, waits=True, held=True)


@pytest.fixture(autouse=True)
def model(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--model", default=False):
        pytest.skip("opt-in: python3 dev.py test agents --model")
    small_model.install()


@pytest.mark.parametrize("name", ["gemini", "opencode"])
def test_a_real_model_repeats_nothing_that_it_was_not_told_of(
    name: str, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    seen = {acode: killed_once(name, tmp_path / str(acode), acode=acode) for acode in (False, True)}
    for one in seen.values():
        record_property("outcome", msgspec.to_builtins(one))
        assert one.outcome.was_alive and one.outcome.effects > 0, one
    # A model that calls again after acode's refusal repeats it knowingly: the record has the refusal before the repeat.
    repeats = seen[True].outcome.effects - 1
    assert repeats <= seen[True].refusals, seen[True]
    assert "unknown" not in seen[True].outcome.recorded, seen[True]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    outcome: Outcome
    answers: list[str]
    refusals: int  # on record


def killed_once(name: str, directory: Path, *, acode: bool) -> Seen:
    with trial(name, client_of(name), directory) as one:
        mind = small_model.SmallModel()
        one.server.model = mind
        if acode:
            install_acode(one)
        was_alive = kill_in_call(one, KILLING, PROMPT)
        one.wait_for_quiet()
        resume(one)
        show(one, mind)
        events = [event["type"] for _, event in recorded_events(one)] if acode else []
        outcome = looked_at(one, KILLING, 1, was_alive=was_alive, acode=acode)
        return Seen(outcome=outcome, answers=mind.answers, refusals=events.count("repeat_denied"))


def show(one: Trial, mind: small_model.SmallModel) -> None:
    """For who reads the report with `pytest -s`: what the model was shown last, and all its answers."""
    print(one.name, *mind.answers, sep="\n  ")
    for said in one.server.requests[-1].conversation[-4:]:
        print(f"  {said.kind}: {said.text[:300]}")

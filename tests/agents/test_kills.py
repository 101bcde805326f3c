"""Killed at any moment and resumed by its own means, an agent repeats nothing, loses nothing and hides nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agents.client import NAMES, client_of
from tests.agents.outcome import ACCEPTED, Outcome, run_trial
from tests.agents.trial import Kind, drawn, drawn_after_effect

KILLS: dict[Kind, int] = {"command": 20, "write": 10, "everything": 5, "hook": 5, "printing": 5}
CONTROLS = 5
GATE_AGENT = "gemini"
Tell = Callable[[str, Any], None]


def trials(kind: Kind) -> list[tuple[str, int]]:
    able = [name for name in NAMES if kind != "write" or client_of(name).WRITES]
    return [(name, number) for name in able for number in range(1, KILLS[kind] + 1)]


def survive(name: str, kind: Kind, number: int, place: Path, tell: Tell) -> Outcome:
    outcome = run_trial(name, place, drawn(kind, number), number, acode=True)
    tell("outcome", msgspec.to_builtins(outcome))
    assert outcome.verdict in ACCEPTED, outcome
    return outcome


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), trials("command"))
def test_a_command_that_is_cut_off_happens_once(name: str, number: int, place: Path, record_property: Tell) -> None:
    """Or the person is asked, where the kill came before the first command of the process began: nobody knows yet that
    the front is in its way. What has begun is never asked about."""
    outcome = survive(name, "command", number, place, record_property)
    assert outcome.verdict == "once" or outcome.since == "asked", outcome


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), trials("write"))
def test_a_write_that_is_cut_off_is_there_whole(name: str, number: int, place: Path, record_property: Tell) -> None:
    assert survive(name, "write", number, place, record_property).effects == 1


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), trials("everything"))
def test_with_the_front_killed_too_nothing_is_repeated(
    name: str, number: int, place: Path, record_property: Tell
) -> None:
    survive(name, "everything", number, place, record_property)


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), trials("hook"))
def test_with_the_hook_killed_too_nothing_is_repeated(
    name: str, number: int, place: Path, record_property: Tell
) -> None:
    survive(name, "hook", number, place, record_property)


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), trials("printing"))
def test_a_command_that_prints_is_not_cut_off_by_the_death_of_its_reader(
    name: str, number: int, place: Path, record_property: Tell
) -> None:
    outcome = survive(name, "printing", number, place, record_property)
    assert outcome.effects == 1 and outcome.second_effect


@pytest.mark.agents
@pytest.mark.parametrize(("name", "number"), [(name, number) for name in NAMES for number in range(1, CONTROLS + 1)])
def test_without_acode_the_effect_is_repeated(name: str, number: int, place: Path, record_property: Tell) -> None:
    """The control: what the other tests show would otherwise be worth nothing."""
    control(name, number, place, record_property)


def control(name: str, number: int, place: Path, tell: Tell) -> None:
    outcome = run_trial(name, place, drawn_after_effect(number), number, acode=False)
    tell("outcome", msgspec.to_builtins(outcome))
    assert outcome.was_alive and outcome.effects == 2, outcome


# In the gate, with one agent.


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "number"), [(GATE_AGENT, 1)])
def test_one_agent_in_the_gate_happens_once(name: str, number: int, place: Path, record_property: Tell) -> None:
    assert survive(name, "command", number, place, record_property).effects == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "number"), [(GATE_AGENT, 1)])
def test_one_agent_in_the_gate_repeats_without_acode(
    name: str, number: int, place: Path, record_property: Tell
) -> None:
    control(name, number, place, record_property)

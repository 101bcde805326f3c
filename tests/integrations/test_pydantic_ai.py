"""Pydantic AI agents in sessions: killed anywhere, no response is asked for twice, and no tool's effect is repeated."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra: pydantic-ai")


import acode
from tests.integrations.agents import DURABLE, ONE_RUN, SWEEP
from tests.library.programs import Place, killed

OUTPUT = "go: ['A', {'sent': 'b'}, {'sent': 'c'}]"
STEPS = {
    "support-run1.model-1": "model 1",
    "support-run1.call-1-1-look": "look a",
    "support-run1.call-1-2-send": "send b",
    "support-run1.model-2": "model 2",
    "support-run1.call-2-1-send": "send c",
    "support-run1.model-3": "model 3",
}


@pytest.mark.parametrize("kind", [pytest.param("sync", marks=pytest.mark.release), "async"])
def test_killed_at_every_boundary_a_run_ends_as_an_undisturbed_one_and_repeats_nothing(place: Place, kind: str) -> None:
    ended = place.run(SWEEP, kind)
    assert ended.status == 0, ended.errors
    whole, *cases = ended.told
    assert whole["output"] == OUTPUT and Counter(whole["ledger"]) == Counter(STEPS.values())
    assert len(cases) >= 2 * (1 + 2 * len(STEPS)), "begun and ended, each step has two commits of its own"
    for case in cases:
        judge(case)
    assert sum(case["decisions"] for case in cases) >= 4, "each send was killed before and behind its effect"


def judge(case: dict[str, Any]) -> None:
    assert case["output"] == OUTPUT, case
    known = {STEPS[step] for step in case["recorded"]}
    assert known.isdisjoint(case["after"]), f"asked for again although it is on record: {case}"
    effects = Counter(case["before"] + case["after"])
    assert effects.keys() == set(STEPS.values()), f"left out: {case}"
    assert all(count == 1 for effect, count in effects.items() if effect.startswith("send")), case
    assert all(count <= 2 for count in effects.values()), case


SEND = "support-run1.call-1-2-send"


@pytest.mark.release
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.release), "after"])
def test_killed_inside_a_tool_that_is_no_idempotent_one_a_person_decides_at_the_command_line(
    place: Place, when: str
) -> None:
    assert killed(place.run(ONE_RUN, DIE=f"{when} send b"))
    refused = place.run(ONE_RUN)
    assert refused.status == 1 and "OutcomeUnknown" in refused.errors and SEND in refused.errors
    (row,) = place.json("session", "list")
    answer = "--applied" if when == "after" else "--not-applied"
    assert place.acode("session", "resolve", row["short_id"], SEND, answer).returncode == 0
    done = place.run(ONE_RUN)
    assert done.status == 0, done.errors
    told = "None" if when == "after" else "{'sent': 'b'}"  # nobody knows what it returned
    assert done.told[0]["output"] == f"go: ['A', {told}, {{'sent': 'c'}}]"
    effects = Counter(place.effects())
    assert (effects["send b"], effects["send c"], effects["model 1"]) == (1, 1, 1)


@pytest.mark.release
def test_what_a_program_says_that_a_tool_returned_is_given_to_the_model(place: Place) -> None:
    assert killed(place.run(ONE_RUN, DIE="after send b"))
    acode.resolve("k", SEND, "applied", result={"kind": "said", "by": ["a person"]})
    assert "{'kind': 'said', 'by': ['a person']}" in place.run(ONE_RUN).told[0]["output"]


@pytest.mark.release
def test_killed_inside_what_may_be_repeated_it_is_repeated(place: Place) -> None:
    for where in ("after model 2", "after look a"):
        place.ledger.unlink(missing_ok=True)
        assert killed(place.run(ONE_RUN, DIE=where, KEY=where))
        if "look" in where:  # the other call of the same response was under way as well, or had not begun
            with contextlib.suppress(acode.AcodeError):
                acode.resolve(where, SEND, "applied" if "send b" in place.effects() else "not_applied")
        assert place.run(ONE_RUN, KEY=where).status == 0
        effects = Counter(place.effects())
        assert effects[where.removeprefix("after ")] == 2 and effects["send b"] == effects["send c"] == 1


@pytest.mark.release
def test_a_changed_prompt_is_shown_with_both_sides_and_somebody_decides(place: Place) -> None:
    assert killed(place.run(ONE_RUN, DIE="before model 2"))
    changed = place.run(ONE_RUN, PROMPT="stop")
    assert changed.status == 1 and "NonDeterminism" in changed.errors
    assert "recorded ('go', " in changed.errors and "asked for ('stop', " in changed.errors
    assert "model 2" not in place.effects()
    kept = place.run(ONE_RUN, PROMPT="stop", ON_CHANGE="keep")
    assert kept.status == 0 and Counter(place.effects()) == Counter(STEPS.values())


@pytest.mark.release
def test_a_killed_durable_function_is_carried_on_from_the_command_line(place: Place) -> None:
    assert killed(place.run(DURABLE, DIE="before model 2"))
    (row,) = place.json("session", "list")
    resumed = place.acode("resume", row["short_id"], "--yes")
    assert resumed.returncode == 0, resumed.stderr
    assert Counter(place.effects()) == Counter(STEPS.values())
    assert place.run(DURABLE).told == [{"output": OUTPUT}] and len(place.effects()) == len(STEPS)

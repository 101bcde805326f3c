"""The faults that other durable execution engines publish or test, with acode; all of them: `dev.py bench scenarios`.

A ledger outside acode is the judge: no effect is missing, none is repeated without a decision on the record, nothing
hangs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.faults.scenarios import SCENARIOS, database_killed, played
from benchmarks.peers.faults.stage import ENGINES
from tests.postgres import Server

OURS = {one.name: one for one in ENGINES if one.ours}
IN_THE_GATE = [("killed after the effect", "acode"), ("frozen and taken over", "acode")]
# Steps that were declared idempotent may be repeated, and these faults come behind an effect.
MAY_BE_REPEATED = {"killed after the effect": 1, "dies every time": 3, "result cannot be stored": 1}
CASES = [
    pytest.param(scenario, name, marks=() if (scenario, name) in IN_THE_GATE else (pytest.mark.release,))
    for scenario in SCENARIOS
    for name in OURS
]


@pytest.mark.parametrize(("scenario", "name"), CASES)
def test_a_fault_of_the_peers_costs_no_effect_and_repeats_none_without_a_recorded_decision(
    scenario: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("ACODE_BENCH_DIR", str(tmp_path))
    needs_a_server = SCENARIOS[scenario] is database_killed
    server: Server | None = request.getfixturevalue("postgres_server") if needs_a_server else None
    verdict = played(scenario, OURS[name], server)
    assert verdict.broken == [], verdict
    if name == "acode":
        assert (verdict.repeated, verdict.ended) == (0, "completed"), verdict
    else:
        assert verdict.repeated <= MAY_BE_REPEATED.get(scenario, 0), verdict


def test_where_acode_cannot_know_the_outcome_a_person_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACODE_BENCH_DIR", str(tmp_path))
    verdict = played("killed before the effect", OURS["acode"], None)
    assert (verdict.asked, verdict.repeated, verdict.lost, verdict.ended) == (1, 0, 0, "completed")

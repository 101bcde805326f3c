"""Leases that end: nobody acts who is not the owner, nothing is repeated undecided, no session is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import simulated_fleet
from tests.simulated_fleet import live

FIRST_SWEPT = 1_000_000
SEEDS_IN_GATE = 60


def test_nobody_acts_who_is_not_the_owner_nothing_is_repeated_undecided_and_no_session_is_lost() -> None:
    seen = sum((live(seed) for seed in range(SEEDS_IN_GATE)), Counter[str]())
    for what in ("cut", "frozen", "killed", "killed alone", "server", "taken", "requeued", "parked 19"):
        assert seen[what] > 10, f"{what}: too few to have tested anything: {seen}"


def test_the_simulation_finds_a_session_whose_worker_never_heard_that_it_has_it() -> None:
    with pytest.raises(AssertionError, match="lost"):
        for seed in range(SEEDS_IN_GATE):
            live(seed, hands_back_unheard=False)


def test_the_simulation_finds_a_deadline_behind_the_end_of_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_fleet, "deadline_of", lambda asked, lease_s: asked + 2 * lease_s)
    with pytest.raises(AssertionError, match="Row"):
        for seed in range(SEEDS_IN_GATE):
            live(seed)


@pytest.mark.release
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(100))
def test_the_promises_hold_in_a_hundred_thousand_fleets(part: int) -> None:
    for seed in range(part * 1000, (part + 1) * 1000):
        live(FIRST_SWEPT + seed)

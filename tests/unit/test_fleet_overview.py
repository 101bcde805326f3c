"""What a person types next about a parked session of the fleet."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acode.fleet.overview import way_of
from acode.fleet.server import Member

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RESOLVE = "acode session resolve 0a1b2c3d work.2 --applied|--not-applied|--retry"


def parked(ended_with: int | None, next_action: str = "") -> Member:
    return Member(
        session_id="01a1ec89-d89e-708a-943f-c3800a1b2c3d",
        state="parked",
        queue="default",
        priority=0,
        labels=[],
        key=None,
        source={},
        job=None,
        worker=None,
        attempts=1,
        deaths=0,
        cancel_reason=None,
        ended_with=ended_with,
        reason="why",
        next_action=next_action,
        due_at=None,
        submitted_at=NOW,
        changed_at=NOW,
    )


@pytest.mark.parametrize(
    ("ended_with", "way"),
    [
        (10, "acode session approve 0a1b2c3d (or deny)"),
        (12, "acode session approve 0a1b2c3d, or acode fleet cancel 0a1b2c3d"),
        (
            16,
            "acode sync now in each workspace that has it, then acode fleet retry 0a1b2c3d --force --reason TEXT",
        ),
        (17, "acode fleet retry 0a1b2c3d"),
        (18, "acode fleet retry 0a1b2c3d --force --reason TEXT"),
        (19, RESOLVE),
        (None, "acode fleet retry 0a1b2c3d"),
    ],
)
def test_the_way_follows_from_the_reason_and_names_the_step_that_the_attempt_has_named(
    ended_with: int | None, way: str
) -> None:
    assert way_of(parked(ended_with, RESOLVE if ended_with == 19 else "acode resume 0a1b2c3d")).as_command() == way


def test_text_of_the_server_is_never_taken_for_a_place_in_a_hint() -> None:
    assert way_of(parked(19, "{0} {x}")).as_command() == "{0} {x}"

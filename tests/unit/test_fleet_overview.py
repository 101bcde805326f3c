"""What a person types next about a parked session of the fleet."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from acode import errors
from acode.fleet.overview import way, way_of
from acode.fleet.repairs import with_repair
from acode.fleet.schedule import Parked
from acode.fleet.server import Member

NOW = datetime(2026, 3, 1, tzinfo=UTC)
REPAIR = "give the workers access to the store"
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
        (17, "first give the workers access to the store; then acode fleet retry 0a1b2c3d"),
        (20, "first give the workers access to the store; then acode fleet retry 0a1b2c3d"),
        (18, "acode fleet retry 0a1b2c3d --force --reason TEXT"),
        (19, RESOLVE),
        (None, "acode fleet retry 0a1b2c3d"),
    ],
)
def test_the_way_follows_from_the_reason_and_names_the_step_that_the_attempt_has_named(
    ended_with: int | None, way: str
) -> None:
    told = {19: RESOLVE, 17: REPAIR, 20: REPAIR}.get(ended_with or 0, "acode resume 0a1b2c3d")
    assert way_of(parked(ended_with, told)).as_command() == way


def test_text_of_the_server_is_never_taken_for_a_place_in_a_hint() -> None:
    assert way_of(parked(19, "{0} {x}")).as_command() == "{0} {x}"


@pytest.mark.parametrize(
    ("error", "repair"),
    [
        (errors.DiskFull("full"), "make room on the disk of worker a on b, below /fleet/1"),
        (errors.KeyMissing("key ab is not here"), "give worker a on b the key that is named (acode key import FILE"),
        (errors.ChangedFiles("a.txt"), "restore the files that are named, in /fleet/1 of worker a on b"),
        (errors.SourceUnavailable("file ab", hint="Give access."), "give access"),
        (errors.ChainBroken("event 3"), "restore the log of the session on the server from a backup"),
        (errors.NewerSchema("made by a newer acode"), "upgrade acode"),
    ],
)
def test_a_person_is_told_what_to_repair_and_where_before_a_retry_that_would_end_alike(
    error: errors.AcodeError, repair: str
) -> None:
    code = 17 if isinstance(error, errors.DiskFull) else error.exit_code
    parked = Parked(exit_code=code, why=error.message, next_action=error.hint, error_code=error.code)
    told = with_repair(parked, workspace="/fleet/1", worker="worker a on b")
    assert told.next_action.startswith(repair) and "acode resume" not in told.next_action
    shown = way(told.exit_code, told.next_action, of="0a1b2c3d").as_command()
    assert shown == f"first {told.next_action}; then acode fleet retry 0a1b2c3d"


def test_what_a_person_answers_is_not_called_a_repair() -> None:
    asks = Parked(exit_code=10, why="Go on?", next_action="acode session approve 0a1b2c3d")
    assert with_repair(asks, workspace="/fleet/1", worker="worker a on b") == asks

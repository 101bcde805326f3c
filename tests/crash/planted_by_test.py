"""Bugs that no sweep over kills meets, each with the one test of the gate that reports it.

- Checkpoints are written every 64 KB of log, and 32 small steps at once stay below that.
- A task of an event loop is committed in the turn in which it would act: a power cut can fall in between, no kill does.
- The leftovers of a step whose definition was replaced are rolled back again when its next attempt begins, unless that
  is of another kind.

These tests build exactly that. Like those of `planted.py` the bugs are planted from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acode.engine import async_commits, replace_plan
from acode.engine.world import Options
from acode.store import checkpoints
from tests.crash.planted import Patch, Plant, nothing
from tests.engine import test_replace_plan as edited_plans
from tests.library import test_steps_at_once as at_once
from tests.library.programs import Place
from tests.lives import Life
from tests.store import test_flights as flights
from tests.stores import Place as StoreAt


@dataclass(frozen=True, kw_only=True)
class FoundByTest:
    """A bug, and the test that fails with it."""

    bug: str
    plant: Plant
    test: Callable[[Path, Patch], None]

    def __str__(self) -> str:
        return self.bug


def checkpoint_forgets_steps_in_flight(patch: Patch) -> None:
    patch.setattr(
        checkpoints, "by_position", lambda session: msgspec.structs.replace(session, in_flight={}, in_flight_at={})
    )


def task_acts_before_its_start_is_committed(patch: Patch) -> None:
    """It is told at once, and the commit is made in the next turn of the loop."""
    right = async_commits.LoopCommits.settled

    def wrong(self: async_commits.LoopCommits, record: Any) -> Any:
        waits = right(self, record)
        waits.set_result(None)
        return waits

    patch.setattr(async_commits.LoopCommits, "settled", wrong)


def task_acts_before_its_start_is_synced(patch: Patch) -> None:
    """It is told behind the commit, which a power cut can take back."""
    right = async_commits.LoopCommits._commit

    def wrong(self: async_commits.LoopCommits) -> None:
        waiting = list(self._waiting)
        right(self)
        async_commits._end_waits(waiting, None)

    patch.setattr(async_commits.LoopCommits, "_commit", wrong)


def leftovers_of_a_replaced_step_stay(patch: Patch) -> None:
    patch.setattr(replace_plan, "restore_leftovers", nothing)


def leftovers_of_a_replaced_step_restored_behind_the_event(patch: Patch) -> None:
    restore, right = replace_plan.restore_leftovers, replace_plan.replace_plan
    left: list[Any] = []

    def wrong(run: Any, options: Options) -> None:
        left.clear()  # a process that was killed remembers nothing
        right(run, options)
        for step in left:
            restore(run, step)

    patch.setattr(replace_plan, "restore_leftovers", lambda run, step: left.append(step))
    patch.setattr("acode.engine.resume.replace_plan", wrong)


def is_the_same_from_a_checkpoint(path: Path, _patch: Patch) -> None:
    place = StoreAt(path / "agent")
    try:
        flights.test_a_session_is_the_same_from_a_checkpoint_a_snapshot_and_the_log_alone(place)
    finally:
        place.close()


def acts_behind_the_sync(path: Path, patch: Patch) -> None:
    patch.setenv("ACODE_HOME", str(path / "state"))
    patch.setenv("HOME", str(path))
    place = Place(path)
    patch.chdir(place.workspace)
    disk = at_once.SlowDisk(patch)
    disk.takes_s = 0.1  # so that whoever does not wait for it acts before its end, also on a busy machine
    at_once.test_a_task_acts_behind_the_sync_of_its_start_and_returns_behind_the_commit_of_its_end(
        place, disk, idempotent=False
    )


def leftovers_are_rolled_back(path: Path, _patch: pytest.MonkeyPatch) -> None:
    edited_plans.test_leftovers_are_rolled_back_where_a_step_of_another_kind_takes_the_place(Life(path))


def leftovers_are_rolled_back_already(path: Path, _patch: pytest.MonkeyPatch) -> None:
    edited_plans.test_killed_as_soon_as_the_plan_is_replaced_its_leftovers_are_rolled_back_already(Life(path))


CATALOGUE = tuple(
    FoundByTest(bug=plant.__name__.replace("_", " "), plant=plant, test=test)
    for plant, test in (
        (checkpoint_forgets_steps_in_flight, is_the_same_from_a_checkpoint),
        (task_acts_before_its_start_is_committed, acts_behind_the_sync),
        (task_acts_before_its_start_is_synced, acts_behind_the_sync),
        (leftovers_of_a_replaced_step_stay, leftovers_are_rolled_back),
        (leftovers_of_a_replaced_step_restored_behind_the_event, leftovers_are_rolled_back_already),
    )
)

"""Bugs of steps at once, observed agents, the index of sessions and stopped commands.

They are planted like those of `planted.py`, each with the case and the sweep that must report it.
"""

from __future__ import annotations

from typing import Any

from acode.engine import split_step
from acode.engine.held_session import Held, Recorded
from acode.observed import lone_calls
from acode.steps import run as commands
from acode.steps.interface import Done
from acode.store import session_index
from tests.crash.planted import Patch, Plant, Planted


def thread_acts_before_its_start_is_committed(patch: Patch) -> None:
    """Whatever waits is committed by the next one that must be told of something."""
    right = Held.settle

    def wrong(self: Held, recorded: Recorded) -> None:
        if len(self.session.in_flight) < 2:
            right(self, recorded)

    patch.setattr(Held, "settle", wrong)


def note_of_a_front_removed_before_its_step_began(patch: Patch) -> None:
    right = lone_calls.begun

    def wrong(run: Held, lone: Any, by: Any) -> Any:
        kept = {path.name: path.read_bytes() for path in lone.place.iterdir() if path.is_file()}
        lone_calls.remove(lone)
        started = right(run, lone, by)
        lone.place.mkdir(parents=True, exist_ok=True)
        for name, content in kept.items():
            (lone.place / name).write_bytes(content)
        return started

    patch.setattr(lone_calls, "begun", wrong)


def repeat_not_denied(patch: Patch) -> None:
    patch.setattr(split_step, "repeat_of", lambda run, asked, by: None)


def notes_of_a_dead_agents_command_unread(patch: Patch) -> None:
    """What the front noted decides; without it nobody knows."""
    patch.setattr(commands, "read_status", lambda place: None)


def key_of_a_program_not_indexed(patch: Patch) -> None:
    patch.setattr(session_index, "key_of", lambda created: None)


def stopped_command_taken_for_done(patch: Patch) -> None:
    right = commands.collect

    def wrong(*arguments: Any, **named: Any) -> Any:
        found = right(*arguments, **named)
        return (
            found
            if isinstance(found, Done) or found.reason != "signal"
            else Done(files=found.files, touched=found.touched)
        )

    patch.setattr(commands, "collect", wrong)


PLANTS: tuple[tuple[Plant, str, str], ...] = (
    (thread_acts_before_its_start_is_committed, "32 threads", "kills at the ledger"),
    (note_of_a_front_removed_before_its_step_began, "observed agent unrecorded", "real kills"),
    (repeat_not_denied, "observed agent unrecorded", "real kills"),
    (notes_of_a_dead_agents_command_unread, "settle observed", "snapshots"),
    (key_of_a_program_not_indexed, "program", "snapshots"),
    (stopped_command_taken_for_done, "stopped by a signal", "snapshots"),
)
CATALOGUE = tuple(
    Planted(bug=plant.__name__.replace("_", " "), plant=plant, case=case, sweep=sweep) for plant, case, sweep in PLANTS
)

"""All that is known of one step: definition, attempts, what it printed, what it changed in files."""

from __future__ import annotations

import os

from acode.engine.world import World
from acode.events.definition import Run, Step, command_line, describe_in_full
from acode.state import Session
from acode.steps.keeper_notes import run_directory
from acode.store.store import Store
from acode.ui.evidence import diff_of
from acode.ui.log_window import last_events
from acode.ui.pages import StepDetail
from acode.ui.report import end_of
from acode.ui.step_window import Outline
from acode.ui.timeline import StepTimes, timeline_of
from acode.ui.views import Words

LIVE_OUTPUT_BYTES_MAX = 16_384
RECENT_EVENTS = 2_000


def detail_of(world: World, store: Store, session: Session, wanted: str, words: Words) -> StepDetail | None:
    """None where the session has no such step."""
    outline = Outline(store, session, recent_steps(store, session))
    line = outline.line_of(wanted)
    if line is None:
        return None
    row = outline.row(store, line, words)
    planned = outline.planned.get(wanted)
    output = row.attempts[-1].output if row.attempts else None
    text = end_of(store, session.session_id, output) if output is not None else ""
    return StepDetail(
        row=row,
        definition=definition_of(planned[1]) if planned is not None else "",
        output=text or live_output(world, session, wanted),
        diff=diff_of(world, store, session, wanted) if row.attempts else "",
        running=wanted in session.in_flight,
    )


def recent_steps(store: Store, session: Session) -> dict[str, StepTimes]:
    """Every attempt of the steps in the last part of the log; those of earlier steps are read one by one."""
    found = timeline_of(last_events(store, session.session_id, session.seq, RECENT_EVENTS))
    return found.steps if found is not None else {}


def definition_of(step: Step) -> str:
    return command_line(step.action.command) if isinstance(step.action, Run) else describe_in_full(step)


def live_output(world: World, session: Session, step: str) -> str:
    """What the command of an open step has printed so far, as its keeper keeps it."""
    flight = session.in_flight.get(step)
    if flight is None:
        return ""
    place = run_directory(world.agent_dir, flight.started.key) / "output"
    try:
        with place.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LIVE_OUTPUT_BYTES_MAX, 0))
            return file.read(LIVE_OUTPUT_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""

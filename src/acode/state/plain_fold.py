"""The fold of a plain step's two events, for the journal that writes them: `session_fold` comes to the same."""

from __future__ import annotations

from datetime import datetime

from acode.events import types as ev
from acode.state.session import InFlight, Mark, Session

_STARTED = str(ev.StepStarted.__struct_config__.tag)
_COMPLETED = str(ev.StepCompleted.__struct_config__.tag)


def advance_plain(session: Session, event: ev.StepStarted | ev.StepCompleted, seq: int, at: datetime) -> None:
    """`advance` for the next event of the one journal that owns a program's session, where that is the start or the
    completion of a step of which nothing but this is on record. It comes to the same, and runs twice in each step."""
    step, task, flights = event.step, event.task, session.in_flight
    if type(event) is ev.StepStarted:
        session.started_any = True
        session.last_lifecycle = Mark(seq=seq, at=at, type=_STARTED, task=task, step=step)
        flights[step] = InFlight(started=event, seq=seq, at=at)
        known = session.steps_done + len(flights)
    else:
        del flights[step]
        ended = Mark(seq=seq, at=at, type=_COMPLETED, task=task, step=step)
        session.last_completed = session.last_lifecycle = ended
        session.failure = None
        known = session.steps_done = session.steps_done + 1
        if known > session.furthest:
            session.furthest, session.resumes_since_progress, session.escalated = known, 0, False
        if step == task:  # it lies in no other one
            session.tasks_done += 1
            session.tasks_total = max(session.tasks_total, session.tasks_done)
    session.steps_total = max(session.steps_total, known)
    session.last_attempted, session.refused_at = step, None
    session.seq, session.updated_at, session.last_event_id = seq, at, ""

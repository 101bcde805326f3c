"""The resume report: the same few lines for a session and for a foreign run."""

from __future__ import annotations

from acode.cli.positions import open_tasks, outline_of, position
from acode.engine.preview import Preview, next_action
from acode.formats.interface import Standing
from acode.formats.messages import resume_report
from acode.redact import Redactor
from acode.state import Session
from acode.text import one_line
from acode.text.durations import shortened, stamp


def of_run(standing: Standing, *, waits_for: str | None = None) -> str:
    """A run's own reason to wait comes before one of ours."""
    return resume_report(
        run_id=standing.run.run_id,
        phase=standing.phase,
        done=len(standing.done),
        total=len(standing.done) + len(standing.remaining),
        last_activity=standing.last_activity,
        last_completed=standing.last_completed,
        next_action=standing.next_action,
        waits_for=standing.waits_for or waits_for,
    )


def of_session(found: Preview, redactor: Redactor) -> str:
    """A session that could be resumed: its phase is its state and where in the plan it stands."""
    session, outline = found.session, outline_of(found.session)
    last = session.last_completed.step if session.last_completed is not None else None
    completed = None
    if last is not None:
        completed = (last, shortened(one_line(redactor.text(outline.title(last)))) if outline is not None else "")
    first = found.survey.continuation.pending[0] if found.survey and found.survey.continuation.pending else None
    upcoming = (
        f"{first}: {shortened(one_line(redactor.text(outline.title(first))))}"
        if first and outline
        else "End the session"
    )
    if session.steps_from.follows_model:
        upcoming = next_of_agent(session, redactor)
    running = found.lock.held
    action = next_action(found)
    is_command = action.startswith("acode ")
    return resume_report(
        run_id=session.session_id,
        phase=f"{session.state}, {position(session, outline)}",
        done=session.plan_tasks_done,
        total=session.plan_tasks_total,
        last_activity=stamp(session.updated_at),
        last_completed=completed,
        next_action=upcoming,
        waits_for="the process that runs it" if running else action if is_command else f"a person: {action}",
    )


def next_of_agent(session: Session, redactor: Redactor) -> str:
    if session.plan is None:
        return "Plan the work"
    task = next(iter(open_tasks(session)), None)
    return f"{task.id}: {one_line(redactor.text(task.title))}" if task is not None else "End the session"

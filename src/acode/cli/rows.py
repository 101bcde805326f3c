"""Sessions as rows of a list: the JSON object of the contract, and the same for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from acode.attention import state_in_words
from acode.engine.session_list import Row
from acode.engine.world import short
from acode.text import one_line
from acode.text.durations import ago_short, stamp

HEADINGS = ("ID", "STATE", "SINCE", "TASK")


def as_json(row: Row) -> dict[str, Any]:
    if row.session is None:
        assert row.error is not None
        return {
            **dict.fromkeys(FIELDS),
            "session_id": row.session_id,
            "short_id": short(row.session_id),
            "source": "native",
            "resumable": False,
            "escalated": False,
            "error": row.error.as_dict(),
        }
    session, decision = row.session, row.decision
    return {
        "session_id": session.session_id,
        "short_id": short(session.session_id),
        "source": session.source,
        "title": session.title,
        "state": str(session.state),
        "escalated": is_escalated(row),
        "resumable": not session.terminal,
        "created_at": stamp(session.created_at),
        "updated_at": stamp(session.updated_at),
        "tasks_done": session.plan_tasks_done,
        "tasks_total": session.plan_tasks_total,
        "steps_done": session.steps_done,
        "steps_total": session.steps_total,
        "interruption_class": row.interruption.cls if row.interruption else None,
        "reason_code": decision.reason_code if decision else None,
        "attention": row.attention,
        "kind": session.steps_from.public_kind,
    }


FIELDS = (
    *("session_id", "short_id", "source", "title", "state", "escalated", "resumable", "created_at", "updated_at"),
    *("tasks_done", "tasks_total", "steps_done", "steps_total", "interruption_class", "reason_code"),
    *("attention", "kind"),
)


def is_escalated(row: Row) -> bool:
    if row.session is None or row.session.terminal:
        return False
    return row.session.escalated or (row.decision is not None and row.decision.run_state == "resume_escalated")


def cells(row: Row, now: datetime) -> tuple[str, str, str, str]:
    """One row for people; a session that cannot be trusted shows that in place of its title."""
    if row.session is None:
        return short(row.session_id), "DAMAGED", "-", one_line(str(row.error))
    session = row.session
    state = state_in_words(session, row.attention, running=row.running)
    when = session.last_lifecycle.at if session.last_lifecycle is not None else session.updated_at
    return short(session.session_id), state, ago_short(when, now), one_line(session.title)

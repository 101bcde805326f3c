"""Foreign runs in the list of sessions; loaded only where the workspace has a place for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from acode.cli import rows as listing
from acode.cli.screen import Screen
from acode.cli.table import show_table
from acode.engine.session_list import Row
from acode.engine.world import World
from acode.formats import locate
from acode.formats.find_run import native_sessions
from acode.formats.interface import Run
from acode.state.source import FOREIGN_RUN
from acode.text import one_line
from acode.text.durations import ago_short, stamp

WARNINGS_SHOWN_MAX = 5


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list, with its native session, if there is one."""

    run: Run
    row: Row | None

    @property
    def state(self) -> str:
        """An unfinished native session gives the run its state; afterwards the run's own state counts."""
        session = self.row.session if self.row is not None else None
        return str(session.state) if session is not None and not session.terminal else self.run.state

    @property
    def ended(self) -> bool:
        return self.state in ("COMPLETED", "FAILED", "CANCELLED")

    @property
    def updated_at(self) -> datetime:
        known = [self.run.updated_at, self.row.session.updated_at if self.row and self.row.session else None]
        return max((at for at in known if at is not None), default=datetime.fromtimestamp(0, UTC))


def with_runs(world: World, native: list[Row]) -> tuple[list[Row | RunRow], tuple[str, ...]]:
    """Sessions and runs in one list, the most recently active first; a run and its session are one row."""
    located = locate(world.workspace)
    if not located.runs:
        return list(native), located.warnings
    carried = native_sessions(native)
    runs = [RunRow(run=run, row=carried.get((run.source, run.run_id))) for run in located.runs]
    there = {(run.source, run.run_id) for run in located.runs}
    others = [row for row in native if row.session is None or (row.session.source, row.session.run_id) not in there]
    now = world.clock()

    def active(one: Row | RunRow) -> datetime:
        if isinstance(one, RunRow):
            return one.updated_at
        return one.session.updated_at if one.session else now

    return sorted([*runs, *others], key=active, reverse=True), located.warnings


def row_json(one: RunRow) -> dict[str, Any]:
    run = one.run
    of_session = listing.as_json(one.row) if one.row is not None else {}
    native_session = of_session.get("session_id")
    return {
        **of_session,
        "session_id": run.run_id,
        "short_id": run.run_id[-8:],
        "source": run.source,
        "title": run.title,
        "state": one.state,
        "escalated": of_session.get("escalated", False) and not one.ended,
        "resumable": not one.ended and run.problem is None,
        "created_at": stamp(run.created_at) if run.created_at else of_session.get("created_at"),
        "updated_at": stamp(one.updated_at) if one.updated_at.timestamp() else None,
        "tasks_done": run.tasks_done,
        "tasks_total": run.tasks_total,
        "steps_done": of_session.get("steps_done", 0),
        "steps_total": of_session.get("steps_total", 0),
        "interruption_class": of_session.get("interruption_class"),
        "reason_code": of_session.get("reason_code"),
        "attention": None if one.ended else of_session.get("attention"),
        "kind": FOREIGN_RUN.public_kind,
        "carrier": native_session,
        **({"error": {"message": run.problem}} if run.problem else {}),
    }


def show(
    world: World, screen: Screen, native: list[Row], *, resumable: bool, ended_max: int | None, limit: int | None
) -> int:
    """Sessions and runs in one table; of those that have ended, and of all, at most so many."""
    found, warnings = with_runs(world, native)
    shown: list[Row | RunRow] = []
    left = 0 if resumable else len(found) if ended_max is None else ended_max
    for one in found:
        left -= has_ended(one)
        if left >= 0 or not has_ended(one):
            shown.append(one)
    shown = shown[:limit]
    if screen.flags.json:
        screen.document([row_json(one) if isinstance(one, RunRow) else listing.as_json(one) for one in shown])
        return 0
    for warning in warnings[:WARNINGS_SHOWN_MAX]:
        screen.warn(one_line(warning))
    if len(warnings) > WARNINGS_SHOWN_MAX:
        screen.warn(f"and {len(warnings) - WARNINGS_SHOWN_MAX} more remarks on runs; acode explain RUN shows them")
    if shown:
        show_table(screen, *table(shown, world.clock()))
    else:
        screen.line("No resumable sessions here." if resumable and found else "No sessions here.")
    if hidden := (0 if resumable else len(found) - len(shown)):
        screen.line(f"{hidden} more ended sessions: acode session list --all")
    return 0


def has_ended(one: Row | RunRow) -> bool:
    return one.ended if isinstance(one, RunRow) else one.session is not None and one.session.terminal


def table(shown: list[Row | RunRow], now: datetime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows; the source is shown where not all are native."""
    if all(isinstance(one, Row) and (one.session is None or one.session.source == "native") for one in shown):
        return listing.HEADINGS, [listing.cells(one, now) for one in shown if isinstance(one, Row)]
    name, *others = listing.HEADINGS
    return (name, "SOURCE", *others), [cells(one, now) for one in shown]


def cells(one: Row | RunRow, now: datetime) -> tuple[str, ...]:
    """One row of the table with its source."""
    if isinstance(one, Row):
        name, state, when, title = listing.cells(one, now)
        return name, one.session.source if one.session else "native", state, when, title
    state = one.state
    if one.row is not None and not one.ended:
        state = listing.cells(one.row, now)[1]
    when = ago_short(one.updated_at, now) if one.updated_at.timestamp() else "-"
    return one_line(one.run.run_id), one.run.source, state, when, one_line(one.run.problem or one.run.title)

"""acode resume --dry-run: what a resume would do, without doing any of it."""

from __future__ import annotations

from acode.cli import sync_state
from acode.cli.environment import describe_change
from acode.cli.positions import (
    Outline,
    agent_lines,
    agent_place,
    outline_of,
    own_title,
    replacement_lines,
    settled_lines,
)
from acode.cli.report import next_of_agent
from acode.cli.screen import Screen
from acode.engine.held_session import ended
from acode.engine.preview import Preview, as_json, next_action, preview
from acode.engine.shared_paths import author
from acode.engine.world import Options, World, short
from acode.redact import Redactor
from acode.state import Session
from acode.text import one_line
from acode.text.durations import attempt_of, count


def show(world: World, screen: Screen, name: str, options: Options, *, full: bool) -> int:
    found = preview(world, name, options)
    if found.survey is None:
        raise ended(found.session)
    if screen.flags.json:
        screen.document(as_json(found, full=full))
        return 0
    for warning in found.warnings:
        screen.warn(one_line(warning))
    for line in lines(world, screen, found):
        screen.data(line)
    return 0


def lines(world: World, screen: Screen, found: Preview) -> list[str]:
    assert found.survey is not None
    session, survey = found.session, found.survey
    continuation, outline = survey.continuation, outline_of(session)
    last = found.checkpoint.session.last_completed if found.checkpoint else None
    checkpoint = "before the first step"
    if last is not None:
        checkpoint = outline.name(last.step) if outline else str(last.step)
    out = [
        f"Would resume session {short(session.session_id)}:",
        f"  Plan: {one_line(world.redactor.text(session.title))}",
        f"  Current state: {session.state}",
        f"  Last checkpoint: {checkpoint}",
    ]
    if session.steps_from.follows_model:
        out += [f"  {line}" for line in agent_work(session, world.redactor)]
    else:
        out += [
            f"  Skipping: {count(len(continuation.skipped_steps), 'step')} (complete)",
            f"  Remaining: {count(len(continuation.pending), 'step')}",
        ]
    if continuation.pending and not session.steps_from.follows_model:
        out.append(f"  Starting from: {where(outline, continuation.pending[0], world.redactor)}")
    out.append(f"  Sync status: {sync_state.in_brief(found.sync.as_json())}")
    if survey.replacement is not None:
        out += [f"  {line}" for line in replacement_lines(survey.replacement.as_json())]
    decision = survey.decision
    out.append(
        f"  Decision: {'allowed' if decision.eligible else 'refused'} ({decision.describe}),"
        f" {attempt_of(decision.attempt, decision.attempts_max)}"
    )
    for settlement in continuation.in_flight:
        if session.is_open_task(settlement.step):
            continue  # it continues where the log ends, whatever the outcome of the step inside it
        out += ["", f"Step in progress: {where(outline, settlement.step, world.redactor)}"]
        evidence = one_line(settlement.evidence)
        told = settled_lines(settlement.kind, str(settlement.outcome), str(settlement.action), evidence)
        out += [f"  {name}: {value}" for name, value in told]
    out += environment_lines(world, screen, found)
    return [*out, "", f"Nothing was changed. Next: {next_action(found)}"]


def agent_work(session: Session, redactor: Redactor) -> list[str]:
    """The finished part of an agent's work, and the task it continues with."""
    talk = [line for line in agent_lines(session) if line.startswith("Conversation")]
    at, upcoming = agent_place(session), next_of_agent(session, redactor)
    return [
        f"Skipping: {count(session.plan_tasks_done, 'task')} (complete), {count(session.steps_done, 'step')} on record",
        *talk,
        f"Remaining: {count(session.plan_tasks_total - session.plan_tasks_done, 'task')}",
        f"Starting from: {at.name} ({upcoming})" if at else f"Starting from: {upcoming}",
    ]


def environment_lines(world: World, screen: Screen, found: Preview) -> list[str]:
    report = found.environment
    if report is None:
        return []
    good = screen.paint_data("✓", "good")
    warn = screen.paint_data("⚠", "warn")
    out = ["", "Environment:"]
    out += [f"  {warn} {one_line(one.message)}" for one in (*report.errors, *report.warnings)]
    for one in report.changed_files:
        line = describe_change({**_plain(one), "suspicious": list(one.suspicious)}, world.clock())
        out.append(f"  {warn} changed by {one_line(author(one))}: {line}")
    if report.valid:
        out.append(f"  {good} {count(report.total_files, 'file')} as the session left them")
    return out


def _plain(change: object) -> dict[str, object]:
    return {name: getattr(change, name) for name in ("path", "change", "modified_at")}


def where(outline: Outline | None, step: str, redactor: Redactor) -> str:
    place = outline.places.get(step) if outline else None
    if place is None:
        return step
    title = own_title(place, redactor)
    return f"{place.name} ({step}): {title}" if title else f"{place.name} ({step})"

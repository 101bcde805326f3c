"""acode resume --dry-run: what a resume would do, without doing any of it."""

from __future__ import annotations

from acode.cli import sync_words
from acode.cli.environment import change_in_words
from acode.cli.outline import Outline, outline_of
from acode.cli.progress import settled_lines
from acode.cli.screen import Screen, one_line
from acode.cli.wording import count
from acode.engine.hold import ended
from acode.engine.preview import Preview, as_json, next_action, preview
from acode.engine.world import Options, World, short


def show(world: World, screen: Screen, name: str, options: Options, *, full: bool) -> int:
    found = preview(world, name, options)
    if found.survey is None:
        raise ended(found.session)
    if screen.flags.json:
        screen.document(as_json(found, full=full))
        return 0
    for line in lines(world, screen, found):
        screen.data(line)
    return 0


def lines(world: World, screen: Screen, found: Preview) -> list[str]:
    assert found.survey is not None
    session, survey = found.session, found.survey
    continuation, outline = survey.continuation, outline_of(session)
    last = found.checkpoint.session.last_completed if found.checkpoint else None
    checkpoint = outline.name(last.step) if last is not None and outline else "before the first step"
    out = [
        f"Would resume session {short(session.session_id)}:",
        f"  Plan: {one_line(world.redactor.text(session.title))}",
        f"  Current state: {session.state}",
        f"  Last checkpoint: {checkpoint}",
        f"  Skipping: {count(len(continuation.skipped_steps), 'step')} (complete)",
        f"  Remaining: {count(len(continuation.pending), 'step')}",
    ]
    if continuation.pending:
        out.append(f"  Starting from: {where(outline, continuation.pending[0])}")
    out.append(f"  Sync status: {sync_words.in_brief(found.sync.as_json())}")
    decision = survey.decision
    out.append(
        f"  Decision: {'allowed' if decision.eligible else 'refused'} ({decision.reason}),"
        f" attempt {decision.attempt} of {decision.attempts_max}"
    )
    for settlement in continuation.in_flight:
        out += ["", f"Step in progress: {where(outline, settlement.step)}"]
        evidence = one_line(settlement.evidence)
        told = settled_lines(settlement.kind, str(settlement.outcome), str(settlement.action), evidence)
        out += [f"  {name}: {value}" for name, value in told]
    out += environment_lines(world, screen, found)
    return [*out, "", f"Nothing was changed. Next: {next_action(found)}"]


def environment_lines(world: World, screen: Screen, found: Preview) -> list[str]:
    report = found.environment
    if report is None:
        return []
    good = screen.paint_data("✓", "good")
    warn = screen.paint_data("⚠", "warn")
    out = ["", "Environment:"]
    out += [f"  {warn} {one_line(one.message)}" for one in (*report.errors, *report.warnings)]
    changes = [
        change_in_words({**_plain(one), "suspicious": list(one.suspicious)}, world.clock())
        for one in report.changed_files
    ]
    out += [f"  {warn} changed by somebody else: {line}" for line in changes]
    if report.valid:
        out.append(f"  {good} {count(report.total_files, 'file')} as the session left them")
    return out


def _plain(change: object) -> dict[str, object]:
    return {name: getattr(change, name) for name in ("path", "change", "modified_at")}


def where(outline: Outline | None, step: str) -> str:
    place = outline.places.get(step) if outline else None
    return f"{place.name} ({step})" if place else step

"""acode inspect: dead sessions of other agents on this machine. Reads only; needs no workspace and no set-up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from acode.cli.flags import Command, Flags
from acode.cli.screen import Screen
from acode.text import one_line
from acode.text.durations import ago, count, stamp

if TYPE_CHECKING:
    from acode.observed.inspect import InspectedCall, InspectedSession, Inspection
    from acode.observed.session import Evidence

TEXT_CHARS_MAX = 2_000
LINE_CHARS_MAX = 200
CALLS_MAX = 10


def _complete(_context: click.Context, _argument: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The agents' names, and paths."""
    from acode.observed import AGENTS

    names = [name for name in AGENTS if name.startswith(incomplete)]
    found = [CompletionItem(name, help=AGENTS[name].TITLE) for name in names]
    return [*found, CompletionItem(incomplete, type="file")]


@click.command(cls=Command, name="inspect")
@click.argument("target", metavar="[AGENT|PATH]", required=False, shell_complete=_complete)
@click.option("--all", is_flag=True, help="Show every session, also finished and living ones.")
@click.pass_obj
def command(flags: Flags, *, target: str | None, all: bool) -> int:
    """Show dead sessions of other agents: what was in flight, what shows it now, what to type next.

    AGENT is claude, codex, gemini, qwen, opencode or cline. PATH is a transcript, the directory of a project, or an
    agent's configuration directory. Without either, every agent's own place is searched. Nothing is changed.
    """
    from acode.observed.inspect import find_target, inspect

    environment = dict(os.environ)
    screen = Screen(flags, environment)
    inspection = inspect(find_target(target, environment), environment=environment, all_sessions=all)
    shown = Shown(flags)
    if flags.json:
        screen.document(shown.document(inspection))
        return 0
    for line in shown.lines(screen, inspection):
        screen.data(line)
    for problem in inspection.problems[:10]:
        screen.warn(f"{shown.text(str(problem.path))}: {shown.text(problem.message)}")
    if len(inspection.problems) > 10:
        screen.warn(f"{count(len(inspection.problems) - 10, 'other file')} could not be read: see --json")
    screen.line(_summary(inspection, shown.text(target or ""), everything=all))
    return 0


def _summary(inspection: Inspection, target: str, *, everything: bool) -> str:
    shown = len(inspection.sessions)
    if not inspection.looked_at and not inspection.not_looked_at:
        where = f" for {target}" if target else ""
        return f"No session of another agent was found{where}. Agents: claude, codex, gemini, qwen, opencode, cline."
    words = f"{count(inspection.looked_at, 'session')} looked at: {shown} shown"
    if not everything:
        others = f"{inspection.finished} finished, {inspection.alive} alive, {inspection.not_understood} not understood"
        words += f", {others} (--all shows them)"
    if inspection.not_looked_at:
        words += f"; {count(inspection.not_looked_at, 'older transcript')} not looked at (--all, or name a PATH)"
    return f"{words}."


class Shown:
    """Foreign text as people and programs may see it: without secrets, and in lines without anything that steers."""

    def __init__(self, flags: Flags) -> None:
        self._redacted = flags.redacted

    def text(self, text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
        """One printable line. Redacted before it is cut: half a secret is no pattern any more."""
        cut = one_line(self._redacted(text[: 8 * chars_max]))
        return cut if len(cut) <= chars_max else cut[: chars_max - 1] + "…"

    # For people.

    def lines(self, screen: Screen, inspection: Inspection) -> Iterator[str]:
        now = datetime.now(UTC)
        for number, each in enumerate(inspection.sessions):
            if number:
                yield ""
            yield from self._session(screen, each, now)

    def _session(self, screen: Screen, each: InspectedSession, now: datetime) -> Iterator[str]:
        from acode.observed import AGENTS
        from acode.observed.session_words import ENDINGS, STATES

        session, style = each.session, {"alive": "good", "dead": "bad"}.get(each.liveness.state, "warn")
        title = f"{AGENTS[session.agent].TITLE} {self.text(session.session_id, 60) or '(no id)'}"
        state = screen.paint_data(STATES[each.liveness.state], style)
        yield f"{screen.paint_data(title, 'bold')}  {state}, {ENDINGS[session.ending]}, {ago(session.updated_at, now)}"
        yield f"  Process: {self.text(each.liveness.reason, LINE_CHARS_MAX)}"
        yield f"  Directory: {self.text(session.directory, LINE_CHARS_MAX) or 'not in the transcript'}"
        if session.prompt:
            yield f"  Prompt: {self.text(session.prompt, LINE_CHARS_MAX)}"
        for call in each.calls[-CALLS_MAX:]:
            yield from self._call(screen, call, now)
        if hidden := session.calls_left_out + max(0, len(each.calls) - CALLS_MAX):
            yield f"  {count(hidden, 'other call')} without a result"
        yield from (f"  · {self.text(one.text, 2 * LINE_CHARS_MAX)}" for one in each.traces)
        yield from (f"  Note: {self.text(note, 2 * LINE_CHARS_MAX)}" for note in session.notes)
        for check in each.checks:
            yield f"  {screen.paint_data('Check first:', 'warn')} {self.text(check, 2 * LINE_CHARS_MAX)}"
        if each.resume is not None:
            yield f"  To resume: {one_line(each.resume.line)}"
        elif session.ending != "finished" and each.liveness.state != "alive":
            elsewhere = "its transcript lies elsewhere"
            why = elsewhere if session.config is None else "the id or the directory cannot be typed safely"
            yield f"  To resume: no command can be given; {why}"

    def _call(self, screen: Screen, each: InspectedCall, now: datetime) -> Iterator[str]:
        from acode.observed.session_words import OUTCOMES, effect_words

        call = each.call
        label = "Given up earlier" if call.abandoned else "In flight"
        when = f", {ago(call.at, now)}" if call.at is not None else ""
        helper = f" of subagent {self.text(call.subagent, 40)}" if call.subagent else ""
        yield f"  {label}{helper}: {self.text(call.tool, 60)}{when}"
        yield from (f"    {self.text(line, LINE_CHARS_MAX)}" for line in map(effect_words, call.effects) if line)
        yield from (f"    · {self.text(one.text, 2 * LINE_CHARS_MAX)}" for one in each.evidence)
        if not call.abandoned:
            yield f"    → {screen.paint_data(OUTCOMES[each.outcome], 'bold')}"

    # For programs.

    def document(self, inspection: Inspection) -> dict[str, Any]:
        return {
            "sessions": [self._session_json(each) for each in inspection.sessions],
            "looked_at": inspection.looked_at,
            "not_looked_at": inspection.not_looked_at,
            "alive": inspection.alive,
            "finished": inspection.finished,
            "not_understood": inspection.not_understood,
            "problems": [
                {"path": self.text(str(one.path)), "message": self.text(one.message)} for one in inspection.problems
            ],
        }

    def _session_json(self, each: InspectedSession) -> dict[str, Any]:
        session, resume = each.session, each.resume
        return {
            "agent": session.agent,
            "session_id": self.text(session.session_id),
            "parent_id": self.text(session.parent_id) or None,
            "transcript": self.text(str(session.transcript)),
            "directory": self.text(session.directory) or None,
            "version": self.text(session.version) or None,
            "updated_at": stamp(session.updated_at),
            "prompt": self.text(session.prompt) or None,
            "state": each.liveness.state,
            "state_reason": self.text(each.liveness.reason),
            "pid": each.liveness.pid,
            "ending": session.ending,
            "calls": [self._call_json(call) for call in each.calls],
            "calls_left_out": session.calls_left_out,
            "evidence": [self._evidence_json(one) for one in each.traces],
            "notes": [self.text(note) for note in session.notes],
            "check_first": [self.text(check) for check in each.checks],
            "resume": None
            if resume is None
            else {
                "directory": resume.directory or None,
                "environment": dict(resume.variables),
                "command": list(resume.command),
                "line": resume.line,
            },
        }

    def _call_json(self, each: InspectedCall) -> dict[str, Any]:
        from acode.observed.session import Command as ShellCommand
        from acode.observed.session import Delete, Edit, Write

        call = each.call
        commands = [self.text(one.text) for one in call.effects if isinstance(one, ShellCommand)]
        paths = [self.text(one.path) for one in call.effects if isinstance(one, Write | Edit | Delete)]
        return {
            "call_id": self.text(call.call_id) or None,
            "tool": self.text(call.tool),
            "at": stamp(call.at) if call.at is not None else None,
            "line": call.line or None,
            "abandoned": call.abandoned,
            "subagent": self.text(call.subagent) or None,
            "commands": commands,
            "paths": paths,
            "outcome": each.outcome,
            "evidence": [self._evidence_json(one) for one in each.evidence],
        }

    def _evidence_json(self, one: Evidence) -> dict[str, Any]:
        return {"kind": one.kind, "outcome": one.outcome, "text": self.text(one.text), "pid": one.pid}

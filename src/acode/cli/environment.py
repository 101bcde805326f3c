"""The check of the workspace as text: one line per check, and the files that somebody else changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from acode.cli.screen import Screen
from acode.engine.environment import Report
from acode.engine.world import short
from acode.text import one_line
from acode.text.durations import ago_brief
from acode.workspace import ChangedFile

FILES_SHOWN_MAX = 20


def check_lines(screen: Screen, report: Report) -> list[str]:
    good, bad, warn = screen.paint("✓", "good"), screen.paint("✗", "bad"), screen.paint("⚠", "warn")
    lines = []
    for check in report.checks:
        detail = f" ({one_line(check.detail)})" if check.detail else ""
        lines.append(f"  {good if check.ok else bad} {one_line(check.name)}{detail}")
    lines += [f"  {bad} {one_line(error.message)}" for error in report.errors]
    lines += [f"  {warn} {one_line(warning.message)}" for warning in report.warnings]
    return lines


def changed_lines(screen: Screen, changed: tuple[ChangedFile, ...], now: datetime) -> list[str]:
    if not changed:
        return []
    lines = [f"  {screen.paint('⚠', 'warn')} Changed files detected:"]
    lines += [f"    - {describe_change(msgspec.to_builtins(one), now)}" for one in changed[:FILES_SHOWN_MAX]]
    if len(changed) > FILES_SHOWN_MAX:
        lines.append(f"    … and {len(changed) - FILES_SHOWN_MAX} more")
    return [*lines, "", "The session was working on these files. Changes may conflict."]


def describe_change(change: dict[str, Any], now: datetime) -> str:
    when = f" {ago_brief(datetime.fromisoformat(change['modified_at']), now)}" if change.get("modified_at") else ""
    odd = f"; it now holds {', '.join(change['suspicious'])}" if change.get("suspicious") else ""
    who = f" by step {one_line(change['step'])} of session {short(change['session_id'])}" if change.get("step") else ""
    return f"{one_line(change['path'])} ({change['change']}{when}{who}{odd})"

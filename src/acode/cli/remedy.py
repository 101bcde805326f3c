"""The remediation checklist of an escalated session, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acode.cli.screen import Screen, one_line


def show_remedy(screen: Screen, remedy: Mapping[str, Any]) -> None:
    """What failed last, what it said, and what to try, in order."""
    if remedy.get("failed_step"):
        screen.insist(f"Last failure: step {remedy['failed_step']}: {one_line(remedy['message'])}")
    else:
        screen.insist(f"Last failure: {one_line(remedy['message'])}")
    for line in remedy.get("last_output", ()):
        screen.insist(screen.paint(f"    │ {one_line(line)}", "dim"))
    for path in remedy.get("changed_files", ()):
        screen.insist(f"  changed by somebody else: {one_line(path)}")
    screen.insist("What to do:")
    for number, line in enumerate(remedy["checklist"], 1):
        screen.insist(f"  {number}. {one_line(line)}")

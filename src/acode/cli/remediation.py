"""The remediation checklist of an escalated session, as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acode.cli.screen import Screen
from acode.text import one_line


def show_remedy(screen: Screen, remedy: Mapping[str, Any]) -> None:
    """Show the last failure, its output, and the next actions, in order; a command line of a plan may hold a secret."""

    def clean(text: str) -> str:
        return one_line(screen.flags.redacted(text))

    if remedy.get("failed_step"):
        screen.insist(f"Last failure: step {remedy['failed_step']}: {clean(remedy['message'])}")
    else:
        screen.insist(f"Last failure: {clean(remedy['message'])}")
    for line in remedy.get("last_output", ()):
        screen.insist(screen.paint(f"    │ {clean(line)}", "dim"))
    for path in remedy.get("changed_files", ()):
        screen.insist(f"  changed by somebody else: {clean(path)}")
    screen.insist("What to do:")
    for number, line in enumerate(remedy["checklist"], 1):
        screen.insist(f"  {number}. {clean(line)}")

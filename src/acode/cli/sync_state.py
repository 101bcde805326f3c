"""The state of the sync as text; a session never waits for it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from acode.text import one_line
from acode.text.durations import ago_brief, count

NOTE = "Note: Session continues locally. Sync will resume when remote is available."
DISABLED: dict[str, Any] = {
    "status": "disabled",
    "pending_events": 0,
    "last_attempt_at": None,
    "next_retry_in_seconds": None,
    "reason": None,
    "standing": "owner",
}
ELSEWHERE = {
    "fenced": "another machine has this session",
    "diverged": "another machine has written another history",
    "copy": "a copy; another machine owns it",
}


def in_brief(sync: dict[str, Any]) -> str:
    """For one line: “2 events pending”."""
    standing = sync.get("standing", "owner")
    if sync["status"] != "disabled" and standing in ELSEWHERE:
        return ELSEWHERE[standing]
    match sync["status"]:
        case "disabled":
            return "off (no remote configured)"
        case "up_to_date":
            return "Up to date ✓"
        case "pending":
            return f"{count(sync['pending_events'], 'event')} pending"
        case _:
            return f"DEGRADED - {count(sync['pending_events'], 'event')} pending"


def in_full(sync: dict[str, Any], now: datetime) -> list[str]:
    """The line of `acode status`, and below it why a degraded sync is no reason to worry."""
    lines = [f"Sync: {in_brief(sync)}"]
    if sync["status"] != "degraded":
        return lines
    if sync.get("standing") in ELSEWHERE:
        return [*lines, f"  Reason: {one_line(sync.get('reason') or '')}"]
    if sync.get("last_attempt_at"):
        lines.append(f"  Last sync attempt: {ago_brief(datetime.fromisoformat(sync['last_attempt_at']), now)}")
    lines.append(f"  Next retry: {next_retry(sync)}")
    if sync.get("reason"):
        lines.append(f"  Reason: {one_line(sync['reason'])}")
    return [*lines, "", NOTE]


def next_retry(sync: dict[str, Any]) -> str:
    seconds = sync.get("next_retry_in_seconds")
    return f"{seconds:g} sec" if seconds is not None else "with the next run or resume, or now: acode sync now"

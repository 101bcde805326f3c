"""What follows from how an attempt ended: the policy as a schedule. Pure.

An attempt is a child process that has recorded its own decision; here only its exit status and its last line are read.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from acode.errors import CoolingDown, DiskFull, StepTimeout
from acode.policy import COOLDOWN_S

DEATHS_MAX = 3  # of workers or children in a row, without progress in between: the next would die too
# A person is needed: a question, a no, the policy, files, the limit, an outcome, the log; wrong words or settings too.
NEEDS_PERSON = frozenset({2, 3, 10, 12, 13, 17, 18, 19, 20, 130})
HELD = 16
FILES_MISSING = 17
DRAINED = 143
ESCALATED = 18
STATE_OF_END = {"COMPLETED": "done", "FAILED": "failed", "CANCELLED": "cancelled"}


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a child ended, and what its last line said."""

    exit_code: int | None  # None: a signal
    signal: str | None = None
    state: str = ""  # of the session
    error_code: str = ""
    message: str = ""
    next_action: str = ""
    retry_after_s: float | None = None
    doubted: bool = False  # the server may not know who continued it last: no time cures that


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """The session goes back to the queue, not before so many seconds."""

    after_s: float
    why: str
    died: bool = False


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """It waits for a person: no slot, no lease, its key kept."""

    exit_code: int
    why: str
    next_action: str = ""
    error_code: str = ""


class Over(msgspec.Struct, frozen=True, kw_only=True):
    state: Literal["done", "failed", "cancelled"]
    exit_code: int
    why: str = ""


Outcome = Again | Parked | Over


def outcome_of(end: End, *, lease_s: float, cooldown_s: dict[str, float] | None = None) -> Outcome:
    """One of three: over, parked, or again at a time."""
    cooldown = {**COOLDOWN_S, **(cooldown_s or {})}
    code, words = end.exit_code, end.message
    if end.state in STATE_OF_END:
        state: Literal["done", "failed", "cancelled"] = STATE_OF_END[end.state]  # type: ignore[assignment]
        return Over(state=state, exit_code=code or 0, why=words)
    if code is None:
        by = f"was killed by {end.signal}" if end.signal else "and the one that started it were killed"
        return Again(after_s=cooldown["process_crash"], why=f"its process {by}", died=True)
    if code == CoolingDown.exit_code:
        return Again(after_s=end.retry_after_s or 0.0, why=words or "cool-down")
    if code == HELD and end.doubted:
        return Parked(exit_code=HELD, why=words, next_action=end.next_action)
    if code == HELD:
        return Again(after_s=lease_s, why=words or "another process has it")
    if code == DRAINED:
        return Again(after_s=0.0, why="its worker was asked to end")
    if end.error_code == DiskFull.code or code in NEEDS_PERSON:
        return Parked(
            exit_code=FILES_MISSING if end.error_code == DiskFull.code else code,
            why=words or f"it ended with {code}",
            next_action=end.next_action,
            error_code=end.error_code,
        )
    waits = cooldown["timeout" if end.error_code == StepTimeout.code else "tool_failure"]
    return Again(after_s=waits, why=words or f"it ended with {code}", died=not end.error_code)


def after_deaths(outcome: Outcome, deaths: int) -> Outcome:
    """A plan that kills its workers is not given to a fourth."""
    if isinstance(outcome, Again) and outcome.died and deaths >= DEATHS_MAX:
        why = f"{deaths} workers or their processes died with it in a row, without a step in between; the last: "
        return Parked(exit_code=ESCALATED, why=why + outcome.why)
    return outcome

"""The time of the next attempt: exponential back-off with jitter, and a breaker for permanent errors. Pure: time and
random numbers are arguments. A permanent error (a wrong password, a schema of a newer acode) is tried again too,
because a person may correct it meanwhile, but rarely.
"""

from __future__ import annotations

from typing import Literal

import msgspec

FIRST_RETRY_S = 1.0
RETRY_S_MAX = 60.0
PERMANENT_RETRY_S = 300.0
FAILURES_TO_OPEN = 5

Kind = Literal["transient", "permanent"]


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """How the line to the server has been lately."""

    failures: int = 0
    open: bool = False  # the breaker: after so many failures one small question goes before any work
    retry_at: float = 0.0

    def may_try(self, now: float) -> bool:
        return now >= self.retry_at


def after_failure(link: Link, kind: Kind, *, now: float, dice: float) -> Link:
    """`dice` in [0, 1): two machines that lost the same server do not come back in the same moment."""
    failures = link.failures + 1
    growing = min(FIRST_RETRY_S * 2.0 ** min(failures - 1, 16), RETRY_S_MAX)
    jittered = (PERMANENT_RETRY_S if kind == "permanent" else growing) * (0.5 + 0.5 * dice)
    return Link(failures=failures, open=kind == "permanent" or failures >= FAILURES_TO_OPEN, retry_at=now + jittered)


def after_success() -> Link:
    return Link()

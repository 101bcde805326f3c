"""When each step of a session ran, how long it took and how it ended: from its verified events, whatever its source."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from acode.events import Envelope
from acode.events import types as ev
from acode.events.definition import describe


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempt of a step. `ended_at` None: it is in flight, or waits for somebody."""

    step: str
    kind: str
    attempt: int
    status: str
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    title: str = ""  # of a step that stands in no plan


def step_times(events: Iterable[Envelope]) -> dict[str, StepTimes]:
    """In the order in which the steps began first."""
    found: dict[str, StepTimes] = {}
    for envelope in events:
        match envelope.event:
            case ev.StepStarted() as event:
                shown = event.shown or (describe(event.definition) if event.definition is not None else "")
                found[event.step] = StepTimes(
                    step=event.step,
                    kind=event.kind,
                    attempt=event.attempt,
                    status="in_flight",
                    started_at=envelope.at,
                    title=shown,
                )
            case ev.StepCompleted() as event:
                found[event.step] = _ended(found, event, envelope, "completed")
            case ev.StepFailed() as event:
                found[event.step] = _ended(found, event, envelope, "failed")
            case ev.StepSettled(outcome=ev.Settled.RETRY_ACCEPTED | ev.Settled.ROLLED_BACK) as event:
                _reopen(found, (event.step,))
            case ev.StepsRolledBack(steps=steps):
                _reopen(found, steps)
            case _:
                pass
    return found


def _ended(
    found: dict[str, StepTimes], event: ev.StepCompleted | ev.StepFailed, envelope: Envelope, status: str
) -> StepTimes:
    """A gate is recorded by its completion alone; a step that a person settled ended when that was said."""
    known = found.get(event.step) or StepTimes(step=event.step, kind="approve", attempt=event.attempt, status=status)
    return msgspec.structs.replace(
        known, attempt=event.attempt, status=status, ended_at=envelope.at, duration_ms=event.duration_ms
    )


def _reopen(found: dict[str, StepTimes], steps: Iterable[str]) -> None:
    for step in steps:
        if step in found:
            found[step] = msgspec.structs.replace(found[step], status="pending")

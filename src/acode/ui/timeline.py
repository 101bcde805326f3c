"""The times of a session, from its events: attempts of each step as bars, and the time in which nothing ran.

Pure: events in, frozen values out. A step that one process began and another settled keeps its bar open until the
settlement, because nobody saw when it ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from acode.events import Envelope
from acode.events import types as ev

GAP_SHOWN_MIN = timedelta(milliseconds=50)
Status = Literal["running", "completed", "failed", "applied", "not_applied", "rolled_back", "unknown", "retry_accepted"]
WAITING = (ev.SessionPaused, ev.SessionAwaitingApproval)
WORKING = (ev.SessionExecuting, ev.StepStarted, ev.StepFailed)


class Attempt(msgspec.Struct, kw_only=True):
    """One attempt of a step: from its start to its end, failure or settlement."""

    number: int
    start: datetime
    seq: int
    key: str = ""
    end: datetime | None = None
    status: Status = "running"
    evidence: str = ""
    output: ev.Output | None = None
    duration_ms: int | None = None


class StepTimes(msgspec.Struct, kw_only=True):
    id: str
    task: str
    kind: str
    shown: str = ""
    attempts: list[Attempt] = []
    taken_back: bool = False  # a rollback made it pending again


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Time in which no process worked on the session: it had died, or it waited for somebody."""

    start: datetime
    end: datetime
    dead: bool


class Timeline(msgspec.Struct, kw_only=True):
    """All bars of a session; `steps` in the order in which they first started."""

    start: datetime
    end: datetime
    steps: dict[str, StepTimes] = {}
    gaps: list[Gap] = []


def timeline_of(envelopes: Iterable[Envelope]) -> Timeline | None:
    """None where there are no events."""
    found: Timeline | None = None
    before: Envelope | None = None
    stopped: Envelope | None = None  # the event after which no process worked on it
    for envelope in envelopes:
        if found is None:
            found = Timeline(start=envelope.at, end=envelope.at)
        resumes = isinstance(envelope.event, ev.ResumeStarted)
        if resumes or isinstance(envelope.event, ev.ResumeDecision):  # one that is refused works on nothing
            stopped = stopped or before
        if resumes and stopped is not None:
            _add_gap(found, stopped, envelope.at)
        if isinstance(envelope.event, WAITING):
            stopped = stopped or envelope
        elif resumes or _is_work(envelope):
            stopped = None
        found.end = envelope.at
        _apply(found, envelope)
        before = envelope
    if found is not None and stopped is not None:
        _add_gap(found, stopped, found.end)
    return found


def _is_work(envelope: Envelope) -> bool:
    """Whether a process at work has written it. A person's answer and an outcome that is told later are none."""
    event = envelope.event
    return isinstance(event, WORKING) or (isinstance(event, ev.StepCompleted) and not event.settled)


def _add_gap(found: Timeline, stopped: Envelope, until: datetime) -> None:
    if until - stopped.at >= GAP_SHOWN_MIN:
        found.gaps.append(Gap(start=stopped.at, end=until, dead=not isinstance(stopped.event, WAITING)))


def _apply(found: Timeline, envelope: Envelope) -> None:
    event = envelope.event
    match event:
        case ev.StepStarted():
            times = found.steps.get(event.step)
            if times is None:
                times = StepTimes(id=event.step, task=event.task, kind=event.kind, shown=event.shown)
                found.steps[event.step] = times
            times.taken_back = False
            times.attempts.append(Attempt(number=event.attempt, start=envelope.at, seq=envelope.seq, key=event.key))
        case ev.StepCompleted():
            _end(found, envelope, "applied" if event.settled else "completed", event)
        case ev.StepFailed():
            _end(found, envelope, "failed", event)
        case ev.StepSettled():
            _settle(found, envelope, event)
        case ev.StepsRolledBack():
            for step in event.steps:
                if step in found.steps:
                    found.steps[step].taken_back = True


def _last(found: Timeline, step: str) -> Attempt | None:
    times = found.steps.get(step)
    return times.attempts[-1] if times is not None and times.attempts else None


def _end(found: Timeline, envelope: Envelope, status: Status, event: ev.StepCompleted | ev.StepFailed) -> None:
    attempt = _last(found, event.step)
    if attempt is None:
        return
    attempt.end, attempt.status, attempt.output = envelope.at, status, event.output
    attempt.duration_ms = event.duration_ms
    if isinstance(event, ev.StepFailed):
        attempt.evidence = event.message


def _settle(found: Timeline, envelope: Envelope, event: ev.StepSettled) -> None:
    attempt = _last(found, event.step)
    if attempt is None:
        return
    attempt.evidence = event.evidence
    if attempt.status in ("running", "unknown"):
        attempt.status = event.outcome.value
        attempt.end = None if event.outcome is ev.Settled.UNKNOWN else envelope.at

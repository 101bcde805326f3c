"""The decision trail: every event in which somebody or some rule decided something, as one sentence with its evidence.

Pure. Steps that began and ended by themselves are no decisions; they stand in the waterfall.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from acode.events import Envelope
from acode.events import types as ev

SETTLED = {
    ev.Settled.APPLIED: "took effect: it is not repeated",
    ev.Settled.NOT_APPLIED: "did not take effect: it may run",
    ev.Settled.ROLLED_BACK: "was rolled back and runs again",
    ev.Settled.UNKNOWN: "has an unknown outcome: a person decides",
    ev.Settled.RETRY_ACCEPTED: "may be repeated: the risk was accepted",
}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One decision: who, what, why."""

    seq: int
    at: str
    actor: str
    what: str
    evidence: str = ""
    reason_code: str = ""
    step: str | None = None
    via: str = ""


def trail_of(envelopes: Iterable[Envelope]) -> list[Entry]:
    return [entry for envelope in envelopes if (entry := entry_of(envelope)) is not None]


def entry_of(envelope: Envelope) -> Entry | None:
    told = _sentence(envelope.event)
    if told is None:
        return None
    what, evidence, reason_code = told
    return Entry(
        seq=envelope.seq,
        at=envelope.at.isoformat().replace("+00:00", "Z"),
        actor=envelope.actor,
        what=what,
        evidence=evidence,
        reason_code=reason_code,
        step=getattr(envelope.event, "step", None),
        via=getattr(envelope.event, "via", ""),
    )


def _sentence(event: ev.Known | ev.Unknown) -> tuple[str, str, str] | None:
    """What was decided, the evidence or the remark, and the reason code."""
    match event:
        case ev.ResumeDecision():
            verdict = "allowed" if event.eligible else "refused"
            attempt = f"attempt {event.attempt} of {event.max_attempts}"
            return f"Resume {verdict}", f"asked by {event.actor}, {attempt}", event.reason_code
        case ev.ResumeStarted():
            counts = f"{event.skipped_steps} steps skipped, {event.remaining_steps} remaining"
            return "Resume started", f"{event.scenario}; {counts}", ""
        case ev.StepSettled():
            return f"Step {event.step} {SETTLED[event.outcome]}", _with_note(event.evidence, event.note), event.outcome
        case ev.UndoSettled():
            return f"Undo of {event.step} settled: {event.outcome}", event.note, event.outcome
        case _:
            return _of_session(event) or _of_person(event)


def _of_session(event: ev.Known | ev.Unknown) -> tuple[str, str, str] | None:
    match event:
        case ev.SessionCreated():
            return "Session created", f"by {event.owner.user} on {event.owner.host}, acode {event.acode_version}", ""
        case ev.SessionAwaitingApproval():
            return f"Gate {event.step} asks: {event.question}", "", ""
        case ev.SessionPaused():
            return "Session paused", event.message, event.reason
        case ev.SessionCompleted():
            return "Session completed", "", ""
        case ev.SessionFailed():
            return "Session failed", event.reason, ""
        case ev.SessionCancelled():
            return "Session cancelled", event.reason, ""
        case ev.PlanChanged():
            return "Plan changed", f"{event.tasks} tasks, {event.steps} steps; {event.reason}".rstrip("; "), ""
        case ev.PlanReplaced():
            changed = f"{event.kept} steps kept, {len(event.replaced)} replaced, {len(event.added)} added"
            return "Plan replaced", f"{changed}; {event.previous_digest[:12]} → {event.plan_digest[:12]}", ""
        case ev.EscalatedToPerson():
            return "Escalated to a person", f"step {event.step}" if event.step else "", event.reason_code
        case _:
            return None


def _of_person(event: ev.Known | ev.Unknown) -> tuple[str, str, str] | None:
    match event:
        case ev.ApprovalGranted():
            return f"Gate {event.step} approved", _with_note(event.question, event.note), event.action_digest[:12]
        case ev.ApprovalDenied():
            return f"Gate {event.step} denied", _with_note(event.question, event.note), event.action_digest[:12]
        case ev.Forced():
            return f"Forced: {event.what}", event.reason, "forced"
        case ev.ValidationSkipped():
            return "Validation of the environment skipped", event.reason, ""
        case ev.ChangesAccepted():
            paths = ", ".join(one.path for one in event.files[:5])
            return f"Changed files accepted ({len(event.files)})", f"{paths}; {event.reason}".rstrip("; "), ""
        case ev.StepsRolledBack():
            return f"Steps rolled back ({len(event.steps)})", f"back to {event.to or 'the beginning'}", ""
        case ev.CheckpointCreated():
            return "Checkpoint made", event.label, ""
        case _:
            return _of_the_log(event)


def _of_the_log(event: ev.Known | ev.Unknown) -> tuple[str, str, str] | None:
    match event:
        case ev.Quarantined():
            return "Log repaired", event.reason, ""
        case ev.LockBroken():
            return "Lock broken", event.reason, "forced" if event.forced else ""
        case ev.Noted():
            return event.what, "", ""
        case ev.Unknown():
            return f"Event of an unknown type: {event.type}", "", ""
        case _:
            return None


def _with_note(evidence: str, note: str) -> str:
    return f"{evidence} (note: {note})" if note else evidence

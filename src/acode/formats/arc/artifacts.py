"""Do the completed phases hold? Steps 4 and 5 of the format's own resume: the order of their times, and the hashes."""

from __future__ import annotations

from datetime import datetime

from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, moment, object_at, shown
from acode.formats.arc.facts import Artifact, Facts
from acode.formats.arc.findings import Demotion
from acode.formats.arc.migrations import OWN_FIELD


def order_warnings(value: Raw, schema_from: int) -> list[str]:
    """Completed phases that ended before one they follow. It can be honest (a phase that ran twice), so: a warning."""
    latest: tuple[str, datetime] | None = None
    warnings = []
    for name in p.order_for(schema_from):
        entry = value["phases"].get(name)
        at = moment(entry.get("completed_at") or entry.get("started_at")) if isinstance(entry, dict) else None
        if at is None or p.status_of(entry) != "completed":
            continue
        if latest is not None and at < latest[1]:
            warnings.append(f"The phase {name} ended at {at.isoformat()}, before {latest[0]}, which comes earlier.")
        else:
            latest = (name, at)
    return warnings


def judge_artifacts(value: Raw, facts: Facts) -> tuple[tuple[Demotion, ...], list[str]]:
    """Completed phases whose recorded artifact is gone or changed, and those that cannot be verified."""
    demoted: list[Demotion] = []
    warnings: list[str] = []
    for name, entry in p.entries(value["phases"]):
        if entry.get("status") != "completed":
            continue
        artifact = entry.get("artifact")
        if not isinstance(artifact, str) or not artifact:
            warnings.append(f"The phase {shown(name, 60)} is completed without an artifact; it cannot be verified.")
            continue
        outcome = _judge_artifact(name, artifact, entry.get("artifact_hash"), facts.artifacts.get(artifact))
        if isinstance(outcome, Demotion):
            demoted.append(outcome)
        elif outcome is not None:
            warnings.append(outcome)
    again = {one.phase for one in demoted}
    told = [one.warning(tuple(n for n in _downstream(value, one.phase) if n not in again)) for one in demoted]
    return tuple(demoted), [*told, *warnings]


def _judge_artifact(phase: str, artifact: str, recorded: object, fact: Artifact | None) -> Demotion | str | None:
    kind = fact.kind if fact else "missing"
    sha256 = fact.sha256 if fact else None
    expected = shown(recorded, 80) if isinstance(recorded, str) and recorded else None
    named = f"The artifact {shown(artifact)} of the phase {shown(phase, 60)}"
    if kind in ("missing", "unsafe"):
        found = None if kind == "missing" else "a path that leaves the workspace or goes through a link"
        return Demotion(phase=phase, artifact=shown(artifact), expected=expected, found=found)
    if kind != "file":
        return f"{named} is {kind.replace('_', ' ')}; it cannot be verified."
    if expected is None:
        return f"{named} has no recorded hash; it cannot be verified."
    if expected.removeprefix("sha256:").lower() == sha256:
        return None
    mtime_ns = fact.mtime_ns if fact else None
    return Demotion(phase=phase, artifact=shown(artifact), expected=expected, found=sha256, mtime_ns=mtime_ns)


def _downstream(value: Raw, phase: str) -> tuple[str, ...]:
    order = p.NEWER_ORDER if value["schema_version"] > p.SCHEMA_CURRENT else p.PHASE_ORDER
    if phase not in order:
        return ()
    later = order[order.index(phase) + 1 :]
    return tuple(name for name in later if p.status_of(value["phases"].get(name)) == "completed")


def rejections(value: Raw, phase: str) -> list[Raw]:
    """The demotions of a phase on record, the latest last."""
    listed = object_at(value, OWN_FIELD).get("demoted")
    records = listed if isinstance(listed, list) else []
    return [record for record in records if isinstance(record, dict) and record.get("phase") == phase]


def is_rejected(value: Raw, phase: str, fact: Artifact) -> bool:
    """Whether these are bytes for which the phase was demoted, left as they were. Written again they are new."""
    return any(
        record.get("found") == fact.sha256 and record.get("found_mtime_ns") in (None, str(fact.mtime_ns))
        for record in rejections(value, phase)
        if fact.sha256 is not None
    )


def recorded_artifacts(value: Raw) -> list[str]:
    """The artifacts of completed phases."""
    entries = [entry for _, entry in p.entries(value["phases"]) if entry.get("status") == "completed"]
    found = [entry["artifact"] for entry in entries if isinstance(entry.get("artifact"), str) and entry["artifact"]]
    return list(dict.fromkeys(found))

"""Repair a checkpoint by the format's own rules: pure functions from a dict to a new dict.

The diagnosis calls the same functions to foresee the next phase, so that a preview and a resume cannot disagree.
Unknown fields are never touched; what acode has to remember itself goes under one key of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, object_at, stamp
from acode.formats.arc.findings import Demotion, Diagnosis
from acode.formats.arc.freshness import Freshness
from acode.formats.arc.migrations import OWN_FIELD, migrate
from acode.formats.arc.suspended import Verdict

RECORDS_MAX: Final = 200


def repair(
    raw: Raw, diagnosis: Diagnosis, *, now: datetime, own_pid: int, config_dir: str, accept_stale: bool = False
) -> Raw:
    """The checkpoint as the next phase should find it: migrated, demoted, cleaned, claimed."""
    value = with_timeouts_failed(migrate(raw).value)
    value = with_freshness(value, diagnosis.freshness, accept_stale=accept_stale)
    value = with_demoted(value, diagnosis.demoted)
    value = with_orphans_reset(value, diagnosis)
    value = with_suspended_settled(value, diagnosis.verdicts, now)
    value = with_records(value, diagnosis, now)
    return {**with_owner(value, own_pid=own_pid, config_dir=config_dir), "updated_at": stamp(now)}


def with_phase(value: Raw, name: str, **changes: object) -> Raw:
    """One phase with some fields changed; an entry that is no object is replaced by a fresh one."""
    entry = value["phases"].get(name)
    if not isinstance(entry, dict):
        entry = p.fresh_entry(name, "pending")
    return {**value, "phases": {**value["phases"], name: {**entry, **changes}}}


def with_timeouts_failed(value: Raw) -> Raw:
    """A phase that ran out of time is a failed one: both may run again."""
    for name, entry in p.entries(value["phases"]):
        if entry.get("status") == "timeout":
            value = with_phase(value, name, status="failed")
    return value


def with_freshness(value: Raw, freshness: Freshness, *, accept_stale: bool = False) -> Raw:
    if freshness.result is None:
        return value
    overridden = {"status": "STALE-OVERRIDE"} if freshness.stale and accept_stale else {}
    return {**value, "freshness": {**freshness.result, **overridden}}


def with_demoted(value: Raw, demoted: Iterable[Demotion]) -> Raw:
    """Completed phases whose artifact does not hold go back to pending, without it. Later phases are left alone."""
    for demotion in demoted:
        value = with_phase(value, demotion.phase, status="pending", artifact=None, artifact_hash=None)
    return value


def with_orphans_reset(value: Raw, diagnosis: Diagnosis) -> Raw:
    """Phases that a crash left open start over, with a team of their own or without."""
    for orphan in diagnosis.orphans:
        if orphan.resets:
            team = orphan.team if orphan.unreachable else None  # without its name nobody would find it any more
            value = with_phase(value, orphan.phase, status="pending", team_name=team)
    for name in diagnosis.reset_phases:
        value = with_phase(value, name, status="pending")
    return value


def with_suspended_settled(value: Raw, verdicts: tuple[Verdict, ...], now: datetime) -> Raw:
    """Every verdict is recorded, then the list is emptied: nothing that was refused is lost without a reason."""
    if not verdicts:
        return value
    own = object_at(value, OWN_FIELD)
    tasks = {**object_at(own, "tasks"), **{v.task: _task_record(v, now) for v in verdicts if v.action != "rejected"}}
    rejected = [
        {"task": v.task, "entry": v.entry, "reason": v.reason, "at": stamp(now)}
        for v in verdicts
        if v.action == "rejected"
    ]
    kept = _records(own, "rejected_tasks", rejected)
    value = {**value, OWN_FIELD: {**own, "tasks": tasks, "rejected_tasks": kept}}
    return with_phase(value, "work", suspended_tasks=[])


def _task_record(verdict: Verdict, now: datetime) -> Raw:
    """The entry for the host tool's own task list: free to be started again, or failed for good."""
    record: Raw = {"suspended": False, "action": verdict.action, "reason": verdict.reason, "at": stamp(now)}
    record |= {"suspended_because": verdict.suspended_because, "context_path": verdict.context_path}
    if verdict.action == "permanently_failed":
        return {**record, "permanently_failed": True, "resume_count": verdict.resume_count}
    record |= {"status": "pending", "owner": ""}
    if verdict.action == "cold_restart":
        return record
    counted = {"resume_count": verdict.resume_count, "before_sha256": verdict.before_sha256}
    return {**record, **counted, "after_sha256": verdict.after_sha256}


def with_records(value: Raw, diagnosis: Diagnosis, now: datetime) -> Raw:
    """Record the demoted phases and the released teams, for a later audit."""
    at = stamp(now)
    demoted = [_demotion_record(one, at) for one in diagnosis.demoted]
    released = [{"phase": o.phase, "team": o.team, "at": at} for o in diagnosis.orphans if o.removed]
    own = object_at(value, OWN_FIELD)
    if not demoted and not released:
        return value
    records = {
        "demoted": _records(own, "demoted", demoted),
        "released_teams": _records(own, "released_teams", released),
    }
    return {**value, OWN_FIELD: {**own, **records}}


def _demotion_record(demotion: Demotion, at: str) -> Raw:
    record: Raw = {"phase": demotion.phase, "artifact": demotion.artifact, "expected": demotion.expected}
    # As text: the host tool's numbers are floats, which cannot hold nanoseconds.
    written = str(demotion.mtime_ns) if demotion.mtime_ns is not None else None
    return {**record, "found": demotion.found, "found_mtime_ns": written, "at": at}


def _records(own: Raw, key: str, more: list[Raw]) -> list[Raw]:
    found = own.get(key)
    return [*(found if isinstance(found, list) else []), *more][-RECORDS_MAX:]


def with_owner(value: Raw, *, own_pid: int, config_dir: str) -> Raw:
    return {**value, "owner_pid": own_pid, "config_dir": config_dir}


def recovered_state(document: Raw, now: datetime) -> Raw:
    """A state file whose session crashed, closed in the host tool's own terms."""
    return {**document, "status": "completed", "completed": stamp(now), "crash_recovered": True}

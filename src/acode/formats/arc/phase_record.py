"""Record a run phase by phase: the prompt of the next phase, and the record of its beginning and end.

Pure. Recording an outcome twice is the same as recording it once, because a crash may come between the recording and
the knowledge of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

from acode.errors import CannotContinue
from acode.formats.arc import phases as p
from acode.formats.arc.artifacts import rejections
from acode.formats.arc.checkpoint import Raw, moment, object_at, shown, stamp
from acode.formats.arc.diagnose import plan_file_of, run_name
from acode.formats.arc.migrations import OWN_FIELD
from acode.formats.arc.repair import with_phase

Outcome = Literal["completed", "failed", "timeout", "cancelled", "skipped"]

PATH_PART: Final = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,99}")
SHA256: Final = re.compile(r"[0-9a-f]{64}")
ENDED_BY_ITSELF: Final = frozenset({"completed", "skipped"})


def expected_artifact(value: Raw, phase: str, *, run_id: str) -> str:
    """Where the phase's artifact belongs: where the format expects it, else a place named after the phase."""
    run = run_name(value, run_id)
    if not PATH_PART.fullmatch(run):
        run = f"run-{hashlib.sha256(run.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    return f"tmp/arc/{run}/{p.artifact_name(phase)}"


def prompt_for_phase(
    value: Raw, phase: str, *, run_id: str, checkpoint_path: str, injections: Mapping[str, str]
) -> str:
    """The text that a driver gets: plan, phase, artifacts so far, artifact wanted; saved contexts come last."""
    plan_file = plan_file_of(value)
    lines = [
        f"Run the phase {shown(phase, 60)} of the arc run {shown(run_name(value, run_id), 120)}.",
        f"Plan file: {plan_file}" if plan_file else "Plan file: none is recorded in the checkpoint.",
        f"Checkpoint (read it, do not change it): {checkpoint_path}",
        f"Write the phase's artifact to: {expected_artifact(value, phase, run_id=run_id)}",
        *_rejected(value, phase),
        "",
        *_artifacts_so_far(value),
    ]
    if phase == "work":
        lines += _failed_for_good(value)
        lines += [f"\n{text}" for text in injections.values()]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rejected(value: Raw, phase: str) -> list[str]:
    """A driver that finds an artifact would take it for the phase's own."""
    places = dict.fromkeys(shown(record.get("artifact")) for record in rejections(value, phase))
    return [f"Changed after it was recorded, and no result of this phase any more: {place}" for place in places]


def _artifacts_so_far(value: Raw) -> list[str]:
    finished = [
        f"- {name}: {shown(entry['artifact'])}"
        for name in p.NEWER_ORDER
        if p.status_of(entry := value["phases"].get(name)) == "completed" and isinstance(entry.get("artifact"), str)
    ]
    return ["Artifacts of the phases that are completed:", *finished] if finished else ["No phase has an artifact yet."]


def _failed_for_good(value: Raw) -> list[str]:
    tasks = object_at(object_at(value, OWN_FIELD), "tasks")
    failed = [shown(task, 60) for task, entry in tasks.items() if object_at(tasks, task).get("permanently_failed")]
    return ["", f"Tasks that have failed for good and are not to be taken up: {', '.join(failed)}"] if failed else []


def begin_phase(value: Raw, phase: str, *, started: datetime) -> Raw:
    """The phase is in progress; a crash from here on is found by the next diagnosis.

    An artifact of an earlier attempt is taken out: one that stands there at the end was named by the driver.
    """
    _known(value, phase)
    begun = {"started_at": stamp(started), "completed_at": None, "artifact": None, "artifact_hash": None}
    value = with_phase(value, phase, status="in_progress", **begun)
    return _with_position({**value, "updated_at": stamp(started)}, phase)


def record_phase(
    value: Raw,
    phase: str,
    outcome: Outcome,
    *,
    artifact: str | None,
    sha256: str | None,
    started: datetime,
    finished: datetime,
) -> Raw:
    """The phase has ended: status, artifact with its hash, times, totals, and the run's own end if it was the last."""
    _known(value, phase)
    if sha256 is not None and not SHA256.fullmatch(sha256):
        raise CannotContinue(f"The hash of the phase {shown(phase, 60)} is no SHA-256: {shown(sha256, 80)}.")
    ended = outcome in ENDED_BY_ITSELF
    changes: Raw = {"status": outcome, "started_at": stamp(started), "completed_at": stamp(finished) if ended else None}
    changes |= {"artifact": artifact if ended else None, "artifact_hash": sha256 if ended else None}
    value = with_phase(value, phase, **changes)
    value = _with_time(value, phase, max(round((finished - started).total_seconds() * 1000), 0))
    if phase == "work" and outcome == "completed":
        value = _with_contexts_used_up(value)
    following = p.next_phase(value)
    value = {**value, "updated_at": stamp(finished)}
    return _with_end(value, finished) if following is None else _with_position(value, following)


def _known(value: Raw, phase: str) -> None:
    if phase in p.FORBIDDEN_PHASE_KEYS or phase not in value["phases"]:
        raise CannotContinue(f"The run has no phase {shown(phase, 60)}.")


def _with_time(value: Raw, phase: str, milliseconds: int) -> Raw:
    totals = object_at(value, "totals")
    times = {**object_at(totals, "phase_times"), phase: milliseconds}
    return {**value, "totals": {"total_duration_ms": None, "cost_at_completion": None, **totals, "phase_times": times}}


def _with_contexts_used_up(value: Raw) -> Raw:
    own = object_at(value, OWN_FIELD)
    tasks = object_at(own, "tasks")
    if not tasks:
        return value
    used = {task: {**entry, "consumed": True} if isinstance(entry, dict) else entry for task, entry in tasks.items()}
    return {**value, OWN_FIELD: {**own, "tasks": used}}


def _with_end(value: Raw, finished: datetime) -> Raw:
    started = moment(value.get("started_at"))
    if started is not None:
        total = max(round((finished - started).total_seconds() * 1000), 0)
    else:
        times = object_at(object_at(value, "totals"), "phase_times").values()
        total = round(sum(time for time in times if isinstance(time, int | float)))
    totals = {**object_at(value, "totals"), "total_duration_ms": total}
    ended = {**value, "totals": totals, "completed_at": stamp(finished)}
    return {**ended, "overall_status": "completed"} if "overall_status" in value else ended


def _with_position(value: Raw, phase: str) -> Raw:
    """Versions from 30 on also keep the position itself; older ones get no field that they do not know."""
    return {**value, "current_phase": phase} if "current_phase" in value else value

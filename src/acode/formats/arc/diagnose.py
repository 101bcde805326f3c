"""Say what is wrong with a run and what a resume would do. Pure: a checkpoint, a time and facts become findings.

Nothing here may look at the disk, or a preview could change what it previews.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from typing import Final

from acode.formats.arc import freshness as fresh
from acode.formats.arc import phases as p
from acode.formats.arc import repair as r
from acode.formats.arc import suspended
from acode.formats.arc.artifacts import judge_artifacts, order_warnings
from acode.formats.arc.checkpoint import Checkpoint, Raw, shown
from acode.formats.arc.facts import Facts
from acode.formats.arc.findings import Diagnosis
from acode.formats.arc.migrations import migrate
from acode.formats.arc.orphans import judge_state_files, judge_teams
from acode.formats.arc.permission import branch_warnings, refusals_of

PLAN_PATH: Final = re.compile(r"(?![-/])[a-zA-Z0-9._/-]{1,500}")


def diagnose(checkpoint: Checkpoint, now: datetime, facts: Facts) -> Diagnosis:
    """Steps 2 to 7a of the format's own resume, foreseen."""
    migrated = migrate(checkpoint.raw)
    value = r.with_timeouts_failed(migrated.value)
    warnings = [*migrated.warnings, *_plan_warnings(value), *branch_warnings(value, facts)]

    freshness = fresh.recheck(value, facts.plan, facts.drift, now)
    warnings += [*freshness.warnings, *order_warnings(value, migrated.schema_from)]

    demoted, notes = judge_artifacts(value, facts)
    warnings += notes
    value = r.with_demoted(value, demoted)

    orphans, resets, notes = judge_teams(value, facts)
    stale, more = judge_state_files(facts, now)
    warnings += [*notes, *more]
    draft = Diagnosis(
        checkpoint_path=checkpoint.relative,
        run_id=checkpoint.run_id,
        plan_file=plan_file_of(value),
        schema_from=migrated.schema_from,
        schema_to=migrated.schema_to,
        next_phase=None,
        demoted=demoted,
        orphans=orphans,
        reset_phases=resets,
        stale_state_files=stale,
        verdicts=(),
        freshness=freshness,
        warnings=(),
        refusals=tuple(refusals_of(value, migrated, freshness, facts)),
        phases={},
    )
    return _concluded(draft, r.with_orphans_reset(value, draft), warnings, facts)


def _concluded(draft: Diagnosis, value: Raw, warnings: list[str], facts: Facts) -> Diagnosis:
    """Suspended tasks and the next phase are judged on the run as the repair will leave it."""
    verdicts = suspended.judge(value, run_name(value, draft.run_id), facts.contexts, facts.modified_files)
    told = [
        f"Suspended task {shown(v.task, 60)}: {v.action}, because {v.reason}." for v in verdicts if v.action != "inject"
    ]
    statuses = {shown(name, 60): shown(p.status_of(entry), 40) for name, entry in value["phases"].items()}
    return replace(
        draft,
        next_phase=p.next_phase(value),
        verdicts=verdicts,
        phases=statuses,
        warnings=(*warnings, *_status_warnings(value), *told),
    )


def run_name(value: Raw, fallback: str) -> str:
    recorded = value.get("id")
    return recorded if isinstance(recorded, str) else fallback


def plan_file_of(value: Raw) -> str | None:
    """The plan that every phase is handed: a relative path inside the workspace, or nothing."""
    found = value.get("plan_file")
    if not isinstance(found, str) or not PLAN_PATH.fullmatch(found) or ".." in found.split("/") or found == "null":
        return None
    return found


def _plan_warnings(value: Raw) -> list[str]:
    if plan_file_of(value) is not None:
        return []
    return [f"The checkpoint's plan_file {shown(value.get('plan_file'))} is no path inside the workspace."]


def _status_warnings(value: Raw) -> list[str]:
    warnings = []
    for name, entry in value["phases"].items():
        status = p.status_of(entry)
        if name in p.FORBIDDEN_PHASE_KEYS:
            warnings.append(f"The name {name} is forbidden for a phase and was passed over.")
        elif not isinstance(entry, dict):
            warnings.append(f"The entry of the phase {shown(name, 60)} is no object and was passed over.")
        elif status not in p.STATUSES:
            warnings.append(f"The phase {shown(name, 60)} has the unknown status {shown(entry.get('status'), 60)}.")
        elif status == "cancelled":
            warnings.append(f"The phase {shown(name, 60)} was cancelled; resuming the run runs it again.")
    return warnings


def context_paths(value: Raw, run_id: str) -> list[str]:
    """The context files that a look has to read: those whose path is allowed, whichever entry names them."""
    name = run_name(value, run_id)
    named = [(suspended.task_name(entry), entry["context_path"]) for entry in _with_paths(value)]
    return list(
        dict.fromkeys(path for task, path in named if task and suspended.path_problem(path, name, task) is None)
    )


def _with_paths(value: Raw) -> list[Raw]:
    return [entry for entry in suspended.entries_of(value) if isinstance(entry, dict) and "context_path" in entry]

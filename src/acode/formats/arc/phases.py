"""The phases of an arc run: their names, their order in each version, and what counts as finished.

Position is always derived from names and statuses. The recorded phase numbers are informational, not monotonic, and
often stale, so nothing here may ever look at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

PHASE_ORDER: Final = (
    "forge",
    "plan_review",
    "plan_refine",
    "verification",
    "semantic_verification",
    "design_extraction",
    "task_decomposition",
    "work",
    "design_verification",
    "gap_analysis",
    "codex_gap_analysis",
    "gap_remediation",
    "goldmask_verification",
    "code_review",
    "goldmask_correlation",
    "mend",
    "verify_mend",
    "design_iteration",
    "test",
    "test_coverage_critique",
    "pre_ship_validation",
    "release_quality_check",
    "ship",
    "bot_review_wait",
    "pr_comment_resolution",
    "merge",
)

# Every order from schema 17 to 30 is this list with names left out, so one list answers for all of them.
NEWER_ORDER: Final = (
    *("forge", "forge_qa", "plan_review", "plan_refine", "verification", "semantic_verification"),
    *("design_extraction", "design_prototype", "task_decomposition", "work", "work_qa", "drift_review"),
    *("storybook_verification", "design_verification", "design_verification_qa", "ux_verification"),
    *("gap_analysis", "gap_analysis_qa", "codex_gap_analysis", "gap_remediation"),
    *("inspect", "inspect_fix", "verify_inspect", "goldmask_verification"),
    *("code_review", "code_review_qa", "goldmask_correlation", "verify", "mend", "mend_qa", "verify_mend"),
    *("design_iteration", "test", "test_qa", "browser_test", "browser_test_fix", "verify_browser_test"),
    *("test_coverage_critique", "deploy_verify", "pre_ship_validation", "release_quality_check"),
    *("ship", "bot_review_wait", "pr_comment_resolution", "merge"),
)

ABSORBED_PHASES: Final = frozenset({"plan_refine", "drift_review", "inspect_fix", "verify_inspect", "deploy_verify"})
STATE_CONTAINERS: Final = frozenset({"verify_mend", "pre_ship_validation"})
AUDIT_PHASES: Final = ("audit", "audit_mend", "audit_verify")
FORBIDDEN_PHASE_KEYS: Final = frozenset({"__proto__", "constructor", "prototype"})

STATUSES: Final = frozenset({"pending", "in_progress", "completed", "failed", "skipped", "timeout", "cancelled"})
DONE_STATUSES: Final = frozenset({"completed", "skipped"})
# A team of a phase in one of these is a leftover: its directories go, the phase stays what it is.
CLOSED_STATUSES: Final = frozenset({"completed", "skipped", "cancelled"})

SCHEMA_CURRENT: Final = 19
SCHEMA_NEWEST_KNOWN: Final = 30

# The statuses that the format's own migrations give to a phase that an older version did not have.
ADDED_AS_PENDING: Final = frozenset(
    {
        *("forge", "plan_review", "work", "code_review", "mend"),  # in every version: a lost entry must run, not vanish
        *("ship", "merge", "goldmask_verification", "goldmask_correlation", "test"),
        *("design_extraction", "design_verification", "design_iteration"),
    }
)

ARTIFACT_NAMES: Final[Mapping[str, str]] = {
    "forge": "enriched-plan.md",
    "plan_review": "plan-review.md",
    "plan_refine": "concern-context.md",
    "verification": "verification-report.md",
    "semantic_verification": "codex-semantic-verification.md",
    "design_extraction": "vsm/",
    "task_decomposition": "task-validation.md",
    "work": "work-summary.md",
    "design_verification": "design-verification-report.md",
    "gap_analysis": "gap-analysis.md",
    "codex_gap_analysis": "codex-gap-analysis.md",
    "gap_remediation": "gap-remediation-report.md",
    "goldmask_verification": "goldmask-verification.md",
    "code_review": "tome.md",
    "goldmask_correlation": "GOLDMASK.md",
    "mend": "resolution-report.md",
    "verify_mend": "resolution-report.md",
    "design_iteration": "design-iteration-report.md",
    "test": "test-report.md",
    "test_coverage_critique": "test-critique.md",
    "pre_ship_validation": "pre-ship-report.md",
    "release_quality_check": "release-quality.md",
    "ship": "pr-body.md",
    "bot_review_wait": "bot-review-wait-report.md",
    "pr_comment_resolution": "pr-comment-resolution-report.md",
    "merge": "merge-report.md",
    "inspect": "inspect/VERDICT.md",
}


def artifact_name(phase: str) -> str:
    """The file or directory that a phase leaves in the run's directory below tmp/arc."""
    if phase in ARTIFACT_NAMES:
        return ARTIFACT_NAMES[phase]
    if phase.endswith("_qa"):  # the verdict on the phase before it
        return f"qa/{phase.removesuffix('_qa')}-verdict.json"
    return f"{phase.replace('_', '-')}.md"


def order_for(schema_version: int) -> tuple[str, ...]:
    """The order in which a run of this version really ran its phases."""
    if schema_version > SCHEMA_CURRENT:
        return NEWER_ORDER
    if schema_version < 13:  # the audits ran between the tests and the ship, and were dropped later
        at = PHASE_ORDER.index("ship")
        return (*PHASE_ORDER[:at], *AUDIT_PHASES, *PHASE_ORDER[at:])
    if schema_version in (15, 16):  # the bot's review was awaited before the ship, and moved behind it at 17
        moved = ("bot_review_wait", "pr_comment_resolution")
        rest = [name for name in PHASE_ORDER if name not in moved]
        at = rest.index("ship")
        return (*rest[:at], *moved, *rest[at:])
    return PHASE_ORDER


def entries(phases: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The phases that can be worked with: forbidden names and entries that are no objects are passed over."""
    for name, entry in phases.items():
        if name not in FORBIDDEN_PHASE_KEYS and isinstance(entry, dict):
            yield name, entry


def fresh_entry(name: str, status: str) -> dict[str, Any]:
    """A phase as the format's own initialiser writes it."""
    entry: dict[str, Any] = {"status": status, "artifact": None, "artifact_hash": None, "team_name": None}
    entry |= {"started_at": None, "completed_at": None}
    if name == "work":
        entry["suspended_tasks"] = []
    if name == "gap_remediation":
        entry |= {"fixed_count": None, "deferred_count": None}
    if name == "test":
        entry |= {"tiers_run": [], "pass_rate": None, "coverage_pct": None, "has_frontend": False}
    return entry


def status_of(entry: object) -> str | None:
    """The recorded status, or None where there is nothing that could be one."""
    status = entry.get("status") if isinstance(entry, dict) else None
    return status if isinstance(status, str) else None


def containers(value: Mapping[str, Any]) -> frozenset[str]:
    """Entries that hold state of another phase and are none themselves: a driver cannot run them.

    From its version 3 on, the host tool does their work inside mend_qa and ship. It dropped other phases with that
    step and kept the schema's number, so that the absence of those tells it from its version 2.
    """
    version = value.get("schema_version")
    newest = isinstance(version, int) and version >= SCHEMA_NEWEST_KNOWN
    return STATE_CONTAINERS if newest and not ABSORBED_PHASES & set(value["phases"]) else frozenset()


def phases_of(value: Mapping[str, Any]) -> list[str]:
    """The phases of a run whose place is known, in the order of the newest version."""
    inside = containers(value)
    return [name for name in NEWER_ORDER if name in value["phases"] and name not in inside]


def unknown_unfinished(value: Mapping[str, Any]) -> list[str]:
    """Phases that still have to run and whose place in the order is not known here."""
    known = frozenset((*NEWER_ORDER, *AUDIT_PHASES))
    return [
        name for name, entry in entries(value["phases"]) if name not in known and status_of(entry) not in DONE_STATUSES
    ]


def next_phase(value: Mapping[str, Any]) -> str | None:
    """The first phase in order that is not done; None when the run is finished.

    A cancelled phase is not done: the host tool would pass over it and build the next phase on nothing.
    """
    version = value.get("schema_version")
    newer = isinstance(version, int) and version > SCHEMA_CURRENT
    phases = value["phases"]
    skip_map = value.get("skip_map") if newer else None
    told_to_skip = {*(skip_map if isinstance(skip_map, dict) else ()), *containers(value)}
    for name in NEWER_ORDER if newer else PHASE_ORDER:
        if name in phases and name not in told_to_skip and status_of(phases[name]) not in DONE_STATUSES:
            return name
    return None

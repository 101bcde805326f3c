"""Checkpoints of schema 1 to 18 become schema 19: one small function per version, each from a dict to a new dict.

A migration adds what its version added and keeps what is there already, unless its rule says otherwise. None of them
changes its argument, looks at the disk or asks the clock, so that a dry run and a repair cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from acode.errors import ForeignUnreadable
from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import Raw, object_at, shown

STANDARD_TIER: Final = {"name": "STANDARD", "maxCycles": 3, "minCycles": 2}
LIGHT_TIER: Final = {"name": "LIGHT", "maxCycles": 2, "minCycles": 1}
OWN_FIELD: Final = "acode"  # everything that acode keeps in a foreign checkpoint lies under this key


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    value: Raw
    schema_from: int
    schema_to: int
    warnings: tuple[str, ...]

    @property
    def newer(self) -> bool:
        return self.schema_from > p.SCHEMA_CURRENT


def migrate(raw: Raw) -> Migrated:
    """The checkpoint in schema 19, or as it is when it is newer."""
    schema_from = schema_of(raw)
    if not isinstance(raw.get("phases"), dict):
        raise ForeignUnreadable("The checkpoint holds no phases; nothing can be said about the run.")
    value = raw
    for step in MIGRATIONS[schema_from - 1 :]:
        value = step(value)
    if schema_from > p.SCHEMA_CURRENT:
        value = {**value, "schema_version": schema_from}
        return Migrated(value=value, schema_from=schema_from, schema_to=schema_from, warnings=(_newer(schema_from),))
    value, warnings = with_every_phase({**value, "schema_version": p.SCHEMA_CURRENT})
    return Migrated(value=value, schema_from=schema_from, schema_to=p.SCHEMA_CURRENT, warnings=warnings)


def _newer(schema: int) -> str:
    return f"The checkpoint has schema {schema}; acode migrates up to {p.SCHEMA_CURRENT} and keeps this one as it is."


def schema_of(raw: Raw) -> int:
    """The recorded version; a missing one counts as 1."""
    version = raw.get("schema_version")
    if version is None:
        return 1
    if isinstance(version, str) and re.fullmatch(r"[0-9]{1,4}", version):
        version = int(version)
    if isinstance(version, float) and version.is_integer():
        version = int(version)
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= 9999:
        raise ForeignUnreadable(f"The checkpoint's schema_version is {shown(version)}, which is no version.")
    return version


# What the migrations are made of.


def _added(value: Raw, **defaults: Any) -> Raw:
    """Fields that are missing or null get their default; the others stay."""
    return {**value, **{key: default for key, default in defaults.items() if value.get(key) is None}}


def _object_in(value: Raw, key: str) -> tuple[Raw, Raw]:
    """The object under a key, made where there is none. Anything else found there is set aside, not thrown away."""
    found = value.get(key)
    if found is None or isinstance(found, dict):
        return value, found or {}
    own = object_at(value, OWN_FIELD)
    set_aside = {**object_at(own, "set_aside"), key: found}
    return {**value, OWN_FIELD: {**own, "set_aside": set_aside}}, {}


def _with_phases(value: Raw, status: str, *names: str) -> Raw:
    """Phases that a version introduced, in the shape that version gave them."""
    found = value["phases"]
    new = {name: _old_entry(name, status) for name in names if found.get(name) is None}
    return {**value, "phases": {**found, **new}}


def _old_entry(name: str, status: str) -> Raw:
    entry = p.fresh_entry(name, status)
    return {key: entry[key] for key in entry if key not in ("started_at", "completed_at", "suspended_tasks")}


# The migrations.


def v1_to_v2(value: Raw) -> Raw:
    return {**_with_phases(value, "skipped", "plan_refine", "verification"), "schema_version": 2}


def v2_to_v3(value: Raw) -> Raw:
    value = _added(
        _with_phases(value, "skipped", "verify_mend"), convergence={"round": 0, "max_rounds": 2, "history": []}
    )
    return {**value, "schema_version": 3}


def v3_to_v4(value: Raw) -> Raw:
    return {**_with_phases(value, "skipped", "gap_analysis"), "schema_version": 4}


def v4_to_v5(value: Raw) -> Raw:
    value, flags = _object_in(_added(value, freshness=None), "flags")
    return {**value, "flags": _added(flags, skip_freshness=False), "schema_version": 5}


def v5_to_v6(value: Raw) -> Raw:
    """The tier is not selected again: that would judge by the git state of today, not of the run."""
    value, convergence = _object_in(value, "convergence")
    convergence = _added(convergence, tier=dict(STANDARD_TIER))
    if not _under_way(convergence):
        convergence = {**convergence, "max_rounds": STANDARD_TIER["maxCycles"]}
    return {**value, "convergence": convergence, "schema_version": 6}


def _under_way(convergence: Raw) -> bool:
    rounds = convergence.get("round")
    return isinstance(rounds, int | float) and rounds > 0


def v6_to_v7(value: Raw) -> Raw:
    value = _added(_with_phases(value, "pending", "ship", "merge"), arc_config=None, pr_url=None)
    return {**value, "schema_version": 7}


def v7_to_v8(value: Raw) -> Raw:
    value, convergence = _object_in(value, "convergence")
    tier = convergence.get("tier")
    if isinstance(tier, dict):
        tier = _added(tier, minCycles=1 if tier.get("name") == "LIGHT" else 2)
    else:
        tier = dict(STANDARD_TIER)
    return {**value, "convergence": {**convergence, "tier": tier}, "schema_version": 8}


def v8_to_v9(value: Raw) -> Raw:
    value = _with_phases(value, "pending", "goldmask_verification", "goldmask_correlation", "test")
    return {**value, "schema_version": 9}


def v9_to_v10(value: Raw) -> Raw:
    return {**_with_phases(value, "skipped", "gap_remediation"), "schema_version": 10}


def v10_to_v11(value: Raw) -> Raw:
    audit = {"round": 0, "max_rounds": 2, "tier": dict(LIGHT_TIER), "history": []}
    value = _added(_with_phases(value, "skipped", "audit_mend", "audit_verify"), audit_convergence=audit)
    return {**value, "schema_version": 11}


def v11_to_v12(value: Raw) -> Raw:
    return {**_added(value, shard=None), "schema_version": 12}


def v12_to_v13(value: Raw) -> Raw:
    """The audits are part of the review from here on. Their team stays recorded: the clean-up has to find it."""
    skipped = {name: {**object_at(value["phases"], name), "status": "skipped"} for name in p.AUDIT_PHASES}
    value = {**value, "phases": {**value["phases"], **skipped}, "schema_version": 13}
    value.pop("audit_convergence", None)
    return value


def v13_to_v14(value: Raw) -> Raw:
    return {**_added(value, parent_plan=None), "schema_version": 14}


def v14_to_v15(value: Raw) -> Raw:
    value, flags = _object_in(value, "flags")
    value = _added(value, stagnation={"error_patterns": [], "file_velocity": [], "budget": None})
    return {**value, "flags": _added(flags, no_test=False), "schema_version": 15}


def v15_to_v16(value: Raw) -> Raw:
    work = value["phases"].get("work")
    if isinstance(work, dict):
        value = {**value, "phases": {**value["phases"], "work": _added(work, suspended_tasks=[])}}
    return {**value, "schema_version": 16}


def v16_to_v17(value: Raw) -> Raw:
    before_ship = ("task_decomposition", "test_coverage_critique", "release_quality_check")
    value = _with_phases(value, "skipped", *before_ship, "bot_review_wait", "pr_comment_resolution")
    return {**value, "schema_version": 17}


def v17_to_v18(value: Raw) -> Raw:
    value = _with_phases(value, "pending", "design_extraction", "design_verification", "design_iteration")
    return {**value, "schema_version": 18}


def v18_to_v19(value: Raw) -> Raw:
    timed = {name: _timed(entry) for name, entry in p.entries(value["phases"])}
    value = {**value, "phases": {**value["phases"], **timed}}
    if not value.get("totals"):
        value["totals"] = {"phase_times": {}, "total_duration_ms": None, "cost_at_completion": None}
    if not value.get("completed_at"):
        value["completed_at"] = None
    return {**value, "schema_version": 19}


def _timed(entry: Raw) -> Raw:
    entry = _added(entry, started_at=None, completed_at=None)
    if "artifacts" in entry and "artifact" not in entry:
        entry["artifact"] = entry.pop("artifacts")
    return entry


MIGRATIONS: Final[tuple[Callable[[Raw], Raw], ...]] = (
    *(v1_to_v2, v2_to_v3, v3_to_v4, v4_to_v5, v5_to_v6, v6_to_v7, v7_to_v8, v8_to_v9, v9_to_v10),
    *(v10_to_v11, v11_to_v12, v12_to_v13, v13_to_v14, v14_to_v15, v15_to_v16, v16_to_v17, v17_to_v18, v18_to_v19),
)


def with_every_phase(value: Raw) -> tuple[Raw, tuple[str, ...]]:
    """Every phase of the order has an entry.

    The migrations never make semantic_verification, codex_gap_analysis and pre_ship_validation: one part of the host
    tool then passes over them and another runs them. Here they are skipped, and said to be.
    """
    missing = [name for name in p.PHASE_ORDER if value["phases"].get(name) is None]
    new = {name: p.fresh_entry(name, _default_status(name)) for name in missing}
    warnings = tuple(
        f"The phase {name} is not in the checkpoint; it was added as {entry['status']}." for name, entry in new.items()
    )
    return {**value, "phases": {**value["phases"], **new}}, warnings


def _default_status(name: str) -> str:
    return "pending" if name in p.ADDED_AS_PENDING else "skipped"

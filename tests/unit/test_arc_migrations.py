"""Old checkpoints become schema 19, each version by its own rule, whatever odd things stand in them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.errors import AcodeError, ForeignUnreadable
from acode.formats.arc import diagnose, migrate, repair
from acode.formats.arc.migrations import MIGRATIONS
from acode.formats.arc.phases import NEWER_ORDER, PHASE_ORDER
from tests.arc import CONFIG_DIR, NOW, OWN_PID, at_rest, facts

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "arc"


def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


STEPS = [
    pytest.param(1, marks=pytest.mark.req("ARC-MIG-01")),
    pytest.param(2, marks=pytest.mark.req("ARC-MIG-02")),
    pytest.param(3, marks=pytest.mark.req("ARC-MIG-03")),
    pytest.param(4, marks=pytest.mark.req("ARC-MIG-04")),
    pytest.param(5, marks=pytest.mark.req("ARC-MIG-05")),
    pytest.param(6, marks=pytest.mark.req("ARC-MIG-06")),
    pytest.param(7, marks=pytest.mark.req("ARC-MIG-07")),
    pytest.param(8, marks=pytest.mark.req("ARC-MIG-08")),
    pytest.param(9, marks=pytest.mark.req("ARC-MIG-09")),
    pytest.param(10, marks=pytest.mark.req("ARC-MIG-10")),
    pytest.param(11, marks=pytest.mark.req("ARC-MIG-11")),
    pytest.param(12, marks=pytest.mark.req("ARC-MIG-12")),
    pytest.param(13, marks=pytest.mark.req("ARC-MIG-13")),
    pytest.param(14, marks=pytest.mark.req("ARC-MIG-14")),
    pytest.param(15, marks=pytest.mark.req("ARC-MIG-15")),
    pytest.param(16, marks=pytest.mark.req("ARC-MIG-16")),
    pytest.param(17, marks=pytest.mark.req("ARC-MIG-17")),
    pytest.param(18, marks=pytest.mark.req("ARC-MIG-18")),
]


@pytest.mark.parametrize("version", STEPS)
def test_each_migration_turns_its_golden_file_into_the_next(version: int) -> None:
    before = golden(f"v{version:02d}")
    untouched = copy.deepcopy(before)
    assert MIGRATIONS[version - 1](before) == golden(f"v{version + 1:02d}")
    assert before == untouched


@pytest.mark.parametrize("version", range(1, 20))
def test_the_whole_chain_from_any_version_ends_in_the_same_checkpoint(version: int) -> None:
    migrated = migrate(golden(f"v{version:02d}"))
    assert migrated.value == golden("v19_with_every_phase")
    assert (migrated.schema_from, migrated.schema_to) == (version, 19)
    assert migrate(migrated.value).value == migrated.value


def test_the_chain_makes_the_three_phases_that_no_migration_makes_and_says_so() -> None:
    """The seed's own chain ends without them, and half of the host tool then never runs them."""
    forgotten = {"semantic_verification", "codex_gap_analysis", "pre_ship_validation"}
    assert not forgotten & set(golden("v19")["phases"])
    migrated = migrate(golden("v01"))
    assert {migrated.value["phases"][name]["status"] for name in forgotten} == {"skipped"}
    assert all(any(name in warning for warning in migrated.warnings) for name in forgotten)


def test_a_phase_of_every_version_that_got_lost_is_pending_and_not_skipped() -> None:
    value = golden("v19_with_every_phase")
    del value["phases"]["work"]
    assert migrate(value).value["phases"]["work"]["status"] == "pending"


@pytest.mark.req("ARC-MIG-00")
@pytest.mark.parametrize("absent", [{}, {"schema_version": None}])
def test_a_missing_schema_version_counts_as_one(absent: dict[str, None]) -> None:
    value = golden("v01")
    del value["schema_version"]
    migrated = migrate({**value, **absent})
    assert (migrated.schema_from, migrated.value) == (1, golden("v19_with_every_phase"))


@pytest.mark.parametrize("version", [True, "six", 3.5, 0, -4, 10_000, [], {}])
def test_a_schema_version_that_is_none_is_a_named_error(version: object) -> None:
    with pytest.raises(ForeignUnreadable, match="schema_version"):
        migrate({**golden("v06"), "schema_version": version})


@pytest.mark.parametrize("phases", [None, [], "x", 3])
def test_a_checkpoint_without_phases_is_never_taken_for_a_fresh_one(phases: object) -> None:
    with pytest.raises(ForeignUnreadable) as refused:
        migrate({**golden("v06"), "phases": phases})
    assert refused.value.exit_code == 20


@pytest.mark.req("ARC-MIG-19")
@pytest.mark.parametrize(("rounds", "before", "after"), [(0, 2, 3), (1, 2, 2), (2, 5, 5), (None, 2, 3), ("1", 2, 3)])
def test_max_rounds_is_set_only_while_no_round_has_begun(rounds: object, before: int, after: int) -> None:
    value = {**golden("v05"), "convergence": {"round": rounds, "max_rounds": before, "history": []}}
    convergence = MIGRATIONS[4](value)["convergence"]
    assert convergence["max_rounds"] == after
    assert convergence["tier"] == {"name": "STANDARD", "maxCycles": 3, "minCycles": 2}


@pytest.mark.req("ARC-MIG-20")
@pytest.mark.parametrize(
    ("tier", "after"),
    [
        ({"name": "LIGHT", "maxCycles": 2}, {"name": "LIGHT", "maxCycles": 2, "minCycles": 1}),
        ({"name": "THOROUGH", "maxCycles": 5}, {"name": "THOROUGH", "maxCycles": 5, "minCycles": 2}),
        ({"name": "LIGHT", "maxCycles": 2, "minCycles": 4}, {"name": "LIGHT", "maxCycles": 2, "minCycles": 4}),
        (None, {"name": "STANDARD", "maxCycles": 3, "minCycles": 2}),
        ("LIGHT", {"name": "STANDARD", "maxCycles": 3, "minCycles": 2}),
        ([], {"name": "STANDARD", "maxCycles": 3, "minCycles": 2}),
    ],
)
def test_a_tier_gets_its_minimum_and_a_corrupt_one_becomes_standard(tier: object, after: dict[str, Any]) -> None:
    value = {**golden("v07"), "convergence": {"round": 1, "tier": tier}}
    assert MIGRATIONS[6](value)["convergence"] == {"round": 1, "tier": after}


@pytest.mark.req("ARC-MIG-21")
def test_a_skipped_audit_keeps_artifact_hash_and_team_and_its_team_is_cleaned_up() -> None:
    before = golden("v12")["phases"]["audit"]
    value = golden("v12")
    assert migrate(value).value["phases"]["audit"] == {
        **before,
        "status": "skipped",
        "started_at": None,
        "completed_at": None,
    }
    found = diagnose(at_rest(value), NOW, facts())
    assert ("audit", "arc-audit-1", False) in [(orphan.phase, orphan.team, orphan.resets) for orphan in found.orphans]


@pytest.mark.req("ARC-MIG-22")
def test_artifacts_becomes_artifact_only_where_there_is_none() -> None:
    value = golden("v18")
    value["phases"]["mend"] = {"status": "completed", "artifact": "kept.md", "artifacts": "other.md"}
    value["phases"]["test"] = {"status": "completed", "artifacts": "moved.md"}
    value["phases"]["ship"] = {"status": "completed", "artifact": None, "artifacts": "other.md"}
    phases = MIGRATIONS[17](value)["phases"]
    assert (phases["mend"]["artifact"], phases["mend"]["artifacts"]) == ("kept.md", "other.md")
    assert phases["test"]["artifact"] == "moved.md"
    assert "artifacts" not in phases["test"]
    assert (phases["ship"]["artifact"], phases["ship"]["artifacts"]) == (None, "other.md")


@pytest.mark.req("ARC-MIG-23")
def test_values_that_are_there_already_survive_every_migration() -> None:
    there = {
        **golden("v01"),
        "convergence": {"round": 2, "max_rounds": 9, "tier": {"name": "LIGHT", "minCycles": 7}, "history": [1]},
        "freshness": {"status": "PASS"},
        "flags": {"skip_freshness": True, "no_test": True},
        "arc_config": {"approve": True},
        "pr_url": "https://example.org/1",
        "shard": {"num": 2},
        "parent_plan": {"path": "p.md"},
        "stagnation": {"budget": 3},
        "totals": {"phase_times": {"forge": 5}},
        "completed_at": "2026-01-01T00:00:00Z",
    }
    added = ("plan_refine", "verify_mend", "ship", "test", "gap_remediation", "task_decomposition", "design_extraction")
    for name in added:
        there["phases"][name] = {"status": "completed", "artifact": name, "artifact_hash": "h", "team_name": "t"}
    there["phases"]["work"]["suspended_tasks"] = [{"task_id": 1}]
    value = migrate(there).value
    assert {key: value[key] for key in there if key not in ("phases", "schema_version")} == {
        key: there[key] for key in there if key not in ("phases", "schema_version")
    }
    for name in added:
        assert value["phases"][name].items() >= there["phases"][name].items()
    assert value["phases"]["work"]["suspended_tasks"] == [{"task_id": 1}]


def test_an_odd_value_in_the_place_of_an_object_is_set_aside_and_not_lost() -> None:
    value = migrate({**golden("v04"), "flags": "none", "convergence": 7}).value
    assert value["acode"]["set_aside"] == {"flags": "none", "convergence": 7}
    assert value["flags"] == {"skip_freshness": False, "no_test": False}
    assert value["convergence"]["tier"]["name"] == "STANDARD"


@pytest.mark.parametrize("version", range(20, 31))
def test_a_newer_checkpoint_is_kept_as_it_is_and_said_to_be_newer(version: int) -> None:
    value = {**golden("v19"), "schema_version": version, "x": 1}
    migrated = migrate(value)
    assert (migrated.value, migrated.schema_to, migrated.newer) == (value, version, True)
    assert any(f"schema {version}" in warning for warning in migrated.warnings)


# Whatever stands in the file.

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
STATUS = st.sampled_from(["pending", "in_progress", "completed", "failed", "skipped", "timeout", "cancelled"]) | JSON
TEAM = st.sampled_from(["team-1", "../x", "a b", "ok_2", ""]) | JSON
TASK = st.fixed_dictionaries(
    {},
    optional={
        "task_id": st.integers(0, 9) | JSON,
        "context_path": st.sampled_from(["tmp/work/1/context/a/1.md", "tmp/work/../x", "/etc/passwd"]) | JSON,
        "reason": JSON,
    },
)
PHASE = (
    st.fixed_dictionaries(
        {},
        optional={
            "status": STATUS,
            "artifact": st.sampled_from(["tmp/a.md", "../../x", "/etc/passwd", "a\0b"]) | JSON,
            "artifacts": JSON,
            "artifact_hash": st.sampled_from(["abc123", "sha256:" + "0" * 64]) | JSON,
            "team_name": TEAM,
            "started_at": JSON,
            "completed_at": st.sampled_from(["2026-01-01T00:00:00Z", "yesterday", "9999-99-99"]) | JSON,
            "suspended_tasks": st.lists(TASK | JSON, max_size=3) | JSON,
        },
    )
    | JSON
)
NAMES = st.sampled_from([*NEWER_ORDER, "audit", "audit_mend", "__proto__", "constructor", "x"]) | st.text(max_size=5)
CHECKPOINT = st.fixed_dictionaries(
    {},
    optional={
        "schema_version": st.integers(1, 31) | JSON,
        "id": st.sampled_from(["a", "../b"]) | JSON,
        "plan_file": st.sampled_from(["plans/a.md", "../p", "-x", "null"]) | JSON,
        "session_nonce": st.sampled_from(["0f1e2d3c4b5a", "0F1E2D3C4B5A", "0f1e2d3c4b5a\n"]) | JSON,
        "config_dir": JSON,
        "owner_pid": st.sampled_from(["1", 1, 0, -1, 2**40]) | JSON,
        "flags": JSON,
        "convergence": st.fixed_dictionaries({}, optional={"round": JSON, "tier": JSON, "max_rounds": JSON}) | JSON,
        "freshness": JSON,
        "totals": JSON,
        "skip_map": JSON,
        "acode": st.fixed_dictionaries({}, optional={"tasks": JSON, "set_aside": JSON, "demoted": JSON}) | JSON,
        "phases": st.dictionaries(NAMES, PHASE, max_size=8) | JSON,
        "updated_at": JSON,
        "x_unknown": JSON,
    },
)


@settings(max_examples=100, deadline=None)
@given(CHECKPOINT)
def test_no_checkpoint_whatever_it_holds_does_more_than_refuse(value: dict[str, Any]) -> None:
    untouched = copy.deepcopy(value)
    try:
        once = migrate(value)
    except AcodeError:
        return
    assert migrate(once.value).value == once.value
    found = diagnose(at_rest(value), NOW, facts())
    repaired = repair(value, found, now=NOW, own_pid=OWN_PID, config_dir=CONFIG_DIR)
    assert value == untouched
    assert repaired.get("x_unknown") == value.get("x_unknown")
    json.dumps(found.as_json(), allow_nan=False)
    again = diagnose(at_rest(repaired), NOW, facts())
    assert again.next_phase == found.next_phase
    assert not again.demoted
    if once.schema_to == 19:
        assert set(PHASE_ORDER) <= set(repaired["phases"])

"""The performance requirements: each group's record is there, within its maxima, and of today's source.

What fails here is measured again with one command, named in the message.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import requirements, unit_coverage


@pytest.mark.req("NFR-040b-01", "NFR-040b-03", "NFR-040b-06", "NFR-040b-07", "NFR-040b-08")
def test_recovery_is_recorded_within_its_limits() -> None:
    assert requirements.mismatches("recovery") == []


@pytest.mark.req("FR-040b-10", "NFR-040b-09", "NFR-011c-001", "BENCH-011c-01", "NFR-011c-003")
def test_looking_and_planning_are_recorded_within_their_limits() -> None:
    assert requirements.mismatches("recovery") == []


@pytest.mark.req("NFR-040b-10", "BENCH-011c-03", "BENCH-011c-04")
def test_counters_and_checkpoints_are_recorded_within_their_limits() -> None:
    assert requirements.mismatches("writing") + requirements.mismatches("recovery") == []


@pytest.mark.req("NFR-040b-02", "NFR-040b-04", "NFR-011c-002", "BENCH-011c-02")
def test_validation_is_recorded_within_its_limits() -> None:
    assert requirements.mismatches("validation") == []


@pytest.mark.req("NFR-040b-05", "ASM-040b-07", "NFR-011c-004")
def test_a_whole_resume_is_recorded_within_its_limits() -> None:
    assert requirements.mismatches("cycle") == []


@pytest.mark.parametrize("name", requirements.GROUPS)
def test_a_record_that_is_missing_old_or_over_its_maximum_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads((requirements.RECORDS / f"{name}.json").read_text())
    monkeypatch.setattr(requirements, "RECORDS", tmp_path)
    assert requirements.COMMAND in requirements.mismatches(name)[0]
    slow = dict.fromkeys(kept["figures"], 1000000000.0)
    (tmp_path / f"{name}.json").write_text(json.dumps({**kept, "source_sha256": "0", "figures": slow}))
    found = requirements.mismatches(name)
    assert "older than its source" in found[0]
    assert len(found) == 1 + sum(map(len, requirements.GROUPS[name].limits.values()))


# Coverage.


@pytest.mark.req("QUAL-011c-01")
def test_the_coverage_by_unit_tests_is_recorded_above_90_percent() -> None:
    assert unit_coverage.mismatches() == []


def test_a_record_of_coverage_that_is_missing_old_or_too_low_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads((unit_coverage.RECORDS / "coverage.json").read_text())
    monkeypatch.setattr(unit_coverage, "RECORDS", tmp_path)
    assert unit_coverage.COMMAND in unit_coverage.mismatches()[0]
    low = {**kept, "source_sha256": "0", "figures": {"unit_coverage_percent": 89.9}}
    (tmp_path / "coverage.json").write_text(json.dumps(low))
    old, few = unit_coverage.mismatches()
    assert "older than its source" in old and "QUAL-011c-01" in few


def test_everything_that_is_measured_is_there() -> None:
    source = unit_coverage.ROOT / "src" / "acode"
    assert [name for name in unit_coverage.MEASURED if not (source / name).exists()] == []

"""Carrying an arc run on: what a phase is told, and what is written down about it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from acode.errors import CannotContinue
from acode.formats.arc import PHASE_ORDER, begin_phase, expected_artifact, next_phase, prompt_for_phase, record_phase
from acode.formats.arc.phases import ARTIFACT_NAMES
from acode.formats.arc.suspended import prepared
from tests.arc import NOW, RUN, arc

SHA = "5" * 64
LATER = NOW + timedelta(seconds=90)


def told(value: dict[str, Any], phase: str, **injections: str) -> str:
    return prompt_for_phase(value, phase, run_id=RUN, checkpoint_path="c.json", injections=injections)


def recorded(value: dict[str, Any], phase: str, outcome: Any = "completed", **more: Any) -> dict[str, Any]:
    given = {"artifact": "tmp/a.md", "sha256": SHA, "started": NOW, "finished": LATER, **more}
    return record_phase(value, phase, outcome, **given)


@pytest.mark.req("ARC-05")
@pytest.mark.parametrize("phase", PHASE_ORDER)
def test_every_phase_is_handed_the_plan_file_of_the_checkpoint(phase: str) -> None:
    text = told(arc(plan_file="plans/login-form.md"), phase)
    assert "Plan file: plans/login-form.md\n" in text
    assert phase in text
    assert f"tmp/arc/{RUN}/{ARTIFACT_NAMES[phase]}" in text


@pytest.mark.req("ARC-05")
@pytest.mark.parametrize("plan_file", ["../secret", "/etc/passwd", "-rf", "a\nb", "null", None, 3])
def test_a_plan_file_that_is_no_path_of_the_workspace_is_never_handed_on(plan_file: object) -> None:
    text = told(arc(plan_file=plan_file), "work")
    assert "Plan file: none" in text
    assert str(plan_file) not in text.replace("none", "")


def test_a_phase_is_told_the_artifacts_it_can_build_on() -> None:
    value = arc(
        {"forge": {"status": "completed", "artifact": "tmp/f.md"}, "mend": {"status": "pending", "artifact": "x"}}
    )
    text = told(value, "work")
    assert "- forge: tmp/f.md" in text
    assert "- mend" not in text


@pytest.mark.req("ARC-SUSP-13")
def test_saved_contexts_end_the_prompt_of_the_work_phase_and_of_no_other() -> None:
    value = arc({"work": {"status": "pending"}})
    text = told(value, "work", **{"7": "CONTEXT SEVEN\n", "8": "CONTEXT EIGHT\n"})
    assert text.endswith("CONTEXT EIGHT\n")
    assert text.index("Plan file") < text.index("CONTEXT SEVEN") < text.index("CONTEXT EIGHT")
    assert "CONTEXT" not in told(value, "mend", **{"7": "CONTEXT SEVEN\n"})


@pytest.mark.req("ARC-SUSP-10")
def test_the_worker_is_told_which_tasks_have_failed_for_good() -> None:
    value = arc({"work": {"status": "pending"}}, acode={"tasks": {"3": {"permanently_failed": True}, "4": {}}})
    assert "not to be taken up: 3\n" in told(value, "work")


def test_a_begun_phase_is_in_progress_and_a_crash_from_there_is_found_again() -> None:
    value = begin_phase(arc({"work": {"status": "failed", "completed_at": "x"}}), "work", started=NOW)
    work = value["phases"]["work"]
    assert (work["status"], work["started_at"], work["completed_at"]) == (
        "in_progress",
        "2026-03-01T12:00:00.000Z",
        None,
    )
    assert next_phase(value) == "work"


def test_a_completed_phase_is_recorded_with_artifact_hash_times_and_totals() -> None:
    value = recorded(arc({"work": {"status": "in_progress"}, "ship": {"status": "pending"}}), "work")
    work = value["phases"]["work"]
    assert (work["status"], work["artifact"], work["artifact_hash"]) == ("completed", "tmp/a.md", SHA)
    assert (work["started_at"], work["completed_at"]) == ("2026-03-01T12:00:00.000Z", "2026-03-01T12:01:30.000Z")
    assert value["totals"]["phase_times"] == {"work": 90_000}
    assert (value["updated_at"], next_phase(value)) == ("2026-03-01T12:01:30.000Z", "ship")
    assert "completed_at" not in value


@pytest.mark.parametrize("outcome", ["failed", "timeout", "cancelled"])
def test_a_phase_that_did_not_succeed_has_no_end_and_keeps_no_new_artifact(outcome: str) -> None:
    value = recorded(arc({"work": {"status": "in_progress"}}), "work", outcome)
    work = value["phases"]["work"]
    assert (work["status"], work["completed_at"], work["artifact"]) == (outcome, None, None)
    assert next_phase(value) == "work"


def test_recording_twice_is_recording_once() -> None:
    for outcome in ("completed", "failed"):
        once = recorded(arc({"work": {"status": "in_progress"}}), "work", outcome)
        assert recorded(once, "work", outcome) == once


def test_the_last_phase_ends_the_run_and_sums_it_up() -> None:
    value = recorded(arc({"merge": {"status": "in_progress"}}, started_at="2026-03-01T11:00:00Z"), "merge")
    assert (value["completed_at"], value["totals"]["total_duration_ms"]) == ("2026-03-01T12:01:30.000Z", 3_690_000)
    without_start = recorded(arc({"merge": {}}, totals={"phase_times": {"forge": 10, "work": None}}), "merge")
    assert without_start["totals"]["total_duration_ms"] == 90_010


def test_a_newer_run_keeps_its_position_fields_and_an_older_one_gets_none() -> None:
    newer = arc({"work": {}, "ship": {}}, schema_version=30, current_phase="work", overall_status="in_progress")
    after = recorded(newer, "work")
    assert (after["current_phase"], after["overall_status"]) == ("ship", "in_progress")
    assert recorded(after, "ship")["overall_status"] == "completed"
    assert "current_phase" not in recorded(arc({"work": {}}), "work")


def test_finished_work_has_used_up_its_contexts_and_failed_work_has_not() -> None:
    value = arc({"work": {}}, acode={"tasks": {"7": {"action": "inject"}}, "x": 1})
    assert set(prepared(recorded(value, "work", "failed"))) == {"7"}
    done = recorded(value, "work")
    done["phases"]["work"]["status"] = "pending"  # demoted later, because somebody changed the artifact
    assert prepared(done) == {}
    assert done["acode"]["x"] == 1


def test_unknown_fields_survive_the_recording() -> None:
    value = arc({"work": {"x": 1}}, x_run=2, totals={"x_total": 3})
    after = recorded(value, "work")
    assert (after["phases"]["work"]["x"], after["x_run"], after["totals"]["x_total"]) == (1, 2, 3)


@pytest.mark.parametrize(
    ("phase", "sha256"), [("dream", SHA), ("__proto__", SHA), ("work", "abc"), ("work", SHA + "\n")]
)
def test_nonsense_is_refused_before_it_reaches_the_checkpoint(phase: str, sha256: str) -> None:
    with pytest.raises(CannotContinue):
        recorded(arc({"work": {}}), phase, sha256=sha256)


def test_no_artifact_path_is_made_of_an_id_that_could_leave_the_workspace() -> None:
    for name in ("../..", "..", ".", "a/b", ""):
        place = expected_artifact(arc(id=name), "work", run_id=RUN)
        assert re.fullmatch(r"tmp/arc/run-[0-9a-f]{16}/work-summary\.md", place)


def test_a_phase_that_was_demoted_is_told_which_artifact_no_longer_counts() -> None:
    own = {"demoted": [{"phase": "work", "artifact": "tmp/old.md", "found": SHA}, {"phase": "mend", "artifact": "m"}]}
    text = told(arc({"work": {"status": "pending"}}, acode=own), "work")
    assert "no result of this phase any more: tmp/old.md\n" in text and ": m\n" not in text

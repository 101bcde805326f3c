"""What is wrong with an arc run and what a resume would do: by the checkpoint, the time and the facts alone."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from acode.errors import CannotContinue, EnvironmentInvalid, ForeignTampered, SessionLocked
from acode.formats.arc import PHASE_ORDER, next_phase, raise_refusal, repair
from acode.formats.arc.artifacts import order_warnings
from acode.formats.arc.checkpoint import stamp
from acode.formats.arc.facts import Artifact, Process, StateFile, Team
from acode.formats.arc.phases import NEWER_ORDER, order_for
from tests.arc import CONFIG_DIR, NOW, OWN_PID, arc, diagnosed

SHA = hashlib.sha256(b"report").hexdigest()
DONE = {"status": "completed", "artifact": "tmp/a.md", "artifact_hash": SHA}
WHOLE = {"tmp/a.md": Artifact(kind="file", sha256=SHA)}


def repaired(value: dict[str, Any], **known: Any) -> dict[str, Any]:
    return repair(value, diagnosed(value, **known), now=NOW, own_pid=OWN_PID, config_dir=CONFIG_DIR)


def kinds(value: dict[str, Any], **known: Any) -> list[str]:
    return [refusal.kind for refusal in diagnosed(value, **known).refusals]


# The nonce and the owner.


@pytest.mark.req("ARC-02")
@pytest.mark.parametrize("nonce", ["", "0f1e2d3c4b5", "0f1e2d3c4b5a6", "0F1E2D3C4B5A", "0f1e2d3c4b5a\n", None, 12, []])
def test_a_nonce_that_is_not_twelve_hex_digits_means_tampering(nonce: object) -> None:
    (refusal,) = diagnosed(arc(session_nonce=nonce)).refusals
    with pytest.raises(ForeignTampered) as refused:
        raise_refusal(refusal)
    assert refused.value.exit_code == 20


@pytest.mark.req("ARC-02")
def test_a_good_nonce_is_no_reason_to_refuse() -> None:
    assert kinds(arc()) == []
    assert kinds(arc(schema_version=22, session_nonce="0f" * 16)) == []  # newer versions draw 32 digits
    assert kinds(arc(session_nonce="0f" * 16)) == ["tampered"]


@pytest.mark.req("ARC-03")
def test_a_checkpoint_of_another_config_directory_is_refused() -> None:
    value = arc(config_dir="/elsewhere")
    (refusal,) = diagnosed(value, recorded_config_dir="/elsewhere").refusals
    with pytest.raises(EnvironmentInvalid, match="/elsewhere"):
        raise_refusal(refusal)
    assert kinds(value, recorded_config_dir=CONFIG_DIR) == []  # the same place under another name


@pytest.mark.req("ARC-04", "ARC-06")
def test_a_live_foreign_owner_refuses_and_a_dead_one_or_ourselves_do_not() -> None:
    (refusal,) = diagnosed(arc(owner_pid=77), owner=Process(pid=77, alive=True)).refusals
    with pytest.raises(SessionLocked, match="77") as refused:
        raise_refusal(refusal)
    assert refused.value.exit_code == 16
    assert kinds(arc(owner_pid=77), owner=Process(pid=77, alive=False)) == []
    assert kinds(arc(owner_pid=OWN_PID), owner=Process(pid=OWN_PID, alive=True)) == []


@pytest.mark.req("ARC-06")
def test_absent_owner_fields_are_not_checked_and_become_ours() -> None:
    assert kinds(arc()) == []
    claimed = repaired(arc())
    assert (claimed["owner_pid"], claimed["config_dir"]) == (OWN_PID, CONFIG_DIR)


# The next phase.


@pytest.mark.req("ARC-RESUME-01")
@pytest.mark.parametrize("status", ["pending", "failed", "timeout", "in_progress", "cancelled", "odd", None, 3])
def test_the_next_phase_is_the_first_in_order_that_is_not_done(status: object) -> None:
    value = arc({"merge": {"status": "pending"}, "gap_analysis": {"status": status}, "test": {"status": "failed"}})
    assert diagnosed(value).next_phase == "gap_analysis"


@pytest.mark.req("ARC-RESUME-01")
def test_the_order_is_by_name_and_not_by_number_or_place_in_the_file() -> None:
    value = arc({"goldmask_verification": {"status": "pending"}, "gap_remediation": {"status": "pending"}})
    value["phases"] = dict(reversed(value["phases"].items()))
    value["phase_sequence"] = 5.7
    assert diagnosed(value).next_phase == "gap_remediation"


def test_a_run_whose_phases_are_all_done_has_no_next_phase() -> None:
    found = diagnosed(arc({"forge": DONE}), artifacts=WHOLE)
    assert (found.next_phase, found.finished) == (None, True)


def test_a_phase_entry_that_is_no_object_is_not_taken_for_done() -> None:
    found = diagnosed(arc({"work": None, "mend": "completed"}))
    assert found.next_phase == "work"
    assert any("mend" in warning for warning in found.warnings)


@pytest.mark.parametrize("version", [20, 25, 30])
def test_a_newer_run_is_resumable_where_every_open_phase_is_known(version: int) -> None:
    value = {
        **arc(schema_version=version),
        "phases": {"work": {"status": "completed"}, "work_qa": {"status": "pending"}},
    }
    found = diagnosed(value)
    assert (found.next_phase, found.refusals, found.schema_to) == ("work_qa", (), version)
    assert diagnosed({**value, "skip_map": {"work_qa": "no tests"}}).next_phase is None


def test_a_newer_run_with_an_open_phase_of_unknown_place_is_shown_and_not_carried_on() -> None:
    value = {**arc(schema_version=28), "phases": {"forge": {"status": "pending"}, "dream": {"status": "pending"}}}
    (refusal,) = diagnosed(value).refusals
    with pytest.raises(CannotContinue, match="dream"):
        raise_refusal(refusal)
    value["phases"]["dream"]["status"] = "completed"
    assert kinds(value) == []
    assert kinds(arc(schema_version=31)) == ["unknown_phases"]


# Order and time-outs.


@pytest.mark.req("ARC-ORDER-01")
def test_a_completed_phase_that_ended_before_an_earlier_one_is_warned_about_and_nothing_else() -> None:
    early, late = stamp(NOW - timedelta(hours=3)), stamp(NOW - timedelta(hours=2))
    value = arc({"forge": {**DONE, "completed_at": late}, "work": {**DONE, "completed_at": early}})
    found = diagnosed(value, artifacts=WHOLE)
    assert any("work" in warning and "before forge" in warning for warning in found.warnings)
    assert (found.refusals, found.next_phase) == ((), None)


@pytest.mark.req("ARC-ORDER-01")
@pytest.mark.parametrize("status", ["pending", "skipped", "failed"])
def test_only_completed_phases_are_held_to_the_order(status: str) -> None:
    early, late = stamp(NOW - timedelta(hours=3)), stamp(NOW - timedelta(hours=2))
    value = arc({"forge": {**DONE, "completed_at": late}, "work": {"status": status, "completed_at": early}})
    assert order_warnings(value, 19) == []


@pytest.mark.parametrize(("version", "warned"), [(16, False), (17, True)])
def test_an_old_run_is_held_to_the_order_of_its_own_version(version: int, warned: bool) -> None:
    """The bot's review was awaited before the ship until version 17 moved it behind."""
    first, second = stamp(NOW - timedelta(hours=3)), stamp(NOW - timedelta(hours=2))
    value = arc({"bot_review_wait": {**DONE, "completed_at": first}, "ship": {**DONE, "completed_at": second}})
    assert bool(order_warnings(value, version)) is warned


def test_every_order_has_the_phases_of_its_version_once() -> None:
    assert len(PHASE_ORDER) == len(set(PHASE_ORDER)) == 26
    assert len(NEWER_ORDER) == len(set(NEWER_ORDER)) == 45
    assert [name for name in NEWER_ORDER if name in PHASE_ORDER] == list(PHASE_ORDER)
    assert order_for(11).index("audit") == order_for(11).index("ship") - 3
    assert set(order_for(16)) == set(PHASE_ORDER)


@pytest.mark.req("ARC-ORDER-02")
def test_a_timeout_becomes_failed_and_runs_again() -> None:
    value = arc({"work": {"status": "timeout"}})
    assert repaired(value)["phases"]["work"]["status"] == "failed"
    assert diagnosed(value).next_phase == "work"


# Artifacts.


@pytest.mark.req("ARC-HASH-01")
def test_a_recorded_artifact_that_is_gone_sends_its_phase_back() -> None:
    """The seed looks for the file and then says nothing about a missing one."""
    value = arc({"forge": DONE})
    found = diagnosed(value, artifacts={"tmp/a.md": Artifact(kind="missing")})
    assert found.as_json()["demoted"] == [{"phase": "forge", "expected": SHA, "found": None}]
    assert found.next_phase == "forge"


@pytest.mark.req("ARC-HASH-02")
@pytest.mark.parametrize("spelling", [SHA, f"sha256:{SHA}", SHA.upper()])
def test_an_artifact_with_the_recorded_hash_keeps_its_phase_completed(spelling: str) -> None:
    found = diagnosed(arc({"forge": {**DONE, "artifact_hash": spelling}}), artifacts=WHOLE)
    assert (found.demoted, found.next_phase) == ((), None)


@pytest.mark.req("ARC-HASH-03", "ARC-HASH-04")
@pytest.mark.parametrize("recorded", ["sha256:" + "0" * 64, "abc123", SHA[:63]])
def test_a_changed_artifact_demotes_its_phase_and_the_warning_names_everything(recorded: str) -> None:
    value = arc({"plan_review": {**DONE, "artifact_hash": recorded}})
    found = diagnosed(value, artifacts=WHOLE)
    assert found.as_json()["demoted"] == [{"phase": "plan_review", "expected": recorded, "found": SHA}]
    (warning,) = [warning for warning in found.warnings if "plan_review" in warning]
    assert all(part in warning for part in ("tmp/a.md", recorded, SHA, "pending", "run again"))
    assert repaired(value, artifacts=WHOLE)["phases"]["plan_review"]["status"] == "pending"


def test_phases_built_on_a_demoted_one_are_named_and_left_alone() -> None:
    value = arc({"forge": {**DONE, "artifact": "gone.md"}, "work": DONE, "mend": DONE, "ship": {"status": "pending"}})
    found = diagnosed(value, artifacts=WHOLE)
    assert any("forge" in warning and "work, mend" in warning for warning in found.warnings)
    assert repaired(value, artifacts=WHOLE)["phases"]["work"]["status"] == "completed"
    assert found.next_phase == "forge"


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        ({**DONE, "artifact": None}, None),
        ({**DONE, "artifact_hash": None}, Artifact(kind="file", sha256=SHA)),
        (DONE, Artifact(kind="directory")),
        (DONE, Artifact(kind="too_large")),
    ],
)
def test_what_cannot_be_verified_is_warned_about_and_stays_completed(
    entry: dict[str, Any], fact: Artifact | None
) -> None:
    found = diagnosed(arc({"forge": entry}), artifacts={"tmp/a.md": fact} if fact else {})
    assert found.demoted == ()
    assert any("forge" in warning and "cannot be verified" in warning for warning in found.warnings)


def test_an_artifact_outside_the_workspace_is_never_taken_for_the_recorded_one() -> None:
    found = diagnosed(arc({"forge": {**DONE, "artifact": "../x"}}), artifacts={"../x": Artifact(kind="unsafe")})
    assert [demotion.phase for demotion in found.demoted] == ["forge"]


# Orphans.


@pytest.mark.req("ARC-ORPHAN-01", "ARC-ORPHAN-08")
@pytest.mark.parametrize("team", ["../x", "a/b", "a b", "a.b", "..", "team\n", "ä", 7, ["t"], {"t": 1}, "x" * 300])
def test_a_team_name_that_could_be_a_path_is_warned_about_and_passed_over(team: object) -> None:
    value = arc({"work": {"status": "in_progress", "team_name": team}})
    found = diagnosed(value)
    assert (found.orphans, found.reset_phases) == ((), ())
    assert any("work" in warning and "left alone" in warning for warning in found.warnings)
    assert repaired(value)["phases"]["work"]["team_name"] == team


@pytest.mark.req("ARC-ORPHAN-02")
@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype"])
def test_forbidden_phase_names_are_passed_over(name: str) -> None:
    value = arc({name: {"status": "in_progress", "team_name": "team-1"}})
    assert diagnosed(value).orphans == ()
    assert repaired(value)["phases"][name] == value["phases"][name]


@pytest.mark.req("ARC-ORPHAN-08")
@pytest.mark.parametrize("entry", [None, "in_progress", 3, ["in_progress"]])
def test_phase_entries_that_are_no_objects_are_passed_over(entry: object) -> None:
    value = arc({"extra": entry, "work": {"status": "in_progress", "team_name": "t"}})
    found = diagnosed(value, teams={"t": Team(teams="directory")})
    assert found.as_json()["orphans_cleaned"] == ["t"]


@pytest.mark.req("ARC-ORPHAN-03")
@pytest.mark.parametrize("status", ["completed", "skipped", "cancelled"])
def test_a_closed_phase_keeps_status_and_name_when_its_leftover_team_goes(status: str) -> None:
    value = arc({"work": {**DONE, "status": status, "team_name": "team-1"}})
    known = {"artifacts": WHOLE, "teams": {"team-1": Team(teams="directory")}}
    assert diagnosed(value, **known).as_json()["orphans_cleaned"] == ["team-1"]
    after = repaired(value, **known)["phases"]["work"]
    assert (after["status"], after["team_name"]) == (status, "team-1")


@pytest.mark.req("ARC-ORPHAN-04")
@pytest.mark.parametrize("status", ["in_progress", "failed", "timeout"])
def test_an_open_phase_loses_its_team_and_starts_over(status: str) -> None:
    value = arc({"mend": {"status": status, "team_name": "team-1"}})
    after = repaired(value)
    assert after["phases"]["mend"]["status"] == "pending"
    assert after["phases"]["mend"]["team_name"] is None
    known = {"teams": {"team-1": Team(tasks="directory")}}
    assert diagnosed(value, **known).as_json()["orphans_cleaned"] == ["team-1"]
    assert repaired(value, **known)["acode"]["released_teams"][0]["team"] == "team-1"
    assert diagnosed(value).as_json()["orphans_cleaned"] == [] and "acode" not in after, "nothing was there to remove"


def test_a_phase_left_in_progress_without_a_team_is_reset_too() -> None:
    """The seed passes over it, and a dispatcher that looks for pending phases would never run it."""
    value = arc({"verification": {"status": "in_progress"}})
    assert diagnosed(value).reset_phases == ("verification",)
    assert repaired(value)["phases"]["verification"]["status"] == "pending"


def state(started: object, *, status: str = "active", owner: Process | None = None, **more: Any) -> StateFile:
    document = {"status": status, "started": started, **more}
    return StateFile(path="tmp/.rune-work-1.json", document=document, owner=owner or Process())


@pytest.mark.req("ARC-ORPHAN-05")
@pytest.mark.parametrize(
    ("started", "stale"),
    [
        (stamp(NOW - timedelta(minutes=30, seconds=1)), True),
        (stamp(NOW - timedelta(minutes=30)), False),
        (stamp(NOW - timedelta(minutes=1)), False),
        (stamp(NOW + timedelta(minutes=1)), False),
        ((NOW - timedelta(hours=1)).timestamp() * 1000, True),
        ("yesterday", True),
        (None, True),
        ([], True),
    ],
)
def test_an_active_state_file_is_stale_after_half_an_hour_or_without_a_start(started: object, stale: bool) -> None:
    found = diagnosed(arc(), state_files=(state(started),))
    assert found.as_json()["stale_state_files"] == (["tmp/.rune-work-1.json"] if stale else [])


def test_a_state_file_that_is_not_active_is_left_alone() -> None:
    assert diagnosed(arc(), state_files=(state(None, status="completed"),)).stale_state_files == ()


def test_the_state_file_of_a_live_session_is_never_touched_however_old() -> None:
    """The seed marks it as crashed, and the other session loses its work."""
    old = stamp(NOW - timedelta(hours=5))
    live = state(old, owner=Process(pid=77, alive=True))
    found = diagnosed(arc(), state_files=(live,))
    assert found.stale_state_files == ()
    assert any("77" in warning for warning in found.warnings)
    assert diagnosed(arc(), state_files=(state(old, owner=Process(pid=77)),)).stale_state_files != ()


def test_the_team_of_a_live_session_is_never_removed() -> None:
    live = state(stamp(NOW), owner=Process(pid=77, alive=True), team_name="team-1")
    value = arc({"work": {"status": "in_progress", "team_name": "team-1"}})
    assert diagnosed(value, state_files=(live,)).orphans == ()


@pytest.mark.req("ARC-ORPHAN-06")
def test_an_unreadable_state_file_is_warned_about_and_passed_over() -> None:
    found = diagnosed(arc(), state_files=(StateFile(path="tmp/.rune-mend-1.json", problem="it is not valid JSON"),))
    assert found.stale_state_files == ()
    assert any(".rune-mend-1.json" in warning for warning in found.warnings)


# The whole.


def test_a_repair_keeps_unknown_fields_and_a_second_one_changes_nothing_but_times() -> None:
    value = arc({"work": {"status": "in_progress", "x_phase": [1]}, "x_dream": {"status": "skipped"}}, x_run={"a": 1})
    once = repaired(value)
    assert (once["x_run"], once["phases"]["work"]["x_phase"]) == ({"a": 1}, [1])
    assert once["phases"]["x_dream"] == value["phases"]["x_dream"]
    assert repaired(once) == once


def test_the_preview_names_the_phase_that_the_repaired_checkpoint_goes_on_with() -> None:
    value = arc({"forge": DONE, "work": {"status": "in_progress", "team_name": "t"}, "ship": {"status": "pending"}})
    for known in ({"artifacts": WHOLE}, {}):
        assert diagnosed(value, **known).next_phase == next_phase(repaired(value, **known))


def test_the_preview_has_every_field_that_scripts_were_promised() -> None:
    assert set(diagnosed(arc()).as_json()) >= {
        *("checkpoint_path", "schema_from", "schema_to", "next_phase", "demoted", "orphans_cleaned"),
        *("stale_state_files", "suspended", "warnings"),
    }


def test_foreign_text_in_warnings_holds_no_control_characters() -> None:
    name = "evil\x1b[31m\u202egnp"
    found = diagnosed(arc({name: {"status": "\x07odd", "team_name": "\x1b]0;x"}}, session_nonce="\x1b[2J"))
    texts = [*found.warnings, *(refusal.message for refusal in found.refusals)]
    assert not any(char in text for text in texts for char in "\x1b\x07\u202e")

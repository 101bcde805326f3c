"""Rules of the arc format that are easily missed: owners, branches, containers, links, and what a report claims."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acode.formats import format_of, locate
from acode.formats.arc import claim, diagnose, look, next_phase, read, repair
from acode.formats.arc.facts import Artifact, Process, Team
from acode.formats.arc.phases import fresh_entry, phases_of
from tests.arc import NOW, OWN_PID, arc, context, diagnosed, put_run, suspended, task
from tests.driver import Acode
from tests.foreign import ARC, put_arc
from tests.worlds import world as a_world

SHIPPED_30 = (
    *("forge", "forge_qa", "plan_review", "verification", "work", "work_qa", "inspect", "code_review"),
    *("code_review_qa", "verify", "mend", "mend_qa", "verify_mend", "test", "test_qa", "pre_ship_validation"),
    *("ship", "merge"),
)


@pytest.mark.req("ARC-04")
def test_the_owner_may_be_the_process_that_started_acode_and_no_other(tmp_path: Path) -> None:
    path = put_run(tmp_path, arc(owner_pid=str(os.getppid())))
    checkpoint = read(path)
    found = look(checkpoint, config_dir=str(tmp_path), own_pid=os.getpid())
    assert found.owner.alive and diagnose(checkpoint, NOW, found).refusals == ()
    stranger = replace(found, own_parent=None)
    assert [one.kind for one in diagnose(checkpoint, NOW, stranger).refusals] == ["live_owner"]
    with claim(path, own_pid=os.getpid(), config_dir=str(tmp_path), now=NOW) as claimed:
        assert claimed.raw["owner_pid"] == os.getpid()


def test_init_is_no_session_that_started_acode() -> None:
    owner = Process(pid=1, alive=True)
    assert [one.kind for one in diagnosed(arc(owner_pid=1), owner=owner).refusals] == ["live_owner"]


@pytest.mark.req("ARC-SUSP-01")
def test_a_context_anywhere_below_tmp_work_is_used_as_the_format_says() -> None:
    from acode.formats.arc.facts import TextFile

    path = "tmp/work/1/saved/7.md"
    found = diagnosed(arc(suspended(task(path))), contexts={path: TextFile(data=context())})
    assert [one.action for one in found.verdicts] == ["inject"]


def test_the_state_containers_of_schema_30_are_no_phases_for_a_driver() -> None:
    phases: dict[str, Any] = {name: fresh_entry(name, "completed") for name in SHIPPED_30}
    phases |= {name: fresh_entry(name, "pending") for name in ("verify_mend", "pre_ship_validation", "ship")}
    value = {**arc(schema_version=30), "phases": phases}
    assert next_phase(value) == "ship" and diagnosed(value).next_phase == "ship"
    assert not {"verify_mend", "pre_ship_validation"} & set(phases_of(value))
    phases["ship"] = fresh_entry("ship", "completed")
    assert next_phase(value) is None
    older = {**value, "phases": {**phases, "plan_refine": fresh_entry("plan_refine", "skipped")}}
    assert next_phase(older) == "verify_mend", "version 2 of the tool had the same schema, and ran them"


@pytest.mark.parametrize("kind", ["link", "other"])
def test_a_team_behind_a_link_keeps_its_name_and_is_not_said_to_be_removed(kind: Any) -> None:
    value = arc({"work": {"status": "in_progress", "team_name": "team-1"}})
    found = diagnosed(value, teams={"team-1": Team(teams=kind, tasks="directory")})
    after = repair(value, found, now=NOW, own_pid=OWN_PID, config_dir="/c")
    assert (after["phases"]["work"]["status"], after["phases"]["work"]["team_name"]) == ("pending", "team-1")
    assert found.as_json()["orphans_cleaned"] == [] and "acode" not in after


def test_phases_demoted_together_are_not_said_to_be_left_as_they_are() -> None:
    done = {"status": "completed", "artifact": "tmp/r.md", "artifact_hash": "0" * 64}
    phases = {"mend": done, "verify_mend": done, "test": {"status": "completed"}}
    found = diagnosed(arc(phases), artifacts={"tmp/r.md": Artifact(kind="file", sha256="1" * 64)})
    assert {one.phase for one in found.demoted} == {"mend", "verify_mend"}
    (repair_by_rules,) = [text for text in found.warnings if "of the phase mend " in text]
    assert repair_by_rules.endswith("left as they are: test.")


def test_completed_phases_without_times_have_a_last_one(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    put_arc(world.workspace, phases={name: {"status": "completed"} for name in ("forge", "plan_review")})
    (run,) = locate(world.workspace).runs
    assert format_of("arc").stand(world, run).last_completed == ("plan_review", "")


def test_a_look_says_when_updated_at_and_modification_time_disagree(acode: Acode, workspace: Path) -> None:
    put_arc(workspace)
    other = put_arc(workspace, "arc-2", updated_at="2026-02-01T00:00:00.000Z")
    os.utime(other, (2_000_000_000, 2_000_000_000))
    assert any("by modification time" in text for text in acode("explain", ARC, "--json").json["warnings"])
    assert "by modification time it would be arc-2" in acode("resume", ARC, "--dry-run").stdout


@pytest.mark.parametrize(("schema", "head", "exit_code"), [(22, "main", 0), (22, "other", 17), (19, "other", 0)])
def test_the_branch_of_a_newer_checkpoint_is_compared(
    acode: Acode, workspace: Path, schema: int, head: str, exit_code: int
) -> None:
    subprocess.run(["git", "init", "-q", "-b", head], cwd=workspace, check=True)
    checkpoint = put_arc(workspace, schema_version=schema, branch="main")
    before = checkpoint.read_bytes()
    ended = acode("resume", ARC)
    assert ended.exit_code == exit_code, ended.stderr
    assert (checkpoint.read_bytes() == before) == (exit_code == 17)
    assert exit_code == 0 or "works on the branch main" in ended.stderr


def test_a_detached_head_is_warned_about_and_no_branch_known_is_not() -> None:
    value = arc(schema_version=22, branch="main")
    assert any("HEAD is detached" in text for text in diagnosed(value, current_branch="").warnings)
    assert not any("branch" in text for text in diagnosed(value, current_branch=None).warnings)

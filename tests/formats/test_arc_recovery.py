"""Recovering an arc run for real: claimed by one, cleaned up below two directories, contexts counted once, saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from acode.errors import AcodeError, EnvironmentInvalid, ForeignTampered, SessionLocked, UnsafePath
from acode.formats.arc import (
    Diagnosis,
    begin_phase,
    claim,
    clean_before_phase,
    clean_up,
    diagnose,
    look,
    next_phase,
    prompt_for_phase,
    read,
    record_phase,
    repair,
    settle_contexts,
    write,
)
from acode.formats.arc.checkpoint import stamp
from tests.arc import CONTEXT_PATH, NOW, RUN, arc, context, put, put_run, suspended, task


@pytest.fixture
def config(tmp_path: Path) -> Path:
    place = tmp_path / "config"
    place.mkdir()
    return place


class Nap:
    """A sleep that only remembers, and may do something meanwhile."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.slept_s: list[float] = []
        self.meanwhile = meanwhile

    def __call__(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.meanwhile()


def resumed(path: Path, config: Path) -> tuple[Diagnosis, dict[str, Any], dict[str, str]]:
    """A resume up to the dispatch, as the engine puts it together."""
    with claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW) as checkpoint:
        found = diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(config), own_pid=os.getpid()))
        clean_up(checkpoint.root, str(config), found, now=NOW, sleep=Nap(), record=lambda _: None)
        value = repair(checkpoint.raw, found, now=NOW, own_pid=os.getpid(), config_dir=str(config))
        write(path, value, now=NOW)
        texts, _ = settle_contexts(checkpoint.root, value, run_id=checkpoint.run_id)
    return found, value, texts


def team(config: Path, name: str) -> None:
    put(config, f"teams/{name}/config.json", "{}")
    put(config, f"teams/{name}/inboxes/a.json", "[]")
    put(config, f"tasks/{name}/1.json", "{}")


def there(config: Path) -> set[str]:
    return {f"{shelf}/{entry.name}" for shelf in ("teams", "tasks") for entry in (config / shelf).iterdir()}


# Claiming.


@pytest.mark.req("ARC-04", "ARC-06")
def test_a_dead_owners_run_becomes_ours_on_disk(workspace: Path, config: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    path = put_run(workspace, arc(owner_pid=str(dead.pid), config_dir=str(config), x=1))
    with claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW) as checkpoint:
        on_disk = json.loads(path.read_text())
        assert checkpoint.raw == on_disk
        assert (on_disk["owner_pid"], on_disk["config_dir"], on_disk["x"]) == (os.getpid(), str(config), 1)
    with claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW):
        pass  # ours already: our own number is not foreign


@pytest.mark.req("ARC-02", "ARC-03", "ARC-04")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_nonce": "x"}, ForeignTampered),
        ({"config_dir": "/elsewhere"}, EnvironmentInvalid),
        ({"owner_pid": 1}, SessionLocked),
    ],
)
def test_a_run_that_may_not_be_claimed_is_left_as_it_is(
    workspace: Path, config: Path, fields: dict[str, Any], error: type[AcodeError]
) -> None:
    path = put_run(workspace, arc(**fields))
    before = path.read_bytes()
    with pytest.raises(error), claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW):
        pytest.fail("claimed")
    assert path.read_bytes() == before


def test_a_lock_file_that_is_a_link_is_refused(workspace: Path, config: Path) -> None:
    path = put_run(workspace, arc())
    path.with_name(".acode.lock").symlink_to(workspace / "victim")
    with pytest.raises(UnsafePath), claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW):
        pytest.fail("claimed")
    assert not (workspace / "victim").exists()


RESUMER = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from acode.errors import SessionLocked
from acode.formats.arc import claim
print("ready", flush=True)
sys.stdin.readline()
try:
    with claim(Path(sys.argv[1]), own_pid=os.getpid(), config_dir=sys.argv[2], now=datetime.now(UTC)) as checkpoint:
        print("won", checkpoint.raw["owner_pid"], flush=True)
        sys.stdin.readline()
except SessionLocked as refused:
    print("lost", refused.message, flush=True)
"""


@pytest.mark.req("ARC-06")
def test_of_two_resumers_that_race_for_a_dead_owners_run_exactly_one_wins(workspace: Path, config: Path) -> None:
    path = put_run(workspace, arc(owner_pid=2**22 - 1))
    command = [sys.executable, "-c", RESUMER, str(path), str(config)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        racers = {one.pid: one, other.pid: other}
        for racer in racers.values():
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers.values():
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = {pid: racer.stdout.readline().split() for pid, racer in racers.items() if racer.stdout}
        (winner,) = [pid for pid, words in said.items() if words[0] == "won"]
        (loser,) = [pid for pid, words in said.items() if words[0] == "lost"]
        assert said[winner] == ["won", str(winner)]
        assert loser != winner
        late = claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW)
        with pytest.raises(SessionLocked, match=str(winner)), late:
            pytest.fail("claimed a run that is being worked on")
        assert json.loads(path.read_text())["owner_pid"] == winner
        racers[winner].kill()  # a killed winner leaves nothing that keeps the next one out
        racers[winner].wait()
    with claim(path, own_pid=os.getpid(), config_dir=str(config), now=NOW):
        assert json.loads(path.read_text())["owner_pid"] == os.getpid()


# Cleaning up.


@pytest.mark.req("ARC-ORPHAN-03", "ARC-ORPHAN-04", "ARC-ORPHAN-10")
def test_the_teams_of_a_dead_session_go_and_the_cleaned_checkpoint_is_saved(workspace: Path, config: Path) -> None:
    for name in ("open", "closed", "other"):
        team(config, name)
    phases = {
        "forge": {"status": "skipped", "team_name": "closed"},
        "work": {"status": "in_progress", "team_name": "open"},
    }
    path = put_run(workspace, arc(phases))
    found, _, _ = resumed(path, config)
    assert there(config) == {"teams/other", "tasks/other"}
    saved = json.loads(path.read_text())["phases"]
    assert (saved["work"]["status"], saved["work"]["team_name"]) == ("pending", None)
    assert (saved["forge"]["status"], saved["forge"]["team_name"]) == ("skipped", "closed")
    assert found.next_phase == next_phase(json.loads(path.read_text())) == "work"


@pytest.mark.req("ARC-ORPHAN-01")
@pytest.mark.parametrize("name", ["../victim", "..", ".", "a/../../victim", "team-1/../../../victim", ""])
def test_no_team_name_reaches_a_directory_beside_teams_and_tasks(workspace: Path, config: Path, name: str) -> None:
    put(config, "victim/config.json", "{}")
    put(config, "teams/config.json", "{}")
    resumed(put_run(workspace, arc({"work": {"status": "in_progress", "team_name": name}})), config)
    assert (config / "victim" / "config.json").exists()
    assert (config / "teams" / "config.json").exists()


def test_the_clean_up_never_goes_through_a_link(workspace: Path, config: Path, tmp_path: Path) -> None:
    put(tmp_path, "precious/config.json", "{}")
    put(tmp_path, "precious/1.json", "{}")
    team(config, "team-1")
    (config / "teams" / "team-1" / "inner").symlink_to(tmp_path / "precious")
    (config / "teams" / "team-2").symlink_to(tmp_path / "precious")
    phases = {
        "work": {"status": "in_progress", "team_name": "team-1"},
        "mend": {"status": "failed", "team_name": "team-2"},
    }
    checkpoint = read(put_run(workspace, arc(phases)))
    found = diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(config), own_pid=1))
    nap = Nap()
    (warning,) = clean_up(workspace, str(config), found, now=NOW, sleep=nap, record=lambda _: None)
    assert {entry.name for entry in (tmp_path / "precious").iterdir()} == {"config.json", "1.json"}
    assert there(config) == {"teams/team-2"}
    assert "team-2" in warning
    assert nap.slept_s == []  # nothing is waited for that will not change


def test_shelves_behind_a_link_are_not_entered(workspace: Path, config: Path, tmp_path: Path) -> None:
    team(tmp_path / "other", "team-1")
    (config / "teams").symlink_to(tmp_path / "other" / "teams")
    (config / "tasks").symlink_to(tmp_path / "other" / "tasks")
    resumed(put_run(workspace, arc({"work": {"status": "in_progress", "team_name": "team-1"}})), config)
    assert there(tmp_path / "other") == {"teams/team-1", "tasks/team-1"}


def orphaned(workspace: Path, config: Path, name: str = "team-1") -> Diagnosis:
    checkpoint = read(put_run(workspace, arc({"work": {"status": "in_progress", "team_name": name}})))
    return diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(config), own_pid=os.getpid()))


@pytest.mark.req("ARC-ORPHAN-07", "ARC-ORPHAN-11")
def test_what_cannot_be_removed_is_tried_three_times_and_only_warned_about(workspace: Path, config: Path) -> None:
    put(config, "teams/team-1", "a file where a directory should be")
    nap = Nap()
    warnings = clean_up(workspace, str(config), orphaned(workspace, config), now=NOW, sleep=nap, record=lambda _: None)
    assert nap.slept_s == [
        3.0,
        8.0,
        3.0,
        8.0,
    ]  # the first try comes at once; once for the release, once for the removal
    assert warnings
    assert all("team-1" in warning for warning in warnings)


@pytest.mark.req("ARC-ORPHAN-07")
def test_a_team_that_can_be_removed_at_the_second_try_is(workspace: Path, config: Path) -> None:
    blocked = put(config, "teams/team-1", "in the way")

    def unblock() -> None:
        blocked.unlink(missing_ok=True)
        team(config, "team-1")

    nap = Nap(unblock)
    warnings = clean_up(workspace, str(config), orphaned(workspace, config), now=NOW, sleep=nap, record=lambda _: None)
    assert (warnings, nap.slept_s) == ([], [3.0])
    assert there(config) == set()


@pytest.mark.req("ARC-ORPHAN-11")
def test_a_team_is_released_before_its_directory_goes_and_once_more_after(workspace: Path, config: Path) -> None:
    team(config, "team-1")
    said: list[tuple[str, bool, bool]] = []

    def record(event: dict[str, Any]) -> None:
        if event["action"] == "teams_released":
            registered = (config / "teams" / "team-1" / "config.json").exists()
            said.append((event["when"], registered, (config / "teams" / "team-1").exists()))

    clean_up(workspace, str(config), orphaned(workspace, config), now=NOW, sleep=Nap(), record=record)
    assert said == [("before", False, True), ("after", False, False)]


@pytest.mark.req("ARC-ORPHAN-05", "ARC-ORPHAN-09")
def test_a_stale_state_file_is_closed_with_its_time_and_a_fresh_or_owned_one_is_not(
    workspace: Path, config: Path
) -> None:
    old = stamp(NOW - timedelta(hours=1))
    stale = put(workspace, "tmp/.rune-gap-fix-1.json", json.dumps({"status": "active", "started": old, "x": 1}))
    fresh = put(workspace, "tmp/.rune-work-2.json", json.dumps({"status": "active", "started": stamp(NOW)}))
    owned = put(workspace, "tmp/.rune-mend-3.json", json.dumps({"status": "active", "owner_pid": str(os.getppid())}))
    torn = put(workspace, "tmp/.rune-audit-4.json", "{")
    stale.chmod(0o644)
    untouched = {path: path.read_bytes() for path in (fresh, owned, torn)}
    resumed(put_run(workspace, arc()), config)
    assert json.loads(stale.read_text()) == {
        "status": "completed",
        "started": old,
        "x": 1,
        "completed": "2026-03-01T12:00:00.000Z",
        "crash_recovered": True,
    }
    assert stale.stat().st_mode & 0o777 == 0o644
    assert {path: path.read_bytes() for path in untouched} == untouched


def test_a_state_file_that_came_to_life_after_the_look_is_left_alone(workspace: Path, config: Path) -> None:
    path = put(workspace, "tmp/.rune-work-1.json", json.dumps({"status": "active"}))
    found = orphaned(workspace, config)
    path.write_text(json.dumps({"status": "active", "started": stamp(NOW)}))
    warnings = clean_up(workspace, str(config), found, now=NOW, sleep=Nap(), record=lambda _: None)
    assert any("changed in the meantime" in warning for warning in warnings)
    assert json.loads(path.read_text())["status"] == "active"


@pytest.mark.req("ARC-STALE-01")
def test_before_a_phase_stale_teams_go_and_no_status_changes(config: Path) -> None:
    for name in ("done", "failed", "running", "held"):
        team(config, name)
    value = arc(
        {
            "forge": {"status": "completed", "team_name": "done"},
            "mend": {"status": "failed", "team_name": "failed"},
            "work": {"status": "in_progress", "team_name": "running"},
            "test": {"status": "pending", "team_name": "held"},
            "ship": {"status": "completed", "team_name": "../x"},
        }
    )
    before = json.dumps(value)
    clean_before_phase(value, str(config), held_teams=frozenset({"held"}), sleep=Nap(), record=lambda _: None)
    assert there(config) == {"teams/running", "tasks/running", "teams/held", "tasks/held"}
    assert json.dumps(value) == before


def test_cleaning_up_where_there_is_nothing_never_sleeps_and_never_warns(workspace: Path, config: Path) -> None:
    nap = Nap()
    found = orphaned(workspace, config)
    assert clean_up(workspace, str(config), found, now=NOW, sleep=nap, record=lambda _: None) == []
    assert nap.slept_s == []


# Contexts.


@pytest.mark.req("ARC-SUSP-06", "ARC-SUSP-09")
def test_the_count_is_raised_on_disk_before_the_text_exists_and_the_list_is_empty(
    workspace: Path, config: Path
) -> None:
    saved = put(workspace, CONTEXT_PATH, context())
    path = put_run(workspace, arc(suspended(task())))
    _, value, texts = resumed(path, config)
    assert b"resume_count: 1\n" in saved.read_bytes()
    assert "resume_count: 1/2" in texts["7"]
    assert json.loads(path.read_text())["phases"]["work"]["suspended_tasks"] == []
    told = prompt_for_phase(value, "work", run_id=RUN, checkpoint_path="c", injections=texts)
    assert told.endswith(texts["7"])


def test_a_crash_between_checkpoint_and_context_counts_the_resume_once(workspace: Path, config: Path) -> None:
    saved = put(workspace, CONTEXT_PATH, context())
    path = put_run(workspace, arc(suspended(task())))
    first = resumed(path, config)[2]
    once = saved.read_bytes()
    saved.write_bytes(context())  # as if the crash had come before the context was written
    assert resumed(path, config)[2] == first
    assert saved.read_bytes() == once
    assert resumed(path, config)[2] == first  # and after it: the same attempt, the same text
    assert saved.read_bytes() == once


def test_a_task_can_be_resumed_twice_and_then_fails_for_good(workspace: Path, config: Path) -> None:
    """With the seed's own writing the second resume already fails its integrity check."""
    put(workspace, CONTEXT_PATH, context())
    path = put_run(workspace, arc())
    actions = []
    for _ in range(3):
        value = json.loads(path.read_text())
        value["phases"]["work"] = {**value["phases"]["work"], **suspended(task())["work"]}
        path.write_text(json.dumps(value))
        actions.append(resumed(path, config)[0].as_json()["suspended"]["7"]["action"])
    assert actions == ["inject", "inject", "permanently_failed"]
    assert json.loads(path.read_text())["acode"]["tasks"]["7"]["permanently_failed"] is True


def test_a_task_suspended_again_elsewhere_is_judged_by_its_new_context(workspace: Path, config: Path) -> None:
    later = CONTEXT_PATH.replace("tmp/work/1/", "tmp/work/2/")
    put(workspace, CONTEXT_PATH, context(body="first time"))
    put(workspace, later, context(body="second time", count=1))
    path = put_run(workspace, arc(suspended(task())))
    assert "first time" in resumed(path, config)[2]["7"]
    value = json.loads(path.read_text())
    value["phases"]["work"]["suspended_tasks"] = [task(later), task(CONTEXT_PATH)]
    path.write_text(json.dumps(value))
    found, _, texts = resumed(path, config)
    assert found.as_json()["suspended"]["7"]["action"] == "inject"
    assert "second time" in texts["7"]
    assert "resume_count: 2/2" in texts["7"]


@pytest.mark.parametrize("change", ["changed", "gone", "link"])
def test_a_context_that_changes_after_it_was_checked_is_not_injected(
    workspace: Path, config: Path, change: str
) -> None:
    saved = put(workspace, CONTEXT_PATH, context())
    checkpoint = read(put_run(workspace, arc(suspended(task()))))
    found = diagnose(checkpoint, NOW, look(checkpoint, config_dir=str(config), own_pid=1))
    value = repair(checkpoint.raw, found, now=NOW, own_pid=1, config_dir=str(config))
    saved.unlink()
    if change == "changed":
        saved.write_bytes(context(body="do something else"))
    elif change == "link":
        saved.symlink_to(put(workspace, "real.md", context()))
    texts, warnings = settle_contexts(workspace, value, run_id=RUN)
    assert texts == {}
    assert any("cold_restart" in warning for warning in warnings)


def test_a_forged_record_in_the_checkpoint_opens_no_other_file(workspace: Path) -> None:
    put(workspace, "secret.md", "secret")
    entry = {"action": "inject", "resume_count": 1, "context_path": "secret.md"}
    texts, warnings = settle_contexts(workspace, arc({"work": {}}, acode={"tasks": {"7": entry}}), run_id=RUN)
    assert (texts, len(warnings)) == ({}, 1)


# The whole way.


def test_an_old_crashed_run_is_carried_to_its_end_phase_by_phase(workspace: Path, config: Path) -> None:
    team(config, "arc-mend-1")
    phases = {
        name: {"status": "completed", "artifact": None} for name in ("forge", "plan_review", "work", "code_review")
    }
    phases["mend"] = {"status": "in_progress", "artifact": None, "team_name": "arc-mend-1"}
    old = {"id": RUN, "schema_version": 6, "plan_file": "plans/a.md", "session_nonce": "0f1e2d3c4b5a", "phases": phases}
    path = put_run(workspace, {**old, "convergence": {"round": 1, "tier": {"name": "STANDARD"}}})
    found, value, _ = resumed(path, config)
    assert (found.schema_from, found.as_json()["orphans_cleaned"]) == (6, ["arc-mend-1"])
    assert value["convergence"]["tier"]["minCycles"] == 2
    ran = []
    while phase := next_phase(value):
        value = begin_phase(value, phase, started=NOW)
        write(path, value, now=NOW)
        made = {"artifact": f"tmp/{phase}.md", "sha256": "0" * 64, "started": NOW, "finished": NOW}
        value = record_phase(read(path).raw, phase, "completed", **made)  # type: ignore[arg-type]
        write(path, value, now=NOW)
        ran.append(phase)
    pending = ["design_extraction", "design_verification", "goldmask_verification", "goldmask_correlation"]
    assert ran == [*pending, "mend", "design_iteration", "test", "ship", "merge"]
    assert read(path).raw["completed_at"] == "2026-03-01T12:00:00.000Z"
    assert json.loads(path.with_name("checkpoint.json.schema-6.bak").read_text())["schema_version"] == 6

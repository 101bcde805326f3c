"""A carried run is killed in the middle, and ends like one that nobody disturbed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from acode.cli.early_flags import Flags
from acode.cli.world import build_world
from acode.engine.resume import resume
from acode.engine.world import Options, World
from acode.errors import AcodeError
from acode.formats import format_of, locate
from acode.formats.drive_run import walk
from acode.formats.interface import ActiveRun, Next, Outcome, Run, Work
from acode.formats.resume_run import begin, driver_of, locked, native_session
from tests.driver import Acode, Running
from tests.foreign import (
    ARC,
    MEMORY,
    OPEN_PHASES,
    WORK,
    done,
    essence,
    ledger,
    own_events,
    put_driver,
    put_foreign,
    put_memory,
    settled,
)

BOTH = pytest.mark.parametrize("run", [ARC, MEMORY])


def put_run(workspace: Path, run: str) -> Path:
    put_driver(workspace, "arc", "agent-memory")
    return put_foreign(workspace, run)


def told(place: Path) -> Any:
    return settled(place) if place.name == "checkpoint.json" else essence(place)


def undisturbed(acode: Acode, workspace: Path, run: str) -> Any:
    """How the run ends when nothing happens, in another workspace of the same name."""
    aside = workspace.with_name("aside")
    workspace.rename(aside)
    workspace.mkdir()
    place = put_run(workspace, run)
    assert acode("resume", run, "--yes").exit_code == 0
    found = told(place)
    shutil.rmtree(workspace)
    aside.rename(workspace)
    return found


def started(acode: Acode, workspace: Path, run: str, hold: str) -> Running:
    """A real resume that stands in the middle of this piece."""
    (workspace / "hold").write_text(hold)
    running = acode.process("resume", run, "--yes")
    running.wait_for_line(f"working on {hold}")
    return running


def let_go(workspace: Path) -> None:
    with open(workspace / "gate", "w") as gate:
        gate.write("go\n")


@BOTH
def test_killed_alone_its_driver_lives_on_and_nothing_is_repeated(acode: Acode, workspace: Path, run: str) -> None:
    expected = undisturbed(acode, workspace, run)
    place = put_run(workspace, run)
    second = WORK[run][1]
    started(acode, workspace, run, second).kill()
    resumed = acode.process("resume", run, "--json")
    resumed.wait_for_line("step_waiting")
    let_go(workspace)
    ended = resumed.finish()
    assert ended.exit_code == 0, ended.stderr
    assert ledger(workspace) == done(run)
    assert told(place) == expected


@BOTH
def test_killed_with_all_it_started_only_the_piece_in_flight_is_repeated(
    acode: Acode, workspace: Path, run: str
) -> None:
    expected = undisturbed(acode, workspace, run)
    place = put_run(workspace, run)
    second = WORK[run][1]
    started(acode, workspace, run, second).kill_everything()
    ended = acode("resume", run, "--json")
    assert ended.exit_code == 0, ended.stdout
    begun = [line for line in ledger(workspace) if line.endswith("begun")]
    assert begun == [f"{name} begun" for name in (WORK[run][0], second, *WORK[run][1:])]
    assert told(place) == expected


def test_of_two_that_resume_one_run_one_wins(acode: Acode, workspace: Path) -> None:
    for run in (ARC, MEMORY):
        (workspace / "ledger.txt").unlink(missing_ok=True)
        put_run(workspace, run)
        first = started(acode, workspace, run, WORK[run][0])
        assert acode("resume", run).exit_code == 16
        assert acode("status", run, "--json").exit_code == 0
        let_go(workspace)
        assert first.finish().exit_code == 0
        assert ledger(workspace) == done(run)


def test_a_driver_that_may_not_be_repeated_needs_a_persons_word(acode: Acode, workspace: Path) -> None:
    put_run(workspace, ARC)
    put_driver(workspace, "arc", idempotent=False)
    started(acode, workspace, ARC, "work").kill_everything()
    assert acode("resume", ARC).exit_code == 19
    assert acode("session", "resolve", ARC, "work.drive", "--retry").exit_code == 0
    assert acode("resume", ARC).exit_code == 0
    assert ledger(workspace).count("work begun") == 2


# Between two records.


class Died(BaseException):
    """The process is gone; nobody catches it."""


class DiesAt:
    """A carried run whose process dies before the first outcome is recorded, or right after."""

    def __init__(self, active: ActiveRun, *, after: bool) -> None:
        self.active = active
        self.after = after

    def next(self, held: Any) -> Next:
        return self.active.next(held)

    def begin(self, held: Any, work: Work, *, key: str, attempt: int) -> None:
        self.active.begin(held, work, key=key, attempt=attempt)

    def record(self, held: Any, origin: dict[str, Any], outcome: Outcome) -> AcodeError | None:
        if self.after:
            self.active.record(held, origin, outcome)
        raise Died


class DiesAtBegin(DiesAt):
    """It dies when the run has been told that a piece begins, before the step is started."""

    def begin(self, held: Any, work: Work, *, key: str, attempt: int) -> None:
        super().begin(held, work, key=key, attempt=attempt)
        raise Died


def world_of(workspace: Path) -> World:
    flags = Flags()
    flags.directory = str(workspace)
    return build_world(flags, yes=True, wants_trust=True)


def die_at_the_first_record(workspace: Path, *, after: bool) -> None:
    world = world_of(workspace)
    (run,) = locate(workspace).runs
    driver = driver_of(world, run)
    assert driver is not None
    with (
        pytest.raises(Died),
        locked(world, run, wait=False),
        format_of(run.source).activate(world, run, Options()) as active,
    ):
        begin(world, run, DiesAt(active, after=after), driver)


@BOTH
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_around_the_record_in_the_run_leaves_no_trace(
    acode: Acode, workspace: Path, run: str, after: bool
) -> None:
    expected = undisturbed(acode, workspace, run)
    place = put_run(workspace, run)
    die_at_the_first_record(workspace, after=after)
    ended = acode("resume", run, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace) == done(run)
    assert told(place) == expected
    if run == MEMORY:
        ids = [event["event_id"] for event in own_events(place)]
        assert len(ids) == len(set(ids))


def test_a_phase_transition_is_told_once_although_its_record_is_tried_again(acode: Acode, workspace: Path) -> None:
    place = put_run(workspace, MEMORY)
    at = {"timestamp": "2026-01-15T15:00:00Z"}
    events = [{"type": "task_completed", "task_id": task, **at} for task in ("T001", "T002")]
    events.append({"type": "phase_transition", "from_phase": 2, "to_phase": 3, **at})
    (place / "events/orchestrator/b.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    die_at_the_first_record(workspace, after=True)
    assert acode("resume", MEMORY).exit_code == 0
    assert [one["type"] for one in own_events(place)].count("phase_transition") == 1


def test_a_gate_that_the_run_has_passed_is_not_approved_again_by_acode(acode: Acode, workspace: Path) -> None:
    put_driver(workspace, "agent-memory")
    place = put_memory(workspace, approved=False)
    assert acode("resume", MEMORY, "--yes").exit_code == 10
    assert acode("session", "approve", MEMORY).exit_code == 0
    world, run = world_of(workspace), run_named(workspace, MEMORY)
    session, driver = native_session(world, run), driver_of(world, run)
    assert session is not None and driver is not None
    with pytest.raises(Died), format_of("agent-memory").activate(world, run, Options()) as active:
        resume(world, session.session_id, Options(), walk(DiesAtBegin(active, after=False), driver))
    (place / "constitution.md").write_text("Be good.\n")
    assert acode("resume", MEMORY).exit_code == 0
    assert [one.get("trigger") for one in own_events(place)].count("user_approval") == 1


def test_recording_again_does_not_whitewash_what_was_changed_since(acode: Acode, workspace: Path) -> None:
    checkpoint = put_run(workspace, ARC)
    die_at_the_first_record(workspace, after=True)
    (workspace / "tmp/arc" / ARC / "work-summary.md").write_text("edited by hand")
    ended = acode("resume", ARC, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace).count("work begun") == 2  # demoted, as the run's own rules say
    assert json.loads(checkpoint.read_text())["acode"]["demoted"][0]["phase"] == "work"


def test_what_somebody_else_did_since_is_not_overwritten(acode: Acode, workspace: Path) -> None:
    checkpoint = put_run(workspace, ARC)
    die_at_the_first_record(workspace, after=False)
    value = json.loads(checkpoint.read_text())
    theirs = {"status": "completed", "artifact": None, "artifact_hash": None}
    value["phases"]["work"] |= {**theirs, "started_at": "2099-01-01T00:00:00.000Z", "completed_at": None}
    checkpoint.write_text(json.dumps(value))
    assert acode("resume", ARC).exit_code == 0
    assert json.loads(checkpoint.read_text())["phases"]["work"]["artifact"] is None


def test_a_run_that_others_finished_ends_the_session_without_executing_anything(acode: Acode, workspace: Path) -> None:
    checkpoint = put_run(workspace, ARC)
    (workspace / "fail").write_text("work")
    assert acode("resume", ARC, "--yes").exit_code == 1
    before = ledger(workspace)
    value = json.loads(checkpoint.read_text())
    for name in OPEN_PHASES:
        value["phases"][name] |= {"status": "completed", "team_name": None}
    checkpoint.write_text(json.dumps(value))
    ended = acode("resume", ARC, "--json")
    assert ended.exit_code == 0, ended.stdout
    assert ledger(workspace) == before
    (row,) = acode("session", "list", "--json", "--all").json
    assert row["state"] == "COMPLETED"


def test_a_run_taken_up_again_after_its_end_gets_a_session_of_its_own(acode: Acode, workspace: Path) -> None:
    checkpoint = put_run(workspace, ARC)
    assert acode("resume", ARC, "--yes").exit_code == 0
    (first,) = acode("session", "list", "--json", "--all").json
    value = json.loads(checkpoint.read_text())
    value["phases"]["mend"]["status"] = "pending"
    checkpoint.write_text(json.dumps(value))
    assert acode("session", "list", "--json").json[0]["resumable"] is True
    assert acode("resume", ARC).exit_code == 0
    assert ledger(workspace).count("mend done") == 2
    (second,) = acode("session", "list", "--json", "--all").json
    assert second["carrier"] != first["carrier"]


def run_named(workspace: Path, name: str) -> Run:
    return next(run for run in locate(workspace).runs if run.run_id == name)


def test_a_powerless_moment_between_the_plan_and_the_start_is_no_trouble(acode: Acode, workspace: Path) -> None:
    """The plan has grown and the run says in_progress, but no step was started: the same piece is taken again."""
    checkpoint = put_run(workspace, ARC)
    world = world_of(workspace)
    run = run_named(workspace, ARC)
    driver = driver_of(world, run)
    assert driver is not None

    with pytest.raises(Died), format_of("arc").activate(world, run, Options()) as active:
        begin(world, run, DiesAtBegin(active, after=False), driver)
    assert json.loads(checkpoint.read_text())["phases"]["work"]["status"] == "in_progress"
    assert acode("resume", ARC).exit_code == 0
    assert ledger(workspace)[:2] == ["work begun", "work done"]

"""What cannot be read of a foreign run is not absent: shown without it, and never carried on from the rest."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import os
import resource
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from acode.cli.foreign import resumable
from acode.engine.create import run_plan
from acode.engine.workspace_store import native_session_of, opened
from acode.engine.world import Options
from acode.errors import DatabaseCorrupt, MachineRefused
from acode.formats import FORMATS, agent_memory, format_of, locate, present
from acode.formats.agent_memory.adapter import read_whole
from acode.formats.arc import diagnose, look, read, resolve_config_dir, settle_contexts
from acode.formats.arc.adapter import stand
from acode.formats.arc.discover import newest_backup
from acode.formats.arc.migrations import OWN_FIELD
from acode.formats.arc.surroundings import state_files
from acode.formats.find_run import find_run
from acode.formats.interface import Outcome, Work
from acode.formats.resume_run import approve_run
from tests.arc import CONTEXT_PATH, NOW, arc, context, put, put_run, suspended, task
from tests.foreign import ARC, MEMORY, put_arc, put_memory
from tests.worlds import plan_file
from tests.worlds import world as a_world

OTHER = "20260116-0900-another-run-c3d4"
LOCK = f".claude/arc/{ARC}/.acode.lock"
STATE = "tmp/.rune-work-1.json"


for source in FORMATS:
    format_of(source)  # before the descriptors get scarce, and as a user who may read it


@contextmanager
def descriptors_left(free: int) -> Iterator[None]:
    """So many more files can be opened at a time, and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0) for _ in range(free + 1)]
    highest = max(taken)
    for one in taken:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def without_privileges(work: Callable[[], None]) -> None:
    """In a child that reads only what the modes grant, whoever runs the tests."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                let_capabilities_go()  # root reads everything
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def let_capabilities_go() -> None:
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


def with_few(act: Callable[[], Any], whole: Any) -> tuple[int, int]:
    """How often it was refused and how often it was right, from no free descriptor up; nothing else may happen."""
    refused = right = 0
    for free in range(12):
        with descriptors_left(free):
            try:
                found = act()
            except (MachineRefused, OSError):
                refused += 1
                continue
        assert found == whole, f"{free} free descriptors: half of the evidence was taken for the whole"
        right += 1
    return refused, right


# agent-memory.


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    run = put_memory(tmp_path)
    put(run, "events/executor/lane/b.jsonl", '{"type": "task_started", "task_id": "T001"}\n')
    put(run, "tasks/T001.md", "the contract\n")
    return run


@pytest.mark.req("PROTO-07")
def test_a_run_is_read_as_a_whole_or_refused_however_few_files_can_be_opened(memory: Path) -> None:
    refused, right = with_few(lambda: read_whole(str(memory)), read_whole(str(memory)))
    assert refused and right


def test_a_task_is_never_given_to_a_driver_without_its_contract(memory: Path) -> None:
    refused, right = with_few(lambda: agent_memory.read_task_contract(memory, "T001"), "the contract\n")
    assert refused and right
    assert agent_memory.read_task_contract(memory, "T002") is None


@pytest.mark.parametrize(
    "closed", ["plan.md", "task-graph.json", "events", "events/executor", "events/executor/lane/b.jsonl"]
)
def test_a_part_that_may_not_be_read_is_named_by_a_look_and_refused_by_a_resume(memory: Path, closed: str) -> None:
    (memory / closed).chmod(0)

    def work() -> None:
        (told,) = agent_memory.read(memory).unread
        assert told.startswith(closed) and told.endswith("cannot be read: permission denied")
        with pytest.raises(MachineRefused, match=closed) as refused:
            read_whole(str(memory))
        assert refused.value.details["unread"] == [told] and "acode resume" in refused.value.hint

    without_privileges(work)


@pytest.mark.parametrize("closed", ["events/orchestrator/a.jsonl", "events", "."])
def test_a_run_that_cannot_be_read_is_listed_as_damaged_and_its_neighbour_as_ever(tmp_path: Path, closed: str) -> None:
    run = put_memory(tmp_path)
    put_memory(tmp_path, OTHER)
    (run / closed).chmod(0)

    def work() -> None:
        found = locate(tmp_path)
        runs = {one.run_id: one for one in found.runs}
        assert (runs[OTHER].state, runs[OTHER].problem) == ("PAUSED", None)
        assert runs[MEMORY].state == "DAMAGED" and "ermission denied" in (runs[MEMORY].problem or "")
        assert found.unread == () and any(MEMORY in warning for warning in found.warnings)

    without_privileges(work)


def test_a_link_or_a_missing_file_is_the_runs_own_affair_and_no_refusal(memory: Path) -> None:
    (memory / "prd.md").unlink()
    (memory / "plan.md").unlink()
    (memory / "plan.md").symlink_to("elsewhere.md")
    (memory / "events" / "linked").symlink_to("orchestrator")
    value = read_whole(str(memory))
    assert "prd.md" not in value.artifacts and len(value.warnings) == 2


# arc.


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A run that everything is asked of: an artifact, a saved context, a plan, a team that a live session has."""
    done = {"status": "completed", "artifact": "tmp/a.md", "artifact_hash": "0" * 64}
    team = {"status": "in_progress", "team_name": "team-1"}
    put(tmp_path / "ws", "tmp/a.md", "a\n")
    put(tmp_path / "ws", "plans/a.md", "---\nbranch: main\n---\n")
    put(tmp_path / "ws", CONTEXT_PATH, context())
    put(tmp_path / "ws", STATE, f'{{"status": "active", "team_name": "team-1", "owner_pid": {os.getppid()}}}')
    return put_run(tmp_path / "ws", arc({"forge": done, "mend": team, **suspended(task())}))


def judged(path: Path) -> Any:
    """The findings that a repair would obey; refused where something was kept back."""
    value = read(path)
    found = diagnose(value, NOW, look(value, config_dir="config", own_pid=os.getpid()))
    if any(one.kind == "unread" for one in found.refusals):
        raise MachineRefused("unread")
    return dataclasses.replace(found, warnings=())


@pytest.mark.req("ARC-HASH-01")
def test_an_arc_run_is_judged_as_a_whole_or_refused_however_few_files_can_be_opened(checkpoint: Path) -> None:
    whole = judged(checkpoint)
    assert [one.phase for one in whole.demoted] == ["forge"] and whole.orphans == ()
    refused, right = with_few(lambda: judged(checkpoint), whole)
    assert refused and right


@pytest.mark.parametrize(
    "closed", ["tmp/a.md", "plans/a.md", CONTEXT_PATH, STATE, "tmp", f".claude/arc/{ARC}/.acode.lock"]
)
def test_whatever_an_arc_run_is_judged_by_is_refused_by_name_where_it_may_not_be_read(
    checkpoint: Path, closed: str
) -> None:
    put(checkpoint.parent, ".acode.lock", "1")
    root = checkpoint.parents[3]
    (root / closed).chmod(0)

    def work() -> None:
        world: Any = SimpleNamespace(env={"HOME": str(root)}, clock=lambda: NOW)
        run: Any = SimpleNamespace(warnings=(), path=checkpoint)
        refusals = stand(world, run).refusals
        named = closed.replace("plans/a.md", "the plan").replace(LOCK, "the run's lock")
        assert isinstance(refusals[0], MachineRefused)
        assert f"{named}: permission denied" in refusals[0].message and refusals[0].hint

    without_privileges(work)


def test_a_saved_context_that_cannot_be_read_now_is_no_cold_start(checkpoint: Path) -> None:
    root = checkpoint.parents[3]
    sha256 = hashlib.sha256((root / CONTEXT_PATH).read_bytes()).hexdigest()
    entry = {"action": "inject", "context_path": CONTEXT_PATH, "after_sha256": sha256}
    value = {**read(checkpoint).raw, OWN_FIELD: {"tasks": {"7": entry}}}
    whole = settle_contexts(root, value, run_id=ARC)
    assert "Parser done." in whole[0]["7"]
    refused, right = with_few(lambda: settle_contexts(root, value, run_id=ARC), whole)
    assert refused and right
    (root / CONTEXT_PATH).unlink()
    assert settle_contexts(root, value, run_id=ARC)[0] == {}, "what is not there starts cold, as the format says"


def test_a_checkpoint_that_may_not_be_read_is_no_case_for_its_backup(checkpoint: Path) -> None:
    put(checkpoint.parent, "checkpoint.json.bak.1", checkpoint.read_bytes())
    checkpoint.chmod(0)

    def work() -> None:
        with pytest.raises(MachineRefused, match="permission denied") as refused:
            read(checkpoint)
        assert "backup" not in refused.value.hint

    without_privileges(work)


def test_between_phases_too_nothing_is_cleaned_up_or_recorded_past_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    put_arc(world.workspace)
    put(world.workspace, STATE, '{"status": "active", "team_name": "team-1"}')
    artifact = put(world.workspace, f"tmp/arc/{ARC}/work-summary.md", "done\n")
    held: Any = SimpleNamespace(append=lambda *_, **__: None, warn=lambda _: None)
    outcome = Outcome(key="k", status="completed", started=NOW, finished=datetime.now(UTC))

    def work() -> None:
        (run,) = locate(world.workspace).runs
        with format_of("arc").activate(world, run, Options()) as active:
            piece = active.next(held)
            assert isinstance(piece, Work) and piece.name == "work"
            (world.workspace / STATE).chmod(0)
            with pytest.raises(MachineRefused, match=STATE):
                active.next(held)
            artifact.chmod(0)
            with pytest.raises(MachineRefused, match=artifact.name):
                active.record(held, piece.origin, outcome)
            assert read(Path(run.path)).raw["phases"]["work"]["status"] == "pending"
            artifact.chmod(0o600)
            assert active.record(held, piece.origin, outcome) is None
            assert read(Path(run.path)).raw["phases"]["work"]["artifact_hash"]

    without_privileges(work)


def test_a_run_of_a_config_directory_that_we_may_not_enter_is_shown_and_refused_as_anothers(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "config").mkdir(parents=True)
    (tmp_path / "alias").symlink_to(closed)
    checkpoint = put_run(tmp_path / "ws", arc(config_dir=str(tmp_path / "alias" / "config")))
    closed.chmod(0)

    def work() -> None:
        value = read(checkpoint)
        found = diagnose(value, NOW, look(value, config_dir=str(tmp_path), own_pid=os.getpid()))
        assert [one.kind for one in found.refusals] == ["other_config_dir"]
        with pytest.raises(PermissionError):  # as our own it would be taken for a path without links
            resolve_config_dir({"CLAUDE_CONFIG_DIR": str(tmp_path / "alias" / "config")})

    without_privileges(work)


def test_a_state_file_whose_run_may_not_be_read_is_not_taken_for_nobodys(tmp_path: Path) -> None:
    run = put_run(tmp_path, arc(owner_pid=os.getpid()))
    put(tmp_path, "tmp/.rune-gap-fix-1.json", f'{{"status": "active", "id": "{ARC}"}}')
    run.chmod(0)

    def work() -> None:
        (state,) = state_files(tmp_path)
        assert state.document is None and state.refused == "its run: permission denied"

    without_privileges(work)
    run.chmod(0o600)
    assert state_files(tmp_path)[0].owner.alive


def test_a_place_of_runs_that_cannot_be_looked_through_is_not_taken_for_empty(tmp_path: Path) -> None:
    put_arc(tmp_path)
    put(tmp_path, f".rune/arc/{ARC}2/checkpoint.json", (tmp_path / f".claude/arc/{ARC}/checkpoint.json").read_bytes())
    (tmp_path / ".claude").chmod(0)

    def work() -> None:
        assert present(tmp_path) == ("arc",)
        found = locate(tmp_path)
        assert [one.run_id for one in found.runs if one.problem is None] == [f"{ARC}2"]
        assert len(found.unread) == 1 and ".claude/arc" in found.unread[0]

    without_privileges(work)


def test_backups_that_cannot_be_listed_are_not_said_to_be_none(checkpoint: Path) -> None:
    put(checkpoint.parent, "checkpoint.json.bak.1", checkpoint.read_bytes())
    root, relative = checkpoint.parents[3], str(checkpoint.relative_to(checkpoint.parents[3]))
    with descriptors_left(0), pytest.raises(OSError):
        newest_backup(root, relative)
    assert newest_backup(root, relative) is not None


# Which run is meant.


def test_a_run_in_a_place_that_cannot_be_looked_through_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    put_arc(world.workspace)
    put_memory(world.workspace)
    (world.workspace / ".claude").chmod(0)

    def work() -> None:
        for name in (ARC, ARC[-6:], "a-native-session"):
            with pytest.raises(MachineRefused, match=r"\.claude/arc"):
                find_run(world, name)
        with pytest.raises(MachineRefused, match=r"\.claude/arc"):
            resumable(world, None)  # the only one that can be seen may not be the one that is meant
        assert [run.run_id for run in resumable(world, "agent-memory")] == [MEMORY]
        found = find_run(world, MEMORY)
        assert found is not None and found.state == "PAUSED", "its neighbours are as ever"

    without_privileges(work)


def test_a_carrier_that_cannot_be_read_now_is_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second session would be begun beside it."""
    world = a_world(tmp_path)
    run_plan(world, plan_file("title: T\ntasks:\n  - title: one\n    steps:\n      - approve: Go on?\n"))

    def sick(*_arguments: object) -> object:
        raise DatabaseCorrupt("the disk does not give it")

    with opened(world, look_only=True) as store:
        assert native_session_of(store, ARC) is None
        monkeypatch.setattr(store, "peek", sick)
        with pytest.raises(DatabaseCorrupt):
            native_session_of(store, ARC)


@pytest.mark.parametrize(("run", "closed"), [(ARC, "tmp/a.md"), (MEMORY, "events/orchestrator/a.jsonl")])
def test_nothing_is_mended_or_answered_at_a_run_that_cannot_be_read_wholly(
    tmp_path: Path, run: str, closed: str
) -> None:
    world = a_world(tmp_path)
    done = {"status": "completed", "artifact": "tmp/a.md", "artifact_hash": "0" * 64}
    home = put_arc(world.workspace, phases={"forge": done}).parents[3] if run == ARC else put_memory(world.workspace)
    put(world.workspace, "tmp/a.md", "a\n")
    (home / closed).chmod(0)
    before = {path: path.lstat().st_mtime_ns for path in home.rglob("*") if path.suffix in (".json", ".jsonl")}

    def work() -> None:
        found = find_run(world, run)
        assert found is not None
        with pytest.raises(MachineRefused, match=f"{closed}.*permission denied"):
            approve_run(world, found, granted=True, note="")
        carrying = format_of(found.source).activate(world, found, Options())
        with pytest.raises(MachineRefused, match=f"{closed}.*permission denied"), carrying as active:
            active.next(cast("Any", None))

    without_privileges(work)
    assert {path: path.lstat().st_mtime_ns for path in before} == before

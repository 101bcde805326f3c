"""What cannot be read of a foreign run is not absent: shown without it, and never carried on from the rest."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import resource
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from acode.errors import MachineRefused
from acode.formats import FORMATS, agent_memory, format_of, locate, present
from acode.formats.agent_memory.carried import read_whole
from acode.formats.arc import diagnose, look, read, settle_contexts
from acode.formats.arc.carried import stand
from acode.formats.arc.discover import newest_backup
from acode.formats.arc.migrations import OWN_FIELD
from tests.arc import CONTEXT_PATH, NOW, arc, context, put, put_run, suspended, task
from tests.foreign import ARC, MEMORY, put_arc, put_memory

OTHER = "20260116-0900-another-run-c3d4"
NOBODY = 12_345
LOCK = f".claude/arc/{ARC}/.acode.lock"
STATE = "tmp/.rune-work-1.json"


for source in FORMATS:
    format_of(source)  # before the descriptors get scarce, and as a user who may read it


@pytest.fixture
def place() -> Iterator[Path]:
    """Where another user may go too, unlike the directories that pytest makes."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


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


def as_another_user(where: Path, work: Callable[[], None]) -> None:
    """In a child that reads only what its modes grant, root or not; it stands where it is told to."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(where)
            if os.geteuid() == 0:
                os.setuid(NOBODY)  # root reads everything
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


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
def memory(place: Path) -> Path:
    run = put_memory(place)
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
        (told,) = agent_memory.read(".").unread
        assert told.startswith(closed) and told.endswith("cannot be read: permission denied")
        with pytest.raises(MachineRefused, match=closed) as refused:
            read_whole(".")
        assert refused.value.details["unread"] == [told] and "acode resume" in refused.value.hint

    as_another_user(memory, work)


@pytest.mark.parametrize("closed", ["events/orchestrator/a.jsonl", "events", "."])
def test_a_run_that_cannot_be_read_is_listed_as_damaged_and_its_neighbour_as_ever(place: Path, closed: str) -> None:
    run = put_memory(place)
    put_memory(place, OTHER)
    (run / closed).chmod(0)

    def work() -> None:
        found = locate(Path("."))
        runs = {one.run_id: one for one in found.runs}
        assert (runs[OTHER].state, runs[OTHER].problem) == ("PAUSED", None)
        assert runs[MEMORY].state == "DAMAGED" and "ermission denied" in (runs[MEMORY].problem or "")
        assert found.unread == () and any(MEMORY in warning for warning in found.warnings)

    as_another_user(place, work)


def test_a_link_or_a_missing_file_is_the_runs_own_affair_and_no_refusal(memory: Path) -> None:
    (memory / "prd.md").unlink()
    (memory / "plan.md").unlink()
    (memory / "plan.md").symlink_to("elsewhere.md")
    (memory / "events" / "linked").symlink_to("orchestrator")
    value = read_whole(str(memory))
    assert "prd.md" not in value.artifacts and len(value.warnings) == 2


# arc.


@pytest.fixture
def checkpoint(place: Path) -> Path:
    """A run that everything is asked of: an artifact, a saved context, a plan, a team that a live session has."""
    done = {"status": "completed", "artifact": "tmp/a.md", "artifact_hash": "0" * 64}
    team = {"status": "in_progress", "team_name": "team-1"}
    put(place / "ws", "tmp/a.md", "a\n")
    put(place / "ws", "plans/a.md", "---\nbranch: main\n---\n")
    put(place / "ws", CONTEXT_PATH, context())
    put(place / "ws", STATE, f'{{"status": "active", "team_name": "team-1", "owner_pid": {os.getppid()}}}')
    return put_run(place / "ws", arc({"forge": done, "mend": team, **suspended(task())}))


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
    relative = checkpoint.relative_to(root.parent)

    def work() -> None:
        world: Any = SimpleNamespace(env={"HOME": "home"}, clock=lambda: NOW)
        run: Any = SimpleNamespace(path=relative)
        refusals = stand(world, run).refusals
        named = closed.replace("plans/a.md", "the plan").replace(LOCK, "the run's lock")
        assert isinstance(refusals[0], MachineRefused)
        assert f"{named}: permission denied" in refusals[0].message and refusals[0].hint

    as_another_user(root.parent, work)


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
    relative = checkpoint.relative_to(checkpoint.parents[4])

    def work() -> None:
        with pytest.raises(MachineRefused, match="permission denied") as refused:
            read(relative)
        assert "backup" not in refused.value.hint

    as_another_user(checkpoint.parents[4], work)


def test_a_place_of_runs_that_cannot_be_looked_through_is_not_taken_for_empty(place: Path) -> None:
    put_arc(place)
    put(place, f".rune/arc/{ARC}2/checkpoint.json", (place / f".claude/arc/{ARC}/checkpoint.json").read_bytes())
    (place / ".claude").chmod(0)

    def work() -> None:
        assert present(Path(".")) == ("arc",)
        found = locate(Path("."))
        assert [one.run_id for one in found.runs if one.problem is None] == [f"{ARC}2"]
        assert len(found.unread) == 1 and ".claude/arc" in found.unread[0]

    as_another_user(place, work)


def test_backups_that_cannot_be_listed_are_not_said_to_be_none(checkpoint: Path) -> None:
    put(checkpoint.parent, "checkpoint.json.bak.1", checkpoint.read_bytes())
    root, relative = checkpoint.parents[3], str(checkpoint.relative_to(checkpoint.parents[3]))
    with descriptors_left(0), pytest.raises(OSError):
        newest_backup(root, relative)
    assert newest_backup(root, relative) is not None

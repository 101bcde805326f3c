"""A first look at a long agent-memory log is folded in two shares, and says what one process alone says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.formats.agent_memory import FoldCache, disk, event_fold, fold_shares, fold_state, read
from acode.formats.agent_memory.look import Look
from acode.formats.agent_memory.values import APPROVED_ARTIFACTS
from tests.agent_memory_lines import logs
from tests.agent_memory_shares import LIMITS_OF_SHARES, shared_in_this_process

LIMITS = [
    (fold_state, "SKIPPED_RANGES_MAX", 3),
    (event_fold, "TASKS_MAX", 2),
    (event_fold, "UNKNOWN_TYPES_SHOWN_MAX", 1),
    *LIMITS_OF_SHARES,
]
NAMES = ["acode/a.jsonl", "executor/a.jsonl", "executor/b.jsonl", "verifier/20260115-1000.jsonl"]


def cache_at(place: Path) -> FoldCache:
    return FoldCache(place / "cache", log_bytes_min=1, new_bytes_min=1, new_share=0, share_of_log=1e6)


def put(run: Path, name: str, data: bytes) -> None:
    path = run / "events" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def line(number: int, task: str = "T1", kind: str = "task_started", **more: object) -> bytes:
    stamp = f"2026-01-15T10:{number // 60 % 60:02d}:{number % 60:02d}Z"
    event = {"type": kind, "event_id": f"e{number}", "timestamp": stamp, "task_id": task, **more}
    return json.dumps(event).encode() + b"\n"


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the shares were merged, of each look."""
    seen = list[bool]()
    right = Look.join

    def join(self: Look, later: object) -> bool:
        seen.append(right(self, later))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(Look, "join", join)
    shared_in_this_process(monkeypatch)
    return seen


@settings(max_examples=120, deadline=None)
@given(st.lists(logs, min_size=4, max_size=4), st.sets(st.sampled_from([0, 1, 2, 3])), st.integers(0, 4))
def test_shares_say_what_one_process_says(files: list[list[list[bytes | None]]], torn: set[int], limited: int) -> None:
    """Also of lines in no order of time, of the same ids in several files, and up against any of the limits."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_fold, "LINES_AT_ONCE_MIN", 2)
        patch.setattr(disk, "READ_CHUNK_BYTES", 1_000)
        run, named = Path(folder) / "run", {LIMITS[limited - 1][1]} if limited else set[str]()
        for module, name, value in LIMITS:
            if name in named:
                patch.setattr(module, name, value)
        for at, (name, pieces) in enumerate(zip(NAMES, files, strict=True)):
            data = b"".join((text or b"") + b"\n" for piece in pieces for text in piece)
            put(run, name, data[: -7 if at in torn else None])
        plain = read(run)
        alone, shared = cache_at(Path(folder, "alone")), cache_at(Path(folder, "shared"))
        assert read(run, cache=alone) == plain
        with pytest.MonkeyPatch.context() as sharing:
            shared_in_this_process(sharing)
            assert read(run, cache=shared) == plain
        assert read(run, cache=shared) == plain  # from what the shares left


def test_an_ordinary_log_is_merged_of_its_shares(tmp_path: Path, joined: list[bool]) -> None:
    """Otherwise the test above would compare one way with itself."""
    for actor in ("executor", "verifier"):
        put(tmp_path / "run", f"{actor}/a.jsonl", b"".join(line(n, f"T{n % 3}") for n in range(50)) + b"nope\n")
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [True] and found == read(tmp_path / "run")
    assert found.run_events.events_read == 100 and found.run_events.lines_skipped == 2


@pytest.mark.parametrize("later", ["executor", "verifier"])
def test_the_latest_end_counts_whichever_share_it_is_in(tmp_path: Path, joined: list[bool], later: str) -> None:
    for actor, kind in (("executor", "run_failed"), ("verifier", "run_cancelled")):
        put(tmp_path / "run", f"{actor}/a.jsonl", line(1) + line(20 if actor == later else 10, kind=kind))
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [True] and found == read(tmp_path / "run")
    assert found.run_events.end is not None
    assert found.run_events.end.ending == ("failed" if later == "executor" else "cancelled")


@pytest.mark.parametrize("later", ["a", "b"])
def test_the_latest_approval_counts_whichever_share_it_is_in(tmp_path: Path, joined: list[bool], later: str) -> None:
    for name in ("a", "b"):
        approved = {"approved": dict.fromkeys(APPROVED_ARTIFACTS, name * 64)}
        minute = line(20 if name == later else 10, kind="phase_transition", to_phase=2, details=approved)
        put(tmp_path / "run", f"acode/{name}.jsonl", line(1) + minute)
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [True] and found == read(tmp_path / "run")
    assert found.run_events.approval is not None
    assert set(found.run_events.approval.digests.values()) == {later * 64}


def test_tasks_that_later_files_may_not_begin_are_folded_in_order(
    tmp_path: Path, joined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in LIMITS:
        if name == "TASKS_MAX":
            monkeypatch.setattr(module, name, value)
    put(tmp_path / "run", "executor/a.jsonl", line(1, "T1") + line(2, "T2"))
    put(tmp_path / "run", "verifier/a.jsonl", line(3, "T3") + line(4, "T1"))
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [False] and found == read(tmp_path / "run")
    assert [task.id for task in found.run_events.tasks] == ["T1", "T2"]


def test_a_secret_that_a_later_file_tells_is_in_no_cache(tmp_path: Path, joined: list[bool]) -> None:
    put(tmp_path / "run", "executor/a.jsonl", line(1))
    put(tmp_path / "run", "verifier/a.jsonl", line(2, kind="task_failed", details={"error": "not hunter2hunter2"}))
    cache = cache_at(tmp_path)
    found = read(tmp_path / "run", cache=cache)
    assert joined == [True] and "hunter2" in found.run_events.tasks[0].failure
    (file,) = cache.directory.iterdir()
    assert b"hunter2" not in file.read_bytes()


def test_files_are_cut_where_the_shares_are_most_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = list[int]()
    shared_in_this_process(monkeypatch)
    right = fold_shares._later_share
    monkeypatch.setattr(fold_shares, "_later_share", lambda run, files: shares.append(len(files)) or right(run, files))
    for name, lines in zip(NAMES, (10, 10, 10, 25), strict=True):
        put(tmp_path / "run", name, b"".join(line(number) for number in range(lines)))
    read(tmp_path / "run", cache=cache_at(tmp_path))
    assert shares == [1]
    for limit, value in (("SHARE_BYTES_MIN", 10_000), ("FILES_MAX", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(fold_shares, limit, value)
            read(tmp_path / "run", cache=cache_at(tmp_path / limit))
    assert shares == [1]


LOOK = """
import os, signal, sys, threading, time
from pathlib import Path
from acode.formats.agent_memory import FoldCache, fold_shares, fold_worker, read

how, run = sys.argv[1], Path(sys.argv[2])
fold_shares.SHARE_BYTES_MIN = 1
fold_worker.ANSWER_WAIT_S_MAX = 0.2 if how == "hangs" else 60.0
parent, right, joined = os.getpid(), fold_shares._later_share, []

def later_share(run, files):
    assert os.getpid() != parent
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        raise MemoryError
    if how == "hangs":
        time.sleep(60)
    return right(run, files)[: 100 if how == "answers in part" else None]

right_join = fold_shares.Look.join
fold_shares.Look.join = lambda self, later: joined.append(right_join(self, later)) or joined[-1]
fold_shares._later_share = later_share
os.sched_getaffinity = lambda process: {0} if how == "has no second core" else {0, 1}
if how == "has threads":
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
if how == "waits for no child":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
descriptors = set(os.listdir("/proc/self/fd"))
found = read(run, cache=FoldCache(Path(sys.argv[3]), log_bytes_min=1, new_bytes_min=1))
assert set(os.listdir("/proc/self/fd")) == descriptors
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(joined, found == read(run), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there a worker is forked")
@pytest.mark.parametrize(
    ("how", "joined"),
    [
        ("answers", [True]),
        ("is killed", []),
        ("fails", []),
        ("hangs", []),
        ("answers in part", []),
        ("has no second core", []),
        ("has threads", []),
        ("waits for no child", []),
    ],
)
def test_a_look_says_the_same_whatever_becomes_of_its_worker(tmp_path: Path, how: str, joined: list[bool]) -> None:
    """And leaves neither a process nor a descriptor behind."""
    for actor in ("executor", "verifier"):
        put(tmp_path / "run", f"{actor}/a.jsonl", b"".join(line(n, f"T{n % 3}") for n in range(400)))
    words = [sys.executable, "-W", "error", "-c", LOOK, how, str(tmp_path / "run"), str(tmp_path / "cache")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == f"{joined} True\n", ended.stderr

"""A first look at a long agent-memory log is folded in two shares, and says what one process alone says."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.formats.agent_memory import FoldCache, disk, event_fold, fold_shares, fold_state, read
from acode.formats.agent_memory.disk import Folder
from acode.formats.agent_memory.event_files import EventFile
from acode.formats.agent_memory.fold_shares import Shares
from acode.formats.agent_memory.look import Cut, Look
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
@given(
    st.lists(logs, min_size=4, max_size=4),
    st.sets(st.sampled_from([0, 1, 2, 3])),
    st.integers(0, len(LIMITS)),
    st.none() | st.tuples(st.integers(0, 3), st.integers(0, 60)),
)
def test_shares_say_what_one_process_says(
    files: list[list[list[bytes | None]]], torn: set[int], limited: int, cut: tuple[int, int] | None
) -> None:
    """Also of lines in no order of time, of the same ids in several files, cut behind any line, and up against any of
    the limits.
    """
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
            if cut is not None:
                sharing.setattr(fold_shares, "_shares", lambda _, found: cut_behind(run, found, *cut))
            assert read(run, cache=shared) == plain
        assert read(run, cache=shared) == plain  # from what the shares left
        for at, name in enumerate(NAMES):  # its place is behind the last event of its file
            with (run / "events" / name).open("ab") as file:
                file.write(b'\n{"type": "task_failed", "task_id": "T%d"}\n' % at)
        assert read(run, cache=shared) == read(run)


def cut_behind(run: Path, files: tuple[EventFile, ...], number: int, line_number: int) -> Shares | None:
    """Behind such a line of such a file, or before the file where it has no line there."""
    if not files:
        return None
    number %= len(files)
    data = (run / files[number].shown_as).read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == 10 and at + 1 < len(data)]
    cut_at = ends[line_number % len(ends)] if ends else 0
    return Shares(number, cut_at) if number or cut_at else None


@pytest.mark.parametrize("changed", [False, True])
def test_a_long_file_is_cut_and_every_line_has_its_number(
    tmp_path: Path, joined: list[bool], monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    """A file that is replaced in between is folded by one process alone, as it is then."""
    lines = [line(number, f"T{number % 7}") for number in range(200)]
    lines[3:3] = [b"nope\n"]
    put(tmp_path / "run", "executor/a.jsonl", b"".join([*lines, b"nope\n", line(300, "T1", "task_failed")]))
    right = fold_shares._later_share

    def later_share(*given: Any) -> bytes:
        if changed and not joined:
            put(tmp_path / "run", "executor/a.jsonl", b"".join(lines[1:]))
        return right(*given)

    monkeypatch.setattr(fold_shares, "_later_share", later_share)
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert found == read(tmp_path / "run") == read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == ([False, True] if changed else [True])
    assert found.run_events.lines_skipped == (1 if changed else 2)
    assert [task.failed.line for task in found.run_events.tasks if task.failed] == ([] if changed else [203])


def test_lines_without_a_time_right_behind_the_cut_take_their_place_from_the_lines_before_it(
    tmp_path: Path, joined: list[bool]
) -> None:
    lines = [line(number) for number in range(20)]
    untimed = [json.dumps({"type": "task_failed", "task_id": "T1"}).encode() + b"\n"] * 20
    put(tmp_path / "run", "executor/a.jsonl", b"".join([*lines, *untimed, line(59)]))
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [False] and found == read(tmp_path / "run")


def test_a_line_without_a_time_takes_its_place_from_before_the_cut_where_no_event_is_behind_it(
    tmp_path: Path, joined: list[bool]
) -> None:
    file = "executor/a.jsonl"
    events = b"".join([*(line(number) for number in range(20)), line(20, kind="task_completed")])
    put(tmp_path / "run", file, events + (b" " * 100 + b"\n") * 40)
    read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [True]
    with (tmp_path / "run" / "events" / file).open("ab") as log:
        log.write(b'{"type": "task_failed", "task_id": "T1"}\n')
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert found == read(tmp_path / "run")
    (task,) = found.run_events.tasks
    assert task.failed is not None and task.completed is not None and task.failed.order > task.completed.order


def test_no_cut_stands_within_a_line(tmp_path: Path, joined: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the line in the middle does not end soon, the log is cut between two files."""
    monkeypatch.setattr(fold_shares, "EVENT_LINE_BYTES_MAX", 10)
    for actor, count in (("executor", 10), ("verifier", 30)):
        put(tmp_path / "run", f"{actor}/a.jsonl", b"".join(line(number) for number in range(count)))
    found = read(tmp_path / "run", cache=cache_at(tmp_path))
    assert joined == [True] and found == read(tmp_path / "run")


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


@pytest.mark.parametrize(
    ("lines", "files", "lines_before"),
    [
        ((10, 10, 10, 31), 1, 0),
        ((10, 20, 20, 10), 2, 0),
        ((80, 1, 1, 1), 4, 47),  # which are counted a second time there, so that fewer are left to fold
        ((1, 1, 1, 80), 1, 43),
    ],
)
def test_a_log_is_cut_where_both_shares_take_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[int, ...], files: int, lines_before: int
) -> None:
    shares = list[tuple[int, int]]()
    shared_in_this_process(monkeypatch)
    right = fold_shares._later_share

    def later_share(run: Folder, files: tuple[EventFile, ...], cut: Cut | None) -> bytes:
        shares.append((len(files), cut.at if cut is not None else 0))
        return right(run, files, cut)

    monkeypatch.setattr(fold_shares, "_later_share", later_share)
    for name, count in zip(NAMES, lines, strict=True):
        put(tmp_path / "run", name, b"".join(line(number) for number in range(10, 10 + count)))
    read(tmp_path / "run", cache=cache_at(tmp_path))
    assert shares == [(files, lines_before * len(line(10)))]
    for limit, value in (("SHARE_BYTES_MIN", 10_000), ("FILES_MAX", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(fold_shares, limit, value)
            read(tmp_path / "run", cache=cache_at(tmp_path / limit))
    assert len(shares) == 1


LOOK = """
import os, signal, sys, threading, time
from pathlib import Path
from acode.formats.agent_memory import FoldCache, fold_shares, fold_worker, read

how, run = sys.argv[1], Path(sys.argv[2])
fold_shares.SHARE_BYTES_MIN = 1
fold_worker.ANSWER_WAIT_S_MAX = 0.2 if how == "hangs" else 60.0
parent, right, joined = os.getpid(), fold_shares._later_share, []

def later_share(*given):
    assert os.getpid() != parent
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        raise MemoryError
    if how == "hangs":
        time.sleep(60)
    return right(*given)[: 100 if how == "answers in part" else None]

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

"""A look at an agent-memory run that was looked at before folds what was appended, and says what a first look says."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.formats.agent_memory import FoldCache, disk, event_fold, fold_cache, fold_files, fold_state, look, read
from tests.agent_memory_lines import HOSTILE, ordinary
from tests.agent_memory_shares import LIMITS_OF_SHARES, shared_in_this_process

LINE_BYTES_MAX = 12_000  # one of the hostile lines is nearly as long
NAMES = ["executor/20260115-1000.jsonl", "acode/a.jsonl", "executor/b.jsonl", "verifier/a.jsonl", "z.jsonl", "a.jsonl"]
LIMITS = [
    (fold_state, "SKIPPED_RANGES_MAX", 3),
    (event_fold, "TASKS_MAX", 2),
    (event_fold, "UNKNOWN_TYPES_SHOWN_MAX", 1),
]
LONG = b'{"type":"task_started","details":"' + b"x" * LINE_BYTES_MAX + b'"}'
pieces = ordinary() | st.lists(st.sampled_from(HOSTILE), max_size=3)


def cache_at(place: Path) -> FoldCache:
    """Of logs of any length."""
    return FoldCache(place / "cache", log_bytes_min=1, new_bytes_min=1, new_share=0, share_of_log=1e6)


class Log:
    """The event files of a run, to which pieces are written that end anywhere."""

    def __init__(self, place: Path) -> None:
        self.run = place / "run"
        self.run.mkdir()
        self._not_written: dict[Path, bytes] = {}

    def file(self, name: str) -> Path:
        path = self.run / "events" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def append(self, name: str, lines: list[bytes | None], held_back: int) -> None:
        path = self.file(name)
        data = self._not_written.pop(path, b"") + b"".join((LONG if line is None else line) + b"\n" for line in lines)
        end = max(0, len(data) - held_back)
        with path.open("ab") as file:
            file.write(data[:end])
        self._not_written[path] = data[end:]

    def spoil(self, which: int, how: str, at: int) -> None:
        """One of the files that are there."""
        files = sorted(self.run.rglob("*.jsonl"))
        if not files:
            return
        path = files[which % len(files)]
        data = path.read_bytes()
        if how == "remove":
            path.unlink()
        elif how == "rename":
            path.rename(path.with_name("other.jsonl"))
        elif how == "shorten":
            path.write_bytes(data[: at % (len(data) + 1)])
        elif how == "change" and data:
            at %= len(data)
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        elif how == "swap lines":
            path.write_bytes(b"".join(reversed(data.splitlines(keepends=True))))


@contextmanager
def small_blocks(*, limited: bool = False, shared: bool = False) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        if shared:
            shared_in_this_process(patch)
        patch.setattr(event_fold, "LINES_AT_ONCE_MIN", 2)
        patch.setattr(disk, "READ_CHUNK_BYTES", 1_000)
        for module in (fold_files, look):
            patch.setattr(module, "EVENT_LINE_BYTES_MAX", LINE_BYTES_MAX)
        for module, name, value in (*LIMITS, *LIMITS_OF_SHARES) if limited else ():
            patch.setattr(module, name, value)
        yield patch


appended = st.tuples(st.sampled_from(NAMES), pieces, st.sampled_from([0, 0, 0, 1, 7, 60]))
spoiled = st.tuples(
    st.integers(0, 5), st.sampled_from(["remove", "rename", "shorten", "change", "swap lines"]), st.integers(0, 5_000)
)


@settings(max_examples=40, deadline=None)
@given(st.lists(appended | appended | appended | spoiled, min_size=2, max_size=9), st.booleans(), st.booleans())
def test_a_later_look_says_what_a_first_look_says_whatever_happened_between(
    steps: list[Any], limited: bool, shared: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, small_blocks(limited=limited, shared=shared):
        log, cache = Log(Path(folder)), cache_at(Path(folder))
        for name, what, how_much in steps:
            if isinstance(what, str):
                log.spoil(name, what, how_much)
            else:
                log.append(name, what, how_much)
            assert read(log.run, cache=cache) == read(log.run)
        assert read(log.run, cache=cache) == read(log.run)


def line(number: int, task: str = "T1", kind: str = "task_started", details: str = "null") -> bytes:
    stamp = f"2026-01-15T10:{number // 60 % 60:02d}:{number % 60:02d}Z"
    text = f'{{"type":"{kind}","event_id":"e{number}","timestamp":"{stamp}","task_id":"{task}","details":{details}}}'
    return text.encode()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def cache(tmp_path: Path) -> FoldCache:
    return cache_at(tmp_path)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every line that is folded."""
    seen = list[bytes]()
    right = event_fold.lines_of

    def lines_of(block: bytes) -> list[bytes]:
        seen.extend(right(block))
        return right(block)

    monkeypatch.setattr(event_fold, "lines_of", lines_of)
    return seen


def kept(cache: FoldCache) -> list[Path]:
    return sorted(cache.directory.iterdir()) if cache.directory.exists() else []


def test_only_appended_lines_and_new_files_are_folded(log: Log, cache: FoldCache, folded: list[bytes]) -> None:
    log.append("executor/a.jsonl", [line(number) for number in range(50)], 0)
    log.append("verifier/a.jsonl", [line(number, "T2") for number in range(50, 100)], 0)
    read(log.run, cache=cache)
    assert len(folded) == 100
    folded.clear()
    read(log.run, cache=cache)
    assert folded == []
    log.append("executor/a.jsonl", [line(200), line(201)], 10)
    log.append("planner/a.jsonl", [line(202, "T3")], 0)
    found = read(log.run, cache=cache)
    new = [line(200) + b"\n", line(202, "T3") + b"\n", (line(201) + b"\n")[:-10]]
    assert folded == new and found == read(log.run)
    folded.clear()
    log.append("executor/a.jsonl", [], 0)
    found = read(log.run, cache=cache)
    assert folded == [line(201) + b"\n"] and found == read(log.run)


def test_a_limit_that_a_later_file_reached_makes_the_look_start_over(
    log: Log, cache: FoldCache, folded: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which tasks are admitted depends on the order of reading: a task of an earlier file comes first."""
    monkeypatch.setattr(event_fold, "TASKS_MAX", 2)
    log.append("executor/a.jsonl", [line(1, "T1")], 0)
    log.append("verifier/a.jsonl", [line(2, "T2"), line(3, "T3")], 0)
    read(log.run, cache=cache)
    folded.clear()
    log.append("verifier/a.jsonl", [line(4, "T4")], 0)
    assert [task.id for task in read(log.run, cache=cache).run_events.tasks] == ["T1", "T2"]
    assert len(folded) == 1
    log.append("executor/a.jsonl", [line(5, "T5")], 0)
    found = read(log.run, cache=cache)
    assert [task.id for task in found.run_events.tasks] == ["T1", "T5"] and found == read(log.run)


@pytest.mark.parametrize("name", ["executor/a.jsonl", "verifier/a.jsonl"])
def test_behind_a_limit_that_the_first_file_reached_every_file_is_continued(
    log: Log, cache: FoldCache, folded: list[bytes], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fold_state, "SKIPPED_RANGES_MAX", 1)
    log.append("executor/a.jsonl", [b"nope", line(1), b"nope", line(2)], 0)
    log.append("verifier/a.jsonl", [line(3), line(4)], 0)
    read(log.run, cache=cache)
    folded.clear()
    log.append(name, [line(5), b"nope"], 0)
    found = read(log.run, cache=cache)
    assert len(folded) == 2
    assert found == read(log.run) and found.run_events.lines_skipped == 3


@pytest.mark.parametrize("how", ["change", "shorten", "swap lines", "rename", "remove"])
def test_a_log_of_which_a_part_is_no_longer_the_same_is_folded_from_the_beginning(
    log: Log, cache: FoldCache, folded: list[bytes], how: str
) -> None:
    log.append("executor/a.jsonl", [line(number, f"T{number % 3}") for number in range(20)], 0)
    log.append("verifier/a.jsonl", [line(number, f"T{number % 5}", "task_failed") for number in range(20)], 0)
    before = read(log.run, cache=cache)
    folded.clear()
    log.spoil(1, how, 1_058)  # a digit of an id
    found = read(log.run, cache=cache)
    assert len(folded) >= 20
    assert found == read(log.run) and found != before


def test_a_secret_that_an_event_tells_is_in_no_cache(log: Log, cache: FoldCache) -> None:
    secret = "hunter2hunter2hunter2"
    log.append("executor/a.jsonl", [line(1, "T1", "task_created", f'{{"title":"Use {secret}"}}')], 0)
    log.append("executor/a.jsonl", [line(2, "T1", "task_failed", f'{{"error":"not {secret}"}}')], 0)
    read(log.run, cache=cache)
    (file,) = kept(cache)
    assert b"hunter2" not in file.read_bytes()
    again = read(log.run, cache=cache).run_events.tasks[0]
    assert again.title == f"Use {secret}" and secret in again.failure


@pytest.mark.parametrize("place", [0, 20, 40, 200, -1], ids=str)
def test_a_cache_that_was_changed_is_not_believed_and_is_replaced(
    log: Log, cache: FoldCache, folded: list[bytes], place: int
) -> None:
    log.append("executor/a.jsonl", [line(number) for number in range(20)], 0)
    first = read(log.run, cache=cache)
    (file,) = kept(cache)
    right = file.read_bytes()
    wrong = bytearray(right)
    wrong[place] ^= 1
    file.write_bytes(wrong)
    folded.clear()
    assert read(log.run, cache=cache) == first and len(folded) == 20
    folded.clear()
    assert read(log.run, cache=cache) == first and folded == []


@pytest.mark.parametrize("spoil", ["cut", "empty", "link", "directory", "pipe", "readable for others"])
def test_what_is_no_cache_of_ours_counts_as_none(log: Log, cache: FoldCache, tmp_path: Path, spoil: str) -> None:
    log.append("executor/a.jsonl", [line(number) for number in range(20)], 0)
    first = read(log.run, cache=cache)
    (file,) = kept(cache)
    data = file.read_bytes()
    file.unlink()
    match spoil:
        case "cut":
            file.write_bytes(data[:100])
        case "empty":
            file.touch()
        case "link":
            (tmp_path / "elsewhere").write_bytes(data)
            file.symlink_to(tmp_path / "elsewhere")
        case "directory":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case _:
            file.write_bytes(data)
            file.chmod(0o644)
    assert cache.read(str(log.run)) is None
    assert read(log.run, cache=cache) == first


def test_a_cache_is_the_users_alone_and_one_that_cannot_be_written_is_none(
    log: Log, cache: FoldCache, tmp_path: Path
) -> None:
    log.append("executor/a.jsonl", [line(1)], 0)
    first = read(log.run, cache=cache)
    (file,) = kept(cache)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(cache.directory.stat().st_mode) == 0o700
    (tmp_path / "file").touch()
    assert read(log.run, cache=FoldCache(tmp_path / "file" / "cache", log_bytes_min=1, new_bytes_min=1)) == first


def test_another_version_does_not_take_the_state(log: Log, cache: FoldCache, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append("executor/a.jsonl", [line(1)], 0)
    read(log.run, cache=cache)
    assert cache.read(str(log.run)) is not None
    monkeypatch.setattr(fold_cache, "STATE_VERSION", fold_cache.STATE_VERSION + 1)
    assert cache.read(str(log.run)) is None


def test_caches_are_few_and_what_a_killed_writer_left_is_removed(cache: FoldCache, tmp_path: Path) -> None:
    for number in range(fold_cache.STATES_MAX + 3):
        place = tmp_path / f"{number}"
        place.mkdir()
        log = Log(place)
        log.append("executor/a.jsonl", [line(number)], 0)
        read(log.run, cache=cache)
        for age, file in enumerate(kept(cache)):
            os.utime(file, (age, age))
        (cache.directory / ".0123456789.0123456789abcdef.acode-tmp").write_bytes(b"half")
    assert cache.read(str(log.run)) is not None
    names = [file.name for file in kept(cache) if not file.name.startswith(".")]
    assert len(names) == fold_cache.STATES_MAX
    assert len(kept(cache)) == len(names) + 1  # the one that was put there after the last write


def test_a_short_log_has_no_cache(log: Log, tmp_path: Path) -> None:
    log.append("executor/a.jsonl", [line(number) for number in range(100)], 0)
    cache = FoldCache(tmp_path / "cache")
    assert read(log.run, cache=cache) == read(log.run)
    assert kept(cache) == []

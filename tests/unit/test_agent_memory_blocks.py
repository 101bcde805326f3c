"""A long agent-memory log is folded many lines at a time, and says exactly what it says line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acode.formats.agent_memory import event_fold
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.values import RunEvents
from tests.agent_memory import said, to_phase
from tests.agent_memory_lines import HOSTILE, logs

LIMITS = {"TASKS_MAX": 2, "SPELLINGS_KEPT_MAX": 5}


def one_by_one(files: dict[str, list[list[bytes | None]]]) -> RunEvents:
    fold = EventFold()
    for actor, blocks in files.items():
        fold.fold_file(f"events/{actor}/a.jsonl", actor, [(line, True) for block in blocks for line in block])
    return fold.run_events()


def joined(lines: list[bytes | None]) -> Iterator[bytes | None]:
    """Blocks as a file is read in: the lines that are not over the limit together, each with its end."""
    block = b""
    for line in lines:
        if line is not None:
            block += line + b"\n"
            continue
        yield from [block] if block else []
        yield None
        block = b""
    yield from [block] if block else []


def at_once(files: dict[str, list[list[bytes | None]]]) -> RunEvents:
    fold = EventFold()
    for actor, blocks in files.items():
        fold.fold_blocks(f"events/{actor}/a.jsonl", actor, [(part, True) for block in blocks for part in joined(block)])
    return fold.run_events()


@settings(max_examples=60, deadline=None)
@given(logs, logs, st.booleans())
def test_blocks_say_what_their_lines_say(
    first: list[list[bytes | None]], second: list[list[bytes | None]], limited: bool
) -> None:
    files = {"executor": first, "acode": second}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS.items() if limited else ():
            patch.setattr(event_fold, name, value)
        plain = one_by_one(files)
        patch.setattr(event_fold, "LINES_AT_ONCE_MIN", 1)
        assert at_once(files) == plain


def lines_of(*events: tuple[int, str, str]) -> list[bytes | None]:
    """Starts of tasks: a minute, a task and an id each."""
    return [json.dumps(said("task_started", minute, task, event_id=one)).encode() for minute, task, one in events]


def test_of_events_at_the_same_time_the_id_decides_which_is_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "LINES_AT_ONCE_MIN", 1)
    known = lines_of((1, "T1", "a"))
    files = {"executor": [known, lines_of((2, "T1", "b"), (3, "T1", "z"), (3, "T1", "y"))]}
    found = at_once(files)
    assert found == one_by_one(files)
    assert found.tasks[0].started is not None and found.tasks[0].started.event_id == "z"
    assert found.reopened is not None and found.reopened.event_id == "z"


def test_a_task_is_as_old_as_its_first_event_in_any_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_fold, "LINES_AT_ONCE_MIN", 1)
    known = lines_of((5, "T2", "a"), (6, "T1", "b"))
    files = {"executor": [known], "verifier": [lines_of((1, "T1", "c"), (9, "T1", "d"), (10, "T1", "e"))]}
    found = at_once(files)
    assert found == one_by_one(files)
    assert [task.id for task in found.tasks] == ["T1", "T2"]


@pytest.mark.parametrize("named", [lambda name: {"event_id": name}, lambda _: {}], ids=["with ids", "without ids"])
def test_an_ordinary_log_is_folded_at_once_and_looks_at_few_events(
    monkeypatch: pytest.MonkeyPatch, named: Callable[[str], dict[str, str]]
) -> None:
    """Otherwise the test above would compare one way with itself."""
    looks = list[str]()
    right = EventFold._fold_task

    def counted(self: EventFold, event: Any, *arguments: Any, **named: Any) -> None:
        looks.append(event.timestamp)
        right(self, event, *arguments, **named)

    monkeypatch.setattr(EventFold, "_fold_task", counted)
    events = [said("task_started", minute, f"T{minute % 3}", **named(f"e{minute}")) for minute in range(300)]
    lines: list[bytes | None] = [json.dumps(event).encode() for event in (to_phase(1) | named("p"), *events)]
    found = at_once({"executor": [lines]})
    assert found == one_by_one({"executor": [lines]})
    assert found.events_read == 301 and len(looks) - 300 <= 12


@pytest.mark.parametrize("line", [line for line in HOSTILE if line not in (b"", b"  ")], ids=str)
def test_a_hostile_line_is_told_of_in_the_middle_of_a_block_too(line: bytes | None) -> None:
    minutes = range(40)
    before: list[bytes | None] = [json.dumps(said("task_started", m, "T1", event_id=f"e{m}")).encode() for m in minutes]
    files = {"executor": [[*before[:20], line, *before[20:]]]}
    assert at_once(files) == one_by_one(files)


def ordinary_line(number: int, task: str = "T1", kind: str = "task_started") -> bytes:
    stamp = f"2026-01-15T10:{number // 60:02d}:{number % 60:02d}Z"
    return json.dumps({"type": kind, "event_id": f"e{number}", "timestamp": stamp, "task_id": task}).encode()


@pytest.mark.parametrize(
    "odd",
    [
        [ordinary_line(21)[:-20], ordinary_line(21)[-20:], ordinary_line(22) + ordinary_line(23)],
        [ordinary_line(21) + b" " + ordinary_line(22), b""],
        [b'{"x":[{}', b',{}],"type":"task_started"}', ordinary_line(22) + ordinary_line(23)],
        [b'{"details":{}', b"}" + ordinary_line(22), ordinary_line(23)],
        [b'{"details":"}', b'{"}', ordinary_line(22) + ordinary_line(23)],
    ],
    ids=["split between tokens", "two on a line", "in an array", "after an object", "in a string"],
)
def test_as_many_objects_as_lines_are_not_taken_for_one_on_each(odd: list[bytes]) -> None:
    lines: list[bytes | None] = [*map(ordinary_line, range(20)), *odd, *map(ordinary_line, range(24, 40))]
    files = {"executor": [lines]}
    assert at_once(files) == one_by_one(files)
    assert at_once(files).lines_skipped > 0


@pytest.mark.parametrize("limits", [{}, {"KEPT_EVENTS_MAX": 2}, {"KEPT_BYTES_MAX": 300}], ids=str)
def test_the_latest_of_a_task_counts_wherever_the_blocks_are_cut(
    limits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a block begins before the end of the last one, or at the same time."""
    monkeypatch.setattr(event_fold, "LINES_AT_ONCE_MIN", 1)
    for name, value in limits.items():
        monkeypatch.setattr(event_fold, name, value)
    kinds = ["task_started", "task_verified", "task_failed"]
    whole: list[bytes | None] = [
        ordinary_line(n // 2 if n < 120 else n // 3, f"T{n % 7}", kinds[n % 3]) for n in range(200)
    ]
    plain = one_by_one({"executor": [whole]})
    for size in (1, 2, 7, 50, 119, 200):
        blocks = [whole[at : at + size] for at in range(0, len(whole), size)]
        assert at_once({"executor": blocks}) == plain


def test_a_file_that_cannot_be_read_to_its_end_says_what_was_read_of_it() -> None:
    lines: list[bytes | None] = [*map(ordinary_line, range(40))]

    def torn() -> Iterator[tuple[bytes | None, bool]]:
        for block in joined(lines):
            yield block, True
        raise OSError("the disk")

    fold = EventFold()
    with pytest.raises(OSError, match="the disk"):
        fold.fold_blocks("events/executor/a.jsonl", "executor", torn())
    assert fold.run_events() == one_by_one({"executor": [lines]})

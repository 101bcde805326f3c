"""Merge the folds of earlier and of later event files into the one fold that both would have given in order.

Every answer of a fold is a maximum or a union, and merges as such. What is counted up to a limit does not: it depends
on what came first. So nothing is merged where later files may have met a limit; they are folded after the others then.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TypeVar

import msgspec

from acode.formats.agent_memory.fold_state import FileState, FoldState, Order, Point, Skipped
from acode.formats.agent_memory.values import SKIPPED_RANGES_MAX, TASKS_MAX, UNKNOWN_TYPES_SHOWN_MAX

Key = TypeVar("Key")
Found = TypeVar("Found")


class PassedOver(msgspec.Struct, array_like=True, frozen=True):
    """The beginning of a file that the other process folds: how many lines, and their SHA-256."""

    file: str
    lines: int
    digest: bytes


class LaterFiles(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A fold of the last event files of a run, or of their last lines, from which that of all can be made."""

    state: FoldState
    texts: list[tuple[Order, str]]
    torn: list[tuple[str, str, bytes | int]]
    """File, actor, and the last line, which is in no state."""
    torn_bytes: int
    touched_us: list[int]
    passed_over: PassedOver | None = None


def merged(first: FoldState, later: FoldState) -> FoldState | None:
    """The state of both, made of the parts of these; None: a limit is in the way."""
    skipped = _skipped(first.skipped, later.skipped)
    files = _files(first, later)
    if skipped is None or files is None or not _all_admitted(first, later):
        return None
    ends = [state.latest["ended"][0] for state in (first, later) if "ended" in state.latest]
    ended_later = bool(ends) and later.latest.get("ended", (None,))[0] == max(ends)
    _merge_tasks(first.tasks, later.tasks)
    for texts, later_texts in ((first.titles, later.titles), (first.failures, later.failures)):
        _merge_latest(texts, later_texts, itemgetter(0))
    _merge_latest(first.latest, later.latest, itemgetter(0))
    _merge_latest(first.gates, later.gates, itemgetter(0))
    _merge_latest(first.phases, later.phases, lambda phase: phase[0][0])
    approvals = [state.approval for state in (first, later) if state.approval is not None]
    active = [state.last_activity_us for state in (first, later) if state.last_activity_us is not None]
    digests = dict(zip((file.file for file in later.files), later.digests, strict=True))
    return msgspec.structs.replace(
        first,
        files=files,
        digests=[digests.get(file.file, digest) for file, digest in zip(files, first.digests, strict=True)],
        newer=first.newer or later.newer,
        approval=max(approvals, key=lambda approval: approval[0][0], default=None),
        ending=later.ending if ended_later else first.ending,
        made=first.made | later.made,
        newest_task_us=max(first.newest_task_us, later.newest_task_us),
        unknown_task_types=first.unknown_task_types | later.unknown_task_types,
        completed_by_others=first.completed_by_others | later.completed_by_others,
        last_activity_us=max(active, default=None),
        events_read=first.events_read + later.events_read,
        skipped=skipped,
    )


def _files(first: FoldState, later: FoldState) -> list[FileState] | None:
    folded = {file.file: file for file in later.files}
    both = [_joined(file, folded.get(file.file)) for file in first.files]
    joined = [file for file in both if file is not None]
    return joined if len(joined) == len(both) else None


def _joined(first: FileState, later: FileState | None) -> FileState | None:
    """One file, of which each may have a part. None: the later lines depend on those before them."""
    if later is None or not first.lines:
        return later or first
    torn_apart = first.skipped and later.skipped and later.skipped[0][0] == first.skipped[-1][1] + 1
    if torn_apart or later.untimed:
        return None
    return msgspec.structs.replace(
        later,
        place=later.place if later.place[4] else first.place,  # there may be no event among the later lines
        untimed=first.untimed,
        first_untimed=first.first_untimed,
        skipped=first.skipped + later.skipped,
    )


def _all_admitted(first: FoldState, later: FoldState) -> bool:
    """Whether no task and no unknown type of later files comes up against its limit."""
    if later.tasks_refused or len(later.unknown_task_types) >= UNKNOWN_TYPES_SHOWN_MAX:
        return False
    new_types = len(later.unknown_task_types - first.unknown_task_types)
    new_tasks = len(later.tasks.keys() - first.tasks.keys())
    return not (
        (new_types and len(first.unknown_task_types) + new_types >= UNKNOWN_TYPES_SHOWN_MAX)
        or (new_tasks and len(first.tasks) + new_tasks >= TASKS_MAX)
    )


def _skipped(first: Skipped, later: Skipped) -> Skipped | None:
    """No range of later lines continues one of earlier lines: `_joined` has seen to it."""
    if not later.lines:
        return first
    if later.untold or first.ranges + later.ranges >= SKIPPED_RANGES_MAX:
        return None
    return Skipped(first.lines + later.lines, first.ranges + later.ranges, first.untold)


def _merge_tasks(tasks: dict[str, dict[str, Point]], later: dict[str, dict[str, Point]]) -> None:
    for task, marks in later.items():
        known = tasks.setdefault(task, marks)
        if known is not marks:
            first = min(known["first"], marks["first"], key=itemgetter(0))
            _merge_latest(known, marks, itemgetter(0))
            known["first"] = first


def _merge_latest(latest: dict[Key, Found], later: dict[Key, Found], order_of: Callable[[Found], Order]) -> None:
    for key, found in later.items():
        if key not in latest or order_of(found) > order_of(latest[key]):
            latest[key] = found

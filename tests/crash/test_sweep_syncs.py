"""Each sync is left out of a recorded run, one at a time: some state of the disk betrays it, or it is explained here.

A harness that cannot see a missing sync proves nothing about power cuts, and a sync that nobody needs costs every user
time.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from tests.crash.case import Prepared
from tests.crash.conftest import METADATA, Prepare
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Metadata, Search, power_cuts
from tests.crash.harness.recording import ROOT, Op, Recording
from tests.crash.oracle import DATABASE_SUFFIXES
from tests.crash.sweeps import another_boot, power_sweep, recorded
from tests.crash.table import ALONE, CASES, POWERED, STILL
from tests.lives import end_all_in

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]


# Why a sync that no state betrays is made all the same.
EXPLAINED = {
    # Of a WAL file that is new to the connection; where an earlier process has synced its name, this is once more.
    "directory of log": "the name of the WAL file is on the disk already when a later process syncs it again",
    "nothing new": "the sync right before or behind it does the same: SQLite syncs its log again before it moves it",
    "log that nobody has heard of": "it is lost with all that rests on it, as if it had never been written",
    "anchors": "a lost or torn one is a warning; synced so that a rollback or a copy of the log does not go unseen",
    "directory of anchors": "the same",
    "acode's own": "SQLite's journal of the very first page, and the list of what git ignores",
    "directory of acode's own": "an empty directory that is lost is made again",
    "ledger": "the test's own: the effect of a step that may be repeated may also be lost with it",
    "their databases": "SQLite's own, some of them for a mode in which the next one would not do",
    "directory of their databases": "the same",
}
ANCHORS = ("anchors", "places", "collected")  # of sessions, where each has its anchor, and those of collected ones
NAMING = ("create", "directory", "symlink", "rename", "link", "remove")


def kind_of(recording: Recording, index: int) -> str:
    """Which of acode's promises a sync belongs to, by what it is the first to keep."""
    ops, sync = recording.ops, recording.ops[index]
    before = next((at for at in range(index - 1, -1, -1) if same(ops[at], sync)), -1)
    kept = [op for op in ops[before + 1 : index] if is_kept_by(op, sync)]
    if not kept or until_synced_again(recording, index) == index + 1:
        return "nothing new"
    path = kept[-1].to or kept[-1].path
    what = "directory of " if sync.kind == "sync_directory" else ""
    if path.endswith("workspace.db-wal"):
        moved = next((at for at in range(index, len(ops)) if ops[at].kind == "remove" and ops[at].path == path), None)
        until = moved if what else until_synced_again(recording, index)
        return what + "log" if any(told(op) for op in ops[index:until]) else "log that nobody has heard of"
    if path.endswith("workspace.db"):
        return what + "database"
    if path == "ledger":
        return "ledger"
    if path.endswith(DATABASE_SUFFIXES) and "/.agent" not in path:
        return what + "their databases"
    if path.startswith("state/"):
        return what + ("keys" if not any(name in path for name in ANCHORS) else "anchors")
    return what + ("acode's own" if "/.agent" in path else "files")


def same(one: Op, sync: Op) -> bool:
    return one.kind == sync.kind and one.path == sync.path


def is_kept_by(op: Op, sync: Op) -> bool:
    if sync.kind == "sync":
        return op.kind in ("write", "resize") and op.path == sync.path
    return op.kind in NAMING and sync.path in (os.path.dirname(name) or ROOT for name in (op.path, op.to) if name)


def told(op: Op) -> bool:
    """Somebody may know of the log from here on: a person, an anchor, or whoever looks at the user's files."""
    outside = op.kind not in ("heard", "sync", "sync_directory") and "/.agent" not in op.path
    return op.kind == "heard" or (outside and not op.path.endswith(LOOKED_AT_BY_NOBODY))


LOOKED_AT_BY_NOBODY = (".keys",)


def until_synced_again(recording: Recording, index: int) -> int:
    """Where what a sync should have kept is kept by a later one."""
    ops = recording.ops
    return next((at for at in range(index + 1, len(ops)) if same(ops[at], ops[index])), len(ops))


def betrayed(ready: Prepared, recording: Recording, index: int, *, explained: bool) -> bool:
    """Whether some state shows that this sync was left out. Where that is explained, not all of them are looked at."""
    window = range(index, until_synced_again(recording, index) - 1)
    without = recording.without(index)
    return any(
        power_sweep(ready, search_in(window, "strict", every_state), recording=without, limit=1).violations
        for every_state in ((FEW,) if explained else (FEW, 1))
    )


def search_in(window: range, metadata: Metadata, every_state: int) -> Search:
    return Search(
        metadata=metadata,
        exhaustive_pieces_max=2,
        random_choices=0,
        name_choices_max=8,
        sector_bytes=4096,
        window=window,
        every_state=every_state,
    )


FEW = 13


def each_left_out(ready: Prepared) -> dict[str, Counter[str]]:
    """Of each kind of sync how many were betrayed by some state, explained, or neither."""
    recording = recorded(ready)
    found = defaultdict[str, Counter[str]](Counter)
    for index in recording.syncs():
        kind = kind_of(recording, index)
        explained = kind in EXPLAINED
        seen = betrayed(ready, recording, index, explained=explained)
        found[kind]["betrayed" if seen else "explained" if explained else "neither"] += 1
    return found


def describe(found: dict[str, Counter[str]]) -> str:
    return "; ".join(f"{kind} {dict(counts)}" for kind, counts in sorted(found.items()))


def test_each_sync_that_is_left_out_is_betrayed_by_some_state_or_explained(
    prepare: Prepare, record_property: Callable[[str, object], None]
) -> None:
    found = each_left_out(prepare(CASES["approve"]))
    record_property("sweep", f"syncs left out of approve: {describe(found)}")
    print(describe(found))
    assert not [kind for kind, counts in found.items() if counts["neither"]]
    assert sum(counts["betrayed"] for counts in found.values()) >= 2  # the log, and what it is told by


# Whoever gives these again makes good, or accepts, whatever would betray them.
UNTOLD = ("rollback and on", "repair rolled back")


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", [name for name in STILL if name in ALONE and name not in UNTOLD])
def test_each_sync_of_a_command_that_is_left_out_is_betrayed_or_explained(
    prepare: Prepare, record_property: Callable[[str, object], None], name: str
) -> None:
    found = each_left_out(prepare(CASES[name]))
    record_property("sweep", f"syncs left out of {name}: {describe(found)}")
    print(describe(found))
    assert not [kind for kind, counts in found.items() if counts["neither"]]


def asks(ready: Prepared, recording: Recording, metadata: Metadata, window: range) -> bool:
    """Whether in some state behind these operations nobody but a person knows what became of the command."""
    with another_boot():
        for cut in power_cuts(recording, search_in(window, metadata, 17)):
            end_all_in(ready.place.root)
            cut.disk.put(ready.place.root)
            ended = ready.place.acode("resume", "--last", "--force", "--reason", "test", "--json", "--no-input")
            assert ended.exit_code in (0, 19), ended
            if ended.exit_code == 19:
                return True
    return False


@pytest.mark.release
@METADATA
def test_an_end_that_the_keeper_has_noted_is_no_question_after_a_power_cut(
    prepare: Prepare, metadata: Metadata
) -> None:
    """The keeper's last act: without one of its syncs some state does not know of it any more, and a person must."""
    ready = prepare(POWERED)
    recording = recorded(ready)
    ops = recording.ops
    noted = [
        index for index in recording.syncs() if "/.agent/run" in ops[index].path and "output" not in ops[index].path
    ]
    # From then on until the log says so itself.
    known = next(index for index in recording.syncs() if index > noted[-1] and ops[index].path.endswith("-wal"))
    assert not asks(ready, recording, metadata, range(noted[-1], known))
    window = range(noted[-1] - 1, known - 1)
    unneeded = [index for index in noted if not asks(ready, recording.without(index), metadata, window)]
    # Where a sync of any directory keeps all names, one of the two would do.
    assert unneeded == [index for index in noted if metadata == "ordered" and ops[index].kind == "sync_directory"]

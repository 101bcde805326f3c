"""Each sync is left out of a recorded run, one at a time: some state of the disk betrays it, or it is explained here.

A harness that cannot see a missing sync proves nothing about power cuts, and a sync that nobody needs costs every user
time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.case import Prepared
from tests.crash.conftest import Prepare
from tests.crash.harness import needs_ptrace
from tests.crash.harness.power import Metadata, Search, power_cuts
from tests.crash.harness.recording import Op, Recording
from tests.crash.sweeps import another_boot, power_sweep, recorded
from tests.crash.table import CASES, POWERED
from tests.lives import end_all_in

pytestmark = [needs_ptrace, pytest.mark.timeout(900)]


def kind_of(op: Op) -> str:
    """Which of acode's promises a sync belongs to."""
    what = "directory of " if op.kind == "sync_directory" else ""
    if op.path.endswith(("workspace.db-wal", "workspace.db")):
        return op.path.rpartition(".")[2]
    if op.path.startswith("state"):
        return what + ("anchors" if "anchors" in op.path else "keys")
    if "/.agent" in op.path:
        return what + "acode's own"
    return what + "files"


# Why a sync that no state betrays is made all the same.
EXPLAINED = {
    "anchors": "a lost or torn anchor is a warning; it is synced so that a rollback of the log does not go unseen",
    "directory of anchors": "the same",
    "db": "SQLite's own: it copies the log into the database, and keeps the log until that is synced",
    "acode's own": "SQLite's journal of the very first page, and the list of what git ignores",
    "directory of acode's own": "an empty directory that is lost is made again",
}


def without_each(ready: Prepared, metadata: Metadata, *, only_last: bool) -> dict[str, bool]:
    """By kind of sync: whether the absence of one of them was seen."""
    recording = recorded(ready)
    kinds: dict[str, list[int]] = {}
    for index in recording.syncs():
        kinds.setdefault(kind_of(recording.ops[index]), []).append(index)

    def betrayed(index: int) -> bool:
        search = Search(
            metadata=metadata,
            exhaustive_pieces_max=1,
            random_choices=0,
            name_choices_max=4,
            sector_bytes=4096,
            window=range(index, len(recording.ops)),
        )
        return bool(power_sweep(ready, search, recording=recording.without(index), limit=1).violations)

    return {
        kind: any(betrayed(index) for index in (indexes[-1:] if only_last else indexes))
        for kind, indexes in kinds.items()
        if not only_last or kind in ("files", "keys")
    }


def test_a_sync_of_files_or_keys_that_is_left_out_is_betrayed_by_some_state(prepare: Prepare) -> None:
    assert without_each(prepare(CASES["run to gate"]), "strict", only_last=True) == {"files": True, "keys": True}


def asks(ready: Prepared, recording: Recording, metadata: Metadata, window: range) -> bool:
    """Whether in some state behind these operations nobody but a person knows what became of the command."""
    search = Search(
        metadata=metadata,
        exhaustive_pieces_max=1,
        random_choices=0,
        name_choices_max=4,
        sector_bytes=4096,
        window=window,
        every_state=17,
    )
    with another_boot():
        for cut in power_cuts(recording, search):
            end_all_in(ready.place.root)
            cut.disk.put(ready.place.root)
            ended = ready.place.acode("resume", "--last", "--force", "--reason", "test", "--json", "--no-input")
            assert ended.exit_code in (0, 19), ended
            if ended.exit_code == 19:
                return True
    return False


@pytest.mark.parametrize("metadata", ["ordered", "strict"])
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
    told = next(index for index in recording.syncs() if index > noted[-1] and ops[index].path.endswith("-wal"))
    assert not asks(ready, recording, metadata, range(noted[-1], told))
    window = range(noted[-1] - 1, told - 1)
    unneeded = [index for index in noted if not asks(ready, recording.without(index), metadata, window)]
    # Where a sync of any directory keeps all names, one of the two would do.
    assert unneeded == [index for index in noted if metadata == "ordered" and ops[index].kind == "sync_directory"]


@pytest.mark.release
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", ["run to gate", "run files", "resume", "rollback"])
def test_each_kind_of_sync_is_betrayed_by_some_state_or_explained(
    prepare: Prepare, record_property: Callable[[str, object], None], name: str
) -> None:
    seen = without_each(prepare(CASES[name]), "strict", only_last=False)
    record_property("sweep", f"syncs left out of {name}: {seen}")
    unseen = {kind for kind, betrayed in seen.items() if not betrayed}
    assert unseen <= EXPLAINED.keys()

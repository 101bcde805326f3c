"""The log's own sync: one for all that waits, of the file that SQLite writes, and an error in it ends all writing."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acode.errors import LockLost, WriteFailed
from acode.store.journal import Journal
from acode.store.wal_sync import WalSync
from tests.builders import decided
from tests.stores import Place, WatchedSyncs, begun, log_of

WAIT_S_MAX = 30.0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


class Syncs:
    """Counts the log's own syncs; the next ones can be held up, or fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: OSError | None = None
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.may_end.set()
        self._right = os.fdatasync
        patch.setattr(os, "fdatasync", self._sync)

    def _sync(self, descriptor: int) -> None:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(WAIT_S_MAX)
        if self.error is not None:
            raise self.error
        self._right(descriptor)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


def test_a_durable_append_is_one_sync_and_the_others_none(place: Place, syncs: Syncs) -> None:
    writing = begun(place.open())
    for durable in (True, True, False, False, True, False):
        before = syncs.count
        writing.append(decided(False), durable=durable)
        assert syncs.count - before == durable
        assert (writing.durable_seq == writing.session.seq) is durable
    writing.flush()
    writing.flush()
    assert syncs.count == 4 and writing.durable_seq == writing.session.seq


def test_the_name_of_a_new_log_is_synced_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[str]()
    monkeypatch.setattr("acode.store.wal_sync.sync_directory", lambda path: synced.append(str(path)))
    writing = begun(place.open())
    for _ in range(3):
        writing.append(decided(False))
    assert synced == [str(place.agent_dir)]


def test_appends_that_wait_are_one_transaction_and_one_sync(place: Place, syncs: Syncs) -> None:
    store = place.open()
    writing = begun(store)
    commits = list[int]()
    store.db.set_commit_hook(lambda: bool(commits.append(1)))
    seqs = [writing.append(decided(False), wait=False)[-1].seq for _ in range(5)]
    assert commits == [] and syncs.count == 0 and writing.committed.seq < seqs[0]
    writing.settle(seqs[1], durable=True)
    assert len(commits) == 1 and syncs.count == 1
    assert writing.durable_seq == writing.committed.seq == seqs[-1], "it served the others too"
    for seq in seqs:
        writing.settle(seq, durable=True)
    assert len(commits) == 1 and syncs.count == 1
    assert len(log_of(store, writing.session.session_id)) == seqs[-1]


def in_thread(work: Callable[[], object], failures: list[BaseException]) -> threading.Thread:
    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread


def followers_of_a_slow_sync(
    writing: Journal, syncs: Syncs, number: int
) -> tuple[list[threading.Thread], list[BaseException]]:
    """One thread syncs, slowly; so many others have committed meanwhile, and wait."""
    failures: list[BaseException] = []
    syncs.may_end.clear()
    threads = [in_thread(lambda: writing.append(decided(False)), failures)]
    assert syncs.begun.wait(WAIT_S_MAX)
    wanted = writing.session.seq + number
    threads += [in_thread(lambda: writing.append(decided(False)), failures) for _ in range(number)]
    while writing.committed.seq < wanted:
        threading.Event().wait(0.001)
    return threads, failures


def test_threads_that_wait_for_a_sync_share_the_next_one(place: Place, syncs: Syncs) -> None:
    writing = begun(place.open())
    threads, failures = followers_of_a_slow_sync(writing, syncs, 8)
    assert syncs.count == 1 and writing.durable_seq < writing.committed.seq - 8 + 1
    syncs.may_end.set()
    for thread in threads:
        thread.join(WAIT_S_MAX)
    assert not failures and writing.durable_seq == writing.session.seq
    assert syncs.count == 2, "the sync that had begun covers what was committed before it; one more the rest"


def test_a_sync_that_fails_ends_all_writing_and_nobody_is_told_otherwise(place: Place, syncs: Syncs) -> None:
    writing = begun(place.open())
    writing.append(decided(False))
    reached = writing.durable_seq
    syncs.error = OSError(errno.EIO, "the disk is gone")
    threads, failures = followers_of_a_slow_sync(writing, syncs, 4)
    syncs.may_end.set()
    for thread in threads:
        thread.join(WAIT_S_MAX)
    assert len(failures) == 5 and {type(one) for one in failures} == {WriteFailed}
    syncs.error = None
    with pytest.raises(WriteFailed):
        writing.append(decided(False))
    with pytest.raises(WriteFailed):
        writing.flush()
    assert writing.durable_seq == reached


def test_a_log_whose_file_was_replaced_before_its_first_sync_is_synced_by_sqlite(place: Place, syncs: Syncs) -> None:
    store = place.open()
    writing = begun(store)
    wal = place.database.with_name("workspace.db-wal")
    wal.rename(wal.with_name("moved"))
    wal.write_bytes(b"")
    before = syncs.count
    writing.append(decided(False))
    assert syncs.count == before, "a sync of the other file would say nothing"
    assert not store.wal.usable and writing.durable_seq == writing.session.seq
    writing.append(decided(False), durable=False)
    writing.flush()
    assert writing.durable_seq == writing.session.seq


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_where_a_sync_needs_more_it_is_left_to_sqlite(place: Place, platform: str) -> None:
    store = place.open()
    assert store.wal.usable
    assert not WalSync(store.db, f"{place.database}-wal", platform=platform).usable
    assert not place.open(look_only=True).wal.usable


def test_with_another_file_layer_the_sync_is_left_to_it(place: Place, syncs: Syncs) -> None:
    watched = WatchedSyncs()
    try:
        writing = begun(place.open())
        before = watched.of_the_log()
        writing.append(decided(False))
        assert (watched.of_the_log() - before, syncs.count) == (1, 0)
        place.close()
    finally:
        watched.unregister()


def test_the_fence_is_asked_in_every_shared_transaction(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    seq = writing.append(decided(False), wait=False)[-1].seq
    store.raise_generation(writing.session.session_id, writing.generation)
    with pytest.raises(LockLost):
        writing.settle(seq, durable=False)
    with pytest.raises(LockLost):
        writing.append(decided(False))
    assert len(log_of(store, writing.session.session_id)) == seq - 1

"""How durable the log is: what is synced when, what a full or read-only disk does, and whose files they are."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from acode.errors import DatabaseCorrupt, DiskFull, NotWritable, StoreBusy, StoreUnusable, WriteFailed
from acode.events import types as ev
from acode.store import database, journal
from acode.store.store import Store
from tests.builders import by_user, created, decided, did, paused
from tests.disks import on_a_small_disk, remount
from tests.stores import FailingWrites, NoSharedMemory, Place, WatchedSyncs, begun


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedSyncs]:
    vfs = WatchedSyncs()
    yield vfs
    vfs.unregister()


# Durability.


def maker_in_the_way(place: Place) -> apsw.Connection:
    """Another process that is just making the same database: SQLite refuses the switch to WAL beside it at once."""
    place.database.touch(mode=0o600)
    other = apsw.Connection(os.fspath(place.database))
    other.execute("BEGIN IMMEDIATE")
    return other


def test_the_switch_to_wal_waits_for_another_process_that_makes_the_database(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = maker_in_the_way(place)
    waits = list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        other.close()

    monkeypatch.setattr(database.time, "sleep", sleep)
    assert place.open().db.pragma("journal_mode") == "wal"
    assert waits == [database.WAL_RETRY_S]


def test_a_switch_to_wal_that_has_waited_for_too_long_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    other = maker_in_the_way(place)
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 2)
    with pytest.raises(StoreBusy, match="another process has kept"):
        place.open()
    other.close()


@pytest.mark.req("FR-040b-38")
def test_the_log_is_in_wal_mode_with_full_sync(store: Store) -> None:
    assert store.db.pragma("journal_mode") == "wal"
    assert store.db.pragma("synchronous") == database.FULL
    assert store.db.pragma("secure_delete") == 1


def test_on_macos_sqlite_empties_the_drives_cache_and_elsewhere_it_need_not(store: Store) -> None:
    database.set_full_sync(store.db, platform="linux")
    assert [store.db.pragma(name) for name in ("fullfsync", "checkpoint_fullfsync")] == [0, 0]
    database.set_full_sync(store.db, platform="darwin")
    assert [store.db.pragma(name) for name in ("fullfsync", "checkpoint_fullfsync")] == [1, 1]


def test_a_database_that_does_not_take_the_full_sync_of_macos_is_refused() -> None:
    db = apsw.Connection(":memory:")
    db.set_authorizer(lambda action, name, *_: apsw.SQLITE_IGNORE if name == "fullfsync" else apsw.SQLITE_OK)
    with pytest.raises(StoreUnusable, match="fullfsync"):
        database.set_full_sync(db, platform="darwin")


def test_a_durable_append_is_one_sync_of_the_log_and_the_others_none(syncs: WatchedSyncs, place: Place) -> None:
    writing = begun(place.open())
    for durable in (True, True, False, False, True, False):
        before = syncs.of_the_log()
        writing.append(decided(False), durable=durable)
        assert syncs.of_the_log() - before == durable
        if durable:
            assert writing.durable_seq == writing.session.seq


def test_a_flush_syncs_what_was_committed_and_only_then_says_so(syncs: WatchedSyncs, place: Place) -> None:
    store = place.open()
    writing = begun(store)
    writing.append(decided(False), durable=True)
    writing.append(decided(False), decided(False), durable=False)
    assert writing.durable_seq == writing.session.seq - 2
    before, rows = syncs.of_the_log(), list(store.db.execute("SELECT * FROM sessions"))
    writing.flush()
    assert syncs.of_the_log() == before + 1
    assert writing.durable_seq == writing.session.seq
    assert list(store.db.execute("SELECT * FROM sessions")) == rows
    writing.flush()
    assert syncs.of_the_log() == before + 1, "nothing is left to sync"


def test_two_journals_of_one_store_do_not_take_each_others_durability(syncs: WatchedSyncs, place: Place) -> None:
    store = place.open()
    one, two = begun(store), begun(store)
    one.append(decided(False), durable=False)
    before = syncs.of_the_log()
    two.append(decided(False), durable=True)
    assert syncs.of_the_log() == before + 1


def test_a_database_that_cannot_switch_to_wal_is_refused(place: Place) -> None:
    """SQLite only answers `delete` then, and would carry on in a mode that loses commits."""
    vfs = NoSharedMemory()
    try:
        with pytest.raises(StoreUnusable, match="journal mode delete, not WAL"):
            place.open()
    finally:
        vfs.unregister()
    begun(place.open())


def test_a_write_error_while_opening_is_a_refusal_and_the_next_start_finds_nothing_broken(tmp_path: Path) -> None:
    refused = 0
    for nth in range(1, 12):
        place = Place(tmp_path / str(nth))
        vfs = FailingWrites(nth)
        try:
            assert place.open().db.pragma("journal_mode") == "wal"
        except WriteFailed:
            refused += 1
        finally:
            place.close()
            vfs.unregister()
        begun(place.open())
        place.close()
    assert refused > 3


def test_a_database_that_another_process_holds_is_reported_and_not_waited_for_for_ever(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.holding(created("a"))
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    store = place.open()
    hold = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print(flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(place.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        other.stdout.readline()
        writing = store.journal(store.load(store.session_ids()[0]), 1)
        with pytest.raises(StoreBusy) as caught:
            writing.append(decided(False))
        assert caught.value.exit_code == 16
    finally:
        other.communicate("\n", timeout=10)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        place = Place(tmp_path / "agent")
        begun(place.open())
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.agent_dir.iterdir() if path.is_file()}
        place.close()
    finally:
        os.umask(old)
    assert modes == {"workspace.db": 0o600, "workspace.db-wal": 0o600, "workspace.db-shm": 0o600}


@pytest.mark.parametrize("look_only", [False, True], ids=["to write", "to look"])
@pytest.mark.parametrize("target", ["somebody else's database", "nothing"])
def test_a_link_in_the_databases_place_is_refused_and_not_followed(
    place: Place, tmp_path: Path, target: str, look_only: bool
) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    if target != "nothing":
        other = apsw.Connection(str(elsewhere))
        other.execute("CREATE TABLE theirs(x)")
        other.close()
    before = elsewhere.read_bytes() if elsewhere.exists() else None
    place.database.symlink_to(elsewhere)
    with pytest.raises(DatabaseCorrupt, match="is a symbolic link"):
        place.open(look_only=look_only)
    assert (elsewhere.read_bytes() if elsewhere.exists() else None) == before


def test_a_workspace_that_is_reached_through_a_link_is_the_same_workspace(place: Place, tmp_path: Path) -> None:
    session_id = place.holding(created("a"))
    (tmp_path / "link").symlink_to(place.agent_dir.parent)
    through = Place(tmp_path / "link" / ".agent")
    for look_only in (True, False):
        assert through.open(look_only=look_only).load(session_id).session.seq == 3
    through.close()


# A full disk.


def fill(writing: journal.Journal) -> int:
    """Append until nothing fits any more; the last event that was acknowledged."""
    acknowledged = writing.durable_seq
    with pytest.raises(DiskFull) as caught:
        for _ in range(10_000):
            writing.append(ev.Forced(what="x" * 2_000))
            acknowledged = writing.durable_seq
    assert caught.value.hint == "Make room, then resume."
    return acknowledged


def test_a_database_that_may_not_grow_loses_nothing_that_was_acknowledged(place: Place) -> None:
    store = place.open()
    writing = begun(store)
    store.db.pragma("max_page_count", 60)
    acknowledged = fill(writing)
    place.close()
    again = place.open()
    loaded = again.load(writing.session.session_id)
    assert loaded.session.seq == acknowledged > 20
    again.journal(loaded, 1).append(by_user(paused("disk_full", "tool_failure")).event)


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path / "small", fill_the_disk)


def fill_the_disk(disk: Path) -> None:
    place = Place(disk / "agent")
    ballast = disk / "ballast"
    ballast.write_bytes(b"\0" * 262_144)
    writing = begun(place.open())
    acknowledged = fill(writing)
    place.close()
    ballast.unlink()
    again = place.open()
    loaded = again.load(writing.session.session_id)
    assert loaded.session.seq == acknowledged
    again.journal(loaded, 1).append(by_user(paused("disk_full", "tool_failure")).event)


def test_a_read_only_disk_can_be_looked_at_and_is_not_written(tmp_path: Path) -> None:
    on_a_small_disk(tmp_path / "small", look_at_a_read_only_disk)


DYING = """
import os, pathlib, sys
from tests.builders import started
from tests.stores import Place
store = Place(pathlib.Path(sys.argv[1])).open()
store.journal(store.load(sys.argv[2]), 1).append(started('b'))
os.kill(os.getpid(), 9)
"""


def look_at_a_read_only_disk(disk: Path) -> None:
    """First as a killed process left it, with the newest events in the WAL, then as one that closed it properly."""
    place = Place(disk / "odd #name?with %20 signs")
    session_id = place.holding(created("a"), did("a"))
    root = Path(__file__).resolve().parent.parent.parent
    subprocess.run([sys.executable, "-c", DYING, str(place.agent_dir), session_id], cwd=root, check=False)
    for in_wal in (True, False):
        assert place.database.with_name("workspace.db-wal").exists() is in_wal
        remount(disk, "ro")
        assert place.open(look_only=True).load(session_id).session.seq == 6
        with pytest.raises((NotWritable, StoreUnusable)):
            place.open()
        place.close()
        remount(disk, "rw")
        place.open()
        place.close()

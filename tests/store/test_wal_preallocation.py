"""Room is made for a long log before it is needed; no byte of it is touched, and it goes on where there is none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from acode.store import wal_preallocation
from acode.store.wal_preallocation import APPENDS_BEFORE, LENGTH_BYTES_MAX, PIECE_BYTES, Room
from tests.builders import decided
from tests.disks import on_a_small_disk
from tests.stores import Place, begun, log_of

CREATED = 3  # events of the first append


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "workspace" / ".agent")
    yield made
    made.close()


def wal_bytes(place: Place) -> int:
    return place.database.with_name("workspace.db-wal").stat().st_size


def test_a_long_log_is_written_into_room_that_was_made_for_it(place: Place) -> None:
    writing = begun(place.open())
    lengths = list[int]()
    for _ in range(APPENDS_BEFORE + 150):
        writing.append(decided(False))
        lengths.append(wal_bytes(place))
    short, whole = lengths[APPENDS_BEFORE - 3] - lengths[0], lengths[-1] - lengths[0]
    assert short < PIECE_BYTES, "a short log gets none"
    assert whole > 2 * PIECE_BYTES and len(set(lengths)) < APPENDS_BEFORE + 20, "a long one grows by pieces"


def test_the_room_ends_where_sqlite_begins_at_the_front_again(place: Place) -> None:
    writing = begun(place.open())
    for _ in range(1_400):
        writing.append(decided(False), durable=False)
    assert wal_bytes(place) < LENGTH_BYTES_MAX + 2 * PIECE_BYTES


@pytest.mark.parametrize("appends", [APPENDS_BEFORE, APPENDS_BEFORE + 1, APPENDS_BEFORE + 40, APPENDS_BEFORE + 300])
def test_a_log_that_ends_in_the_middle_of_its_room_is_read_to_its_last_event(place: Place, appends: int) -> None:
    def write_and_die() -> None:
        writing = begun(place.open())
        for _ in range(appends - 1):
            writing.append(decided(False))
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(write_and_die) == -signal.SIGKILL
    assert wal_bytes(place) >= PIECE_BYTES
    again = place.open()
    (session_id,) = again.session_ids()
    assert again.load(session_id).session.seq == len(log_of(again, session_id)) == CREATED + appends - 1
    assert again.db.pragma("integrity_check") == "ok"


def test_writers_that_make_room_at_the_same_time_keep_their_hands_off_each_others_frames(place: Place) -> None:
    place.open().close()

    def write(number: int) -> Callable[[], None]:
        def work() -> None:
            writing = begun(place.open())
            for _ in range(200 + number):
                writing.append(decided(False), durable=False)
            os._exit(0)

        return work

    children = [child_for(write(number)) for number in range(3)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    store = place.open()
    assert sorted(len(log_of(store, session_id)) for session_id in store.session_ids()) == [
        CREATED + 200 + number for number in range(3)
    ]
    assert store.db.pragma("integrity_check") == "ok"


def test_nothing_but_zeros_is_put_behind_what_the_file_has(tmp_path: Path) -> None:
    wal = tmp_path / "wal"
    wal.write_bytes(b"frames" * 100)
    made = after_a_while(wal)
    assert wal.read_bytes() == b"frames" * 100 + bytes(PIECE_BYTES)
    made.ahead()
    assert wal.stat().st_size == 600 + PIECE_BYTES, "as long as there is room, no more is made"
    with wal.open("ab") as grown:
        grown.write(b"frames")
    made.ahead()
    assert wal.read_bytes() == b"frames" * 100 + bytes(PIECE_BYTES) + b"frames" + bytes(PIECE_BYTES)
    made.close()


def test_where_there_is_no_file_or_no_space_it_goes_on_without(tmp_path: Path) -> None:
    after_a_while(tmp_path / "nowhere").close()
    on_a_small_disk(tmp_path / "small", leave_the_last_of_the_disk)


def leave_the_last_of_the_disk(disk: Path) -> None:
    wal, ballast = disk / "wal", disk / "ballast"
    wal.write_bytes(b"frames" * 100)
    ballast.write_bytes(bytes(900_000))
    free = os.statvfs(disk).f_bavail
    assert 0 < free * os.statvfs(disk).f_frsize < PIECE_BYTES
    made = after_a_while(wal)
    assert wal.read_bytes() == b"frames" * 100
    assert os.statvfs(disk).f_bavail == free
    ballast.unlink()
    made.ahead()
    assert wal.stat().st_size == 600, "a disk that was full is not tried again"


def after_a_while(wal: Path) -> Room:
    made = Room(os.fspath(wal))
    for _ in range(wal_preallocation.APPENDS_BEFORE):
        made.ahead()
    return made


def child_for(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(70)
    return child


def ended(work: Callable[[], None]) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child_for(work), 0)[1])

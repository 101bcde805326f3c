"""The harness has teeth: each tool is shown a program with a planted bug and one without, and tells them apart."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from tests.crash.harness import needs_ptrace
from tests.crash.harness.faults import SHORT, Fault, failing, possible_faults
from tests.crash.harness.power import Metadata, PowerCut, Search, power_cuts
from tests.crash.harness.ptracer import NeverReached, Stop, changes_something, every_kill, killed, stops_of, trace
from tests.crash.harness.recording import Unmodelled, record
from tests.crash.harness.snapshots import Snapshot, fast_directory, states_of

pytestmark = needs_ptrace

OLD, NEW = b"old" * 700, b"new" * 700


@pytest.fixture
def place() -> Iterator[Path]:
    with fast_directory() as directory:
        yield directory


# Programs.


def append_lines(file: Path, count: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for _ in range(count):
        os.write(descriptor, b"line\n")
        os.fsync(descriptor)
    os.close(descriptor)


def replace_file(root: Path, *, sync_file: bool = True, sync_directory: bool = True) -> None:
    """Temp, fsync, rename, fsync of the directory; and the same without one of them."""
    descriptor = os.open(root / "temp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, NEW)
    if sync_file:
        os.fsync(descriptor)
    os.close(descriptor)
    os.rename(root / "temp", root / "file")
    if sync_directory:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
        os.close(descriptor)


def say(heard: Path, text: str) -> None:
    with heard.open("a") as file:
        file.write(text)


def commit_rows(root: Path, heard: Path, *, rows: int, synchronous: str) -> None:
    database = apsw.Connection(str(root / "rows.db"))
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={synchronous}")
    database.execute("CREATE TABLE IF NOT EXISTS rows (n INTEGER PRIMARY KEY)")
    for number in range(rows):
        database.execute("INSERT INTO rows VALUES (?)", (number,))
        say(heard, f"{number}\n")
    database.close()


def rows_in(root: Path) -> list[int]:
    if not (root / "rows.db").exists():
        return []
    database = apsw.Connection(str(root / "rows.db"))
    try:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not database.execute("SELECT 1 FROM sqlite_schema").fetchall():
            return []
        return [number for (number,) in database.execute("SELECT n FROM rows ORDER BY n")]
    finally:
        database.close()


# Kills.


def test_every_stop_of_a_run_is_killed_exactly_once_and_leaves_exactly_what_was_done(place: Path) -> None:
    file = place / "log"
    boundaries = [stop.boundary for stop in stops_of(lambda: append_lines(file, 4))]
    assert boundaries[:2] == [("openat", "entry"), ("openat", "exit")]
    assert len(boundaries) == 2 * (1 + 4 * 2)
    ends = []
    for ended in every_kill(lambda: file.unlink(missing_ok=True), lambda: append_lines(file, 4)):
        assert ended.killed_at is not None
        ends.append(ended.killed_at.boundary)
        written = boundaries[: ended.stops + 1].count(("write", "exit"))
        assert (file.read_text() if file.exists() else "").count("line") == written
    assert ends == boundaries


def test_a_kill_that_is_never_reached_is_an_error(place: Path) -> None:
    with pytest.raises(NeverReached, match="18 stops"):
        killed(lambda: append_lines(place / "log", 4), at=18)


def test_the_writes_of_other_threads_are_stops_and_a_kill_ends_them_all(place: Path) -> None:
    ready = place / "ready"

    def work() -> None:
        thread = threading.Thread(target=append_lines, args=(place / "log", 3))
        thread.start()
        thread.join()
        append_lines(ready, 1)

    stops = stops_of(work)
    assert len({stop.thread for stop in stops if stop.name == "write"}) == 2
    ready.unlink()
    second = next(stop for stop in stops if stop.name == "write" and stop.phase == "exit")
    ended = killed(work, at=second.number)
    assert ended.killed_at is not None
    assert (ended.killed_at.thread != ended.killed_at.process, ready.exists()) == (True, False)


def test_a_process_started_by_the_program_is_not_traced_and_outlives_it(place: Path) -> None:
    reading, writing = os.pipe()

    def work() -> None:
        line = ["/bin/sh", "-c", f"cat > /dev/null; echo after > {place}/after; echo told"]
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=writing)
        append_lines(place / "log", 1)
        child.communicate()

    names = [stop.name for stop in stops_of(work)]
    assert names.count("write") == 2  # of append_lines alone: entry and exit
    assert os.read(reading, 100) == b"told\n"
    (place / "after").unlink()
    killed(work, at=len(names) - 1)
    assert os.read(reading, 100) == b"told\n"  # it ended after its parent, when the pipe to it closed
    assert (place / "after").exists()
    os.close(reading)
    os.close(writing)


def test_everything_that_the_program_starts_is_stopped_at_its_own_calls_and_killed_with_it(place: Path) -> None:
    """The second process is in a group of its own, as git is; it would live on for a minute."""

    def work() -> None:
        line = ["/bin/sh", "-c", f"read go; echo one > {place}/one; echo two > {place}/two; exec sleep 60"]
        child = subprocess.Popen(line, stdin=subprocess.PIPE, process_group=0)
        (place / "pid").write_text(str(child.pid))
        child.communicate(b"go\n")

    def opens(name: str) -> Callable[[Stop], bool]:
        return lambda stop: changes_something(stop) and stop.path() == f"{place}/{name}"

    # Before the first write of the child, and behind its last one.
    for name, at, there in (("one", 0, []), ("two", 3, ["one", "two"])):
        ended = killed(work, at=at, wanted=opens(name), everything=True)
        assert ended.killed_at is not None and ended.killed_at.process == int((place / "pid").read_text())
        assert [one.name for one in sorted(place.glob("[ot]*"))] == there
        with pytest.raises(OSError):  # it has ended, whoever may have to bury it
            os.readlink(f"/proc/{ended.killed_at.process}/cwd")
    assert (place / "two").read_text() == "two\n"


def test_what_the_program_raises_or_returns_is_told(place: Path) -> None:
    def fail() -> None:
        raise ValueError("of its own")

    assert "ValueError: of its own" in trace(fail).error
    assert trace(lambda: 17).exit_code == 17
    assert trace(lambda: os.kill(os.getpid(), signal.SIGTERM)).exit_code == -signal.SIGTERM


def test_a_relative_name_below_an_open_directory_is_resolved(place: Path) -> None:
    def work() -> None:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        os.mkdir("made", dir_fd=directory)
        os.rename("made", "moved", src_dir_fd=directory, dst_dir_fd=directory)

    seen = []
    trace(work, on_stop=lambda stop: seen.append((stop.path(), stop.new_path())) if stop.phase == "entry" else None)
    assert seen == [(f"{place}/made", ""), (f"{place}/made", f"{place}/moved")]


# Snapshots.


def contents(work: Callable[[], None], root: Path) -> set[bytes | None]:
    (root / "file").write_bytes(OLD)
    return {state.disk.bytes_of("file") for state in states_of(work, root).distinct}


def test_a_file_replaced_by_rename_is_never_seen_half_made(place: Path) -> None:
    assert contents(lambda: replace_file(place), place) == {OLD, NEW}


def test_a_file_written_in_place_is_seen_half_made(place: Path) -> None:
    def work() -> None:
        with open(place / "file", "wb", buffering=0) as file:
            file.write(NEW[:1000])
            file.write(NEW[1000:])

    assert contents(work, place) == {OLD, b"", NEW[:1000], NEW}


def test_each_state_that_a_kill_leaves_is_a_whole_database(place: Path) -> None:
    root, again, heard = place / "root", place / "again", place / "heard"
    root.mkdir()
    states = states_of(lambda: commit_rows(root, heard, rows=3, synchronous="FULL"), root)
    found = []
    for state in states.distinct:
        state.disk.put(again)
        found.append(rows_in(again))
    assert found[-1] == [0, 1, 2]
    assert all(rows == list(range(len(rows))) for rows in found)
    assert len(states.distinct) < states.stops


def test_a_state_is_put_back_with_its_modes_times_and_links(place: Path) -> None:
    root, again = place / "root", place / "again"
    (root / "closed").mkdir(parents=True)
    (root / "closed" / "key").write_bytes(b"secret")
    (root / "closed" / "key").chmod(0o400)
    (root / "link").symlink_to("closed/key")
    os.utime(root / "closed" / "key", ns=(5, 5))
    (root / "closed").chmod(0o500)
    taken = Snapshot.of(root)
    taken.put(again)
    assert Snapshot.of(again) == taken
    taken.put(again)  # and over itself
    assert Snapshot.of(again).digest == taken.digest


# Power cuts.


def cuts(work: Callable[[], None], root: Path, search: Search, heard: Path | None = None) -> list[PowerCut]:
    return list(power_cuts(record(work, root, heard=heard), search))


@pytest.mark.parametrize("metadata", ["ordered", "strict"])
def test_a_file_replaced_with_every_sync_is_old_or_new_after_a_power_cut(place: Path, metadata: Metadata) -> None:
    (place / "file").write_bytes(OLD)
    found = cuts(lambda: replace_file(place), place, Search(metadata=metadata))
    assert {cut.disk.bytes_of("file") for cut in found} == {OLD, NEW}
    assert found[-1].disk.bytes_of("file") in (OLD, NEW)


@pytest.mark.parametrize("metadata", ["ordered", "strict"])
def test_a_missing_fsync_before_the_rename_is_caught(place: Path, metadata: Metadata) -> None:
    (place / "file").write_bytes(OLD)
    found = cuts(lambda: replace_file(place, sync_file=False), place, Search(metadata=metadata))
    assert b"" in {cut.disk.bytes_of("file") for cut in found}


def test_a_missing_fsync_of_the_directory_is_caught_where_somebody_was_told(place: Path) -> None:
    root, heard = place / "root", place / "heard"
    root.mkdir()

    def lost(*, sync_directory: bool) -> list[bytes | None]:
        (root / "file").write_bytes(OLD)

        def work() -> None:
            replace_file(root, sync_directory=sync_directory)
            say(heard, "done\n")

        told = [cut for cut in cuts(work, root, Search(), heard) if cut.heard]
        assert told
        return [cut.disk.bytes_of("file") for cut in told if cut.disk.bytes_of("file") != NEW]

    assert lost(sync_directory=True) == []
    assert OLD in lost(sync_directory=False)


def test_of_many_states_a_spread_from_the_first_operation_to_the_last_is_made(place: Path) -> None:
    def work() -> None:
        with open(place / "file", "wb", buffering=0) as file:
            for number in range(15):
                file.write(b"line %d\n" % number)

    recording = record(work, place)
    every, some = (list(power_cuts(recording, Search(every_state=number))) for number in (1, 7))
    assert {cut.disk.digest for cut in some} <= {cut.disk.digest for cut in every}
    assert len(some) == pytest.approx(len(every) / 7, rel=0.1)
    assert (some[0].after, some[-1].after) == (every[0].after, every[-1].after)


@pytest.mark.parametrize("sector_bytes", [512, 4096])
def test_a_large_write_is_torn_at_sectors(place: Path, sector_bytes: int) -> None:
    (place / "file").write_bytes(b"a" * 8192)

    def work() -> None:
        with open(place / "file", "r+b", buffering=0) as file:
            file.write(b"b" * 8192)

    found = {cut.disk.bytes_of("file") for cut in cuts(work, place, Search(sector_bytes=sector_bytes))}
    assert b"b" * sector_bytes + b"a" * (8192 - sector_bytes) in found
    assert b"a" * (8192 - sector_bytes) + b"b" * sector_bytes in found
    assert all(len(set(content[:sector_bytes])) == 1 for content in found if content)


def test_garbage_stands_only_in_a_sector_that_was_in_flight(place: Path) -> None:
    (place / "file").write_bytes(b"a" * 1024)

    def work() -> None:
        descriptor = os.open(place / "file", os.O_WRONLY)
        os.pwrite(descriptor, b"b" * 512, 512)

    found = {cut.disk.bytes_of("file") for cut in cuts(work, place, Search(garbage=True))}
    assert all(content is not None and content[:512] == b"a" * 512 for content in found)
    assert len(found) == 3  # not written, written, neither


def test_in_the_strict_model_a_file_is_lost_with_the_directory_that_nobody_synced(place: Path) -> None:
    root, heard = place / "root", place / "heard"
    root.mkdir()

    def work() -> None:
        os.mkdir(root / "new")
        append_lines(root / "new" / "log", 1)
        directory = os.open(root / "new", os.O_RDONLY)
        os.fsync(directory)
        say(heard, "done\n")

    recording = record(work, root, heard=heard)

    def left(metadata: Metadata) -> set[tuple[str, ...]]:
        return {
            tuple(sorted(cut.disk.entries)) for cut in power_cuts(recording, Search(metadata=metadata)) if cut.heard
        }

    assert left("strict") == {(), ("new", "new/log")}
    assert left("ordered") == {("new", "new/log")}


def test_what_a_failed_fsync_was_to_keep_is_lost_for_good(place: Path) -> None:
    root, heard = place / "root", place / "heard"
    root.mkdir()

    def careless() -> None:
        descriptor = os.open(root / "log", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"line")
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
        os.fsync(descriptor)  # the second one has nothing to write any more, and succeeds
        say(heard, "done\n")

    def told(lost_sync: int | None) -> set[bytes | None]:
        (root / "log").unlink(missing_ok=True)
        recording = record(careless, root, heard=heard, lost_sync=lost_sync)
        return {cut.disk.bytes_of("log") for cut in power_cuts(recording) if cut.heard}

    assert told(None) == {b"line"}
    assert told(0) == {b""}
    with pytest.raises(NeverReached):
        told(2)


def losses(root: Path, again: Path, heard: Path, *, synchronous: str) -> int:
    """How many of the states lack a row that somebody was told of."""
    lost = 0
    search = Search(exhaustive_pieces_max=4, random_choices=2)
    for cut in cuts(lambda: commit_rows(root, heard, rows=2, synchronous=synchronous), root, search, heard):
        cut.disk.put(again)
        told = [int(line) for line in cut.heard.split()]
        lost += not set(told) <= set(rows_in(again))
    return lost


def test_sqlite_loses_a_told_row_with_normal_and_none_with_full(place: Path) -> None:
    for name in ("full", "normal"):
        (place / name).mkdir()
    assert losses(place / "full", place / "again", place / "heard", synchronous="FULL") == 0
    assert losses(place / "normal", place / "again", place / "heard", synchronous="NORMAL") > 0


def test_every_fsync_of_the_replacement_is_shown_to_be_necessary(place: Path) -> None:
    root, heard = place / "root", place / "heard"
    root.mkdir()
    (root / "file").write_bytes(OLD)

    def work() -> None:
        replace_file(root)
        say(heard, "done\n")

    def sound(cut: PowerCut) -> bool:
        return cut.disk.bytes_of("file") == NEW or (cut.disk.bytes_of("file") == OLD and not cut.heard)

    recording = record(work, root, heard=heard)
    assert all(sound(cut) for cut in power_cuts(recording))
    assert len(recording.syncs()) == 2
    for index in recording.syncs():
        assert not all(sound(cut) for cut in power_cuts(recording.without(index)))


def test_a_file_that_comes_from_outside_is_refused_by_the_model(place: Path) -> None:
    root = place / "root"
    root.mkdir()
    (place / "outside").write_bytes(b"x")
    with pytest.raises(Unmodelled, match="over the border"):
        record(lambda: os.rename(place / "outside", root / "inside"), root)


# Faults.


def test_the_nth_call_fails_once_and_only_that_one(place: Path) -> None:
    file = place / "log"
    failed = failing(lambda: append_lines(file, 4), Fault(call="fsync", nth=2, error=errno.EIO), place)
    assert failed.hits == 1
    assert "OSError: [Errno 5]" in failed.ended.error
    assert file.read_text() == "line\n" * 3


def test_a_call_that_fails_for_ever_fails_again_for_who_tries_again(place: Path) -> None:
    def stubborn() -> int:
        failures = 0
        descriptor = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
        for _ in range(5):
            try:
                os.write(descriptor, b"x")
            except OSError as error:
                failures += error.errno == errno.ENOSPC
        return failures

    once = failing(stubborn, Fault(call="write", nth=1, error=errno.ENOSPC), place)
    for_ever = failing(stubborn, Fault(call="write", nth=1, error=errno.ENOSPC, forever=True), place)
    assert (once.hits, once.ended.exit_code) == (1, 1)
    assert (for_ever.hits, for_ever.ended.exit_code) == (4, 4)


def test_a_short_write_writes_half_and_says_so(place: Path) -> None:
    def work() -> int:
        return os.write(os.open(place / "log", os.O_WRONLY | os.O_CREAT), b"x" * 10)

    assert failing(work, Fault(call="write", nth=0, error=SHORT), place).ended.exit_code == 5
    assert (place / "log").read_bytes() == b"x" * 5


def test_a_fault_that_is_never_met_is_an_error(place: Path) -> None:
    with pytest.raises(NeverReached, match="only 4 such calls"):
        failing(lambda: append_lines(place / "log", 4), Fault(call="fsync", nth=4, error=errno.EIO), place)


def test_files_elsewhere_never_fail(place: Path) -> None:
    (place / "sick").mkdir()
    with pytest.raises(NeverReached):
        failing(lambda: append_lines(place / "well", 1), Fault(call="write", nth=0, error=errno.EIO), place / "sick")


def test_every_possible_fault_of_a_replacement_leaves_the_old_or_the_new_file(place: Path) -> None:
    (place / "file").write_bytes(OLD)
    faults = list(possible_faults(lambda: replace_file(place), place))
    assert {fault.call for fault in faults} == {"openat", "write", "fsync", "rename"}
    for fault in faults:
        Snapshot(entries={}).put(place)
        (place / "file").write_bytes(OLD)
        failed = failing(lambda: replace_file(place), fault, place)
        content = (place / "file").read_bytes()
        if fault.error == SHORT:
            assert content == NEW[: len(NEW) // 2]  # this program has the bug that it does not look
        else:
            assert content == NEW if failed.ended.exit_code == 0 else content in (OLD, NEW)

"""The lock with real processes: one holder, freed by death, never deleted, its owner known to whoever is refused."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from acode import lock
from acode.disk import file_lock
from acode.errors import (
    LockForeignOwner,
    LockForeignProcess,
    LockPermissions,
    LockUnsafe,
    NotWritable,
    SessionLocked,
)
from acode.lock import Holder, Lock, acquire, alive, lock_path, look, myself, stranger_of

SESSION = "01980000-0000-7000-8000-00000000cafe"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

HOLDING = """
import sys, pathlib
from datetime import UTC, datetime
from acode import lock
held, generation = lock.acquire(
    pathlib.Path(sys.argv[1]), sys.argv[2], lambda: 1, wait_s=float(sys.argv[3]), now=lambda: datetime.now(UTC)
)
print(generation, flush=True)
sys.stdin.readline()
held.release()
"""


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    place = tmp_path / "locks"
    place.mkdir(mode=0o700)
    return place


Spawn = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def spawn(locks: Path) -> Iterator[Spawn]:
    """Processes that take the lock, say so, and hold it until they read a line."""
    children: list[subprocess.Popen[str]] = []

    def start(wait_s: float = 0.0) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDING, str(locks), SESSION, str(wait_s)]
        pipe = subprocess.PIPE
        children.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        return children[-1]

    yield start
    for child in children:
        with child:  # waits, and closes its pipes
            child.kill()


def holding(child: subprocess.Popen[str]) -> subprocess.Popen[str]:
    assert child.stdout is not None and child.stdout.readline() == "1\n"
    return child


def take(locks: Path, **options: float) -> Lock:
    return acquire(locks, SESSION, lambda: 1, now=lambda: NOW, **options)[0]


def path_of(locks: Path) -> Path:
    return lock_path(locks, SESSION, 1)


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# One holder.


@pytest.mark.req("FR-011c-005", "FR-011c-006", "CODE-011c-03", "SCN-011c-05")
def test_a_held_lock_is_refused_at_once_and_names_its_owner(locks: Path, spawn: Spawn) -> None:
    child = holding(spawn())
    began = time.monotonic()
    with pytest.raises(SessionLocked, match=f"pid {child.pid} of") as caught:
        take(locks)
    assert time.monotonic() - began < 1
    assert (caught.value.code, caught.value.exit_code) == ("ACODE-RESUME-003", 16)
    assert caught.value.details["owner"]["pid"] == child.pid
    assert "session unlock" in caught.value.hint and "--wait" in caught.value.hint


@pytest.mark.req("NFR-040b-19", "NFR-011c-011")
def test_of_many_processes_that_race_for_it_exactly_one_wins(locks: Path, spawn: Spawn) -> None:
    children = [spawn() for _ in range(4)]
    answers = [child.stdout.readline() for child in children if child.stdout is not None]
    assert sorted(answers) == ["", "", "", "1\n"]


@pytest.mark.req("THREAT-011c-06")
def test_the_lock_of_a_killed_process_is_free_and_its_file_still_there(locks: Path, spawn: Spawn) -> None:
    child = holding(spawn())
    child.send_signal(signal.SIGKILL)
    child.wait()
    seen = look(locks, SESSION, 1)
    assert not seen.held and seen.holder is not None and seen.holder.pid == child.pid
    assert not alive(seen.holder)
    inode = path_of(locks).stat().st_ino
    take(locks).release()
    assert path_of(locks).stat().st_ino == inode, "a lock file is never deleted: two processes would both hold one"


def test_a_released_lock_can_be_taken_again_by_the_same_process(locks: Path) -> None:
    for _ in range(3):
        take(locks).release()
    assert not look(locks, SESSION, 1).held


def test_one_process_cannot_hold_a_lock_twice(locks: Path) -> None:
    held = take(locks)
    with pytest.raises(SessionLocked):
        take(locks)
    held.release()


def test_a_child_process_does_not_inherit_the_lock(locks: Path) -> None:
    held = take(locks)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    held.release()
    try:
        take(locks).release()
    finally:
        child.kill()
        child.wait()


def test_waiting_ends_when_the_lock_is_given_back(locks: Path, spawn: Spawn) -> None:
    first = holding(spawn())
    second = spawn(wait_s=30)
    assert first.stdin is not None
    first.stdin.write("\n")
    first.stdin.flush()
    holding(second)


def test_waiting_ends_when_the_time_is_over(locks: Path, spawn: Spawn) -> None:
    holding(spawn())
    began = time.monotonic()
    with pytest.raises(SessionLocked):
        take(locks, wait_s=0.3)
    assert 0.3 <= time.monotonic() - began < 5


def test_locks_of_other_sessions_and_other_generations_are_other_locks(locks: Path) -> None:
    held = take(locks)
    acquire(locks, SESSION.replace("cafe", "beef"), lambda: 1, now=lambda: NOW)[0].release()
    acquire(locks, SESSION, lambda: 2, now=lambda: NOW)[0].release()
    held.release()


def test_a_generation_raised_while_the_lock_was_granted_is_noticed(locks: Path) -> None:
    """Between reading the generation and holding its lock somebody broke it: the lock of the new one is taken."""
    answers = iter([1, 2, 2, 2])
    held, generation = acquire(locks, SESSION, lambda: next(answers), now=lambda: NOW)
    assert generation == 2 and held.path == lock_path(locks, SESSION, 2)
    assert not look(locks, SESSION, 1).held
    held.release()


# Looking.


def test_looking_makes_no_file(locks: Path) -> None:
    assert look(locks, SESSION, 1) == lock.Seen(held=False, holder=None, touched_at=None)
    assert list(locks.iterdir()) == []


def test_looking_tells_who_holds_it_since_when(locks: Path) -> None:
    held = take(locks)
    seen = look(locks, SESSION, 1)
    assert seen.held and seen.holder == held.holder
    assert seen.holder is not None and seen.holder.since == NOW and alive(seen.holder)
    held.release()


def test_a_look_at_the_wrong_moment_does_not_make_a_free_lock_seem_held(locks: Path) -> None:
    """A look takes the lock for a moment: whoever comes just then must not be refused in a dead owner's name."""
    take(locks).release()
    dead = msgspec.structs.replace(myself(NOW), started=1.0)
    path_of(locks).write_bytes(msgspec.json.encode(dead))
    fd = os.open(path_of(locks), os.O_RDWR)
    assert file_lock.try_lock(fd)
    glance = threading.Timer(0.03, lambda: (file_lock.unlock(fd), os.close(fd)))
    glance.start()
    take(locks).release()
    glance.join()


# The sign of life.


def test_a_process_that_held_it_once_and_looks_again_is_not_taken_for_its_holder(locks: Path) -> None:
    """As `acode ui` does, which has recorded an answer and is asked by its windows who is alive."""
    take(locks).release()  # the file names this process, which lives
    fd = os.open(path_of(locks), os.O_RDONLY)
    assert file_lock.try_lock(fd)
    looking = threading.Timer(0.03, lambda: (file_lock.unlock(fd), os.close(fd)))
    looking.start()
    take(locks).release()
    looking.join()


def test_two_that_look_at_the_same_time_do_not_see_each_other(locks: Path) -> None:
    take(locks).release()
    fd = os.open(path_of(locks), os.O_RDONLY)
    assert file_lock.try_lock(fd, shared=True)  # one that is in the middle of its look
    try:
        assert not look(locks, SESSION, 1).held
    finally:
        os.close(fd)


def test_one_that_records_an_answer_is_waited_for_and_one_that_works_is_not(locks: Path) -> None:
    working = take(locks)
    began = time.monotonic()
    with pytest.raises(SessionLocked):
        take(locks)
    assert time.monotonic() - began < lock.BRIEF_S_MAX
    working.release()
    answering = acquire(locks, SESSION, lambda: 1, brief=True, now=lambda: NOW)[0]
    looked = threading.Event()
    waiting = threading.Thread(target=lambda: (looked.wait(), answering.release()))
    waiting.start()

    def generation() -> int:
        looked.set()  # asked for before each try: the first one meets the lock, or it is free by then
        return 1

    acquire(locks, SESSION, generation, now=lambda: NOW)[0].release()
    waiting.join()


def test_a_holder_shows_that_it_lives(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.01)
    held = take(locks)
    os.utime(path_of(locks), (0, 0))
    eventually(lambda: path_of(locks).stat().st_mtime > 1_000_000)
    held.release()


def test_a_process_that_dies_leaves_the_time_of_its_last_sign_of_life(locks: Path, spawn: Spawn) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    child = holding(spawn())
    child.kill()
    child.wait()
    seen = look(locks, SESSION, 1)
    assert seen.touched_at is not None and before < seen.touched_at < datetime.now(UTC) + timedelta(seconds=1)


def test_holding_and_giving_back_does_not_move_the_time_of_the_crash_before(
    locks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused attempt holds the lock while it looks; the cool-down runs from the crash all the same."""
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.01)
    take(locks).release()
    crashed = 1_700_000_000
    os.utime(path_of(locks), (crashed, crashed))
    for _ in range(3):
        held = take(locks)
        eventually(lambda: path_of(locks).stat().st_mtime > crashed)
        held.release()
        assert path_of(locks).stat().st_mtime == crashed


def test_a_lock_that_was_only_ever_given_back_dates_no_crash(locks: Path) -> None:
    take(locks).release()
    touched = look(locks, SESSION, 1).touched_at
    assert touched == datetime.fromtimestamp(0, UTC)


# Whose file it is.


def test_the_file_is_private_whatever_the_umask(locks: Path) -> None:
    old = os.umask(0)
    try:
        take(locks).release()
    finally:
        os.umask(old)
    assert stat.S_IMODE(path_of(locks).stat().st_mode) == 0o600


@pytest.mark.req("CODE-011c-09", "THREAT-011c-01")
@pytest.mark.parametrize("mode", [0o644, 0o660, 0o666, 0o700, 0o400])
def test_a_file_with_other_permissions_is_refused_with_both_modes(locks: Path, mode: int) -> None:
    take(locks).release()
    path_of(locks).chmod(mode)
    for attempt in (lambda: take(locks), lambda: look(locks, SESSION, 1)):
        with pytest.raises(LockPermissions, match=f"expected 600, got {mode:o}") as caught:
            attempt()
        assert (caught.value.code, caught.value.exit_code) == ("LOCK-001", 16)
        assert caught.value.details == {"expected": "600", "found": f"{mode:o}"}


@pytest.mark.req("CODE-011c-10", "THREAT-011c-01")
@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root gives a file away")
def test_a_file_of_another_user_is_refused(locks: Path) -> None:
    take(locks).release()
    os.chown(path_of(locks), 12345, -1)
    with pytest.raises(LockForeignOwner, match="owned by user 12345") as caught:
        take(locks)
    assert (caught.value.code, caught.value.exit_code) == ("LOCK-002", 16)


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_link_is_refused_and_not_followed(locks: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").write_text("mine")
    path_of(locks).symlink_to(tmp_path / target)
    with pytest.raises(LockUnsafe, match="is a link") as caught:
        take(locks)
    assert (caught.value.code, caught.value.exit_code) == ("LOCK-005", 16)
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_something_that_is_no_file_is_refused(locks: Path) -> None:
    path_of(locks).mkdir()
    with pytest.raises((LockUnsafe, NotWritable)):
        take(locks)
    path_of(locks).rmdir()
    os.mkfifo(path_of(locks), 0o600)
    for attempt in (lambda: take(locks), lambda: look(locks, SESSION, 1)):
        with pytest.raises(LockUnsafe, match="no regular file"):
            attempt()


def test_without_its_directory_nothing_is_locked(locks: Path) -> None:
    locks.rmdir()
    with pytest.raises(NotWritable):
        take(locks)
    assert not look(locks, SESSION, 1).held


# Who the owner is.


@pytest.mark.req("CODE-011c-11")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who holds a lock")
def test_the_process_that_the_kernel_names_is_told_and_not_the_one_in_the_file(locks: Path, spawn: Spawn) -> None:
    holder = holding(spawn())
    path_of(locks).write_bytes(msgspec.json.encode(myself(NOW)))
    with pytest.raises(LockForeignProcess, match=f"pid {holder.pid}, ") as caught:
        take(locks)
    assert (caught.value.code, caught.value.exit_code) == ("LOCK-003", 16)


def changed(**fields: object) -> Holder:
    return msgspec.structs.replace(myself(NOW), **fields)


def test_a_process_is_alive_only_with_the_same_boot_pid_and_start() -> None:
    assert alive(myself(NOW))
    assert not alive(changed(boot_id="another boot"))
    assert not alive(changed(started=1.0))
    assert not alive(changed(pid=2**22 + 1))
    assert stranger_of(myself(NOW), None) is None
    assert stranger_of(myself(NOW), os.getpid()) is None
    assert stranger_of(changed(host="elsewhere", started=1.0), None) is None
    assert stranger_of(changed(pid=2**22 + 1), None) is None
    assert stranger_of(changed(pid=2**22 + 1), 2**22 + 1) is None, "a child of a dead owner may hold its lock"


def test_where_the_kernel_names_nobody_a_pid_that_is_another_process_now_is_a_stranger() -> None:
    reused = subprocess.Popen(["sleep", "60"])
    try:
        assert stranger_of(changed(pid=reused.pid, started=1.0), None) == f"pid {reused.pid}, sleep"
    finally:
        reused.kill()
        reused.wait()


@pytest.mark.parametrize("text", [b"", b"{", b"\xff" * 100, b"[]", b'{"pid": "x"}', b"x" * 100_000])
def test_an_unreadable_owner_is_no_owner_and_decides_nothing(locks: Path, spawn: Spawn, text: bytes) -> None:
    path_of(locks).write_bytes(text)
    path_of(locks).chmod(0o600)
    assert look(locks, SESSION, 1).holder is None
    take(locks).release()
    holding(spawn())
    path_of(locks).write_bytes(text)
    with pytest.raises(SessionLocked, match=r"locked by another process$"):
        take(locks)


def test_a_full_disk_keeps_nobody_from_the_lock(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    take(locks).release()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        held = take(locks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert look(locks, SESSION, 1).held
    held.release()


# The request to pause.


def test_a_request_to_pause_is_private_and_written_through_no_link(locks: Path, tmp_path: Path) -> None:
    held, generation = acquire(locks, SESSION, lambda: 1, now=lambda: NOW)
    request = lock_path(locks, SESSION, generation).with_suffix(f".{generation}.pause")
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    request.symlink_to(theirs)
    assert not held.asked_to_pause()
    lock.ask_to_pause(locks, SESSION, generation, held.holder)
    assert theirs.read_text() == "theirs"
    assert stat.S_IMODE(request.lstat().st_mode) == 0o600 and stat.S_ISREG(request.lstat().st_mode)
    assert held.asked_to_pause() and not request.exists(), "obeyed once"
    assert not held.asked_to_pause()
    held.release()


@pytest.mark.parametrize(
    "plant", [os.mkfifo, os.mkdir, lambda path: path.write_bytes(b"{")], ids=["FIFO", "dir", "text"]
)
def test_what_is_no_request_pauses_and_blocks_nobody(locks: Path, plant: Callable[[Path], object]) -> None:
    held, generation = acquire(locks, SESSION, lambda: 1, now=lambda: NOW)
    plant(lock_path(locks, SESSION, generation).with_suffix(f".{generation}.pause"))
    assert not held.asked_to_pause()
    held.release()


def test_a_request_that_came_too_late_is_removed_and_pauses_no_later_holder(locks: Path) -> None:
    first, generation = acquire(locks, SESSION, lambda: 1, now=lambda: NOW)
    addressee = first.holder
    lock.ask_to_pause(locks, SESSION, generation, addressee)
    first.release()
    assert not list(locks.glob("*.pause"))
    second, _ = acquire(locks, SESSION, lambda: 1, now=lambda: NOW + timedelta(seconds=1))
    lock.ask_to_pause(locks, SESSION, generation, addressee)
    assert not second.asked_to_pause(), "it names another one"
    second.release()
    assert not list(locks.glob("*.pause")), "stale"

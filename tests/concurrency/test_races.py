"""Real processes that race: for a session's lock, with a reused pid, and with one who swaps directories for links.

Nothing is scheduled here: the kernel decides, and many rounds are made. Whatever is seen of the winner must be true.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
import uuid_utils.compat as uuids

from acode import lock
from acode.engine import session_commands
from acode.engine.held_session import held
from acode.engine.preview import verify
from acode.errors import AcodeError, LockForeignProcess, LockLost, SessionLocked
from acode.events import types as ev
from acode.library.open_session import session as new_session
from acode.workspace import Root, write_atomic
from tests.concurrency.together import forked, together
from tests.lives import Life
from tests.victims import FAILED

RENAME_EXCHANGE = 2
linux = pytest.mark.skipif(sys.platform != "linux", reason="needs flock, fork and renameat2 of Linux")


def now() -> datetime:
    return datetime.now(UTC)


# Two who want the same session.


def meet_at(life: Life, rounds: int) -> Counter[tuple[int, ...]]:
    """Two note something and one breaks the lock, all at once, again and again; each says how it went."""

    def note() -> int:
        mine = ev.CheckpointCreated(label=str(uuids.uuid4()))  # not the pid: those come again
        try:
            with held(life.world(), life.id) as run:
                run.append(mine)
                run.append(mine)
        except (SessionLocked, LockForeignProcess):
            return 16
        except LockLost:
            return 17
        return 0

    def unlock() -> int:
        try:
            session_commands.unlock(life.world(), life.id, force=True, reason="")
        except (SessionLocked, LockForeignProcess):
            return 16
        except LockLost:
            return 17
        return 0

    return Counter(tuple(together(note, note, unlock)) for _ in range(rounds))


def raced(place: Path, rounds: int) -> Counter[tuple[int, ...]]:
    life = Life(place)
    life.run(FAILED)
    before = len(life.history())
    results = meet_at(life, rounds)
    assert {status for statuses in results for status in statuses} <= {0, 16, 17}
    assert verify(life.world(), life.id)[1].problems == ()
    labels = [one.label for one in life.events(ev.CheckpointCreated)]
    worked = sum(count * statuses[:2].count(0) for statuses, count in results.items())
    assert len(labels) >= 2 * worked, "what was reported is in the log"
    runs = [label for label, following in zip(labels, [*labels[1:], ""], strict=True) if label != following]
    assert len(runs) == len(set(runs)), "two wrote in turns"
    assert len(life.history()) > before
    return results


@linux
@pytest.mark.req("NFR-040b-19", "NFR-011c-011")
def test_processes_that_race_for_a_session_write_one_after_another(tmp_path: Path) -> None:
    raced(tmp_path, rounds=12)


@linux
@pytest.mark.release
def test_processes_that_race_for_a_session_write_one_after_another_many_times(tmp_path: Path) -> None:
    print(raced(tmp_path, rounds=600))


# A pid that was given to somebody else.


@linux
@pytest.mark.req("CODE-011c-11")
@pytest.mark.parametrize("same_start", [True, False], ids=["in the same tick", "later"])
@pytest.mark.parametrize("holds", [True, False], ids=["held", "free"])
def test_a_reused_pid_decides_nothing_about_the_lock(tmp_path: Path, same_start: bool, holds: bool) -> None:
    """The owner died and another process has its number, perhaps with the same start: only the kernel's lock counts."""
    locks = tmp_path / "locks"
    locks.mkdir()
    owner, _ = lock.acquire(locks, "s", lambda: 1, now=now)
    stranger = forked(lambda: int(signal.pause() or 0))
    try:
        started = lock.process_started(stranger)
        assert started is not None
        told = msgspec.structs.replace(owner.holder, pid=stranger, started=started if same_start else started - 1)
        owner.path.write_bytes(msgspec.json.encode(told))
        if holds:
            with pytest.raises(LockForeignProcess):  # the kernel names another process than the file does
                lock.acquire(locks, "s", lambda: 1, now=now)
            owner.release()
        else:
            owner.release()
            owner.path.write_bytes(msgspec.json.encode(told))
            lock.acquire(locks, "s", lambda: 1, now=now)[0].release()
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


# Somebody swaps a directory for a link to the outside, as fast as the kernel lets them.

TRIES_MAX = 1_000_000


@contextlib.contextmanager
def swapping(workspace: Path, outside: Path) -> Iterator[None]:
    (workspace / "dir").mkdir()
    (workspace / "dir" / "file").write_text("inside")
    outside.mkdir()
    (outside / "file").write_text("outside")
    (workspace / "link").symlink_to(outside)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    exchange.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    one, other = os.fsencode(workspace / "dir"), os.fsencode(workspace / "link")
    parent = os.getpid()

    def swap() -> int:
        while os.getppid() == parent:
            exchange(-100, one, -100, other, RENAME_EXCHANGE)
        return 0

    swapper = forked(swap)
    try:
        yield
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)


def try_to_escape(place: Path, tries: int) -> Counter[str]:
    """Read and write `dir/file` beneath the root while it is swapped; what was reached is asked from the descriptor."""
    workspace, outside = place / "workspace", place / "outside"
    workspace.mkdir()
    counts: Counter[str] = Counter()
    with swapping(workspace, outside), Root(workspace) as root:
        for number in range(TRIES_MAX):
            # On a busy machine the other one may not get a turn for a while.
            if number >= tries and counts["refused"] and counts["reached"]:
                break
            try:
                if number % 10 == 9:
                    write_atomic(root, "dir/file", b"inside", None, f"key{number}")
                    counts["written"] += 1
                else:
                    fd = root.open_beneath("dir/file", os.O_RDWR)
                    text = os.read(fd, 16)
                    os.close(fd)
                    counts["escaped" if text != b"inside" else "reached"] += 1
            except (AcodeError, OSError):
                counts["refused"] += 1
    if (outside / "file").read_text() != "outside" or len(list(outside.iterdir())) != 1:
        counts["escaped"] += 1
    return counts


@linux
@pytest.mark.parametrize("openat2", [True, False], ids=["by the kernel", "component by component"])
def test_nobody_leaves_the_workspace_through_a_swapped_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool
) -> None:
    if not openat2:
        monkeypatch.setattr("acode.disk.open_beneath._kernel_knows_openat2", lambda: False)
    counts = try_to_escape(tmp_path, tries=400)
    assert counts["escaped"] == 0 and counts["refused"] and counts["reached"], counts


@linux
@pytest.mark.release
@pytest.mark.parametrize("openat2", [True, False], ids=["by the kernel", "component by component"])
def test_nobody_leaves_the_workspace_through_a_swapped_link_in_many_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool
) -> None:
    if not openat2:
        monkeypatch.setattr("acode.disk.open_beneath._kernel_knows_openat2", lambda: False)
    began = time.monotonic()
    counts = try_to_escape(tmp_path, tries=500_000)
    print(f"{counts} in {time.monotonic() - began:.0f} s")
    assert counts["escaped"] == 0 and counts["refused"] > 1_000 and counts["reached"] > 1_000, counts


@linux
def test_a_check_before_the_opening_would_have_let_some_out(tmp_path: Path) -> None:
    """Teeth: the race is real. A path that is checked and then opened by name leads out sooner or later."""
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    escaped, deadline = 0, time.monotonic() + 60
    with swapping(workspace, outside):
        path, real = workspace / "dir" / "file", os.path.realpath(workspace)
        while not escaped and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if os.path.realpath(path).startswith(f"{real}/dir"):
                    escaped += path.read_bytes() == b"outside"
    assert escaped


# A workspace that nobody has used yet.


def openings_that_fail(workspaces: Path, monkeypatch: pytest.MonkeyPatch, *, processes: int, rounds: int) -> list[str]:
    """Processes that open a fresh workspace at once, each with a session of its own; what went wrong in any of them."""
    failed = list[str]()
    for number in range(rounds):
        workspace = workspaces / f"{processes}-{number}"
        workspace.mkdir(parents=True)
        monkeypatch.setenv("ACODE_HOME", str(workspace / "home"))

        def work(workspace: Path = workspace) -> int:
            name = f"w{os.getpid()}"
            try:
                with new_session(name, workspace=workspace) as session:
                    session.step("a", lambda: 1)
            except BaseException as error:
                (workspace / f"{name}.error").write_text(f"{type(error).__name__}: {error}")
                return 1
            return 0

        statuses = together(*[work] * processes)
        failed += [path.read_text() for path in workspace.glob("*.error")]
        failed += [f"exit status {status}" for status in statuses if status not in (0, 1)]
        shutil.rmtree(workspace)
    return failed


@linux
@pytest.mark.parametrize(("processes", "rounds"), [(2, 10), (16, 1)])
def test_processes_that_open_a_fresh_workspace_at_once_all_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, rounds: int
) -> None:
    assert openings_that_fail(tmp_path, monkeypatch, processes=processes, rounds=rounds) == []


@linux
@pytest.mark.release
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("processes", "rounds"), [(2, 1_000), (16, 50)])
def test_no_first_opening_fails_in_a_thousand_rounds_of_two_and_fifty_of_sixteen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, rounds: int
) -> None:
    assert openings_that_fail(tmp_path, monkeypatch, processes=processes, rounds=rounds) == []

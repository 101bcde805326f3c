"""Two containers share a workspace: a pid of one is never taken for a process of the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from acode import lock
from acode.errors import LockForeignProcess, OutcomeUnknown, SessionLocked
from acode.steps import commit, keeper_notes
from tests.hostile.container import READY
from tests.lives import Life

HOLD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from acode import lock
held = lock.acquire(Path(sys.argv[1]), "s" * 12, lambda: 1, now=lambda: datetime.now(UTC))
print("held", flush=True)
sys.stdin.read()
"""


def now() -> datetime:
    return datetime.now(UTC)


def need_namespaces() -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        assert "CI" not in os.environ, "CI runs as root"
        pytest.skip("only root makes a pid namespace")


def test_the_owner_in_another_pid_namespace_is_neither_dead_nor_somebody_else(tmp_path: Path) -> None:
    need_namespaces()
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", HOLD, str(tmp_path)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None and owner.stdout.readline() == "held\n"
        seen = lock.look(tmp_path, "s" * 12, 1)
        assert seen.held and seen.holder is not None and seen.holder.pid == 1
        assert not lock.is_judged_here(seen.holder)
        assert lock.stranger_of(seen.holder, seen.holder.pid + 1) is None, (
            "our own pid 1 is not the one that holds the lock"
        )
        with pytest.raises(SessionLocked) as refused:
            lock.acquire(tmp_path, "s" * 12, lambda: 1, now=now)
        assert not isinstance(refused.value, LockForeignProcess)
    finally:
        owner.communicate("")


def test_a_record_without_a_namespace_is_judged_as_before() -> None:
    mine = lock.myself(now())
    old = msgspec.json.decode(
        msgspec.json.encode({k: v for k, v in msgspec.to_builtins(mine).items() if k != "pid_namespace"}),
        type=lock.Holder,
    )
    assert old.pid_namespace == "" and lock.alive(old)
    assert not lock.alive(msgspec.structs.replace(mine, pid_namespace="pid:[1]"))
    assert not lock.alive(msgspec.structs.replace(mine, boot_id="another"))
    assert not lock.alive(msgspec.structs.replace(mine, boot_id="boot-1700000000")), "as macOS had it, by its clock"


def test_a_boot_is_known_by_the_kernels_own_name_of_it_and_not_by_a_clock() -> None:
    if sys.platform == "darwin":
        told = subprocess.run(
            ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
        ).stdout
    else:
        told = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert lock.boot_id() == told.strip()


ABOUT_BOOT = """
import psutil
from acode import lock
print(lock.boot_id(), int(psutil.boot_time()))
"""


def test_a_boot_is_the_same_one_whatever_is_done_to_the_clock_that_counts_from_it() -> None:
    """In a time namespace the machine seems to have started long before: by its time it would be another boot."""
    need_namespaces()
    ask = [sys.executable, "-c", ABOUT_BOOT]
    (here, at), (there, seemingly_at) = (
        subprocess.run([*inside, *ask], check=True, text=True, capture_output=True).stdout.split()
        for inside in ([], ["unshare", "--time", "--boottime", "1000000", "--fork"])
    )
    assert int(at) - int(seemingly_at) > 900_000, "the clock was moved"
    assert here == there == lock.boot_id()


# The command of a step, whose keeper was killed in another container.

WORK = """
import os, sys, time
if sys.argv[1] == "hidden":
    os.closerange(3, 1000)
with open(os.environ["LEDGER"], "a") as ledger:
    ledger.write(os.environ["ACODE_STEP_ID"] + "\\n")
print("begun", flush=True)
while not os.path.exists("door"):
    time.sleep(0.01)
"""
DECLARED = {"plain": {}, "idempotent": {"idempotent": True}, "outputs": {"outputs": ["o"]}, "probe": {"probe": "false"}}


def life_in(place: Path, how: str, declared: str) -> Life:
    life = Life(place)
    life.put("work.py", WORK)
    step = {"id": "work", "run": [sys.executable, "work.py", how], **DECLARED[declared]}
    (place / "plan").write_text(json.dumps({"tasks": [{"title": "t", "steps": [step]}]}))
    return life


@contextmanager
def container(*lives: Life) -> Iterator[None]:
    """All are cut off in it, with their keepers. Where it ends, the kernel ends all that was begun there."""
    need_namespaces()
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m"]
    command += ["tests.hostile.container", *(os.fspath(life.place) for life in lives)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline().strip() == READY
        for life in lives:
            life.id = (life.place / "session").read_text()
        yield
    finally:
        process.communicate("")


def in_flight(life: Life) -> tuple[str, str, str]:
    survey = life.look().survey
    assert survey is not None
    (one,) = survey.continuation.in_flight
    return str(one.outcome), str(one.action), one.evidence


def test_a_command_of_another_container_is_waited_for_although_its_pid_shows_nothing_here(tmp_path: Path) -> None:
    lives = [life_in(tmp_path / name, "seen", name) for name in DECLARED]
    with container(*lives):
        for life in lives:
            outcome, action, evidence = in_flight(life)
            assert (outcome, action) == ("unknown", "wait"), evidence
            assert "still running, pid" in evidence and "of another container" in evidence
        again = lives[1]
        again.ears.at("step_waiting", lambda: again.put("door", ""))
        assert again.resume().exit_code == 0
        assert again.settled("t.work") == ["retry_accepted"], "it is idempotent, and was repeated after its end"


def test_what_cannot_be_seen_in_another_container_is_settled_as_after_a_boot_and_said(tmp_path: Path) -> None:
    """One whose container has ended, and one that lives on and cannot be seen, look the same."""
    ended = {name: life_in(tmp_path / "ended" / name, "seen", name) for name in DECLARED}
    hidden = {name: life_in(tmp_path / "hidden" / name, "hidden", name) for name in DECLARED}
    with container(*ended.values()):
        pass
    with container(*hidden.values()):
        for lives in (ended, hidden):
            found = {name: in_flight(life) for name, life in lives.items()}
            assert all("in another container, where the command may" in evidence for _, _, evidence in found.values())
            assert {name: action for name, (_, action, _) in found.items()} == {
                "plain": "ask",
                "idempotent": "retry",
                "outputs": "rollback_and_retry",
                "probe": "retry",
            }
            with pytest.raises(OutcomeUnknown) as asked:
                lives["plain"].resume(actor="system")
            assert asked.value.exit_code == 19
            assert lives["plain"].effects() == {"t.work": 1}, "nobody has decided that it may be repeated"


def test_a_mark_without_a_namespace_is_judged_as_before(tmp_path: Path) -> None:
    me, since = os.getpid(), lock.process_started(os.getpid())
    old = keeper_notes.Mark(keeper=me, since=0.0, command=me, command_started=since)
    assert "still running" in (keeper_notes.still_running(tmp_path, old) or "")
    other_boot = msgspec.structs.replace(old, boot_id="another", pid_namespace=lock.pid_namespace())
    assert keeper_notes.still_running(tmp_path, other_boot) is None, "the process of this number is another boot's"
    here = msgspec.structs.replace(other_boot, boot_id=lock.boot_id())
    assert "still running" in (keeper_notes.still_running(tmp_path, here) or "")


def test_a_git_of_another_container_that_holds_its_lock_is_not_taken_for_a_child_of_a_hook(tmp_path: Path) -> None:
    with commit.alive(tmp_path) as held:
        assert held is not None
        commit.mark_started(tmp_path, os.getpid())
        assert f"pid {os.getpid()}, since" in (commit.still_running(tmp_path) or "")
        mark = json.loads((tmp_path / "started").read_text())
        gone = {**mark, "command_started": 1.0}
        (tmp_path / "started").write_text(json.dumps(gone))
        assert commit.still_running(tmp_path) is None, "here it can be seen that git has ended"
        (tmp_path / "started").write_text(json.dumps({**gone, "pid_namespace": "pid:[1]"}))
        assert "of another container" in (commit.still_running(tmp_path) or "")
    assert commit.still_running(tmp_path) is None, "nobody holds the lock: git is gone, wherever it was"

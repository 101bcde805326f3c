"""Two containers share a workspace: a pid of one is never taken for a process of the other."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from acode import lock
from acode.errors import LockForeignProcess, SessionLocked

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


def test_the_owner_in_another_pid_namespace_is_neither_dead_nor_somebody_else(tmp_path: Path) -> None:
    if sys.platform != "linux" or os.geteuid() != 0:
        assert "CI" not in os.environ, "CI runs as root"
        pytest.skip("only root makes a pid namespace")
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

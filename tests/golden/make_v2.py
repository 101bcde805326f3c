"""Write the version-2 golden database with the engine of version 2, killed in the middle of a step.

    PYTHONPATH=src:. python3 tests/golden/make_v2.py tests/golden/sessions/v2.db

The file is committed, and every later version must read it and carry it on. A new one is made only until the version
is shipped; afterwards the next version gets a script of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw

from acode import lock
from acode.engine.create import run_plan
from acode.engine.world import Nobody
from acode.seal import SECRET_VARIABLE
from acode.store import checkpoints as ck
from tests.golden.make_v1 import SECRET
from tests.worlds import plan_file, world

PLAN = """
title: Greet, ask and wait
tasks:
  - title: Prepare
    steps:
      - write: {path: greeting.txt, content: "hello\\n"}
      - approve: Go on?
      - run: cat greeting.txt
        idempotent: true
  - title: Finish
    steps:
      - run: touch begun; while [ ! -e go ]; do sleep 0.01; done; echo done > done.txt
        idempotent: true
      - write: {path: end.txt, content: "end\\n"}
"""


class Yes(Nobody):
    def approve(self, session: Any, step: str, question: str, covers: list[str]) -> Any:
        return "yes"


def nameless() -> None:
    """The machine it was made on stays out of it."""
    lock.host_name = lambda: "golden"
    lock.user_name = lambda: "you"
    lock.boot_id = lambda: "golden-boot"


def run_until_killed(place: Path) -> None:
    nameless()
    ck.SNAPSHOT_BYTES_MIN = 512  # so that the golden database holds snapshots too
    ticks = iter(range(10_000))
    env = {"PATH": os.environ["PATH"], "HOME": str(place), SECRET_VARIABLE: SECRET}
    begun = datetime(2026, 2, 1, 9, tzinfo=UTC)
    made = world(place, env=env, answers=Yes(), clock=lambda: begun + timedelta(seconds=next(ticks)))
    run_plan(made, plan_file(PLAN))


def main(target: str) -> None:
    place = Path(tempfile.mkdtemp())
    child = os.fork()
    if child == 0:
        run_until_killed(place)
        os._exit(0)
    while not (place / "workspace" / "begun").exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (place / "workspace" / "go").touch()  # so that the command, which lives on under its keeper, ends
    database = place / "workspace" / ".agent" / "workspace.db"
    db = apsw.Connection(str(database))
    db.pragma("user_version")  # only after a first look does a connection know of the WAL
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()
    shutil.copyfile(database, target)
    while not (place / "workspace" / "done.txt").exists():
        time.sleep(0.01)
    shutil.rmtree(place)


if __name__ == "__main__":
    main(sys.argv[1])

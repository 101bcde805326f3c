"""Write the version-7 golden database with the library of version 7: a program that ended, and one that was killed.

    PYTHONPATH=src:. python3 tests/golden/make_v7.py tests/golden/sessions/v7.db

The file is committed, and every later version must read it and carry it on. A new one is made only until the version
is shipped; afterwards the next version gets a script of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import apsw

import acode
from acode.seal import SECRET_VARIABLE
from tests.golden.make_v1 import SECRET
from tests.golden.make_v2 import nameless

ENDED, KILLED = "nightly", "hourly"


def run_until_killed(workspace: Path) -> None:
    nameless()
    with acode.session(ENDED, workspace=workspace) as session:
        session.step("fetch", lambda: 1)
    with acode.session(KILLED, workspace=workspace) as session:
        session.step("fetch", lambda: 2)
        session.step("send", lambda: os.kill(os.getpid(), signal.SIGKILL), idempotent=True)


def main(target: str, run: Callable[[Path], None] = run_until_killed) -> None:
    place = Path(tempfile.mkdtemp())
    os.environ.update({"HOME": str(place), "ACODE_HOME": str(place / "state"), SECRET_VARIABLE: SECRET})
    workspace = place / "workspace"
    workspace.mkdir()
    child = os.fork()
    if child == 0:
        run(workspace)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    database = workspace / ".agent" / "workspace.db"
    db = apsw.Connection(str(database))
    db.pragma("user_version")  # only after a first look does a connection know of the WAL
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()
    shutil.copyfile(database, target)
    shutil.rmtree(place)


if __name__ == "__main__":
    main(sys.argv[1])

"""Write the version-8 golden database with the library of version 8: a program that ended, and one that was killed.

    PYTHONPATH=src:. python3 tests/golden/make_v8.py tests/golden/sessions/v8.db

The file is committed, and every later version must read it and carry it on. A new one is made only until the version
is shipped; afterwards the next version gets a script of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import acode
from tests.golden.make_v2 import nameless
from tests.golden.make_v7 import ENDED, KILLED, main

STEPS = 60
PAYLOAD = "x" * 1_000


def paid(number: int) -> str:
    return f"{number} {PAYLOAD}"


async def pay_at_once(session: acode.Session) -> None:
    await asyncio.gather(*(asyncio.to_thread(session.step, f"part-{one}", paid, one) for one in range(5)))


def run_until_killed(workspace: Path) -> None:
    """Enough steps for rows of checkpoints, a snapshot and the index; the last ones stand behind them."""
    nameless()
    with acode.session(ENDED, workspace=workspace) as session:
        for number in range(STEPS):
            session.step("pay", paid, number)
    with acode.session(KILLED, workspace=workspace) as session:
        for number in range(STEPS):
            session.step("pay", paid, number)
        asyncio.run(pay_at_once(session))
        session.run("true", idempotent=True)
        session.step("send", lambda: os.kill(os.getpid(), signal.SIGKILL), idempotent=True)


if __name__ == "__main__":
    main(sys.argv[1], run_until_killed)

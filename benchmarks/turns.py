"""One contender of `against`: it performs so many steps whenever it is told to, and says what they cost.

    python turns.py KIND DIRECTORY < numbers of steps, one in a line

KIND is `idempotent`, `not_idempotent`, or `bare:BYTES`: commits of one row of so many bytes, with full durability; or
`first`: a new session with one step, after which the process is ready. Only acode's public names are used, so that any
version of it can be measured; which one, says PYTHONPATH.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

PAYLOAD = "x" * 1_000
FIRST_STEPS = 600  # by then everything is loaded, and the WAL file of every contender is as long as it gets


def main(kind: str, directory: str) -> None:
    if kind.startswith("bare:"):
        take_turns(bare(directory, int(kind.removeprefix("bare:"))))
        return
    import acode

    os.environ["ACODE_HOME"] = os.path.join(directory, "state")
    with acode.session("turns", workspace=os.path.join(directory, "workspace")) as session:
        if kind == "first":
            session.step("work", work, 0)
            print("ready", flush=True)
        else:
            take_turns(lambda number: session.step("work", work, number, idempotent=kind == "idempotent"))


def take_turns(step: Callable[[int], object]) -> None:
    for number in range(FIRST_STEPS):
        step(number)
    done = FIRST_STEPS
    print("ready", flush=True)
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for number in range(done, done + int(line)):
            step(number)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        done += int(line)
        print(wall, cpu, flush=True)


def work(number: int) -> str:
    return PAYLOAD


def bare(directory: str, size: int) -> Callable[[int], object]:
    import apsw

    db, text = apsw.Connection(os.path.join(directory, "bare.db")), "x" * size
    db.execute("PRAGMA journal_mode=wal")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)")

    def commit(number: int) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO log(body) VALUES (?)", (text,))
        db.execute("COMMIT")

    return commit


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

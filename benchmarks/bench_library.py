"""The library's price: steps that return 1 KiB beside bare commits of the same bytes, an import, and a long resume."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

import acode
from benchmarks.places import place

STEPS = 1_000
LONG_STEPS = 10_000
ROUNDS = 3
PAYLOAD = "x" * 1_000

IMPORT = "import time; t = time.perf_counter(); import acode; print(time.perf_counter() - t)"
LONG = """
import os, sys, time
import acode

def work(n):
    if os.environ.get("STOP") == str(n):
        os._exit(9)
    if n == int(os.environ.get("UNTIL", -1)):
        print(time.time())
        os._exit(9)
    return "x" * 1000

with acode.session("long") as s:
    for n in range(int(sys.argv[1]) + 1):
        s.step("work", work, n, idempotent=True)
"""


def measure() -> dict[str, Any]:
    return {
        "idempotent": beside_bare(idempotent=True),
        "not_idempotent": beside_bare(idempotent=False),
        "import_ms": import_ms(),
        "resume_10_000": long_resume(),
    }


class Bare:
    """A log of its own with full durability: what a step costs that is nothing but its commit."""

    def __init__(self, path: Path, size: int) -> None:
        self._body = "x" * size
        self._db = apsw.Connection(os.fspath(path / "bare.db"))
        self._db.execute("PRAGMA journal_mode=wal")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)")

    def commit(self) -> float:
        before = time.perf_counter()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO log(body) VALUES (?)", (self._body,))
        self._db.execute("COMMIT")
        return time.perf_counter() - before


def beside_bare(*, idempotent: bool) -> dict[str, Any]:
    """Steps and bare commits take turns: what the disk does to one of them it does to the other."""
    size = round(bytes_per_step(idempotent=idempotent))
    step_s, bare_s = list[float](), list[float]()
    for _ in range(ROUNDS):
        with place() as path, at_home(path):
            bare = Bare(path, size)
            with acode.session("bench", workspace=path / "workspace") as s:
                for number in range(STEPS):
                    before = time.perf_counter()
                    s.step("work", work, number, idempotent=idempotent)
                    step_s.append(time.perf_counter() - before)
                    bare_s.append(bare.commit())
    return {
        "step_ms_median": round(statistics.median(step_s) * 1000, 4),
        "bare_commit_ms_median": round(statistics.median(bare_s) * 1000, 4),
        "ratio_of_medians": round(statistics.median(step_s) / statistics.median(bare_s), 3),
        "ratio_of_means": round(statistics.mean(step_s) / statistics.mean(bare_s), 3),
        "steps_per_second": round(1 / statistics.mean(step_s)),
        "bytes_per_step": size,
        "steps": len(step_s),
    }


def work(number: int) -> str:
    return PAYLOAD


@contextmanager
def at_home(path: Path) -> Iterator[None]:
    """Keys and anchors of the benchmark's own."""
    before = os.environ.get("ACODE_HOME")
    os.environ["ACODE_HOME"] = os.fspath(path / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["ACODE_HOME"]
        else:
            os.environ["ACODE_HOME"] = before


def bytes_per_step(*, idempotent: bool) -> float:
    """What a step leaves in the log: its events and its checkpoint."""
    with place() as path, at_home(path):
        with acode.session("bench", workspace=path / "workspace") as s:
            for number in range(STEPS):
                s.step("work", work, number, idempotent=idempotent)
        db = apsw.Connection(os.fspath(path / "workspace/.agent/workspace.db"))
        total = 0
        for table in ("events", "checkpoints"):
            total += next(iter(db.execute(f"SELECT sum(length(body)) FROM {table}")))[0]
        return total / STEPS


def import_ms() -> float:
    found = [float(run([sys.executable, "-c", IMPORT], dict(os.environ)).stdout) for _ in range(15)]
    return round(statistics.median(found) * 1000, 2)


def long_resume() -> dict[str, Any]:
    """From the start of the process to the first step that is not on record."""
    with place() as path:
        program = path / "long.py"
        program.write_text(LONG)
        seen = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        env = {**os.environ, "ACODE_HOME": os.fspath(path / "state"), "PYTHONPATH": seen}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, os.fspath(program), str(LONG_STEPS)]
        run(command, {**env, "STOP": str(LONG_STEPS)}, cwd=path / "workspace")
        taken = []
        for _ in range(2):  # a third attempt without progress would be refused
            began = time.time()
            ended = run(command, {**env, "UNTIL": str(LONG_STEPS)}, cwd=path / "workspace")
            taken.append(float(ended.stdout) - began)
    return {"first_new_step_ms": round(min(taken) * 1000), "steps": LONG_STEPS}


def run(command: list[str], env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, check=False, capture_output=True, text=True)

"""The price of durability: plan steps of kind read and bare commits of the same bytes, taking turns in one run."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import apsw

from acode.engine import Notice, run_plan
from acode.planfile import PlanFile
from benchmarks.places import place, reading_plan, world

STEPS = 600
ROUNDS = 3


def measure() -> dict[str, Any]:
    size = round(bytes_per_step())
    step_s, bare_s = list[float](), list[float]()
    for _ in range(ROUNDS):
        with place() as path:
            turns = Turns(path, size)
            run_steps(path, turns)
            step_s.extend(turns.step_s)
            bare_s.extend(turns.bare_s)
    return {
        "step_ms_median": round(statistics.median(step_s) * 1000, 4),
        "bare_commit_ms_median": round(statistics.median(bare_s) * 1000, 4),
        "ratio_of_medians": round(statistics.median(step_s) / statistics.median(bare_s), 3),
        "ratio_of_means": round(statistics.mean(step_s) / statistics.mean(bare_s), 3),
        "bytes_per_step": size,
        "steps": len(step_s),
    }


class Turns:
    """After each step one bare commit: what the disk does to one of them it does to the other."""

    def __init__(self, path: Path, size: int) -> None:
        self.step_s: list[float] = []
        self.bare_s: list[float] = []
        self._body = "x" * size
        self._since: float | None = None
        self._db = apsw.Connection(os.fspath(path / "bare.db"))
        self._db.execute("PRAGMA journal_mode=wal")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)")

    def tell(self, notice: Notice) -> None:
        if notice.event != "step_completed":
            return
        now = time.perf_counter()
        if self._since is not None:
            self.step_s.append(now - self._since)
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("INSERT INTO log(body) VALUES (?)", (self._body,))
        self._db.execute("COMMIT")
        self._since = time.perf_counter()
        self.bare_s.append(self._since - now)

    def durable(self, seq: int) -> None:
        pass


def run_steps(path: Path, listener: Any = None) -> None:
    (path / "workspace" / "a.txt").write_text("hello\n" * 20)
    run_plan(world(path, listener), PlanFile(plan=reading_plan(STEPS), path="plan.yml", sha256="0" * 64))


def bytes_per_step() -> float:
    """What a step leaves in the log: its events and its checkpoint."""
    with place() as path:
        run_steps(path)
        db = apsw.Connection(os.fspath(path / "workspace/.agent/workspace.db"))
        total = 0
        for table in ("events", "checkpoints"):
            total += next(iter(db.execute(f"SELECT sum(length(body)) FROM {table}")))[0]
        return total / STEPS

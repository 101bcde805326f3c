"""The price of durability: plan steps of kind read and bare commits of the same bytes, taking turns in one run.

What a bare commit is stands in `bare`. A step is timed from one completion that was told to the next: the reading of
the file, the transaction with its sync, and all of acode in between.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from acode.engine.create import run_plan
from acode.engine.notices import Notice, StepCompleted
from acode.planfile import PlanFile
from benchmarks.bare import Bare, Floor, Left, ratios
from benchmarks.places import place, reading_plan, world

STEPS = 600
ROUNDS = 3


def measure() -> dict[str, Any]:
    left = left_by_a_step()
    step_s, bare_s = beside(left, "one_row")
    beside_s, rows_s = beside(left, "same_rows")
    median = statistics.median
    return {
        "step_ms_median": round(median(step_s) * 1000, 4),
        "bare_commit_ms_median": round(median(bare_s) * 1000, 4),
        **ratios(step_s, bare_s, ROUNDS),
        "ratio_to_same_rows": round(median(beside_s) / median(rows_s), 3),
        "bytes_per_step": left.total_bytes,
        "steps": len(step_s),
    }


def beside(left: Left, floor: Floor) -> tuple[list[float], list[float]]:
    """Seconds of the steps, and of the bare commits between them."""
    step_s, bare_s = list[float](), list[float]()
    for _ in range(ROUNDS):
        with place() as path:
            turns = Turns(Bare(path, left, floor))
            run_steps(path, turns)
            step_s.extend(turns.step_s)
            bare_s.extend(turns.bare_s)
    return step_s, bare_s


class Turns:
    """After each step one bare commit: what the disk does to one of them it does to the other."""

    def __init__(self, bare: Bare) -> None:
        self.step_s: list[float] = []
        self.bare_s: list[float] = []
        self._bare = bare
        self._since: float | None = None

    def emit(self, notice: Notice) -> None:
        if not isinstance(notice.body, StepCompleted):
            return
        if self._since is not None:
            self.step_s.append(time.perf_counter() - self._since)
        self.bare_s.append(self._bare.commit())
        self._since = time.perf_counter()

    def durable(self, seq: int) -> None:
        pass


def run_steps(path: Path, listener: Any = None) -> None:
    (path / "workspace" / "a.txt").write_text("hello\n" * 20)
    run_plan(world(path, listener), PlanFile(plan=reading_plan(STEPS), path="plan.yml", sha256="0" * 64))


def left_by_a_step() -> Left:
    with place() as path:
        run_steps(path)
        return Left(path / "workspace/.agent/workspace.db", steps=STEPS, named=False)

"""The price of durability: one plan step of kind read beside a bare commit of the same bytes, interleaved in one run."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import apsw

from acode.engine import run_plan
from acode.planfile import PlanFile
from benchmarks.places import Silence, place, reading_plan, world

STEPS = 400
ROUNDS = 5


def measure() -> dict[str, Any]:
    step_us, bare_us, bytes_per_step = list[float](), list[float](), 0.0
    for _ in range(ROUNDS):
        with place() as path:
            (path / "workspace" / "a.txt").write_text("hello\n" * 20)
            steps, bytes_per_step = plan_steps(path)
            step_us.extend(steps)
            bare_us.extend(bare_commits(path, round(bytes_per_step)))
    return {
        "step_us_median": round(statistics.median(step_us), 1),
        "bare_commit_us_median": round(statistics.median(bare_us), 1),
        "ratio_of_medians": round(statistics.median(step_us) / statistics.median(bare_us), 3),
        "ratio_of_means": round(statistics.mean(step_us) / statistics.mean(bare_us), 3),
        "bytes_per_step": round(bytes_per_step),
        "steps": len(step_us),
    }


def plan_steps(path: Path) -> tuple[list[float], float]:
    listener = Silence()
    run_plan(world(path, listener), PlanFile(plan=reading_plan(STEPS), path="plan.yml", sha256="0" * 64))
    at = listener.completed_at
    db = apsw.Connection(os.fspath(path / "workspace/.agent/workspace.db"))
    rows = db.execute("SELECT (SELECT sum(length(body)) FROM events) + (SELECT sum(length(body)) FROM checkpoints)")
    return [(b - a) * 1e6 for a, b in zip(at, at[1:], strict=False)], float(rows.fetchone()[0]) / STEPS  # type: ignore[index, arg-type]


def bare_commits(path: Path, size: int) -> list[float]:
    """What nobody can undercut: one row, one transaction, WAL and FULL, the same number of bytes."""
    db = apsw.Connection(os.fspath(path / "bare.db"))
    db.execute("PRAGMA journal_mode=wal")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)")
    body, taken = "x" * size, list[float]()
    for _ in range(STEPS):
        before = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO log(body) VALUES (?)", (body,))
        db.execute("COMMIT")
        taken.append((time.perf_counter() - before) * 1e6)
    return taken

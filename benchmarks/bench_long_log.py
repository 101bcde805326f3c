"""`acode status` of agent-memory runs with a long log, beside 0.1: processor time of the whole command, in turns.

Two runs of 440,000 events of 2,000 tasks in two files, 110 MB each. In one the tasks are worked on eight at a time, as
agents do it; in the other every event may be of any task, which no run is like: most is read again then.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.against import FIRST_RELEASE, ROOT, of_children, source_of
from benchmarks.places import place

EVENTS, TASKS, TASKS_AT_ONCE = 440_000, 2_000, 8
ROUNDS = 3
ACTORS = {
    "executor": ["task_claimed", "task_started", "task_implemented", "task_failed", "tool_call", "tool_call"],
    "verifier": ["task_verified", "task_verified", "task_completed", "task_blocked", "tool_call"],
}
NOTE = "the check of the module was run with the settings of this task and its output kept below"


def measure() -> dict[str, Any]:
    with place() as path, source_of(FIRST_RELEASE) as earlier:
        sources = {"now": str(ROOT / "src"), "then": earlier}
        runs = {
            "eight_at_a_time": make_run(path / "workspace", "20260101-0000-eight-a1b2", TASKS_AT_ONCE),
            "any_task": make_run(path / "workspace", "20260101-0000-any-c3d4", TASKS),
        }
        return {name: beside_each_other(path, run, sources) for name, run in runs.items()}


def make_run(workspace: Path, name: str, at_once: int) -> str:
    """Each of two actors writes half of the events, in order of time, some of them in the same second."""
    chance, half = random.Random(7), EVENTS // 2  # the same log each time
    for actor, kinds in ACTORS.items():
        folder = workspace / ".agent-memory" / "runs" / name / "events" / actor
        folder.mkdir(parents=True)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        with (folder / "20260101-0000.jsonl").open("w", encoding="utf-8") as file:
            for number in range(half):
                at += timedelta(seconds=chance.choice((0, 1, 1, 2, 3)))
                task = (number * TASKS // half + chance.randrange(at_once)) % TASKS
                event = {
                    "type": chance.choice(kinds),
                    "event_id": f"{chance.getrandbits(128):032x}",
                    "timestamp": f"{at:%Y-%m-%dT%H:%M:%SZ}",
                    "actor": actor,
                    "task_id": f"T{task:04d}",
                    "details": {"note": NOTE[: chance.randrange(60, len(NOTE))]},
                }
                file.write(json.dumps(event) + "\n")
    return name


def beside_each_other(path: Path, run: str, sources: dict[str, str]) -> dict[str, Any]:
    for source in sources.values():  # each leaves its bytecode behind
        of_status(path, run, source)
    turns = [{name: of_status(path, run, source) for name, source in sources.items()} for _ in range(ROUNDS)]
    figures = {f"{name}_s": round(statistics.median(turn[name] for turn in turns), 2) for name in sources}
    return {**figures, "times_as_fast": round(statistics.median(turn["then"] / turn["now"] for turn in turns), 2)}


def of_status(path: Path, run: str, source: str) -> float:
    env = {**os.environ, "PYTHONPATH": source, "ACODE_HOME": str(path / "state")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "acode", "status", run, "-C", str(path / "workspace")]
    before = of_children()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return of_children() - before


def shown(figures: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {found['now_s']} s, in 0.1 {found['then_s']} s: {found['times_as_fast']} times as fast"
        for name, found in figures.items()
    ]

"""`acode status` of agent-memory runs with a long log, beside 0.1: time and processor time of the command, in turns.

Two runs of 440,000 events of 2,000 tasks in two files, 110 MB each. In one the tasks are worked on eight at a time, as
agents do it; in the other every event may be of any task, which no run is like: most is read again then. A first look
folds all of it, on two cores where they are free; later ones continue from what the first one left, and read and hash
the rest. The most memory is that of one process: a first look is a second one for as long as it folds.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.against import FIRST_RELEASE, ROOT, source_of
from benchmarks.places import place

EVENTS, TASKS, TASKS_AT_ONCE = 440_000, 2_000, 8
ROUNDS = 3
ACTORS = {
    "executor": ["task_claimed", "task_started", "task_implemented", "task_failed", "tool_call", "tool_call"],
    "verifier": ["task_verified", "task_verified", "task_completed", "task_blocked", "tool_call"],
}
Cost = tuple[float, float, float]
"""Seconds, seconds of the processor with that of a worker, and megabytes of the largest process."""
NOTE = "the check of the module was run with the settings of this task and its output kept below"


def measure() -> dict[str, Any]:
    with place() as path, source_of(FIRST_RELEASE) as earlier:
        sources = {"now": str(ROOT / "src"), "then": earlier}
        runs = {
            "eight_at_a_time": Log(path / "workspace", "20260101-0000-eight-a1b2", TASKS_AT_ONCE),
            "any_task": Log(path / "workspace", "20260101-0000-any-c3d4", TASKS),
        }
        return {name: beside_each_other(path, run, sources) for name, run in runs.items()}


class Log:
    """A run. Each of two actors writes half of the events, in order of time, some of them in the same second."""

    def __init__(self, workspace: Path, name: str, at_once: int) -> None:
        self.name = name
        self._chance = random.Random(7)  # the same log each time
        self._at_once = at_once
        self._files = {
            actor: workspace / ".agent-memory" / "runs" / name / "events" / actor / "20260101-0000.jsonl"
            for actor in ACTORS
        }
        self._times = dict.fromkeys(ACTORS, datetime(2026, 1, 1, tzinfo=UTC))
        self.append(EVENTS)

    def append(self, events: int) -> None:
        for actor, file in self._files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as lines:
                for number in range(events // 2):
                    event = self._event(actor, number * TASKS // (events // 2))
                    lines.write(json.dumps(event) + "\n")

    def _event(self, actor: str, first_task: int) -> dict[str, Any]:
        chance = self._chance
        self._times[actor] += timedelta(seconds=chance.choice((0, 1, 1, 2, 3)))
        task = (first_task + chance.randrange(self._at_once)) % TASKS
        return {
            "type": chance.choice(ACTORS[actor]),
            "event_id": f"{chance.getrandbits(128):032x}",
            "timestamp": f"{self._times[actor]:%Y-%m-%dT%H:%M:%SZ}",
            "actor": actor,
            "task_id": f"T{task:04d}",
            "details": {"note": NOTE[: chance.randrange(60, len(NOTE))]},
        }


def beside_each_other(path: Path, log: Log, sources: dict[str, str]) -> dict[str, Any]:
    for source in sources.values():  # each leaves its bytecode behind
        of_status(path, log.name, source)
    turns = [one_turn(path, log, sources) for _ in range(ROUNDS)]
    return {look: of_look(turns, look) for look in turns[0]}


def of_look(turns: list[dict[str, Cost]], look: str) -> dict[str, float]:
    """The medians of the turns, and of how many times as fast as 0.1 the look was in each."""
    found: dict[str, float] = {}
    for at, what in enumerate(("wall", "cpu")):
        found[f"{what}_s"] = round(statistics.median(turn[look][at] for turn in turns), 2)
        if look != "then":
            ratio = statistics.median(turn["then"][at] / turn[look][at] for turn in turns)
            found[f"{what}_times_as_fast"] = round(ratio, 2)
    return {**found, "memory_mb": round(statistics.median(turn[look][2] for turn in turns))}


def one_turn(path: Path, log: Log, sources: dict[str, str]) -> dict[str, Cost]:
    """A look of 0.1; a first look, a second, and one after the log became a hundredth longer."""
    then = of_status(path, log.name, sources["then"])
    shutil.rmtree(path / "state" / "cache", ignore_errors=True)
    first, again = (of_status(path, log.name, sources["now"]) for _ in range(2))
    log.append(EVENTS // 100)
    return {"then": then, "first": first, "again": again, "appended": of_status(path, log.name, sources["now"])}


def of_status(path: Path, run: str, source: str) -> Cost:
    env = {**os.environ, "PYTHONPATH": source, "ACODE_HOME": str(path / "state")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "acode", "status", run, "-C", str(path / "workspace")]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def shown(figures: dict[str, Any]) -> list[str]:
    looks = {"first": "first look", "again": "second look", "appended": "after 1 % more"}
    return [
        f"{name}: 0.1 {found['then'][f'{what}_s']} s {words}; "
        + "; ".join(
            f"{shown_as} {found[look][f'{what}_s']} s, {found[look][f'{what}_times_as_fast']} times as fast"
            for look, shown_as in looks.items()
        )
        for name, found in figures.items()
        for what, words in (("wall", "of time"), ("cpu", "of the processor"))
    ]

"""What the start of a short command costs: `session list` beside bare imports, and the looks beside `session list`.

Processor time of the whole process, in turns; how long a person waits is in `session_list_ms` and `floor_ms`.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.places import make_session, place

ROUNDS = 15
FLOOR = [sys.executable, "-c", "import sqlite3, json, argparse"]
LOOKS = {"status": ["status"], "explain": ["explain"], "dry_run": ["resume", "--dry-run"]}


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def measure() -> dict[str, Any]:
    with place() as path:
        make_session(path, 200, 20)
        return beside_list(path, ROUNDS)


def beside_list(path: Path, rounds: int) -> dict[str, Any]:
    """All commands once in every round, so that a busy moment is shared by all of them."""
    acode = [sys.executable, "-m", "acode", "-C", str(path / "workspace")]
    commands = {
        "floor": FLOOR,
        "list": [*acode[:3], "session", "list", *acode[3:]],
        **{name: [*acode, *words] for name, words in LOOKS.items()},
    }
    env = environment(path)
    costs = {name: list[Cost]() for name in commands}
    for command in commands.values():
        run_once(command, env)  # writes the bytecode
    for _ in range(rounds):
        for name, command in commands.items():
            costs[name].append(run_once(command, env))
    listed = statistics.median(one.cpu_s for one in costs["list"])
    wall = {name: statistics.median(one.wall_s for one in costs[name]) for name in ("floor", "list")}
    return {
        "session_list_ms": round(wall["list"] * 1000, 1),
        "floor_ms": round(wall["floor"] * 1000, 1),
        "ratio": round(wall["list"] / wall["floor"], 2),
        "cpu_ms": {name: round(statistics.median(one.cpu_s for one in costs[name]) * 1000, 1) for name in costs},
        "beside_list": {name: round(statistics.median(one.cpu_s for one in costs[name]) / listed, 2) for name in LOOKS},
    }


def environment(path: Path) -> dict[str, str]:
    env = {**os.environ, "ACODE_HOME": str(path / "state")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # without its bytecode cache every program starts twice as slowly
    return env


def run_once(command: list[str], env: dict[str, str]) -> Cost:
    before, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return Cost(time.perf_counter() - before, cpu_s)

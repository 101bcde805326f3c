"""What hook and front cost an agent for each call, beside a Python that imports what the simplest hook would need.

CPU time, because a hook waits for the disk: that of the hook and of the resident which it asks, and that of the front
without the shell behind it. Everything is interleaved in one run.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acode.observed.doors import Doors, write_doors
from benchmarks.places import place

CALLS = 100
FLOOR = [sys.executable, "-c", "import sqlite3, json, hashlib"]
LEARNING_S = 1.5  # until the resident has loaded what the first calls needed


def measure() -> dict[str, Any]:
    with place() as path:
        # A root of its own: the project around it would get the session, and keep it without the key that goes away.
        (path / "workspace" / ".git").mkdir(parents=True)
        doors = write_doors(path / "state")
        env = {**os.environ, "ACODE_HOME": str(path / "state")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # without its bytecode cache every program starts twice as slowly
        call(doors, path, env, "SessionStart")
        for number in range(3):
            for event in ("PreToolUse", "PostToolUse"):
                call(doors, path, env, event, f"warm-{number}")
        time.sleep(LEARNING_S)
        shell = os.fspath(doors.directory / "shells" / "bash")
        floor, hooks, fronts, shells = list[float](), list[float](), list[float](), list[float]()
        resident = resident_cpu_s(doors)
        for number in range(CALLS):
            floor.append(cpu_s(FLOOR, env))
            hooks.append(call(doors, path, env, "PreToolUse", str(number)))
            fronts.append(cpu_s([shell, "-c", "true"], env))
            shells.append(cpu_s(["bash", "-c", "true"], env))
            hooks.append(call(doors, path, env, "PostToolUse", str(number)))
        resident = (resident_cpu_s(doors) - resident) / (2 * CALLS)
    floor_s, hook_s = statistics.median(floor), statistics.median(hooks) + resident
    front_s = statistics.median(fronts) - statistics.median(shells)
    return {
        "calls": CALLS,
        "floor_ms": round(floor_s * 1000, 1),
        "hook_ms": round(hook_s * 1000, 1),
        "front_ms": round(front_s * 1000, 1),
        "hook_ratio": round(hook_s / floor_s, 2),
        "front_ratio": round(front_s / floor_s, 2),
    }


def call(doors: Doors, path: Path, env: dict[str, str], event: str, number: str = "") -> float:
    told: dict[str, Any] = {"session_id": "bench", "cwd": str(path / "workspace"), "hook_event_name": event}
    if number:
        told |= {"tool_name": "Bash", "tool_input": {"command": f"echo {number}"}, "tool_use_id": number}
    return cpu_s([os.fspath(doors.hook)], env, json.dumps(told).encode())


def cpu_s(command: list[str], env: dict[str, str], told: bytes = b"") -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=env, input=told, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def resident_cpu_s(doors: Doors) -> float:
    """Of the resident and of all the processes that it has forked; it is known by the doors on its command line."""
    total = 0.0
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
            if b"hook_entry" in line and os.fsencode(doors.directory) in line:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        except OSError:
            continue
    return total


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))

"""What a command costs: plans of `run: true`, in processor time of acode, its keepers and the commands together.

The same command without acode stands beside it. `ACODE_BENCH_BESIDE` names the `src` directory of another acode, a
checkout of an earlier version for instance, which is then measured in turns with this one. `ACODE_BENCH_COMMANDS` is
another number than 200.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.bench_cold_start import environment
from benchmarks.places import place

COMMANDS = int(os.environ.get("ACODE_BENCH_COMMANDS", "200"))
ROUNDS = 3
PR_SET_CHILD_SUBREAPER = 36
OURS = str(Path(__file__).resolve().parent.parent / "src")


def measure() -> dict[str, Any]:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # keepers that outlive acode are counted too
    contenders = {"acode": OURS}
    if beside := os.environ.get("ACODE_BENCH_BESIDE"):
        contenders["beside"] = beside
    costs = {name: list[float]() for name in contenders}
    for _ in range(ROUNDS):
        for name, source in contenders.items():
            with place() as path:
                costs[name].append(of_plan(path, source, COMMANDS) - of_plan(path, source, 0))
    bare = statistics.median(of_bare() for _ in range(ROUNDS))
    medians = {name: statistics.median(some) / COMMANDS * 1000 for name, some in costs.items()}
    return {
        "commands": COMMANDS,
        "bare_cpu_ms": round(bare / COMMANDS * 1000, 2),
        **{f"{name}_cpu_ms": round(value, 2) for name, value in medians.items()},
        **({"ratio": round(medians["acode"] / medians["beside"], 3)} if "beside" in medians else {}),
    }


def of_plan(path: Path, source: str, commands: int) -> float:
    """Of a plan with so many commands and one write."""
    steps = ["      - write: {path: a.txt, content: a}\n", *["      - run: 'true'\n"] * commands]
    plan = path / "workspace" / f"plan{commands}.yml"
    plan.write_text(f"title: {commands} commands\ntasks:\n  - id: a\n    steps:\n{''.join(steps)}")
    env = {**environment(path), "PYTHONPATH": source}
    command = [sys.executable, "-m", "acode", "run", str(plan), "--yes", "-q", "-C", str(path / "workspace")]
    return cpu_of(lambda: subprocess.run(command, env=env, check=True, capture_output=True))


def of_bare() -> float:
    def work() -> None:
        for _ in range(COMMANDS):
            subprocess.run(["/bin/sh", "-c", "true"], check=True)

    return cpu_of(work)


def cpu_of(work: Any) -> float:
    before = used()
    work()
    until = time.monotonic() + 5
    while time.monotonic() < until:  # a child that was left to us ends within moments
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
            continue
        break
    return used() - before


def used() -> float:
    """Of this process and of all that it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)

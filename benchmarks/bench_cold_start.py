"""How long a person waits for `acode session list`, beside a Python that only imports its standard library."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.places import make_session, place

ROUNDS = 15
FLOOR = [sys.executable, "-c", "import sqlite3, json, argparse"]


def measure() -> dict[str, Any]:
    with place() as path:
        make_session(path, 200, 20)
        env = {**os.environ, "ACODE_HOME": str(path / "state")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # without its bytecode cache every program starts twice as slowly
        listing = [sys.executable, "-m", "acode", "session", "list", "-C", str(path / "workspace")]
        run_once(listing, env)
        floor_s, list_s = list[float](), list[float]()
        for _ in range(ROUNDS):
            floor_s.append(run_once(FLOOR, env))
            list_s.append(run_once(listing, env))
    return {
        "session_list_ms": round(statistics.median(list_s) * 1000, 1),
        "floor_ms": round(statistics.median(floor_s) * 1000, 1),
        "ratio": round(statistics.median(list_s) / statistics.median(floor_s), 2),
    }


def run_once(command: list[str], env: dict[str, str]) -> float:
    before = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - before

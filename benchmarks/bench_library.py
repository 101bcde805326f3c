"""The library's price: steps that return 1 KiB beside bare commits of the same bytes, an import, and a long resume.

What a bare commit is stands in `bare`. The resume is that of a program with 10,000 finished steps, from the start of
its process to the call of the first function that has no result on record.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import acode
from benchmarks.bare import Bare, Floor, Left, ratios
from benchmarks.places import place

STEPS = 1_000
LONG_STEPS = 10_000
ROUNDS = 3
RESUMES = 7
PAYLOAD = "x" * 1_000

IMPORT = "import time; t = time.perf_counter(); import acode; print(time.perf_counter() - t)"
LONG = """
import os, sys, time
import acode

def work(n):
    if os.environ.get("STOP") == str(n):
        os._exit(9)
    if n == int(os.environ.get("UNTIL", -1)):
        print(time.time(), flush=True)
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
        "idempotent_10_000": beside_bare(idempotent=True, steps=LONG_STEPS, rounds=1),
        "import_ms": import_ms(),
        "resume_10_000": long_resume(),
    }


def beside_bare(*, idempotent: bool, steps: int = STEPS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Steps and bare commits take turns: what the disk does to one of them it does to the other."""
    left = left_by_a_step(idempotent=idempotent)
    step_s, bare_s = take_turns(left, "one_row", idempotent=idempotent, steps=steps, rounds=rounds)
    beside_s, rows_s = take_turns(left, "same_rows", idempotent=idempotent, steps=STEPS, rounds=1)
    median, mean = statistics.median, statistics.mean
    return {
        "step_ms_median": round(median(step_s) * 1000, 4),
        "bare_commit_ms_median": round(median(bare_s) * 1000, 4),
        **ratios(step_s, bare_s, rounds),
        "ratio_to_same_rows": round(median(beside_s) / median(rows_s), 3),
        "steps_per_second": round(1 / mean(step_s)),
        "bytes_per_step": left.total_bytes,
        "steps": len(step_s),
    }


def take_turns(
    left: Left, floor: Floor, *, idempotent: bool, steps: int, rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of the steps, and of the bare commits between them."""
    step_s, bare_s = list[float](), list[float]()
    for _ in range(rounds):
        with place() as path, at_home(path):
            bare = Bare(path, left, floor)
            with acode.session("bench", workspace=path / "workspace") as s:
                for number in range(steps):
                    before = time.perf_counter()
                    s.step("work", work, number, idempotent=idempotent)
                    step_s.append(time.perf_counter() - before)
                    bare_s.append(bare.commit())
    return step_s, bare_s


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


def left_by_a_step(*, idempotent: bool) -> Left:
    with place() as path, at_home(path):
        with acode.session("bench", workspace=path / "workspace") as s:
            for number in range(STEPS):
                s.step("work", work, number, idempotent=idempotent)
        return Left(path / "workspace/.agent/workspace.db", steps=STEPS, named=True)


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
        saved = path / "saved"
        for name in ("workspace", "state"):
            shutil.copytree(path / name, saved / name)
        taken = []
        for _ in range(RESUMES):
            began = time.time()
            ended = run(command, {**env, "UNTIL": str(LONG_STEPS)}, cwd=path / "workspace")
            taken.append(float(ended.stdout) - began)
            for name in ("workspace", "state"):  # as the killed run left it: attempts without progress are counted
                shutil.rmtree(path / name)
                shutil.copytree(saved / name, path / name)
            os.sync()  # or the copy would be written while the next resume is measured
    return {
        "first_new_step_ms": round(statistics.median(taken) * 1000),
        "first_new_step_ms_best": round(min(taken) * 1000),
        "steps": LONG_STEPS,
    }


def run(command: list[str], env: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, cwd=cwd, check=False, capture_output=True, text=True)

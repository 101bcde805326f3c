"""This acode against an earlier one: what a step costs, in time and in processor time, in one run.

    python3 dev.py bench against [COMMIT]      without one: 0.1

In a round all contenders live at once, each in a process and a place of its own: this acode, the one of that commit,
and bare commits of as many bytes as a step of this acode leaves in its log. They perform fifty steps at a time, in an
order that turns, so that what disturbs one disturbs all. A figure is the median of its turns, a ratio that of the
ratios turn by turn; each performs its first steps, in which everything is cold and its files grow, before the turns
begin. The read steps of a plan are measured by whole commands that take turns, and so is the first step of a new
session: from the start of the process to the end of that step, with bytecode on disk.
"""

from __future__ import annotations

import io
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_library import left_by_a_step
from benchmarks.places import place

ROOT = Path(__file__).resolve().parent.parent
FIRST_RELEASE = "3fade6f"  # 0.1, before its steps were performed in one place
ROUNDS = int(os.environ.get("ACODE_BENCH_ROUNDS", "7"))
TURNS, STEPS = 20, 50
READS = 600
STARTS = 5  # in each round
KINDS = ("idempotent", "not_idempotent")
Cost = tuple[float, float]  # seconds, and seconds of the processor


def measure(commit: str = FIRST_RELEASE) -> dict[str, Any]:
    with source_of(commit) as earlier:
        sources = {"now": str(ROOT / "src"), "then": earlier}
        found = {kind: of_kind(kind, sources) for kind in KINDS}
        found |= {"reads_of_a_plan": of_plan(sources), "first_step": of_first_step(sources)}
        return {"commit": commit, "rounds": ROUNDS, **found}


@contextmanager
def source_of(commit: str) -> Iterator[str]:
    """The source of that commit, in a directory that lasts as long as the run."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as path:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(path, filter="data")
        yield str(Path(path, "src"))


def of_kind(kind: str, sources: dict[str, str]) -> dict[str, Any]:
    size = left_by_a_step(idempotent=kind == "idempotent").total_bytes
    contenders = {**{name: (kind, source) for name, source in sources.items()}, "bare": (f"bare:{size}", "")}
    turns = [turn for number in range(ROUNDS) for turn in one_round(contenders, number)]
    return {
        **{f"{name}_us": medians(turns, name) for name in contenders},
        "bare_bytes": size,
        "now_beside_then": ratios(turns, "now", "then"),
        "now_beside_bare": ratios(turns, "now", "bare"),
        "then_beside_bare": ratios(turns, "then", "bare"),
    }


def one_round(contenders: dict[str, tuple[str, str]], number: int) -> list[dict[str, Cost]]:
    with ExitStack() as stack:
        names = list(contenders)
        alive = {name: stack.enter_context(started(*contenders[name])) for name in names}
        turns: list[dict[str, Cost]] = []
        for turn in range(TURNS):
            first = (turn + number) % len(names)
            turns.append({name: one_turn(alive[name]) for name in names[first:] + names[:first]})
    return turns


@contextmanager
def started(kind: str, source: str) -> Iterator[subprocess.Popen[str]]:
    with place() as path:
        command = [sys.executable, str(ROOT / "benchmarks" / "turns.py"), kind, str(path)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"{kind} of {source or 'SQLite'} did not start")
            yield process
            process.stdin.close()
            process.stdout.read()


def one_turn(process: subprocess.Popen[str]) -> Cost:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{STEPS}\n")
    process.stdin.flush()
    wall, cpu = map(float, process.stdout.readline().split())
    return wall / STEPS, cpu / STEPS


def of_plan(sources: dict[str, str]) -> dict[str, Any]:
    """Read steps: what a command with many of them costs beyond one with a single one."""
    turns: list[dict[str, Cost]] = []
    for _ in range(ROUNDS):
        turn: dict[str, Cost] = {}
        for name, source in sources.items():
            many, one = of_command(source, READS), of_command(source, 1)
            turn[name] = (many[0] - one[0]) / (READS - 1), (many[1] - one[1]) / (READS - 1)
        turns.append(turn)
    figures = {f"{name}_us": medians(turns, name) for name in sources}
    return {**figures, "now_beside_then": ratios(turns, "now", "then")}


def of_command(source: str, reads: int) -> Cost:
    with place() as path:
        workspace = path / "workspace"
        (workspace / "a.txt").write_text("hello\n" * 20)
        steps = "      - read: a.txt\n" * reads
        (workspace / "plan.yml").write_text(f"title: reads\ntasks:\n  - id: a\n    steps:\n{steps}")
        env = {**os.environ, "PYTHONPATH": source, "ACODE_HOME": str(path / "state")}
        command = [sys.executable, "-m", "acode", "run", "plan.yml", "--yes", "-q"]
        wall, cpu = time.perf_counter(), of_children()
        subprocess.run(command, env=env, cwd=workspace, check=True, capture_output=True)
        return time.perf_counter() - wall, of_children() - cpu


def of_first_step(sources: dict[str, str]) -> dict[str, Any]:
    for source in sources.values():  # each leaves its bytecode behind
        to_first_step(source)
    turns = [{name: to_first_step(source) for name, source in sources.items()} for _ in range(ROUNDS * STARTS)]
    figures = {f"{name}_us": medians(turns, name) for name in sources}
    return {**figures, "now_beside_then": ratios(turns, "now", "then")}


def to_first_step(source: str) -> Cost:
    cpu, wall = of_children(), time.perf_counter()
    with started("first", source):
        wall = time.perf_counter() - wall
    return wall, of_children() - cpu


def of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def medians(turns: list[dict[str, Cost]], name: str) -> dict[str, float]:
    wall, cpu = zip(*(turn[name] for turn in turns), strict=True)
    return {"wall": round(statistics.median(wall) * 1e6, 1), "cpu": round(statistics.median(cpu) * 1e6, 1)}


def ratios(turns: list[dict[str, Cost]], one: str, other: str) -> dict[str, float]:
    """The median, and between which values the middle half of the turns lies."""
    found: dict[str, float] = {}
    for at, what in enumerate(("wall", "cpu")):
        values = [turn[one][at] / turn[other][at] for turn in turns]
        low, middle, high = statistics.quantiles(values, n=4)
        found |= {what: round(middle, 3), f"{what}_low": round(low, 3), f"{what}_high": round(high, 3)}
    return found


def shown(figures: dict[str, Any]) -> list[str]:
    lines = ["| | beside | time | quartiles | processor time | quartiles |", "|---|---|---|---|---|---|"]
    for kind in (*KINDS, "reads_of_a_plan", "first_step"):
        for beside in ("then", "bare"):
            found = figures[kind].get(f"now_beside_{beside}")
            if found is not None:
                cells = (f"{found[w]:.2f} | {found[f'{w}_low']:.2f}–{found[f'{w}_high']:.2f}" for w in ("wall", "cpu"))
                name = figures["commit"] if beside == "then" else "a bare commit"
                lines.append(f"| {kind} | {name} | {' | '.join(cells)} |")
    return lines

"""Many steps at once beside other engines: `python3 dev.py bench at_once`; acode alone: `dev.py bench concurrency`.

One after the other, in an order that changes, every contender runs the same crowd of steps in a process and a place of
its own. A figure is the median over the rounds; ratios are of figures of one run.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from benchmarks.peers.contenders import ROOT, Contender, interpreter, set_up
from benchmarks.peers.crowd import FIRST_STEPS
from benchmarks.peers.servers import NotHere
from benchmarks.peers.speed import postgres_or_none, say
from tests.postgres import Server

ROUNDS = int(os.environ.get("ACODE_BENCH_ROUNDS", "3"))
SEED = 20261117
TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class Shape:
    """So many steps, so many at a time, each waiting so long; `kib` False: its result is two letters."""

    at_once: int
    wait_ms: int = 0
    steps: int = 1_000
    kib: bool = True

    @property
    def name(self) -> str:
        return f"{self.at_once}{f' x {self.wait_ms} ms' if self.wait_ms else ''}{'' if self.kib else ', small'}"


def ours(name: str, engine: str) -> Contender:
    return Contender(name=name, module=engine, ours=True)


BARE = ours("bare commits, one by one", "bare")
IN_ORDER = ours("acode, one by one", "acode_in_order")
TASKS = ours("acode, tasks", "acode_tasks")
THREADS = ours("acode, threads", "acode_threads")
LANGGRAPH = Contender(name="LangGraph, AsyncSqliteSaver", module="langgraph_tasks")
DBOS = Contender(name="DBOS, SQLite WAL", module="dbos_tasks")
ABSURD = Contender(name="Absurd, PostgreSQL, threads", module="absurd_threads", server="postgres")

ALONE: dict[Shape, tuple[Contender, ...]] = {
    Shape(at_once=1): (BARE, IN_ORDER, TASKS),
    Shape(at_once=16): (BARE, TASKS, THREADS),
    Shape(at_once=16, wait_ms=5): (TASKS, THREADS),
    Shape(at_once=256, steps=2_000): (TASKS,),
    Shape(at_once=256, wait_ms=5, steps=2_000): (TASKS,),
    Shape(at_once=1_000, steps=2_000): (TASKS,),
    Shape(at_once=1_000, wait_ms=5, steps=2_000): (TASKS,),
    Shape(at_once=1, kib=False): (IN_ORDER,),
    Shape(at_once=16, kib=False): (TASKS,),
}
BESIDE: dict[Shape, tuple[Contender, ...]] = {
    Shape(at_once=16): (BARE, TASKS, THREADS, LANGGRAPH, DBOS, ABSURD),
    Shape(at_once=16, wait_ms=5): (TASKS, THREADS, LANGGRAPH, DBOS, ABSURD),
    Shape(at_once=256, wait_ms=5): (TASKS, LANGGRAPH, DBOS),
}


def measure(shapes: dict[Shape, tuple[Contender, ...]] | None = None) -> dict[str, Any]:
    figures: dict[str, Any] = {"left_out": {}, "rounds": ROUNDS}
    wanted = BESIDE if shapes is None else shapes
    with postgres_or_none() as postgres:
        for shape, entered in wanted.items():
            figures[shape.name] = crowd(shape, entered, postgres, figures["left_out"])
    return figures


def crowd(
    shape: Shape, entered: tuple[Contender, ...], postgres: Server | None, left_out: dict[str, str]
) -> dict[str, Any]:
    dice = random.Random(SEED)
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(ROUNDS):
        say(f"{shape.name} at once, round {number + 1} of {ROUNDS} ...")
        for contender in dice.sample(entered, len(entered)):
            try:
                found.setdefault(contender.name, []).append(once(shape, contender, postgres))
            except NotHere as reason:
                left_out[f"{contender.name}, {shape.name}"] = str(reason)
    return {name: median_of(each) for name, each in found.items() if each}


def once(shape: Shape, contender: Contender, postgres: Server | None) -> dict[str, float]:
    """Steps in a second, processor time of a step, and the bytes that it leaves in acode's database."""
    with set_up(contender, postgres) as (path, running):
        python, variables = interpreter(contender)
        asked = {
            "engine": contender.module,
            "path": str(path),
            "dsn": running.dsn,
            "steps": shape.steps,
            "at_once": shape.at_once,
            "wait_ms": shape.wait_ms,
            "kib": shape.kib,
        }
        command = [python, "-m", "benchmarks.peers.crowd", json.dumps(asked)]
        env = {**os.environ, **variables}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, check=False, capture_output=True, text=True, timeout=TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise NotHere(f"it was not done in {TIMEOUT_S} s") from error
        if done.returncode:
            raise NotHere(done.stderr[-1_500:])
        told = json.loads(done.stdout.splitlines()[-1])
        figures = {"steps_per_second": shape.steps / told["seconds"], "cpu_us": told["cpu_s"] * 1e6 / shape.steps}
        database = path / "workspace" / ".agent" / "workspace.db"
        return figures | ({"bytes": bytes_of(database) / (FIRST_STEPS + shape.steps)} if database.exists() else {})


def bytes_of(database: Path) -> int:
    """Without what only waits in the WAL."""
    db = apsw.Connection(os.fspath(database))
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    db.close()
    return database.stat().st_size


def median_of(each: list[dict[str, float]]) -> dict[str, int]:
    return {name: round(statistics.median(one[name] for one in each)) for name in each[0]}


def shown(figures: dict[str, Any]) -> list[str]:
    lines = ["| at once | contender | steps/s | processor µs per step | bytes kept per step |", "|---|---|---|---|---|"]
    for shape, contenders in figures.items():
        if shape in ("left_out", "rounds"):
            continue
        for name, found in contenders.items():
            kept = f"{found['bytes']:,}" if "bytes" in found else ""
            lines.append(f"| {shape} | {name} | {found['steps_per_second']:,} | {found['cpu_us']:,} | {kept} |")
    return lines

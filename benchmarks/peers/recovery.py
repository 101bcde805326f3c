"""Recovery against the length of the record: `python3 dev.py bench curve`.

A program dies in its step number N; what is measured is the time from the start of the next process to the moment in
which step N runs again: the interpreter, the imports, opening, finding out, and whatever the engine waits for.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from benchmarks.peers.contenders import ACODE, PEERS, SLOW_PEERS, Contender, process, set_up
from benchmarks.peers.servers import NotHere
from benchmarks.peers.speed import postgres_or_none, say
from tests.postgres import Server

STEPS = (100, 1_000, 10_000)
STEPS_OF_ACODE = (*STEPS, 100_000)
RECOVERIES = 2  # acode refuses a third attempt that makes no progress
# DBOS reads SQLite in the same way with and without WAL; making long records without it only takes longer.
LEFT_OUT = ("DBOS, SQLite", *(one.name for one in SLOW_PEERS if "all results" in one.name))
ENTERED = tuple(one for one in (ACODE, *PEERS, *SLOW_PEERS) if one.name not in LEFT_OUT)


def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {"left_out": {}}
    with postgres_or_none() as postgres:
        for contender in ENTERED:
            for steps in STEPS_OF_ACODE if contender is ACODE else STEPS:
                if steps > contender.steps_max:
                    continue
                say(f"{contender.name}: recovery after {steps} steps ...")
                try:
                    found = recovered(contender, postgres, steps)
                except NotHere as reason:
                    figures["left_out"][f"{contender.name}, {steps} steps"] = str(reason)
                    say(str(reason))
                    continue
                figures.setdefault(contender.name, {})[str(steps)] = found
    return figures


def shown(figures: dict[str, Any]) -> Iterator[str]:
    yield "| contender | " + " | ".join(f"{steps:,} steps" for steps in STEPS_OF_ACODE) + " |"
    yield "|---|" + "---|" * len(STEPS_OF_ACODE)
    for name, line in figures.items():
        if name != "left_out":
            cells = [f"{line[str(s)]['first_new_step_ms']:,.0f}" if str(s) in line else "" for s in STEPS_OF_ACODE]
            yield f"| {name} | " + " | ".join(cells) + " |"


def recovered(contender: Contender, postgres: Server | None, steps: int) -> dict[str, Any]:
    taken_ms, memory_mb = list[float](), list[float]()
    with ExitStack() as stack:
        path, running = stack.enter_context(set_up(contender, postgres))
        for life in range(1 + RECOVERIES):
            one = process(contender, path, running, steps + 1, ("dies_at", {"last": steps}))
            stack.callback(one.kill)
            one.start()
            said = one.hear()
            one.kill()
            if life:
                taken_ms.append((said["now"] - one.began) * 1000)
                memory_mb.append(said["peak_memory_mb"])
    return {
        "first_new_step_ms": round(statistics.median(taken_ms), 1),
        "each_ms": [round(value, 1) for value in taken_ms],
        "peak_memory_mb": round(statistics.median(memory_mb), 1),
    }

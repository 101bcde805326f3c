"""Steps per second and what a step costs, taking turns: `python3 dev.py bench peers`.

All contenders of a round are alive at once and run their steps a hundred at a time, one contender after the other, so
that what the machine does to one it does to all. A figure is the median over all these turns, with its quartiles; a
ratio is the median of the ratios turn by turn. Syncs are counted in a run of their own, which is not timed.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psutil

from benchmarks.peers import servers
from benchmarks.peers.contenders import (
    ACODE,
    ACODE_DEFAULT,
    FLOOR,
    PEERS,
    SLOW_PEERS,
    Contender,
    Process,
    bytes_kept,
    process,
    set_up,
    versions,
)
from benchmarks.peers.figures import nearest, quartiles, ratios, summary, table
from benchmarks.peers.servers import NotHere, Running
from benchmarks.peers.syncs import count_syncs
from tests.postgres import Server

CHUNK = 100
ROUNDS = {1_000: int(os.environ.get("ACODE_BENCH_ROUNDS", "5")), 10_000: 1}
SLOW_ROUNDS = 1
EVERYBODY = (FLOOR, ACODE, ACODE_DEFAULT, *PEERS, *SLOW_PEERS)
SEED = 20261116


def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {"left_out": {}}
    with postgres_or_none() as postgres:
        figures["versions"] = versions(postgres)
        able = [one for one in EVERYBODY if works(one, postgres, figures)]
        fast = [one for one in able if one not in SLOW_PEERS]
        slow = [one for one in able if one in (FLOOR, ACODE, *SLOW_PEERS)]
        for steps, rounds in ROUNDS.items():
            figures[f"steps_{steps}"] = race(fast, postgres, steps, rounds, figures["left_out"])
            figures[f"nearest_{steps}"] = nearest(figures[f"steps_{steps}"], [one.name for one in PEERS])
        figures["steps_1000_slow"] = race(slow, postgres, 1_000, SLOW_ROUNDS, figures["left_out"], settle=True)
        return figures


@contextmanager
def postgres_or_none(*, by_tcp: bool = False) -> Iterator[Server | None]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(servers.postgres(by_tcp=by_tcp))
        except NotHere:
            server = None
        yield server


def works(contender: Contender, postgres: Server | None, figures: dict[str, Any]) -> bool:
    """A short run that counts its syncs; a contender that fails it is left out, with the reason."""
    say(f"{contender.name}: counting syncs ...")
    try:
        counted = count_syncs(contender, postgres)
    except NotHere as reason:
        figures["left_out"][contender.name] = str(reason)
        say(f"{contender.name} is left out: {reason}")
        return False
    figures.setdefault("durability", {})[contender.name] = counted
    return True


def race(
    entered: list[Contender],
    postgres: Server | None,
    steps: int,
    rounds: int,
    left_out: dict[str, str],
    *,
    settle: bool = False,
) -> dict[str, Any]:
    """Rounds of fresh workflows; in each of them everybody's steps in turns, in an order that changes.

    settle: what a contender left to the kernel is written before the next one's turn.
    """
    dice = random.Random(SEED)
    turns: dict[str, list[float]] = {one.name: [] for one in entered}
    others: dict[str, dict[str, list[float]]] = {one.name: {} for one in entered}
    for number in range(rounds):
        say(f"{steps} steps, round {number + 1} of {rounds} ...")
        with ExitStack() as stack:
            alive = []
            for contender in entered:
                try:
                    alive.append(started(stack, contender, postgres, steps))
                except NotHere as reason:
                    left_out[f"{contender.name}, {steps} steps"] = str(reason)
            for turn in range(steps // CHUNK + 1):
                for one in dice.sample(alive, len(alive)):
                    if settle:
                        os.sync()
                    try:
                        if turn < steps // CHUNK:
                            turns[one.contender.name].append(taken(one, others))
                        else:
                            finish(one, others, steps)
                    except NotHere as reason:
                        left_out[f"{one.contender.name}, {steps} steps"] = str(reason)
                        turns[one.contender.name].clear()
                        alive.remove(one)
    return figures_of(turns, others)


def taken(one: Process, others: dict[str, dict[str, list[float]]]) -> float:
    """One turn: seconds for each of its steps."""
    before = server_cpu_s(one.running)
    one.go()
    heard = one.hear()
    cpu_s = heard["cpu_s"] + server_cpu_s(one.running) - before
    note(others, one, "cpu_ms_per_step", cpu_s / CHUNK * 1000)
    if heard["at"] == CHUNK:
        note(others, one, "first_bytes", bytes_kept(one.path, one.running))
    return float(heard["seconds"]) / CHUNK


def server_cpu_s(running: Running) -> float:
    """Processor time that the contender's server has used so far, with all of its processes."""
    if running.pid is None:
        return 0.0
    total = 0.0
    server = psutil.Process(running.pid)
    for one in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def started(stack: ExitStack, contender: Contender, postgres: Server | None, steps: int) -> Process:
    path, running = stack.enter_context(set_up(contender, postgres))
    one = process(contender, path, running, steps + 1, ("turns", {"chunk": CHUNK}))
    stack.callback(one.kill)
    one.start()
    one.hear()
    return one


def finish(one: Process, others: dict[str, dict[str, list[float]]], steps: int) -> None:
    first = others[one.contender.name]["first_bytes"].pop()
    kept = (bytes_kept(one.path, one.running) - first) / (steps - CHUNK)
    one.go()
    ended = one.hear()
    if "ended" not in ended:
        raise NotHere(
            f"{one.contender.name} ran a step that it had run before: {[said.get('at') for said in one.said]}"
        )
    note(others, one, "bytes_per_step", kept)
    note(others, one, "peak_memory_mb", ended["peak_memory_mb"])
    note(others, one, "cold_start_ms", (one.said[0]["now"] - one.began) * 1000)
    if one.running.pid and not one.running.dsn:
        note(others, one, "server_memory_mb", psutil.Process(one.running.pid).memory_info().rss / 2**20)


def note(others: dict[str, dict[str, list[float]]], one: Process, what: str, value: float) -> None:
    others[one.contender.name].setdefault(what, []).append(value)


def figures_of(turns: dict[str, list[float]], others: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, costs in turns.items():
        if not costs:
            continue
        found = summary(costs)
        found["times_the_bare_commit"] = ratios(costs, turns[FLOOR.name])
        if name != ACODE.name and turns.get(ACODE.name):
            found["acode_is_faster"] = ratios(costs, turns[ACODE.name])
        for what, values in others[name].items():
            if values:
                found[what] = round(statistics.median(values), 3)
                found[f"{what}_quartiles"] = quartiles(values)
        figures[name] = found
    return figures


def shown(figures: dict[str, Any]) -> Iterator[str]:
    for key, found in figures.items():
        if key.startswith("steps_"):
            yield f"{key}:"
            yield from table(found, figures["durability"])
    for name, reason in figures["left_out"].items():
        yield f"left out: {name}: {reason}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

"""Twenty kills: what each engine does twice, and what it leaves out: `python3 dev.py kills engines`.

One workflow of 120 steps; each step appends its number to a ledger outside, as a mail or a payment would be. The
process that runs the steps is killed with SIGKILL twenty times, at moments drawn from a seed, the same for everybody,
and each time the engine recovers its own way. Then the ledger is read. Some are also killed with 16 steps under way.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from acode.engine.workspace_store import opened
from acode.events import types as ev
from benchmarks.peers.contenders import PEERS, SLOW_PEERS, Contender, Process, process, set_up
from benchmarks.peers.servers import NotHere
from benchmarks.peers.speed import postgres_or_none, say
from benchmarks.places import world
from tests.postgres import Server

STEPS = 120
STEPS_AT_ONCE = 480  # a process that does 16 at once gets further before it is killed
KILLS = 20
AT_ONCE = 16
PAUSE_S = 0.004  # before the effect and after it: a kill finds the step in either half
AFTER_S_MAX = 0.012
SEED = 20261116
LIFE_S_MAX = 120.0
FAILED = "failed"  # on record: the step itself said that it had no success
MAY_BE_REPEATED = (ev.Settled.NOT_APPLIED.value, ev.Settled.RETRY_ACCEPTED.value, FAILED)

ACODE = (
    Contender(name="acode, asked by a probe", module="on_acode", variant="probe", ours=True),
    Contender(name="acode, a person decides", module="on_acode", variant="decide", ours=True),
    Contender(name="acode, declared idempotent", module="on_acode", variant="idempotent", ours=True),
)
ONE_BY_ONE = (*ACODE, *PEERS, *(one for one in SLOW_PEERS if "all results" not in one.name))


def sixteen(name: str, module: str, variant: str, server: str = "", *, ours: bool = False) -> Contender:
    return Contender(
        name=f"{name}, 16 at once", module=module, variant=variant, server=server, ours=ours, at_once=AT_ONCE
    )


SIXTEEN = (
    sixteen("acode, tasks, a probe", "on_acode", "probe-tasks", ours=True),
    sixteen("acode, threads, a person decides", "on_acode", "decide", ours=True),
    sixteen("acode, tasks, idempotent", "on_acode", "idempotent-tasks", ours=True),
    sixteen("DBOS, SQLite WAL", "on_dbos", "sqlite-wal"),
    sixteen("DBOS, PostgreSQL", "on_dbos", "postgres", "postgres"),
    sixteen("LangGraph, SqliteSaver", "on_langgraph", "sqlite"),
    sixteen("LangGraph, PostgresSaver", "on_langgraph", "postgres", "postgres"),
    sixteen("Absurd, PostgreSQL", "on_absurd", "postgres", "postgres"),
)
ENTERED = (*ONE_BY_ONE, *SIXTEEN)


@dataclass(frozen=True, kw_only=True)
class Kill:
    """When the ledger has so many lines, one of them by the process to be killed, and so much later."""

    lines: int
    after_s: float


def steps_of(contender: Contender) -> int:
    return STEPS_AT_ONCE if contender.at_once > 1 else STEPS


def drawn(seed: int, steps: int = STEPS) -> list[Kill]:
    """The same moments for everybody."""
    dice = random.Random(seed)
    places = sorted(dice.sample(range(1, steps - 1), KILLS))
    return [Kill(lines=place, after_s=dice.uniform(0, AFTER_S_MAX)) for place in places]


def measure(contenders: Sequence[Contender] = ENTERED) -> dict[str, Any]:
    figures: dict[str, Any] = {"steps": STEPS, "steps_at_once": STEPS_AT_ONCE, "seed": SEED, "left_out": {}}
    with postgres_or_none() as postgres:
        for contender in contenders:
            say(f"{contender.name}: {KILLS} kills ...")
            try:
                figures[contender.name] = survived(contender, postgres)
            except NotHere as reason:
                figures["left_out"][contender.name] = str(reason)
                say(f"{contender.name} is left out: {reason}")
    return figures


def shown(figures: dict[str, Any]) -> Iterator[str]:
    yield "| contender | kills | effects twice | missing | repeated without a recorded decision |"
    yield "|---|---|---|---|---|"
    for name, found in figures.items():
        if isinstance(found, dict) and "duplicates" in found:
            undecided = found.get("repeated_without_a_decision", "–")
            yield f"| {name} | {found['kills']} | {found['duplicates']} | {found['missing']} | {undecided} |"


def survived(contender: Contender, postgres: Server | None) -> dict[str, Any]:
    steps = steps_of(contender)
    with ExitStack() as stack:
        path, running = stack.enter_context(set_up(contender, postgres))
        ledger = path / "ledger"
        work = ("ledger", {"path": str(ledger), "pause_s": PAUSE_S})
        began, killed = time.monotonic(), 0
        for kill in drawn(SEED, steps):
            one = process(contender, path, running, steps, work)
            stack.callback(one.kill)
            before = lines_of(ledger)
            one.start()
            killed += killed_at(one, ledger, before, kill)
        one = process(contender, path, running, steps, work)
        stack.callback(one.kill)
        one.start()
        one.hear()
        return {
            **counted(ledger, steps),
            "kills": killed,
            "seconds": round(time.monotonic() - began, 1),
            **decided(path),
        }


def killed_at(one: Process, ledger: Path, before: int, kill: Kill) -> int:
    """Wait for the moment and kill; 0 if the program ended before it came."""
    assert one.child is not None
    deadline = time.monotonic() + LIFE_S_MAX
    while lines_of(ledger) < max(kill.lines, before + 1):
        if one.child.poll() is not None:
            if one.child.returncode:
                raise NotHere(f"{one.contender.name} ended with {one.child.returncode}: {one.last_words()}")
            return 0
        if time.monotonic() > deadline:
            raise NotHere(f"{one.contender.name} did not resume: {one.last_words()}")
        time.sleep(0.0005)
    time.sleep(kill.after_s)
    alive = one.child.poll() is None
    one.kill()
    return int(alive)


def lines_of(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def counted(ledger: Path, steps: int = STEPS) -> dict[str, Any]:
    found = Counter(int(word) for word in ledger.read_text().split())
    return {
        "duplicates": sum(times - 1 for times in found.values()),
        "steps_repeated": sum(times > 1 for times in found.values()),
        "missing": len(set(range(steps)) - set(found)),
    }


def decided(path: Path) -> dict[str, Any]:
    """What acode's log says about the steps that were in flight; other engines have no such thing to read."""
    if not (path / "workspace" / ".agent").exists():
        return {}
    settled: dict[tuple[str, int], str] = {}
    outcomes, decided, undecided = Counter[str](), 0, 0
    the_world = msgspec.structs.replace(world(path), state_dir=path / "home")
    with opened(the_world, look_only=True) as store:
        (session_id,) = store.session_ids()
        for envelope, _, _ in store.events(session_id):
            match envelope.event:
                case ev.StepSettled(step=step, attempt=attempt, outcome=outcome):
                    settled[step, attempt] = outcome.value
                    outcomes[outcome.value] += 1
                case ev.StepFailed(step=step, attempt=attempt):
                    settled[step, attempt] = FAILED
                case ev.StepStarted(step=step, attempt=attempt) if attempt > 1:
                    may_be = settled.get((step, attempt - 1)) in MAY_BE_REPEATED
                    decided, undecided = decided + may_be, undecided + (not may_be)
    return {
        "settled": dict(outcomes),
        "repeated_with_a_decision": decided,
        "repeated_without_a_decision": undecided,
    }

"""A fleet beside the queue engine alone and beside DBOS's queue: latency, idle cost, CPU of a session, take-over, size.

    python3 dev.py bench fleet         about 20 minutes; ACODE_BENCH_FLEET=small: about 3, to see that it works

All contenders live at once on one PostgreSQL, each with a database, a resident submitter and a worker with two slots.
They take turns, in an order that turns too, and those whose turn it is not are stopped, so that the server's processor
time belongs to the one that is measured. Processor time is that of the worker with all that it started, of the
submitter and of the server. `engine_and_run` is what acode is to be compared with: Procrastinate's own worker, whose
task is `acode run` of the same plan. What a take-over costs, and what `fleet status` does, is measured beside 100
sessions and beside 100,000 on the server; of 100 of them 95 are over and 5 parked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg

from acode.seal import SECRET_VARIABLE
from benchmarks.bench_cold_start import run_once
from benchmarks.peers.figures import ratios
from benchmarks.peers.servers import Running, database, postgres
from benchmarks.places import place
from tests.fleets import LEASE_S, Fleet
from tests.postgres import Server

SMALL = os.environ.get("ACODE_BENCH_FLEET") == "small"
TURNS = 2 if SMALL else 7
LATENCIES, SESSIONS, IDLE_S = (2, 3, 3.0) if SMALL else (5, 20, 10.0)
TAKE_OVERS, LOOKS = (1, 2) if SMALL else (3, 9)
FEW, MANY = 100, 2_000 if SMALL else 100_000
WAIT_S_MAX = 300.0
MARGIN_S = 2.0
TICK_S = 0.0001
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KINDS = ("acode", "engine_and_run", "procrastinate", "dbos")
# How many sessions are not over yet, for each engine.
OPEN = {
    "acode": "SELECT count(*) FROM acode_fleet_sessions WHERE state IN ('queued', 'running', 'waiting')",
    "engine_and_run": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    "dbos": "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
}
# The processes that a worker leaves behind become this one's, so that what they used is counted.
REAPER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
worker = subprocess.Popen(sys.argv[1:])
while True:
    if os.wait()[0] == worker.pid:
        break
"""
PLAN = """
title: No-op
tasks:
  - title: Work
    steps:
      - run: date +%s.%N >> {ledger}
"""
LONG = """
title: Long
tasks:
  - title: Work
    steps:
      - run: "date +%s.%N >> {ledger}; [ $(wc -l < {ledger}) -gt 1 ] || sleep 600"
        idempotent: true
"""


def measure() -> dict[str, Any]:
    with postgres() as server:
        beside = beside_others(server)
        grown = by_number_of_sessions(server)
    return {"turns": TURNS, "slots": 2, "sessions_of_a_turn": SESSIONS, **beside, "sessions_on_the_server": grown}


# Beside others.


@dataclass(frozen=True, kw_only=True)
class Contender:
    kind: str
    path: Path
    dsn: str
    submitter: subprocess.Popen[str]
    worker: subprocess.Popen[str]

    def submit(self, count: int) -> float:
        """So many sessions; the time before the first."""
        assert self.submitter.stdin is not None and self.submitter.stdout is not None
        self.submitter.stdin.write(f"{count}\n")
        self.submitter.stdin.flush()
        said = self.submitter.stdout.readline()
        if not said:
            raise RuntimeError(f"{self.kind} cannot submit: {(self.path / 'errors').read_text()[-2000:]}")
        return float(said)

    def lines(self) -> list[float]:
        ledger = self.path / "ledger"
        return [float(line) for line in ledger.read_text().split()] if ledger.exists() else []

    def wait(self, lines: int) -> None:
        """Until the ledger has them and the server says that no session is open."""
        until(lambda: len(self.lines()) >= lines, f"{self.kind} has {len(self.lines())} of {lines} lines")
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            query = OPEN[self.kind].encode()
            until(lambda: connection.execute(query).fetchone() == (0,), f"a session of {self.kind} does not end")

    def processes(self) -> list[psutil.Process]:
        roots = [psutil.Process(one.pid) for one in (self.submitter, self.worker)]
        return [*roots, *(child for root in roots for child in root.children(recursive=True))]


def beside_others(server: Server) -> dict[str, Any]:
    found: dict[str, dict[str, list[float]]] = {
        kind: {"first_step_s": [], "idle_cpu_share": [], "session_cpu_s": [], "submit_to_end_s": []} for kind in KINDS
    }
    with contextlib.ExitStack() as stack:
        contenders = [stack.enter_context(contender(kind, server)) for kind in KINDS]
        for one in contenders:  # everything is cold in the first
            one.submit(1)
            one.wait(lines=1)
        stack.callback(all_continue, contenders)
        for turn in range(TURNS):
            for one in contenders[turn % len(KINDS) :] + contenders[: turn % len(KINDS)]:
                with alone(one, contenders):
                    of_turn(one, server, found[one.kind])
    figures = {kind: {name: spread(values) for name, values in some.items()} for kind, some in found.items()}
    return {"figures": figures, "ratio": beside_each(found)}


def of_turn(one: Contender, server: Server, into: dict[str, list[float]]) -> None:
    for _ in range(LATENCIES):
        before = len(one.lines())
        began = one.submit(1)
        one.wait(before + 1)
        into["first_step_s"].append(one.lines()[before] - began)
    used, began = used_s(one, server), time.perf_counter()
    time.sleep(IDLE_S)
    into["idle_cpu_share"].append((used_s(one, server) - used) / (time.perf_counter() - began))
    before, used, began = len(one.lines()), used_s(one, server), time.perf_counter()
    one.submit(SESSIONS)
    one.wait(before + SESSIONS)
    into["submit_to_end_s"].append((time.perf_counter() - began) / SESSIONS)
    into["session_cpu_s"].append((used_s(one, server) - used) / SESSIONS)


def used_s(one: Contender | None, server: Server) -> float:
    """Processor time of its processes and the server's, with those that have ended."""
    assert server.process is not None
    postmaster = psutil.Process(server.process.pid)
    total = 0.0
    for process in [*(one.processes() if one else ()), postmaster, *postmaster.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@contextlib.contextmanager
def alone(one: Contender, contenders: list[Contender]) -> Iterator[None]:
    send(one, signal.SIGCONT)
    for other in contenders:
        if other is not one:
            send(other, signal.SIGSTOP)
    yield


def all_continue(contenders: list[Contender]) -> None:
    for one in contenders:
        send(one, signal.SIGCONT)


def send(one: Contender, number: signal.Signals) -> None:
    for process in one.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextlib.contextmanager
def contender(kind: str, server: Server) -> Iterator[Contender]:
    with place() as path, database(server) as made, contextlib.ExitStack() as stack:
        (path / "plan.yml").write_text(PLAN.format(ledger=path / "ledger"))
        sides = {role: side(kind, role, path, made) for role in ("submit", "work")}
        if kind == "dbos":  # its worker makes the tables, elsewhere the submitter does
            sides = dict(reversed(sides.items()))
        running: dict[str, subprocess.Popen[str]] = {}
        for role, (command, env) in sides.items():
            running[role] = stack.enter_context(started(command, env, path, reaped=role == "work"))
            if role == "submit" or kind == "dbos":
                assert running[role].stdout is not None
                said = running[role].stdout.readline()  # type: ignore[union-attr]
                if said != "ready\n":
                    raise RuntimeError(f"{kind} {role} did not start: {(path / 'errors').read_text()[-2000:]}")
        yield Contender(kind=kind, path=path, dsn=made.dsn, submitter=running["submit"], worker=running["work"])


def side(kind: str, role: str, path: Path, made: Running) -> tuple[list[str], dict[str, str]]:
    """The command of a submitter or a worker, and its environment."""
    own = {"HOME": str(path), "ACODE_HOME": str(path / "state"), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    if kind == "dbos":
        own["PYTHONPATH"] = os.environ["ACODE_PEERS_PYTHONPATH"]
    if kind == "acode":  # in the other contenders acode works for itself alone
        own |= {"ACODE_POSTGRES_URL": made.dsn, SECRET_VARIABLE: "of the benchmark"}
    python = os.environ["ACODE_PEERS_PYTHON"] if kind == "dbos" else sys.executable
    command = [python, str(HERE / "queues.py"), kind, role, str(path), made.dsn]
    if (kind, role) == ("acode", "work"):
        command = [python, "-m", "acode", "worker", "--name", "bench", "--slots", "2"]
    return command, {**os.environ, **own}


@contextlib.contextmanager
def started(command: list[str], env: dict[str, str], path: Path, *, reaped: bool) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-c", REAPER, *command] if reaped else command
    with (path / "errors").open("ab") as errors:
        process = subprocess.Popen(
            line,
            cwd=path / "workspace",
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        yield process
    finally:
        end = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in end:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.communicate()


def beside_each(found: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """acode beside each of the others, turn by turn; the median."""
    result: dict[str, float] = {}
    for other in KINDS[1:]:
        for name, values in found["acode"].items():
            theirs = [max(value, TICK_S) for value in found[other][name]]  # below that the kernel counts nothing
            result[f"{name}_beside_{other}"] = ratios(values, theirs)["median"]
    return result


def spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    named = {"median": statistics.median(ordered), "least": ordered[0], "most": ordered[-1]}
    return {name: round(value, 5) for name, value in named.items()}


# By the number of sessions on the server.


def by_number_of_sessions(server: Server) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        fleets = {count: stack.enter_context(filled(server, count)) for count in (FEW, MANY)}
        looks: dict[int, list[float]] = {count: [] for count in fleets}
        taken: dict[int, list[float]] = {count: [] for count in fleets}
        for number in range(LOOKS + 1):
            for count, fleet in fleets.items():
                cpu_s = look(fleet, server)
                looks[count] += [cpu_s] if number else []  # the first writes the bytecode
        for number in range(TAKE_OVERS):
            for count, fleet in fleets.items():
                taken[count].append(take_over(fleet, number))
    status = {count: statistics.median(values) for count, values in looks.items()}
    took = {count: statistics.median(values) for count, values in taken.items()}
    return {
        "few": FEW,
        "many": MANY,
        "fleet_status_cpu_ms": {str(count): round(value * 1000, 1) for count, value in status.items()},
        "fleet_status_ratio": round(status[MANY] / status[FEW], 3),
        "take_over_s": {str(count): round(value, 2) for count, value in took.items()},
        "take_over_ratio": round(took[MANY] / took[FEW], 3),
        "take_over_s_most": round(max(value for values in taken.values() for value in values), 2),
        "take_over_s_limit": LEASE_S + MARGIN_S,  # the cool-down after a crash is 0 here, below the lease
    }


@contextlib.contextmanager
def filled(server: Server, count: int) -> Iterator[Fleet]:
    """A fleet on a server that knows so many sessions."""
    with place() as path, server.database() as dsn:
        fleet = Fleet(path / "fleet", dsn)
        try:
            fleet.submit(
                "title: first\ntasks:\n  - title: A\n    steps:\n      - approve: Continue?\n"
            )  # makes the tables
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(
                    "INSERT INTO acode_sessions(session_id, generation, seq, head)"
                    " SELECT gen_random_uuid(), 1, 0, '' FROM generate_series(1, %s)",
                    (count,),
                )
                connection.execute(
                    "INSERT INTO acode_fleet_sessions(session_id, state, queue, priority, labels, source)"
                    " SELECT session_id, CASE WHEN row_number() OVER () % 20 = 0 THEN 'parked' ELSE 'done' END,"
                    " 'default', 0, '{}', '{\"kind\": \"none\"}' FROM acode_sessions WHERE seq = 0"
                )
                connection.execute("ANALYZE")
            yield fleet
        finally:
            fleet.close()


def look(fleet: Fleet, server: Server) -> float:
    """Processor time of `fleet status`, with the server's."""
    command = [sys.executable, "-m", "acode", "fleet", "status", "--json"]
    env = {**os.environ, **fleet.laptop.env, "PYTHONPATH": str(ROOT / "src")}
    before = used_s(None, server)
    cpu_s = run_once(command, env).cpu_s
    return cpu_s + used_s(None, server) - before


def take_over(fleet: Fleet, number: int) -> float:
    """From the death of a worker with all that it started to the second beginning of its step on another host."""
    ledger = fleet.place / f"ledger-{number}"
    session_id = fleet.submit(LONG.format(ledger=ledger))
    first = fleet.host(f"first-{number}", hasty=True).work()
    fleet.until(ledger.exists, WAIT_S_MAX)
    second = fleet.host(f"second-{number}", hasty=True).work()
    fleet.until(lambda: len(fleet.ask("SELECT 1 FROM acode_fleet_workers WHERE name = %s", f"second-{number}")) == 1)
    killed_at = time.time()
    first.kill_everything()
    fleet.until(lambda: len(ledger.read_text().split()) > 1, WAIT_S_MAX)
    fleet.wait(session_id, "done", seconds=WAIT_S_MAX)
    second.kill_everything()
    return float(ledger.read_text().split()[1]) - killed_at


def until(there: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not there():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.01)


def shown(figures: dict[str, Any]) -> list[str]:
    lines = [
        "| | submit to first step | idle, share of a CPU | CPU of a session | submit to end |",
        "|---|---|---|---|---|",
    ]
    for kind in KINDS:
        found = {name: values["median"] for name, values in figures["figures"][kind].items()}
        lines.append(
            f"| {kind} | {found['first_step_s'] * 1000:.0f} ms | {found['idle_cpu_share'] * 100:.2f} % |"
            f" {found['session_cpu_s'] * 1000:.0f} ms | {found['submit_to_end_s'] * 1000:.0f} ms |"
        )
    return lines

"""The second tier: how fast pending events reach a server on this machine, the memory it takes, and what steps pay.

A real PostgreSQL is started for it. Steps with and without a slow server take turns in one run, so that their ratio
says something on any machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from acode.engine.create import run_plan
from acode.log_file import Several
from acode.planfile import PlanFile
from acode.sync.pusher import Pusher
from benchmarks.places import Silence, make_session, place, reading_plan, world
from tests.line import Line
from tests.machines import socket_of, url_of
from tests.postgres import Server, find_programs, temporary_server

SIZES = {"100_000": 100_000, "1_000_000": 1_000_000}
STEPS, ROUNDS, REPLY_DELAY_S = 120, 8, 1.0
PUSH = """
import resource, sys, time, msgspec
from pathlib import Path
from benchmarks.places import world
from acode.sync.push_now import deliver_now
made = world(Path(sys.argv[1]))
config = made.config
sync = msgspec.structs.replace(config.settings.sync, url=sys.argv[2])
settings = msgspec.structs.replace(config.settings, sync=sync)
made = msgspec.structs.replace(made, config=msgspec.structs.replace(config, settings=settings))
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
(done,) = deliver_now(made, None)
took = time.perf_counter() - began
print(done.sent, took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure(sizes: tuple[str, ...] = tuple(SIZES)) -> dict[str, Any]:
    programs = find_programs()
    if programs is None:
        return {"left out": "no PostgreSQL here"}
    figures: dict[str, Any] = {}
    with temporary_server(programs) as server:
        for size in sizes:
            figures[size] = pushed(server, SIZES[size])
        figures["slow_server"] = steps_beside_a_slow_server(server)
    return figures


def pushed(server: Server, events: int) -> dict[str, float]:
    """All events of one session, in a process of its own, so that its memory is its own."""
    with place() as path, server.database() as dsn:
        make_session(path, events, 1_000)
        answer = subprocess.run(
            [sys.executable, "-c", PUSH, str(path), url_of(dsn)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", "."])},
        )
    sent, took, memory = map(float, answer.stdout.split())
    return {
        "events": sent,
        "events_per_s": round(sent / took),
        "us_per_event": round(took / sent * 1_000_000, 1),
        "peak_memory_mb": round(memory, 1),
    }


def steps_beside_a_slow_server(server: Server) -> dict[str, float]:
    """The time of a step, alone and with a server that takes a second for every reply, in turns."""
    alone, beside = list[float](), list[float]()
    with server.database() as dsn:
        for _ in range(ROUNDS):
            alone.extend(step_times(None))
            with Line(socket_of(server), reply_delay_s=REPLY_DELAY_S) as line:
                beside.extend(step_times(url_of(dsn, line.port)))
    return {
        "step_ms_alone": round(statistics.median(alone) * 1000, 4),
        "step_ms_beside": round(statistics.median(beside) * 1000, 4),
        "ratio_of_medians": round(statistics.median(beside) / statistics.median(alone), 3),
    }


def step_times(url: str | None) -> list[float]:
    with place() as path, pushing(path, url) as (made, silence):
        (path / "workspace" / "a.txt").write_text("hello\n" * 20)
        run_plan(made, PlanFile(plan=reading_plan(STEPS), path="plan.yml", sha256="0" * 64))
    return [later - earlier for earlier, later in zip(silence.completed_at, silence.completed_at[1:], strict=False)]


@contextmanager
def pushing(path: Path, url: str | None) -> Iterator[tuple[Any, Silence]]:
    silence = Silence()
    made = world(path, silence)
    if url is None:
        yield made, silence
        return
    pusher = Pusher(made, url)
    yield msgspec.structs.replace(made, listener=Several(silence, pusher)), silence
    pusher.close()

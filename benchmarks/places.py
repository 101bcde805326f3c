"""What the benchmarks share: a world on a real disk, sessions of any length, and figures with their spread."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uuid_utils as uuids

from acode.config import load_config
from acode.engine.notices import Notice, StepCompleted
from acode.engine.world import Nobody, StopSwitch, World
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Plan, Read, Step, Task
from acode.lock import owner
from acode.redact import redactor
from acode.seal import load_keyring
from acode.store.store import Store
from acode.workspace import Root, ensure_agent_dir

BATCH_CYCLES = 40


class Silence:
    """A listener for runs that are only timed."""

    def __init__(self) -> None:
        self.completed_at: list[float] = []

    def emit(self, notice: Notice) -> None:
        if isinstance(notice.body, StepCompleted):
            self.completed_at.append(time.perf_counter())

    def durable(self, seq: int) -> None:
        pass


@contextmanager
def place() -> Iterator[Path]:
    """A fresh directory beside the project: on a real disk, because a memory file system syncs for nothing."""
    path = Path(tempfile.mkdtemp(prefix="acode-bench-", dir=os.environ.get("ACODE_BENCH_DIR", Path(__file__).parent)))
    try:
        (path / "workspace").mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def world(path: Path, listener: Any = None) -> World:
    workspace = path / "workspace"
    return World(
        workspace=workspace,
        state_dir=path / "state",
        config=load_config(workspace, {}, {}),
        env=dict(os.environ),
        clock=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        sleep=time.sleep,
        new_id=lambda: str(uuids.uuid7()),
        listener=listener or Silence(),
        answers=Nobody(),
        stop=StopSwitch(time.monotonic, 30),
        redactor=redactor([]),
    )


def reading_plan(steps: int) -> Plan:
    return Plan(
        title="Read again and again",
        tasks=(
            Task(
                id="t",
                title="t",
                steps=tuple(Step(id=f"t.{n}", action=Read(path="a.txt")) for n in range(1, steps + 1)),
            ),
        ),
    )


def make_session(path: Path, events: int, steps: int) -> str:
    """An interrupted session with so many events: steps that fail, are tried again, and succeed at last."""
    the_world = world(path)
    with Root(the_world.workspace) as root:
        ensure_agent_dir(root)
    plan = reading_plan(steps)
    keyring = load_keyring(the_world.state_dir, {})
    with Store(the_world.agent_dir, keyring, clock=the_world.clock, new_id=the_world.new_id) as store:
        journal = store.create()
        journal.append(
            ev.SessionCreated(title=plan.title, task=plan.title, plan=plan, owner=owner(), acode_version="bench"),
            ev.SessionPlanned(tasks=1, steps=steps, plan_digest=""),
            ev.SessionExecuting(),
        )
        session_id = journal.session.session_id
        done, per_step = 0, max(1, (events - 3) // (steps * 3))
        while journal.session.seq < events - 3:
            step, batch = f"t.{done + 1}", list[ev.Known]()
            first = journal.session.next_attempt(step)
            tries = min(BATCH_CYCLES, max(1, per_step - first))
            for attempt in range(first, first + tries):
                batch.extend(failed_attempt(session_id, step, attempt))
            if first + tries >= per_step and done + 2 < steps:
                batch.extend(finished_attempt(session_id, step, first + tries))
                done += 1
            journal.append(*batch, durable=False)
        attempt = journal.session.next_attempt(f"t.{done + 1}")
        journal.append(started(session_id, f"t.{done + 1}", attempt))
    return session_id


def started(session_id: str, step: str, attempt: int) -> ev.StepStarted:
    key = make_key(session_id, step, attempt)
    return ev.StepStarted(step=step, task="t", kind="read", attempt=attempt, key=key, action_digest="0" * 64)


def failed_attempt(session_id: str, step: str, attempt: int) -> tuple[ev.Known, ...]:
    return (
        started(session_id, step, attempt),
        ev.StepFailed(step=step, task="t", attempt=attempt, reason="exit", message="ended with exit status 1"),
        ev.StepSettled(step=step, attempt=attempt, outcome=ev.Settled.NOT_APPLIED, evidence="exit status 1"),
    )


def finished_attempt(session_id: str, step: str, attempt: int) -> tuple[ev.Known, ...]:
    key = make_key(session_id, step, attempt)
    return (
        started(session_id, step, attempt),
        ev.StepCompleted(step=step, task="t", attempt=attempt, key=key),
    )


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of each round."""
    taken = []
    for _ in range(rounds):
        before = time.perf_counter()
        work()
        taken.append(time.perf_counter() - before)
    return taken


def figure(seconds: list[float]) -> dict[str, float]:
    ms = sorted(value * 1000 for value in seconds)
    return {
        "median_ms": round(statistics.median(ms), 3),
        "p95_ms": round(ms[int(len(ms) * 0.95)] if len(ms) > 1 else ms[0], 3),
        "rounds": len(ms),
    }

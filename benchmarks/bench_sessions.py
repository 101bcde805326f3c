"""Workspaces with many sessions: what a list, a look and a new session cost with 100 of them and with 100,000.

95 of 100 sessions have ended, 5 were killed in a step; each has two steps. The database is made by the store itself and
the anchors as every run makes them, in memory, because nothing here depends on how long a sync takes. Both workspaces
take turns; figures are processor time. `ACODE_BENCH_SESSIONS` is another number than 100,000.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acode import seal
from acode.engine.world import World
from acode.events import make_key
from acode.events import types as ev
from acode.lock import owner
from acode.store.journal import Journal
from acode.store.store import Store
from acode.workspace import Root, ensure_agent_dir
from benchmarks.bench_cold_start import environment, run_once
from benchmarks.places import world

FEW = 100
MANY = int(os.environ.get("ACODE_BENCH_SESSIONS", "100000"))
ROUNDS = 9
KILLED_EVERY = 20
RESULT = "r" * 200

COMMANDS = {
    "list_50": ["session", "list", "--limit", "50"],
    "status": ["status"],
    "status_of_one": ["status"],
    "dry_run": ["resume", "--dry-run"],
    "explain": ["explain"],
}
NEW_SESSION = """
import acode, resource, sys
with acode.session("warm " + sys.argv[2], workspace=sys.argv[1]) as session:
    session.step("a", lambda: 1)
before = resource.getrusage(resource.RUSAGE_SELF)
for number in range(5):
    with acode.session(f"new {sys.argv[2]} {number}", workspace=sys.argv[1]) as session:
        session.step("a", lambda: 1)
after = resource.getrusage(resource.RUSAGE_SELF)
print((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5)
"""


def measure() -> dict[str, Any]:
    with place() as few, place() as many:
        ids = {few: make_sessions(few, FEW), many: make_sessions(many, MANY)}
        return compared(few, many, ids)


def compared(few: Path, many: Path, ids: dict[Path, str]) -> dict[str, Any]:
    costs = {path: {name: list[float]() for name in (*COMMANDS, "new_session")} for path in (few, many)}
    for number in range(ROUNDS + 1):  # the first writes the bytecode
        for path in (few, many):
            for name, words in COMMANDS.items():
                named = [*words, ids[path][-8:]] if name == "status_of_one" else words
                command = [sys.executable, "-m", "acode", *named, "-C", str(path / "workspace")]
                costs[path][name].append(run_once(command, environment(path)).cpu_s)
            costs[path]["new_session"].append(new_session(path, number))
    medians = {path: {name: statistics.median(some[1:]) for name, some in costs[path].items()} for path in costs}
    return {
        "sessions": {"few": FEW, "many": MANY},
        "few_cpu_ms": {name: round(value * 1000, 1) for name, value in medians[few].items()},
        "many_cpu_ms": {name: round(value * 1000, 1) for name, value in medians[many].items()},
        "ratio": {name: round(medians[many][name] / medians[few][name], 2) for name in medians[few]},
    }


def new_session(path: Path, number: int) -> float:
    import subprocess

    command = [sys.executable, "-c", NEW_SESSION, str(path / "workspace"), str(number)]
    ended = subprocess.run(command, env=environment(path), check=True, capture_output=True, text=True)
    return float(ended.stdout)


# The workspaces.


@contextmanager
def place() -> Iterator[Path]:
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="acode-bench-", dir=memory if memory.is_dir() else None))
    try:
        (path / "workspace").mkdir()
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def make_sessions(path: Path, count: int) -> str:
    """So many sessions of programs; the id of one in the middle."""
    here = world(path)
    with Root(here.workspace) as root:
        ensure_agent_dir(root)
    keyring = seal.load_keyring(here.state_dir, {})
    anchors = seal.anchor_directory(here.state_dir, here.workspace)
    begun_by, middle = owner(), ""
    with Store(here.agent_dir, keyring, clock=here.clock, new_id=here.new_id) as store:
        for number in range(count):
            journal = make_session(store, f"item {number}", begun_by, killed=number % KILLED_EVERY == 0)
            anchor_session(here, anchors, journal)
            if number == count // 2:
                middle = journal.session.session_id
    return middle


def make_session(store: Store, key: str, begun_by: ev.Owner, *, killed: bool) -> Journal:
    journal = store.create()
    created = ev.SessionCreated(title=key, task=key, kind="library", owner=begun_by, acode_version="bench")
    journal.append(created, ev.SessionPlanned(tasks=0, steps=0, plan_digest=""), ev.SessionExecuting(), durable=False)
    for number in (1, 2):
        step = f"step#{number}"
        step_key = make_key(journal.session.session_id, step, 1)
        start = ev.StepStarted(step=step, task=step, kind="call", attempt=1, key=step_key, action_digest="")
        if killed and number == 2:
            journal.append(start, durable=False)
            return journal
        done = ev.StepCompleted(step=step, task=step, attempt=1, key=step_key, result={"v": RESULT})
        journal.append(start, done, durable=False)
    journal.append(ev.SessionCompleted(executed_steps=2), durable=False)
    return journal


def anchor_session(here: World, anchors: Path, journal: Journal) -> None:
    session = journal.session
    anchor = seal.Anchor(
        session_id=session.session_id,
        seq=session.seq,
        head=journal.head.hex(),
        title=session.title,
        workspace=str(here.workspace),
        at=session.updated_at,
        ended=session.terminal,
    )
    seal.note_place(here.state_dir, here.workspace, session.session_id)
    seal.write_anchor(anchors, anchor, durable=False)

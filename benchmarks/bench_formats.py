"""Foreign runs: a list of a thousand of each format, a close look at one, and the list as a person types it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acode.formats import locate
from acode.formats.agent_memory import diagnose, read
from acode.formats.arc.phases import PHASE_ORDER, fresh_entry
from benchmarks.places import figure, place, timed

RUNS = 1_000
EVENTS_PER_RUN = 1_000
TASKS_PER_RUN = 30
ROUNDS = 5
NOW = datetime(2026, 1, 15, 18, 0, tzinfo=UTC)


def measure() -> dict[str, Any]:
    with place() as path:
        workspace = path / "workspace"
        make_memory_runs(workspace)
        one = workspace / ".agent-memory/runs/20260115-1000-run-0000"
        figures: dict[str, Any] = {
            "agent_memory_list": figure(timed(lambda: locate(workspace, "agent-memory"), ROUNDS)),
            "agent_memory_diagnose": figure(timed(lambda: diagnose(read(one), NOW), ROUNDS)),
        }
        figures["command_ms"] = round(statistics.median(listing_s(path) for _ in range(ROUNDS)) * 1000, 1)
        make_arc_runs(workspace)
        figures["arc_list"] = figure(timed(lambda: locate(workspace, "arc"), ROUNDS))
        return figures


def make_memory_runs(workspace: Path) -> None:
    """Two actors per run, with half of the events each."""
    events = [
        {
            "type": "task_started",
            "task_id": f"T{number % TASKS_PER_RUN:03d}",
            "timestamp": f"2026-01-15T10:{number % 60:02d}:00Z",
            "event_id": f"e{number:04d}",
            "actor": "executor",
        }
        for number in range(EVENTS_PER_RUN // 2)
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    graph = json.dumps({"tasks": [{"id": f"T{number:03d}", "dependencies": []} for number in range(TASKS_PER_RUN)]})
    for number in range(RUNS):
        run = workspace / f".agent-memory/runs/20260115-1000-run-{number:04d}"
        for actor in ("executor", "verifier"):
            (run / "events" / actor).mkdir(parents=True)
            (run / "events" / actor / "a.jsonl").write_text(lines)
        (run / "task-graph.json").write_text(graph)


def make_arc_runs(workspace: Path) -> None:
    for number in range(RUNS):
        run = f"arc-{1_760_000_000_000 + number}"
        phases = {name: fresh_entry(name, "pending" if name == "merge" else "completed") for name in PHASE_ORDER}
        value = {"id": run, "schema_version": 19, "plan_file": "plans/a.md", "session_nonce": "0f1e2d3c4b5a"}
        value |= {"phases": phases, "totals": {"phase_times": {}}, "updated_at": "2026-03-01T11:00:00.000Z"}
        path = workspace / ".claude" / "arc" / run / "checkpoint.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(value))


def listing_s(path: Path) -> float:
    """`acode session list` as a person types it, with a thousand runs there."""
    env = {**os.environ, "ACODE_HOME": str(path / "state")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "acode", "session", "list", "-C", str(path / "workspace")]
    before = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - before

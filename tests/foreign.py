"""Foreign runs on disk with a driver that really works on them: what it did stands in a ledger, line by line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.arc import arc, put, put_run

ARC = "arc-1760000000001"
MEMORY = "20260115-1430-add-email-check-a1b2"
OPEN_PHASES = ("work", "code_review", "mend")
WORK = {ARC: OPEN_PHASES, MEMORY: ("T001", "T002", "clean_up", "consolidate")}  # what the driver is given, in order

# The driver does the task's work, and can be told to wait, to fail or to say nothing at a task's first attempt.
# It is in the ledger before it says a word: whoever kills it at its word finds it there.
DRIVER = """#!/bin/sh
set -e
[ "$1" = "$ACODE_PROMPT_FILE" ] && [ "$2" = "$ACODE_TASK" ] && [ "$3" = "$ACODE_RUN_ID" ]
echo "$ACODE_TASK begun" >> ledger.txt
echo "working on $ACODE_TASK"
if [ "$ACODE_TASK $ACODE_ATTEMPT" = "$(cat hold 2>/dev/null) 1" ]; then read -r _ < gate; fi
if [ "$ACODE_TASK $ACODE_ATTEMPT" = "$(cat fail 2>/dev/null) 1" ]; then echo "no luck"; exit 3; fi
artifact=$(sed -n 's/^Write the phase.s artifact to: //p' "$1")
if [ -n "$artifact" ]; then mkdir -p "$(dirname "$artifact")" && echo "$ACODE_TASK is done" > "$artifact"; fi
if [ -x also ]; then ./also; fi
echo "$ACODE_TASK done" >> ledger.txt
"""


def put_driver(workspace: Path, *sources: str, **more: Any) -> None:
    put(workspace, "driver.sh", DRIVER).chmod(0o755)
    if not (workspace / "gate").exists():
        os.mkfifo(workspace / "gate")
    settings = {"command": ["./driver.sh", "{prompt_file}", "{task}", "{run_id}"], **more}
    put(workspace, ".agent/config.yml", json.dumps({"drivers": dict.fromkeys(sources, settings)}))


def put_arc(workspace: Path, run: str = ARC, **fields: Any) -> Path:
    """A run of which three phases are left."""
    phases: dict[str, Any] = {name: {"status": "pending"} for name in OPEN_PHASES}
    return put_run(workspace, arc({**phases, **fields.pop("phases", {})}, id=run, **fields), run)


def put_memory(workspace: Path, run: str = MEMORY, *, approved: bool = True, tasks: int = 2) -> Path:
    """A run with its plan made: at the gate of phase 1, or approved and with all tasks still to do."""
    names = [f"T{number:03d}" for number in range(1, tasks + 1)]
    graph = [
        {"id": name, "title": f"Do {name}", "dependencies": names[index - 1 : index] if index else []}
        for index, name in enumerate(names)
    ]
    home = f".agent-memory/runs/{run}"
    for name in ("prd.md", "plan.md", *(("constitution.md",) if approved else ())):
        put(workspace, f"{home}/{name}", f"The text of {name}.\n")
    put(workspace, f"{home}/task-graph.json", json.dumps({"tasks": graph}))
    events = [_moved(0, 1, minute=0)] + ([_moved(1, 2, minute=1)] if approved else [])
    put(workspace, f"{home}/events/orchestrator/a.jsonl", "".join(json.dumps(event) + "\n" for event in events))
    return workspace / home


def _moved(old: int, new: int, *, minute: int) -> dict[str, Any]:
    at = f"2026-01-15T14:{30 + minute}:00Z"
    return {"type": "phase_transition", "from_phase": old, "to_phase": new, "timestamp": at, "trigger": "test"}


def put_foreign(workspace: Path, run: str) -> Path:
    return put_arc(workspace) if run == ARC else put_memory(workspace)


def done(run: str) -> list[str]:
    """The ledger of a run in which every piece was done once."""
    return [f"{name} {word}" for name in WORK[run] for word in ("begun", "done")]


def ledger(workspace: Path) -> list[str]:
    path = workspace / "ledger.txt"
    return path.read_text().splitlines() if path.exists() else []


def own_events(run: Path) -> list[dict[str, Any]]:
    files = sorted((run / "events" / "acode").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def essence(run: Path) -> list[tuple[Any, ...]]:
    """What acode told an agent-memory run, without times, ids and how often it was taken up."""
    told = [event for event in own_events(run) if event["type"] != "session_resumed"]
    said = [(event["type"], event.get("task_id"), event.get("to_phase")) for event in told]
    return list(dict.fromkeys(said))


def settled(checkpoint: Path) -> dict[str, Any]:
    """An arc checkpoint without times, process numbers and acode's own notes."""
    value = json.loads(checkpoint.read_text())
    for entry in value["phases"].values():
        entry |= {name: bool(entry.get(name)) for name in ("started_at", "completed_at")}
    value["totals"] = {
        "phases": sorted(value["totals"]["phase_times"]),
        "ended": value["totals"]["total_duration_ms"] is not None,
    }
    value["completed_at"] = bool(value["completed_at"])
    return {name: item for name, item in value.items() if name not in ("owner_pid", "updated_at", "acode")}


def tree(*places: Path) -> dict[str, tuple[int, bytes, int]]:
    """Every file below some places with its mode, its content and its time: to show that nothing was touched."""
    found: dict[str, tuple[int, bytes, int]] = {}
    for place in places:
        for path in sorted(place.rglob("*")):
            status = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_fifo() else b""
            found[str(path)] = (status.st_mode, data, status.st_mtime_ns)
    return found

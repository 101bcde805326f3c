"""Arc runs made by hand: a checkpoint of schema 19, the facts around it, a context file, a run on disk."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from acode.formats.arc import Checkpoint, Diagnosis, Facts, diagnose
from acode.formats.arc.phases import PHASE_ORDER, fresh_entry

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = "arc-1760000000001"
OWN_PID = 4_000_001
CONFIG_DIR = "/config"
CONTEXT_PATH = f"tmp/work/1/context/{RUN}/7.md"


def arc(phases: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A checkpoint whose phases are all skipped, except those named."""
    every: dict[str, Any] = {name: fresh_entry(name, "skipped") for name in PHASE_ORDER}
    for name, entry in (phases or {}).items():
        every[name] = {**fresh_entry(name, "pending"), **entry} if isinstance(entry, dict) else entry
    value = {"id": RUN, "schema_version": 19, "plan_file": "plans/a.md", "session_nonce": "0f1e2d3c4b5a"}
    value |= {"flags": {}, "phases": every, "totals": {"phase_times": {}}, "updated_at": "2026-03-01T11:00:00.000Z"}
    return {**value, **fields}


def facts(**known: Any) -> Facts:
    return Facts(**{"own_pid": OWN_PID, "own_config_dir": CONFIG_DIR, **known})


def at_rest(value: dict[str, Any]) -> Checkpoint:
    return Checkpoint(root=Path("root"), relative=f".claude/arc/{RUN}/checkpoint.json", raw=value, mtime=0.0)


def diagnosed(value: dict[str, Any], **known: Any) -> Diagnosis:
    return diagnose(at_rest(value), NOW, facts(**known))


def context(
    *, count: int | str | None = 0, body: str = "Parser done.", files: tuple[str, ...] = (), more: str = ""
) -> bytes:
    """A context file as a worker writes it, with the hash it should have."""
    listed = "".join(f"  - {path}\n" for path in files)
    head = "---\ntask_id: 7\nstatus: suspended\n" + (f"files_modified:\n{listed}" if files else "") + more
    head += "" if count is None else f"resume_count: {count}\n"
    text = head + 'content_sha256: ""\n---\n\n### Last Working State\n\n' + body + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace('content_sha256: ""', f'content_sha256: "{digest}"', 1).encode()


def suspended(*entries: Any, status: str = "pending") -> dict[str, Any]:
    return {"work": {"status": status, "suspended_tasks": list(entries)}}


def task(context_path: object = CONTEXT_PATH, task_id: object = 7, reason: str = "turn_limit") -> dict[str, Any]:
    return {"task_id": task_id, "context_path": context_path, "reason": reason}


def put_run(root: Path, value: dict[str, Any] | bytes, run: str = RUN) -> Path:
    """The checkpoint of one run in a workspace."""
    path = root / ".claude" / "arc" / run / "checkpoint.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
    return path


def put(root: Path, relative: str, data: bytes | str) -> Path:
    path = root / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path

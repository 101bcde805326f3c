"""acode's library. Variants: `default`, steps that must not be repeated without a decision; `idempotent`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import acode
from benchmarks.peers.faults.program import Program, Work
from benchmarks.peers.program import Place

KEY = "job"


def run(place: Place, program: Program, work: Work) -> str:
    idempotent = place.variant == "idempotent"
    on_change: Any = program.on_change
    with acode.session(KEY, workspace=workspace_of(place), on_change=on_change) as s:
        for item in program.items:
            match item:
                case int(n):
                    s.step(f"step-{n}", work, n, idempotent=idempotent)
                case list(several):
                    with ThreadPoolExecutor(len(several)) as pool:
                        asked = [pool.submit(s.step, f"step-{n}", work, n, idempotent=idempotent) for n in several]
                    for one in asked:
                        one.result()
                case _:
                    s.approve("Continue?")
    return "completed"


def workspace_of(place: Place) -> Path:
    os.environ["ACODE_HOME"] = os.fspath(place.path / "home")
    if place.dsn:
        os.environ["ACODE_POSTGRES_URL"] = place.dsn
    workspace = place.path / "workspace"
    workspace.mkdir(exist_ok=True)
    return workspace


def answer(place: Place, program: Program, work: Work) -> str:
    return at_the_command_line(place, "approve")


def stop(place: Place, program: Program, work: Work) -> str:
    return at_the_command_line(place, "pause")


def at_the_command_line(place: Place, what: str) -> str:
    """As a person does it."""
    command = [sys.executable, "-m", "acode", "-C", os.fspath(workspace_of(place)), "session"]
    listed = subprocess.run([*command, "list", "--json"], check=True, capture_output=True, text=True)
    (row,) = json.loads(listed.stdout)
    subprocess.run([*command, what, row["short_id"]], check=True, capture_output=True, text=True)
    return "completed"


def decide(place: Place, step: str, applied: bool) -> str:
    """As a person does who has looked into the ledger."""
    note = "looked into the ledger"
    acode.resolve(KEY, step, "applied" if applied else "not_applied", note=note, workspace=workspace_of(place))
    return "completed"

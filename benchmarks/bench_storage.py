"""The bytes that a step keeps: small results and results of 1,000 characters, one after the other and many at once."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import apsw

import acode

STEPS = 1_000
AT_ONCE = (1, 16, 256, 1_000)
SIZES = {"small": 2, "1 KB": 1_000}
LOG = "SELECT sum(pgsize) FROM dbstat WHERE name IN ('events', 'checkpoints', 'snapshots', 'finished')"


def measure() -> dict[str, Any]:
    return {name: {str(count): kept(count, size) for count in AT_ONCE} for name, size in SIZES.items()}


def kept(at_once: int, size: int) -> dict[str, int]:
    """For each step: the pages of the log's tables, and the whole file, of which about 70 KB are empty tables."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["ACODE_HOME"] = f"{place}/state"
        workspace = Path(place, "workspace")
        workspace.mkdir()
        if at_once == 1:
            one_by_one(workspace, size)
        else:
            asyncio.run(together(workspace, size, at_once))
        database = workspace / ".agent" / "workspace.db"
        db = apsw.Connection(os.fspath(database))
        db.execute("PRAGMA user_version").fetchall()
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        log = int(db.execute(LOG).get)
        db.close()
        return {"log": round(log / STEPS), "file": round(database.stat().st_size / STEPS)}


def work(size: int, number: int) -> str:
    return "x" * size


async def work_for_a_while(size: int, number: int) -> str:
    await asyncio.sleep(0.005)
    return "x" * size


def one_by_one(workspace: Path, size: int) -> None:
    with acode.session("kept", workspace=workspace) as session:
        for number in range(STEPS):
            session.step("work", work, size, number)


async def together(workspace: Path, size: int, at_once: int) -> None:
    async with acode.session("kept", workspace=workspace) as session:
        for first in range(0, STEPS, at_once):
            numbers = range(first, min(first + at_once, STEPS))
            await asyncio.gather(*(session.step(f"work-{one}", work_for_a_while, size, one) for one in numbers))


def shown(figures: dict[str, Any]) -> list[str]:
    lines = ["| result | at once | bytes of log per step | bytes of the file per step |", "|---|---|---|---|"]
    for name, counts in figures.items():
        lines += [f"| {name} | {count} | {found['log']:,} | {found['file']:,} |" for count, found in counts.items()]
    return lines

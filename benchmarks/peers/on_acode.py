"""acode's library: steps of one session.

Variants: `idempotent`, steps that may be repeated, as every other engine here repeats its own; `default`, which may
not; `probe`, where the program can look whether it happened; `decide`, where a person looks and says so. Many at once
are threads, or with `-tasks` at the end tasks of an event loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import apsw

import acode
from acode.errors import Escalated
from benchmarks.peers.program import Place, Work

KEY = "bench"


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    os.environ["ACODE_HOME"] = os.fspath(place.path / "home")
    workspace = place.path / "workspace"
    workspace.mkdir(exist_ok=True)
    force = None
    while True:
        try:
            with acode.session(KEY, workspace=workspace, probes=probes(place, count, work), force=force) as s:
                if place.at_once > 1:
                    many_at_once(s, place, count, work)
                else:
                    for n in range(count):
                        one_step(s, place.variant, n, work)
                return in_force()
        except acode.OutcomeUnknown as unknown:
            decide(place, unknown, work)
        except Escalated:
            force = (
                "killed on purpose"  # three kills in a row before any of the steps had ended: a person lets it continue
            )
        except Undecided as several:
            for unknown in several.args:
                decide(place, unknown, work)


class Undecided(Exception):
    """Steps that were done at once and killed: a person is asked about each."""


def many_at_once(s: acode.Session, place: Place, count: int, work: Work) -> None:
    idempotent = place.variant.startswith("idempotent")
    with ThreadPoolExecutor(place.at_once) as pool:

        async def in_pool(n: int) -> str:
            return await asyncio.get_running_loop().run_in_executor(pool, work, n)

        async def tasks(batch: list[int]) -> list[object]:
            asked = (s.step(f"work-{n}", in_pool, n, idempotent=idempotent) for n in batch)
            return await asyncio.gather(*asked, return_exceptions=True)

        def threads(batch: list[int]) -> list[object]:
            asked = [pool.submit(s.step, f"work-{n}", work, n, idempotent=idempotent) for n in batch]
            return [one.exception() for one in asked]

        for batch in place.batches(count):
            ended = asyncio.run(tasks(batch)) if place.variant.endswith("-tasks") else threads(batch)
            errors = [one for one in ended if isinstance(one, BaseException)]
            unknown = [one for one in errors if isinstance(one, acode.OutcomeUnknown)]
            if unknown and len(unknown) == len(errors):
                raise Undecided(*unknown)
            for error in errors:
                raise error


def one_step(s: acode.Session, variant: str, n: int, work: Work) -> None:
    if variant in ("probe", "decide"):
        s.step(f"work-{n}", work, n)
    else:
        s.step("work", work, n, idempotent=variant == "idempotent")


def probes(place: Place, count: int, work: Work) -> dict[str, Callable[[str], str]] | None:
    if not place.variant.startswith("probe"):
        return None

    def probe(n: int) -> Callable[[str], str]:
        return lambda _key: "applied" if work.happened(n) else "not_applied"

    return {f"work-{n}": probe(n) for n in range(count)}


def decide(place: Place, unknown: acode.OutcomeUnknown, work: Work) -> None:
    """A person's decision: look at the world and state the step's outcome. acode records the person."""
    step = str(unknown.details["step"])
    answer: Literal["applied", "not_applied"] = "applied" if work.happened(int(step.split("-")[1])) else "not_applied"
    acode.resolve(KEY, step, answer, note="looked into the ledger", workspace=place.path / "workspace")


def in_force() -> dict[str, str]:
    """Asked of the connection that the open session writes through."""
    for db in apsw.connections():
        if db.filename.endswith("workspace.db"):
            return {name: str(next(iter(db.execute(f"PRAGMA {name}")))[0]) for name in ("journal_mode", "synchronous")}
    return {}

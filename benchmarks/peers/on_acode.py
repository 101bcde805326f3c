"""acode's library: steps of one session.

Variants: `idempotent`, steps that may be repeated, as every other engine here repeats its own; `default`, which may
not; `probe`, where the program can look whether it happened; `decide`, where a person looks and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import apsw

import acode
from benchmarks.peers.program import Place, Work

KEY = "bench"


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    os.environ["ACODE_HOME"] = os.fspath(place.path / "home")
    workspace = place.path / "workspace"
    workspace.mkdir(exist_ok=True)
    while True:
        try:
            with acode.session(KEY, workspace=workspace, probes=probes(place, count, work)) as s:
                for n in range(count):
                    one_step(s, place.variant, n, work)
                return in_force()
        except acode.OutcomeUnknown as unknown:
            decide(place, unknown, work)


def one_step(s: acode.Session, variant: str, n: int, work: Work) -> None:
    if variant in ("probe", "decide"):
        s.step(f"work-{n}", work, n)
    else:
        s.step("work", work, n, idempotent=variant == "idempotent")


def probes(place: Place, count: int, work: Work) -> dict[str, Callable[[str], str]] | None:
    if place.variant != "probe":
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

"""The judge: a ledger outside the engine, how the engine ended, and for acode the decisions on its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.peers.faults.program import Item


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """lost and repeated are counted in the ledger; `undecided` repeats can be told of acode alone."""

    lost: int
    repeated: int
    undecided: int | None
    ended: str  # completed, waits, refused or hung
    asked: int = 0  # how often a person was asked for the outcome of a step
    refusals: list[str] = field(default_factory=list)  # the names of errors, in their order
    text: str = ""

    @property
    def shown(self) -> str:
        words = [f"{self.lost} left out"] if self.lost and self.ended == "completed" else []
        if self.repeated:
            words += [f"{self.repeated} repeated" + (", decided on record" if self.undecided == 0 else "")]
        words += [] if words else ["once"] if self.ended == "completed" else []
        words += [f"{', '.join(self.refusals)} first"] if self.refusals and self.ended == "completed" else []
        words += ["a person was asked"] if self.asked else []
        if self.ended != "completed":
            words += [self.ended if self.ended == "hung" else f"{self.ended}: {self.text}"]
        return "; ".join(words)

    @property
    def broken(self) -> list[str]:
        """The promises of acode that this breaks; a refusal by name is none."""
        wrong = []
        if self.ended == "hung":
            wrong.append("it hangs")
        if self.lost and self.ended == "completed":
            wrong.append(f"{self.lost} effects are missing in a completed session")
        if self.undecided is None or self.undecided:
            wrong.append(f"{self.undecided} effects are repeated without a recorded decision")
        return wrong

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "shown": self.shown}


def effects_of(items: Iterable[Item]) -> set[int]:
    several = [item if isinstance(item, list) else [] if item == "ask" else [item] for item in items]
    return {n for each in several for n in each}


def counted(ledger: str, items: Iterable[Item]) -> tuple[int, int]:
    """How many effects are missing, and how many happened once more than they should."""
    found = Counter(int(word) for word in ledger.split())
    return len(effects_of(items) - set(found)), sum(times - 1 for times in found.values())


def undecided(repeated: int, decisions: dict[str, Any]) -> int | None:
    """Repeats that no decision on the record precedes; None where there is no record."""
    if not decisions:
        return None
    without = int(decisions["repeated_without_a_decision"])
    return max(without, repeated - int(decisions["repeated_with_a_decision"]))

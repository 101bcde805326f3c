"""The process of one engine in a scenario: `python -m benchmarks.peers.faults.program JSON`, talking in lines of JSON.

It says that it is up, and runs the one workflow of its place, whose steps leave their numbers in a ledger outside. At
the places that it was told it says that it has arrived and waits for a line, so that the fault comes exactly there. The
last line says how it ended: completed, waits (for an answer, or for something else that it names), or refused, with the
name of the error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from benchmarks.peers.program import Place, Talk, add_to_ledger

TEXT_MAX = 400
Item = int | list[int] | Literal["ask"]


@dataclass(frozen=True, kw_only=True)
class Program:
    """What the engine is to run: steps, steps at once, a question; and the settings that its documentation asks for."""

    items: list[Item]
    version: str = "1"  # of the code
    executor: str = "first"  # this process among several
    take_over: str = ""  # the process whose work this one is told to continue
    claim_s: int = 2  # for engines whose workers claim their work for a time
    attempts_max: int = 5  # for engines that give up
    again: bool = False  # a person asks for another try of a workflow that has failed or was stopped
    on_change: str = "raise"  # for engines that notice other code


class Work:
    """The body of step n: its number goes into the ledger, once for each time that it is called."""

    def __init__(self, talk: Talk, ledger: Path, stops: list[str]) -> None:
        self._talk, self._ledger, self._stops = talk, ledger, set(stops)

    def __call__(self, n: int) -> Any:
        self._stop(f"before {n}")
        if f"fail {n}" in self._stops:
            raise RuntimeError(f"step {n} has failed")
        add_to_ledger(self._ledger, n)
        self._stop(f"after {n}")
        return threading.Lock() if f"no value {n}" in self._stops else f"result {n}"

    def _stop(self, where: str) -> None:
        if where in self._stops:
            self._stops.remove(where)  # an engine that tries again in the same process is not stopped again
            self._talk.say(at=where)
            sys.stdin.readline()


class Engine(Protocol):
    """A module `on_*.py`."""

    def run(self, place: Place, program: Program, work: Work) -> str:
        """Begin the workflow or recover it the engine's own way; "completed", or what it waits for."""

    def answer(self, place: Place, program: Program, work: Work) -> str:
        """Answer its question from a process that did not begin it."""

    def stop(self, place: Place, program: Program, work: Work) -> str:
        """Stop it, to be resumed later, from a process that did not begin it; what it waits for if there is no way."""


def main(argv: list[str]) -> None:
    asked = json.loads(argv[0])
    talk = Talk()
    engine: Any = importlib.import_module(f"benchmarks.peers.faults.{asked['module']}")
    talk.say(up=True)
    place = Place(**{**asked["place"], "path": Path(asked["place"]["path"])})
    work = Work(talk, place.path / "ledger", asked["stops"])
    try:
        if asked["do"] == "decide":
            ended = engine.decide(place, **asked["decision"])
        else:
            ended = getattr(engine, asked["do"])(place, Program(**asked["program"]), work)
        talk.say(ended="completed" if ended == "completed" else "waits", text=ended)
    except (Exception, KeyboardInterrupt) as error:
        step = getattr(error, "details", {}).get("step")
        talk.say(ended="refused", by=type(error).__name__, text=str(error)[:TEXT_MAX], step=step)
    # Threads of an engine that will not end must not keep a finished scenario waiting.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

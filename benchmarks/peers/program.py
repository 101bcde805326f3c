"""The process that runs a contender's steps: `python -m benchmarks.peers.program JSON`, talking in lines of JSON.

The engine under test calls `work(n)` for step n; what work does is the measurement. It may wait for its turn, leave its
number in a ledger outside, or die. The engines differ only in how they come to call it, never in what is called.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO

PAYLOAD = "x" * 1024


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a contender keeps its records: a directory, and where it needs one a database or a server."""

    path: Path
    variant: str = ""
    dsn: str = ""
    servers: dict[str, int] | None = None  # ports by their purpose
    at_once: int = 1  # steps under way at a time

    def batches(self, count: int) -> Iterator[list[int]]:
        """The steps, as many at a time as are done at once; the next ones begin when all of these have ended."""
        numbers = iter(range(count))
        while batch := list(itertools.islice(numbers, self.at_once)):
            yield batch


class Work(Protocol):
    """The body of step n."""

    waits: bool  # for others, perhaps for minutes: no claim or timeout of the engine may be shorter

    def __call__(self, n: int) -> str: ...

    def happened(self, n: int) -> bool:
        """Whether the effect of step n can be seen in the world, for engines that ask."""


class Contender(Protocol):
    """A module `on_*.py`."""

    def run(self, place: Place, count: int, work: Work) -> dict[str, str]:
        """Begin the one workflow of this place, or recover it the engine's own way; return when it has ended.

        The answer is what the engine's own connection says about its durability when it is asked.
        """


class Talk:
    """Lines of JSON to the parent process; the output of libraries goes to stderr instead."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def say(self, **what: Any) -> None:
        self._out.write(json.dumps(what) + "\n")
        self._out.flush()


class Turns:
    """Every `chunk` steps it waits for its turn, so that contenders share whatever the machine does to them.

    The cost of a step is the time from one call to the next: the engine's whole way through a step. The last call
    only ends the measurement.
    """

    waits = True

    def __init__(self, talk: Talk, chunk: int) -> None:
        self._talk, self._chunk = talk, chunk
        self._at: list[float] = []
        self._first_at = self._cpu_s = 0.0

    def __call__(self, n: int) -> str:
        self._at.append(time.perf_counter())
        if n % self._chunk == 0:
            between = [after - before for before, after in zip(self._at, self._at[1:], strict=False)]
            cpu_s = time.process_time() - self._cpu_s
            self._talk.say(at=n, seconds=sum(between), cpu_s=cpu_s, first=self._first_at, now=time.time())
            sys.stdin.readline()
            self._first_at, self._cpu_s = time.time(), time.process_time()
            self._at = [time.perf_counter()]
        return PAYLOAD

    def happened(self, n: int) -> bool:
        return False


def add_to_ledger(path: Path, n: int) -> None:
    """On the disk when this returns, so that no kill of the caller loses it."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, f"{n}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)


class Ledger:
    """Appends its number to a file outside and syncs it, in the middle of a step that takes a while."""

    waits = False

    def __init__(self, path: Path, pause_s: float) -> None:
        self._path, self._pause_s = path, pause_s

    def __call__(self, n: int) -> str:
        time.sleep(self._pause_s)
        add_to_ledger(self._path, n)
        time.sleep(self._pause_s)
        return PAYLOAD

    def happened(self, n: int) -> bool:
        return self._path.exists() and str(n) in self._path.read_text().split()


class DiesAt:
    """Runs until step `last` is reached, says when, and is gone as if killed."""

    waits = False

    def __init__(self, talk: Talk, last: int) -> None:
        self._talk, self._last = talk, last

    def __call__(self, n: int) -> str:
        if n >= self._last:
            self.die(n)
        return PAYLOAD

    def die(self, n: int) -> NoReturn:
        self._talk.say(at=n, now=time.time(), peak_memory_mb=peak_memory_mb())
        os._exit(9)

    def happened(self, n: int) -> bool:
        return False


def peak_memory_mb() -> float:
    """Of this program: what `getrusage` says includes the process that it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        (peak,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return round(int(peak.split()[1]) / 1024, 1)
    import resource

    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main(argv: list[str]) -> int:
    asked = json.loads(argv[0])
    talk = Talk()
    contender: Contender = importlib.import_module(f"benchmarks.peers.{asked['module']}")
    place = Place(**{**asked["place"], "path": Path(asked["place"]["path"])})
    kind, given = asked["work"]
    made: dict[str, Any] = {
        "turns": lambda: Turns(talk, given["chunk"]),
        "ledger": lambda: Ledger(Path(given["path"]), given["pause_s"]),
        "dies_at": lambda: DiesAt(talk, given["last"]),
    }
    durability = contender.run(place, asked["count"], made[kind]())
    talk.say(ended=True, durability=durability, peak_memory_mb=peak_memory_mb())
    # Threads of an engine that will not end must not keep a finished measurement waiting.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

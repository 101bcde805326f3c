"""Processes that take turns: every order in which they can run, be suspended and be killed is tried.

Each process is a thread that runs the product's own functions and stops before each operation that another process
could notice. The conductor decides who makes the next operation, or dies instead of making it. A process that is not
chosen for a while is one that sleeps. Two orders that lead to the same state go on in the same way, so only the first
is followed; `Sweep.schedules` counts how many orders that covers, `Sweep.runs` how many were really performed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Protocol

Choice = int  # twice the number of the process, and one more if it dies instead
DONE, DEAD = "done", "dead"
STUCK_S_MAX, LEAVING_S_MAX = 30.0, 5.0


class Killed(BaseException):
    """The process ends here; nothing of the product catches this."""


class Stuck(AssertionError):
    """A process stopped where the conductor does not see it."""


class Process:
    """One process: where it stands, and what it has seen so far, from which all it will do follows."""

    def __init__(self, number: int, conductor: Conductor) -> None:
        self.number = number
        self.pid = 2**22 + 100 + number  # no kernel gives such a pid: nothing real is ever asked about
        self.clock = 0.0
        self.made = 0
        self.next = ""
        self.seen = 0
        self.status = ""
        self.outcome: str = ""
        self.dying = False
        self.quiet = False
        self.base = 0
        self.baton = threading.Lock()
        self.baton.acquire()
        self._conductor = conductor
        self._work: Callable[[], str] | None = None
        self._dismissed = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], str]) -> None:
        self._work, self.status, self.outcome = work, "", ""
        self.clock, self.made, self.next, self.seen, self.dying, self.quiet = 0.0, 0, "start", 0, False, False

    def _live(self) -> None:
        self._conductor.enlist(self)
        while True:
            self.baton.acquire()
            if self._dismissed or self._work is None:
                return
            try:
                if self.dying:
                    raise Killed
                self.outcome = self._work()
                self.status = DONE
            except Killed:
                self.status = DEAD
            except BaseException as error:
                self.status, self.outcome = DONE, f"UNEXPECTED {type(error).__name__}: {error}"
            if self._dismissed:
                return
            self._conductor.returned.release()

    def end(self) -> None:
        """Wherever it stands: in the middle of something it dies there, and one that is stuck is left to itself."""
        self._dismissed = self.dying = True
        with contextlib.suppress(RuntimeError):  # the baton lies there: it has not come back for it
            self.baton.release()
        self._thread.join(LEAVING_S_MAX)

    def standing(self) -> Hashable:
        return self.status + self.outcome if self.status else (self.next, self.seen)


class Stage(Protocol):
    """What the processes share."""

    def reset(self) -> None: ...
    def appearance(self, part: str) -> Hashable:
        """A part of the shared state as an operation on it would find it."""
        ...

    def all_parts(self) -> Hashable: ...
    def blocked(self, process: Process) -> bool:
        """Whether the next operation would wait for another process."""
        ...

    def bury(self, process: Process) -> None:
        """What the kernel does for a process that has died."""
        ...

    def judge(self) -> list[str]:
        """At the end of a schedule: what is wrong."""
        ...

    problems: list[str]


class Conductor:
    """Hands the baton to one process at a time."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.returned = threading.Semaphore(0)
        self._by_thread: dict[int, Process] = {}
        self.processes: list[Process] = []
        self.operations = 0

    def hire(self, count: int) -> None:
        while len(self.processes) < count:
            self.processes.append(Process(len(self.processes), self))

    def dismiss(self) -> None:
        for process in self.processes:
            process.end()
        self.processes.clear()

    def enlist(self, process: Process) -> None:
        self._by_thread[threading.get_ident()] = process

    def current(self) -> Process | None:
        """The process whose code is running; None: the test itself looks."""
        return self._by_thread.get(threading.get_ident())

    def pause(self, operation: str, part: str) -> None:
        """The running process is about to do this to this part of what is shared."""
        process = self.current()
        if process is None or process.dying or process.quiet:
            return
        process.next = operation
        self.returned.release()
        process.baton.acquire()
        if process.dying:
            raise Killed
        process.seen = hash((process.seen, operation, self.stage.appearance(part)))

    def step(self, choice: Choice) -> None:
        process = self.processes[choice // 2]
        process.dying = bool(choice % 2)
        self.operations += 1
        process.baton.release()
        if not self.returned.acquire(timeout=STUCK_S_MAX):
            raise Stuck(f"process {process.number} does not come back from {process.next}")
        if process.dying:
            self.stage.bury(process)

    def clear(self, count: int) -> None:
        """Nobody is left in the middle of anything."""
        for process in self.processes[:count]:
            if not process.status:
                self.step(2 * process.number + 1)


@dataclass(kw_only=True)
class Sweep:
    """What a sweep has done and found."""

    states: int = 0
    runs: int = 0
    operations: int = 0
    endings: int = 0
    schedules: int = 0
    complete: bool = True
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # each kind once, with the schedule that leads there


Work = Callable[[Process], str]


def sweep(
    conductor: Conductor, works: tuple[Work, ...], *, deaths: int, runs_max: int = 10_000_000, stop_early: bool = False
) -> Sweep:
    """All orders of these processes, at most `deaths` of which are killed."""
    found, ways = Sweep(), _Ways(deaths)
    before = conductor.operations
    while ways.waiting:
        if found.runs >= runs_max or (stop_early and found.problems):
            found.complete = False
            break
        found.runs += 1
        _follow(conductor, works, ways, found)
    found.states = len(ways.known)
    found.schedules = ways.count()
    found.operations = conductor.operations - before
    return found


class _Ways:
    """What is still to be tried, and which state leads to which: as many schedules as there are ways to an end."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        self.waiting: list[tuple[Choice, ...]] = [()]
        self.known: dict[Hashable, list[Hashable]] = {}
        self.root: Hashable = None

    def count(self) -> int:
        counts: dict[Hashable, int] = {}
        trail = [self.root]
        while trail:
            state = trail[-1]
            after = self.known.get(state, [])
            missing = [one for one in after if one not in counts]
            if missing:
                trail.extend(missing)
                continue
            counts[state] = sum(counts[one] for one in after) if after else 1
            trail.pop()
        return counts[self.root]


def _follow(conductor: Conductor, works: tuple[Work, ...], ways: _Ways, found: Sweep) -> None:
    """One run: the way that was noted, and from there on the first possibility until nothing new is met."""
    _begin(conductor, works)
    way = ways.waiting.pop()
    for earlier in way[:-1]:
        conductor.step(earlier)
    left = ways.deaths - sum(earlier % 2 for earlier in way[:-1])
    here = _state(conductor, works, left) if way else None
    path = list(way[:-1])
    choice: Choice | None = way[-1] if way else None
    while True:
        if choice is not None:
            conductor.step(choice)
            path.append(choice)
            left -= choice % 2
        there = _state(conductor, works, left)
        if here is None:
            ways.root = there
        else:
            ways.known[here].append(there)
        if there in ways.known:
            break
        ways.known[there] = []
        options = _options(conductor, works, left)
        if not options:
            _end(conductor, works, path, found)
            break
        ways.waiting.extend((*path, other) for other in options[1:])
        here, choice = there, options[0]
    for problem in conductor.stage.problems:
        found.problems.setdefault(problem, told(path))
    conductor.clear(len(works))


def _begin(conductor: Conductor, works: tuple[Work, ...]) -> None:
    conductor.stage.reset()
    for process, work in zip(conductor.processes, works, strict=False):
        process.begin(_bound(work, process))


def _bound(work: Work, process: Process) -> Callable[[], str]:
    return lambda: work(process)


def _state(conductor: Conductor, works: tuple[Work, ...], left: int) -> Hashable:
    standing = tuple(process.standing() for process in conductor.processes[: len(works)])
    return standing, conductor.stage.all_parts(), left


def _options(conductor: Conductor, works: tuple[Work, ...], left: int) -> list[Choice]:
    alive = [process for process in conductor.processes[: len(works)] if not process.status]
    steps = [2 * process.number for process in alive if not conductor.stage.blocked(process)]
    return steps + [2 * process.number + 1 for process in alive if left > 0]


def _end(conductor: Conductor, works: tuple[Work, ...], path: list[Choice], found: Sweep) -> None:
    processes = conductor.processes[: len(works)]
    found.endings += 1
    ending = " | ".join(process.status if process.status == DEAD else process.outcome for process in processes)
    found.outcomes[ending] = found.outcomes.get(ending, 0) + 1
    problems = [f"UNFINISHED at {one.next}" for one in processes if not one.status]
    problems += [one.outcome for one in processes if one.outcome.startswith("UNEXPECTED")]
    if not problems:
        problems = conductor.stage.judge()
    for problem in problems:
        found.problems.setdefault(problem, told(path))


def told(path: list[Choice]) -> str:
    """A schedule in words: who moves, a cross for a death."""
    return " ".join(f"{'ABC'[choice // 2]}{'†' if choice % 2 else ''}" for choice in path)

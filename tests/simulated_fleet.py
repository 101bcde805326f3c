"""A fleet, simulated with one seed: sessions in a queue, several workers, one server; messages late or lost, links cut,
machines killed, frozen and restarted, the server away, clocks that neither agree nor run alike.

The product's own functions decide: `decide_take`, `deadline_of`, `stop_s`, `ends_in_s`, `after_deaths`. Whatever
happens, nobody can act who is not the owner, no step is begun again without a decision on record, and no session is
lost: when the trouble is over, each is done, or parked with its reason.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acode.fleet.schedule import Again, Parked, after_deaths
from acode.lease_file import deadline_of, renew_every_s, stop_s
from acode.sync.protocol import Keep, Remote, Take, decide_take

DRIFT_MAX = 2e-4
HOSTS, SESSIONS, SLOTS, STEPS = 3, 4, 2, 3
TROUBLE, QUIET = 8, 40  # in leases


@dataclass
class Row:
    """A session on the server: its lease, its log, its place in the fleet."""

    name: str
    idempotent: bool
    owner: str | None = None
    generation: int = 0
    renewed_at: float = -1e9
    state: str = "queued"
    due: float = 0.0
    job: int = 0
    worker: int | None = None  # that has taken the job
    reason: str = ""
    done: int = 0
    open: bool = False  # the start of a step is on record, and no end
    claim: int = 0  # who took or kept the lease last: an older transaction in doubt holds the row's lock until then
    begun: tuple[int, int] = (0, 0)  # by which claim, which step: what is pushed again is there already
    starts: Counter[int] = field(default_factory=Counter)
    decided: Counter[int] = field(default_factory=Counter)
    deaths: int = 0
    progress: int = 0


@dataclass
class Command:
    """A command under its keeper, which reads the deadline from the lease file of its session."""

    row: Row
    host: Host
    step: int
    ended: bool = False


@dataclass
class Run:
    """An attempt in a slot."""

    row: Row
    job: int
    generation: int
    claim: int = 0


@dataclass
class Host:
    name: str
    offset: float
    rate: float
    life: int = 0
    worker: int | None = None
    up: bool = True
    cut_until: float = 0.0
    frozen_until: float = 0.0
    runs: dict[str, Run] = field(default_factory=dict)
    files: dict[str, float] = field(default_factory=dict)  # the ends of its leases, by its own clock
    commands: list[Command] = field(default_factory=list)
    logs: dict[str, tuple[int, int]] = field(default_factory=dict)  # on its own disk: generation, steps that are done

    def clock(self, now: float) -> float:
        return self.offset + now * self.rate


class World:
    def __init__(self, seed: int, *, hands_back_unheard: bool = True) -> None:
        self.dice = random.Random(seed)
        self.lease_s = self.dice.choice([3.0, 6.0, 60.0])
        self.hands_back_unheard = hands_back_unheard
        self.now, self.up_since, self.down_until = 0.0, -1e9, 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.workers: dict[int, float] = {}  # when they were last heard of
        self.seen: Counter[str] = Counter()
        self.ledger: Counter[tuple[str, int]] = Counter()
        self.rows = [Row(f"s{number}", idempotent=self.dice.random() < 0.7, job=number) for number in range(SESSIONS)]
        self.jobs = SESSIONS
        drift = [1 + self.dice.uniform(-DRIFT_MAX, DRIFT_MAX) for _ in range(HOSTS)]
        self.hosts = [Host(f"h{n}", self.dice.uniform(-3600, 3600), drift[n]) for n in range(HOSTS)]
        for host in self.hosts:
            self.begin(host)
        self.after(self.dice.expovariate(1) * self.lease_s / 2, self.hurt)

    # Time.

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + seconds, self.count, act))

    def run(self) -> None:
        while self.events and self.now < (TROUBLE + QUIET) * self.lease_s and not self.at_rest():
            self.now, _, act = heapq.heappop(self.events)
            act()
            self.check()

    def troubled(self) -> bool:
        return self.now < TROUBLE * self.lease_s

    def at_rest(self) -> bool:
        return not self.troubled() and all(row.state in ("done", "parked") for row in self.rows)

    # Messages.

    def send(self, host: Host, serve: Callable[[], Any], heard: Callable[[Any, float], None]) -> None:
        """`heard` is told the answer, and when it was asked for by the host's clock."""
        life, asked = host.life, host.clock(self.now)
        if self.now < host.cut_until:
            return

        def arrive() -> None:
            if self.now >= max(host.cut_until, self.down_until):
                answer = serve()
                if not self.troubled() or self.dice.random() > 0.05:  # else the line breaks behind the commit
                    self.after(self.delay(), lambda: come_back(answer))

        def come_back(answer: Any) -> None:
            if host.life != life or self.now < host.cut_until:
                return
            if self.now < host.frozen_until:
                self.after(host.frozen_until - self.now, lambda: come_back(answer))
                return
            heard(answer, asked)

        self.after(self.delay(), arrive)

    def send_until_heard(
        self, host: Host, serve: Callable[[], Any], heard: Callable[[Any, float], None], *, wanted: Callable[[], bool]
    ) -> None:
        """Again and again, as the outbox of a session does; what the server has already is not done twice there."""
        life, answered = host.life, [False]

        def note(answer: Any, asked: float) -> None:
            if not answered[0]:
                answered[0] = True
                heard(answer, asked)

        def turn() -> None:
            if self.now < host.frozen_until:
                self.after(host.frozen_until - self.now, turn)
            elif not answered[0] and host.life == life and wanted():
                self.send(host, serve, note)
                self.after(self.lease_s / 2, turn)

        turn()

    def delay(self) -> float:
        long = self.troubled() and self.dice.random() < 0.05
        return self.dice.uniform(0.3, 1.5) * self.lease_s if long else self.dice.uniform(0.001, 0.05)

    def again(self, host: Host, act: Callable[[Host], None]) -> None:
        """A loop of a worker: every sixth of a lease, as long as it lives; a frozen one goes on when it thaws."""
        life = host.life

        def turn() -> None:
            if host.life != life:
                return
            if self.now < host.frozen_until:
                self.after(host.frozen_until - self.now, turn)
                return
            act(host)
            self.after(renew_every_s(self.lease_s) * self.dice.uniform(0.9, 1.1), turn)

        self.after(0.0, turn)

    # Trouble.

    def hurt(self) -> None:
        if not self.troubled():
            return
        host = self.dice.choice(self.hosts)
        long_s = self.dice.uniform(0, 3) * self.lease_s
        kind = self.dice.choice(["cut", "cut", "frozen", "killed", "killed alone", "server"])
        self.seen[kind] += 1
        if kind == "cut":
            host.cut_until = self.now + long_s
        elif kind == "frozen":
            host.frozen_until = self.now + long_s
        elif kind == "server":
            self.down_until = self.up_since = self.now + long_s
        elif host.up:
            self.kill(host, everything=kind == "killed")
            self.after(long_s, lambda: self.begin(host))
        self.after(self.dice.expovariate(1) * self.lease_s / 2, self.hurt)

    def kill(self, host: Host, *, everything: bool) -> None:
        host.up, host.worker = False, None
        host.life += 1
        host.runs.clear()
        for command in host.commands if everything else ():
            command.ended = True

    def begin(self, host: Host) -> None:
        host.up = True
        for loop in (self.renew, self.take, self.watch):
            self.again(host, loop)

    # A worker.

    def renew(self, host: Host) -> None:
        held = list(host.runs.values())

        def serve() -> tuple[int, list[Run]]:
            number = host.worker if host.worker in self.workers else len(self.workers) + 1
            assert number is not None
            self.workers[number] = self.now
            mine = [run for run in held if (run.row.owner, run.row.generation) == (host.name, run.generation)]
            for run in mine:
                run.row.renewed_at = self.now
            return number, mine

        def heard(answer: tuple[int, list[Run]], asked: float) -> None:
            host.worker, confirmed = answer
            for run in confirmed:
                host.files[run.row.name] = deadline_of(asked, self.lease_s)

        self.send(host, serve, heard)

    def take(self, host: Host) -> None:
        """A job for a free slot, then the lease of its session. What a broken line has swallowed is handed back."""
        worker, known = host.worker, {run.job for run in host.runs.values()}
        if worker is None or len(host.runs) >= SLOTS:
            return

        def serve() -> Row | None:
            if self.hands_back_unheard:
                for row in self.rows:
                    if row.worker == worker and row.job not in known:
                        self.end(row, row.job, worker, Again(after_s=0.0, why="unheard"))
            due = [one for one in self.rows if one.state == "queued" and one.due <= self.now and one.worker is None]
            if not due:
                return None
            due[0].state, due[0].worker = "running", worker
            return due[0]

        def heard(row: Row | None, _: float) -> None:
            if row is not None and row.name not in host.runs:
                host.runs[row.name] = Run(row, row.job, -1)
                self.own(host, host.runs[row.name])

        self.send(host, serve, heard)

    def own(self, host: Host, run: Run) -> None:
        row = run.row
        if any(self.lives(one) for one in host.commands if one.row is row):  # what it started lives on under its keeper
            self.give_up(host, run, Again(after_s=self.lease_s, why="a command lives"))
            return

        def serve() -> tuple[int, int] | None:
            match decide_take(host.name, self.remote(row), force=False, take_over=True):
                case Take(generation=generation):
                    row.owner, row.generation, row.renewed_at = host.name, generation, self.now
                    self.seen["taken"] += 1
                case Keep():
                    row.renewed_at = self.now
                case _:
                    return None
            row.claim += 1
            return row.generation, row.claim

        def heard(mine: tuple[int, int] | None, asked: float) -> None:
            if host.runs.get(row.name) is not run:
                return
            if mine is None:
                self.give_up(host, run, Again(after_s=self.lease_s, why="held"))
                return
            run.generation, run.claim = mine
            host.files[row.name] = deadline_of(asked, self.lease_s)
            self.step(host, run)

        self.send(host, serve, heard)

    def watch(self, host: Host) -> None:
        """Attempts whose lease has ended are given up; sessions of the dead are queued again."""
        for run in list(host.runs.values()):
            if host.clock(self.now) >= host.files.get(run.row.name, -1e18):
                self.give_up(host, run, Again(after_s=self.lease_s, why="the lease has ended"))

        def serve() -> None:
            for row in self.rows:
                remote = self.remote(row)
                silent = row.worker is not None and self.now - self.workers[row.worker] > self.lease_s
                if not silent or remote.up_s <= self.lease_s:
                    continue
                if remote.owner is None or remote.ends_in_s() in (0, None):
                    self.seen["requeued"] += 1
                    self.end(row, row.job, row.worker, Again(after_s=0.0, why="dead", died=True))

        self.send(host, serve, lambda _, __: None)

    def give_up(self, host: Host, run: Run, outcome: Again | Parked) -> None:
        host.runs.pop(run.row.name, None)
        self.tell_end(host, run, host.worker, outcome)

    def tell_end(self, host: Host, run: Run, worker: int | None, outcome: Again | Parked | None) -> None:
        """The lease goes back where nothing lives here any more, and the job ends."""

        def serve() -> None:
            if run.row.claim == run.claim and not any(self.lives(one) for one in host.commands if one.row is run.row):
                run.row.owner = None
            self.end(run.row, run.job, worker, outcome)

        self.send_until_heard(host, serve, lambda _, __: None, wanted=lambda: True)

    # A step.

    def step(self, host: Host, run: Run) -> None:
        """Its start goes to the server first; then it acts, if the clock leaves time; then its end."""
        row = run.row

        def serve() -> tuple[str, int]:
            if (row.owner, row.generation) != (host.name, run.generation):
                return "fenced", row.done
            generation, done = host.logs.get(row.name, (0, 0))
            if generation == run.generation and done > row.done:  # of an earlier attempt here: its outbox goes first
                row.done, row.open = done, False
            if row.done == STEPS:
                return "over", row.done
            if row.open and row.begun == (run.claim, row.done):
                return "begin", row.done
            if row.open and not row.idempotent and row.decided[row.done] < row.starts[row.done]:
                return "unknown", row.done
            row.decided[row.done] += row.open and row.idempotent
            row.open = True
            row.starts[row.done] += 1
            row.begun = (run.claim, row.done)
            return "begin", row.done

        def heard(told: tuple[str, int], _: float) -> None:
            if host.runs.get(row.name) is not run:
                return
            answer, step = told
            if answer == "over":
                host.runs.pop(row.name)
                self.tell_end(host, run, host.worker, None)
            elif answer == "unknown":
                self.give_up(host, run, Parked(exit_code=19, why="unknown"))
            elif answer == "begin" and host.clock(self.now) < host.files[row.name]:
                self.act(host, run, step)
            else:
                self.give_up(host, run, Again(after_s=0.1, why=answer))

        self.send_until_heard(host, serve, heard, wanted=lambda: host.runs.get(row.name) is run)

    def act(self, host: Host, run: Run, step: int) -> None:
        command = Command(run.row, host, step)
        host.commands.append(command)
        self.ledger[run.row.name, command.step] += 1
        life = host.life

        def finish() -> None:
            if self.now < host.frozen_until:
                self.after(host.frozen_until - self.now, finish)
                return
            alive = self.lives(command)
            command.ended = True
            if host.life != life or host.runs.get(run.row.name) is not run:
                return
            if alive:
                self.complete(host, run, command.step)
            else:  # its keeper has killed it, and says so
                self.give_up(host, run, Again(after_s=self.lease_s, why="the lease has ended"))

        self.after(self.dice.uniform(0.05, 1.2) * self.lease_s, finish)

    def complete(self, host: Host, run: Run, step: int) -> None:
        """On record here first: an attempt of this machine after this one knows it, however late the server hears."""
        row = run.row
        host.logs[row.name] = run.generation, step + 1

        def serve() -> bool:
            if (row.owner, row.generation) != (host.name, run.generation):
                return False
            if row.done == step:
                row.done, row.open = step + 1, False
            return True

        def heard(mine: bool, _: float) -> None:
            if host.runs.get(row.name) is run:
                if mine:
                    self.step(host, run)
                else:
                    self.give_up(host, run, Again(after_s=0.1, why="fenced"))

        self.send_until_heard(host, serve, heard, wanted=lambda: host.runs.get(row.name) is run)

    def lives(self, command: Command) -> bool:
        """Until its keeper has asked, waited and killed."""
        host, look_s = command.host, min(0.1, self.lease_s / 40)
        over = host.files.get(command.row.name, -1e18) + stop_s(self.lease_s) + look_s
        return not command.ended and host.clock(self.now) < over

    # The server.

    def remote(self, row: Row) -> Remote:
        return Remote(
            generation=row.generation,
            owner=row.owner,
            seq=0,
            head=b"",
            lease_s=self.lease_s,
            age_s=self.now - row.renewed_at,
            up_s=self.now - self.up_since,
        )

    def end(self, row: Row, job: int, worker: int | None, outcome: Again | Parked | None) -> None:
        """A job is finished only by the worker that has it; None: the session is over."""
        if row.job != job or row.worker is None or row.worker != worker:
            self.seen["refused end"] += row.worker is not None
            return
        if isinstance(outcome, Again) and outcome.died:
            row.deaths = 1 if row.done > row.progress else row.deaths + 1
            row.progress = max(row.progress, row.done)
        final = after_deaths(outcome, row.deaths) if outcome is not None else None
        self.jobs += 1
        row.worker, row.job = None, self.jobs
        if isinstance(final, Again):
            row.state, row.due = "queued", self.now + final.after_s
        elif isinstance(final, Parked):
            row.state, row.reason = "parked", f"{final.exit_code}: {final.why}"
            self.seen[f"parked {final.exit_code}"] += 1
            self.after(self.dice.uniform(0, 2) * self.lease_s, lambda: self.decide(row))
        else:
            row.state = "done"

    def decide(self, row: Row) -> None:
        """A person says that a repeat is accepted, and the session is queued with that word; once the trouble is over
        nobody comes any more."""
        if row.state == "parked" and self.troubled():
            row.decided[row.done] += row.open
            row.state, row.due, row.deaths, row.reason = "queued", self.now, 0, ""

    # What must hold, always.

    def check(self) -> None:
        for host in self.hosts:
            host.commands = [one for one in host.commands if self.lives(one)]
            for command in host.commands:
                able = (
                    self.now >= host.frozen_until
                )  # the instant in which one thaws is the limit that the guide states
                assert not able or command.row.owner == host.name, (self.now, host.name, command.row)
        for row in self.rows:
            for step, times in row.starts.items():
                assert times <= 1 + row.decided[step], (self.now, row)

    def check_end(self) -> None:
        for row in self.rows:
            assert row.state in ("done", "parked"), f"lost: {row}"
            assert (row.state == "parked") == bool(row.reason), row
            for step in range(row.done):
                assert self.ledger[row.name, step] >= 1, f"an effect is missing: {row}"
                assert self.ledger[row.name, step] <= row.starts[step], f"an effect more than was begun: {row}"


def live(seed: int, **planted: bool) -> Counter[str]:
    world = World(seed, **planted)
    try:
        world.run()
        world.check_end()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world.seen

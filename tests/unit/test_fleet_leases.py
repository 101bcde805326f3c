"""Leases that end, simulated: several workers, one server, messages that are late or lost, machines that freeze, clocks
that neither agree nor run alike. Whatever happens, nobody can act who is not the owner.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from acode.lease_file import deadline_of, renew_every_s, stop_s
from acode.sync.protocol import Keep, Remote, Take, decide_take

TICK_S = 0.05
LOOK_S = 0.1  # a keeper looks at the clock that often at the least
DRIFT_MAX = 2e-4


@dataclass
class Row:
    owner: str | None = None
    generation: int = 0
    renewed_at: float = -1e9


@dataclass
class Host:
    name: str
    offset: float
    rate: float
    deadline: float = -1e9  # of the command that it runs, by its own clock
    generation: int = -1
    asks_at: float = 0.0
    cut_until: float = 0.0
    frozen_until: float = 0.0
    inbox: list[tuple[float, float, int]] = field(default_factory=list)  # when it comes, when it was asked, for which
    outbox: list[tuple[float, float, bool]] = field(default_factory=list)

    def clock(self, now: float) -> float:
        return self.offset + now * self.rate


class World:
    """Time goes by in ticks; the server's decisions are those of `decide_take`."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.lease_s = self.dice.choice([3.0, 5.0, 20.0, 60.0])
        self.now = 0.0
        self.up_since = -1e9
        self.down_until = 0.0
        self.row = Row()
        self.takes = 0
        self.hosts = [
            Host(f"h{number}", self.dice.uniform(-3600, 3600), 1 + self.dice.uniform(-DRIFT_MAX, DRIFT_MAX))
            for number in range(3)
        ]

    def step(self) -> None:
        self.now += TICK_S
        self._hurt()
        for host in self.hosts:
            if self.now >= host.frozen_until:
                self._deliver(host)
                self._ask(host)
        self._serve()

    def _hurt(self) -> None:
        host = self.dice.choice(self.hosts)
        if self.dice.random() < 0.004:
            host.cut_until = self.now + self.dice.uniform(0, 3) * self.lease_s
        if self.dice.random() < 0.002:
            host.frozen_until = self.now + self.dice.uniform(0, 3) * self.lease_s
        if self.dice.random() < 0.0005:
            self.down_until = self.now + self.dice.uniform(0, 2) * self.lease_s
            self.up_since = self.down_until

    def _ask(self, host: Host) -> None:
        """Renew what it has, or try to take over; a request is timed before it leaves."""
        if self.now < host.asks_at:
            return
        host.asks_at = self.now + renew_every_s(self.lease_s)
        if self.now >= host.cut_until:
            delay = self.dice.choice([0.01, 0.1, self.lease_s / 2, self.lease_s * 1.5])
            mine = host.generation == self.row.generation and self.row.owner == host.name
            host.outbox.append((self.now + delay, host.clock(self.now), mine or self.dice.random() < 0.5))

    def _serve(self) -> None:
        for host in self.hosts:
            due = [one for one in host.outbox if one[0] <= self.now]
            host.outbox = [one for one in host.outbox if one[0] > self.now]
            for _, asked, _ in due if self.now >= self.down_until else ():
                remote = Remote(
                    generation=self.row.generation,
                    owner=self.row.owner,
                    seq=0,
                    head=b"",
                    lease_s=self.lease_s,
                    age_s=self.now - self.row.renewed_at,
                    up_s=self.now - self.up_since,
                )
                match decide_take(host.name, remote, force=False, take_over=True):
                    case Take(generation=generation):
                        self.row = Row(host.name, generation, self.now)
                        self.takes += 1
                    case Keep():
                        self.row.renewed_at = self.now
                    case _:
                        continue
                host.inbox.append((self.now + self.dice.choice([0.01, self.lease_s]), asked, self.row.generation))

    def _deliver(self, host: Host) -> None:
        for arrives, asked, generation in [one for one in host.inbox if one[0] <= self.now]:
            host.inbox.remove((arrives, asked, generation))
            if self.now >= host.cut_until and generation >= host.generation:
                host.generation = generation
                host.deadline = max(host.deadline, deadline_of(asked, self.lease_s))

    def who_can_act(self) -> list[str]:
        """Hosts whose command may live: it is dead once its keeper has asked, waited and killed. A frozen one does
        nothing; what it does in the instant in which it thaws is the limit that the guide states."""
        dead_after = stop_s(self.lease_s) + min(LOOK_S, self.lease_s / 40)
        return [
            host.name
            for host in self.hosts
            if self.now >= host.frozen_until and host.clock(self.now) < host.deadline + dead_after
        ]


def live(seed: int, leases: int) -> int:
    world = World(seed)
    while world.now < leases * world.lease_s:
        world.step()
        able = world.who_can_act()
        assert set(able) <= {world.row.owner}, (seed, world.now, able, world.row)
    return world.takes


def test_nobody_can_act_who_is_not_the_owner() -> None:
    takes = [live(seed, 30) for seed in range(20)]
    assert sum(takes) > 40, "leases change hands in it"


@pytest.mark.release
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(100))
def test_nobody_can_act_who_is_not_the_owner_in_a_hundred_thousand_worlds(part: int) -> None:
    for seed in range(part * 1000, (part + 1) * 1000):
        live(1_000_000 + seed, 8)

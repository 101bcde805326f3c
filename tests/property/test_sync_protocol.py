"""The sync protocol as a deterministic simulation: two machines, one server, lost answers, crashes, and one seed.

The rules under test are the product's own: `exchange.push`, `exchange.release` and the decisions of `protocol` run
here against a server in memory whose line breaks wherever the seed says, also after a commit and before its answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from acode.sync.exchange import Batch, Pushed, push, release
from acode.sync.pacing import RETRY_S_MAX, Link, after_failure, after_success
from acode.sync.protocol import (
    Behind,
    Bring,
    Diverged,
    Fenced,
    Keep,
    Mine,
    Remote,
    RolledBack,
    Take,
    common_seq,
    decide_pull,
    decide_take,
)

SESSION = "s"
SEEDS_IN_GATE = 3_000
SEEDS_IN_SWEEP = 100_000
TURNS = 60
Row = tuple[int, str, bytes, bytes]


class LineLost(Exception):
    """Nobody knows what the server has heard."""


def code(previous: bytes, body: bytes) -> bytes:
    return hashlib.sha256(previous + body).digest()


class Server:
    """A ledger in memory. A transaction is all or nothing; its answer may be lost either way."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.remote: Remote | None = None
        self.log: list[Row] = []
        self.reachable = True
        self.forcing = False
        self._work: tuple[Remote | None, list[Row]] | None = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._maybe_break(0.08)
        self._work = (self.remote, list(self.log))
        try:
            yield
            self._maybe_break(0.08)  # before the commit was heard: nothing of it happened
            remote, log = self._work
            assert len(log) >= len(self.log) and log[: len(self.log)] == self.log, "history was rewritten"
            if remote is not None and self.remote is not None:
                assert remote.generation >= self.remote.generation, "a generation fell"
                if remote.owner != self.remote.owner and remote.owner is not None:
                    assert self.remote.owner is None or self.forcing, "a lease was taken that nobody had given back"
                    assert remote.generation > self.remote.generation, "a lease changed hands in the same generation"
            if remote is not None:
                assert remote.seq == len(log) and (not log or remote.head == log[-1][3]), "the anchor is not the end"
            self.remote, self.log = remote, log
        finally:
            self._work = None
        self._maybe_break(0.08)  # after the commit, before its answer

    def _maybe_break(self, odds: float) -> None:
        if not self.reachable or self.dice.random() < odds:
            raise LineLost

    def look(self, session_id: str) -> Remote | None:
        assert self._work is not None
        return self._work[0]

    def code_at(self, session_id: str, seq: int) -> bytes | None:
        log = self._work[1] if self._work is not None else self.log
        return log[seq - 1][3] if 1 <= seq <= len(log) else None

    def append(self, session_id: str, batch: Batch) -> int:
        assert self._work is not None
        self._maybe_break(0.03)
        remote, log = self._work
        new = [row for row in batch.events if row[0] > len(log)]
        assert [row[0] for row in new] == list(range(len(log) + 1, len(log) + 1 + len(new))), "a gap"
        self._work = (remote, [*log, *new])
        return len(new)

    def put(self, session_id: str, remote: Remote, *, new: bool) -> None:
        assert self._work is not None and new is (self._work[0] is None)
        self._work = (remote, self._work[1])


@dataclass
class Node:
    """One machine: its log, of which a part is durable, and what its cursor remembers, which a crash may forget."""

    name: str
    dice: random.Random
    log: list[Row] = field(default_factory=list)
    durable: int = 0
    generation: int = 0
    may_write: bool = False
    stopped: str = ""
    link: Link = field(default_factory=Link)
    refusals: int = 0

    def write(self) -> None:
        body = f"{self.name}{len(self.log)}{self.dice.random()}".encode()
        before = self.log[-1][3] if self.log else b""
        self.log.append((len(self.log) + 1, SESSION, body, code(before, body)))

    def code_at(self, seq: int) -> bytes | None:
        return self.log[seq - 1][3] if 1 <= seq <= len(self.log) else None

    def batch(self, after: int) -> Batch:
        return Batch(events=self.log[after : min(self.durable, after + 1 + self.dice.randrange(4))])

    def mine(self) -> Mine:
        return Mine(node=self.name, generation=self.generation, seq=len(self.log))

    def push(self, server: Server, now: float) -> None:
        if not self.link.may_try(now):
            return
        try:
            done = push(server, SESSION, self.mine(), self, holder=self.name)
        except LineLost:
            self.link = after_failure(self.link, "transient", now=now, dice=self.dice.random())
            assert now < self.link.retry_at <= now + RETRY_S_MAX
            return
        self.link = after_success()
        match done:
            case Pushed(generation=generation):
                assert generation >= self.generation
                assert server.log == self.log[: len(server.log)], "it may write on without having what is there"
                self.generation = generation
            case Fenced() | Behind():
                self.may_write, self.stopped = False, "fenced"
            case Diverged():
                self.may_write, self.stopped = False, "diverged"
            case RolledBack():
                raise AssertionError("nothing durable was ever lost here")
        self.refusals += not isinstance(done, Pushed)

    def give_back(self, server: Server) -> None:
        with contextlib.suppress(LineLost):
            if release(server, SESSION, self.mine()):
                self.may_write = False

    def take_over(self, server: Server, *, force: bool) -> None:
        """Pull, then the lease, as the command does; a lost answer leaves it to be tried again."""
        server.forcing = force
        try:
            self._take_over(server, force=force)
        finally:
            server.forcing = False

    def _take_over(self, server: Server, *, force: bool) -> None:
        with contextlib.suppress(LineLost), server.transaction():
            remote = server.look(SESSION)
            if remote is None or remote.seq == 0:
                return
            verdict = decide_take(self.name, remote, force=force)
            if isinstance(verdict, Fenced):
                return
            last = min(len(self.log), remote.seq)
            common = common_seq(last, lambda seq: self.code_at(seq) == server.code_at(SESSION, seq))
            plan = decide_pull(len(self.log), remote, common=common, force=force, keep_ahead=True)
            if isinstance(plan, Diverged):
                assert not force
                return
            if isinstance(plan, Bring):
                there = server._work[1] if server._work else server.log
                self.log = [*self.log[: plan.after], *there[plan.after : remote.seq]]
                self.durable = len(self.log)
            self.generation = verdict.generation
            self.may_write, self.stopped = True, ""
            assert isinstance(verdict, Take | Keep)
            server.put(
                SESSION,
                msgspec.structs.replace(remote, generation=verdict.generation, owner=self.name, holder=self.name),
                new=False,
            )

    def crash(self) -> None:
        """Power loss: what was not durable is gone, and so may be what the cursor remembered."""
        self.log = self.log[: self.durable]
        if self.dice.random() < 0.5:
            self.generation = max(0, self.generation - 1)


def simulate(seed: int) -> dict[str, int]:
    dice = random.Random(seed)
    server = Server(dice)
    nodes = [Node("a", dice, may_write=True), Node("b", dice)]
    seen = {"refusals": 0, "taken": 0}
    now = 0.0
    for _ in range(TURNS):
        now += dice.random() * 5
        node = dice.choice(nodes)
        act = dice.random()
        if act < 0.30 and node.may_write and not node.stopped:
            node.write()
            if dice.random() < 0.7:
                node.durable = len(node.log)
        elif act < 0.65:
            if node.log:
                node.push(server, now)
        elif act < 0.72:
            node.durable = len(node.log)
            node.give_back(server)
        elif act < 0.80:
            node.take_over(server, force=dice.random() < 0.4)
            seen["taken"] += node.may_write
        elif act < 0.88:
            node.crash()
        else:
            server.reachable = not server.reachable
        assert all(row[0] == number for number, row in enumerate(server.log, 1))
    quiesce(server, nodes, now)
    seen["refusals"] = sum(node.refusals for node in nodes)
    return seen


def quiesce(server: Server, nodes: list[Node], now: float) -> None:
    """The storm is over: each side tries until nothing changes. Then the server has the owner's log, whole."""
    server.reachable = True
    for node in nodes:
        node.durable = len(node.log)
    for _ in range(80):
        now += RETRY_S_MAX + 1
        for node in nodes:
            if node.log and not node.stopped:
                node.push(server, now)
    if server.remote is None:
        assert all(not node.log for node in nodes)
        return
    head = b""
    for seq, _, body, mac in server.log:
        assert mac == code(head, body), f"event {seq} does not continue the one before it"
        head = mac
    owners = [node for node in nodes if node.name == server.remote.owner and not node.stopped]
    for owner in owners:
        assert server.log == owner.log, "the server does not hold what its owner wrote"
    for node in nodes:
        if not node.stopped and node not in owners:
            assert server.log[: len(node.log)] == node.log, "a machine that is not stopped has a history of its own"


@pytest.mark.req("FR-011c-053", "FR-011c-055")
@pytest.mark.parametrize("block", range(4))
def test_whatever_is_lost_the_shared_log_is_one_history_without_gaps_or_repeats(block: int) -> None:
    size = SEEDS_IN_GATE // 4
    seen = [simulate(seed) for seed in range(block * size, (block + 1) * size)]
    assert sum(one["refusals"] for one in seen) > size // 10, "too few conflicts to have tested anything"
    assert sum(one["taken"] for one in seen) > size // 2


@pytest.mark.release
def test_whatever_is_lost_the_shared_log_is_one_history_over_many_seeds() -> None:
    for seed in range(SEEDS_IN_GATE, SEEDS_IN_SWEEP):
        simulate(seed)

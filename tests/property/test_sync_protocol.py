"""The sync protocol as a deterministic simulation: two machines, one server, lost answers, crashes, and one seed.

The rules under test are the product's own: `exchange.push`, `exchange.release` and the decisions of `protocol` run
here against a server in memory whose line breaks wherever the seed says, also after a commit and before its answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import pytest

from acode.seal import Keyring
from acode.sync.backoff import RETRY_S_MAX, Link, after_failure, after_success
from acode.sync.exchange import Batch, Pushed, push, release
from acode.sync.protocol import (
    Behind,
    Bring,
    Diverged,
    Fenced,
    Keep,
    Mine,
    Refusal,
    Remote,
    RolledBack,
    Take,
    common_seq,
    decide_pull,
    decide_take,
)
from acode.sync.signed_end import SignedEnd, read_end, sign_end
from tests.variants import first_of

SESSION = "s"
KEYS = Keyring(current="k", keys={"k": b"key"})
SEEDS_IN_GATE = 3_000
SEEDS_IN_SWEEP = 100_000
TURNS = 60
PARTING_BATCHES = 6
Row = tuple[int, str, bytes, bytes]


class LineLost(Exception):
    """Nobody knows what the server has heard."""


def code(previous: bytes, body: bytes) -> bytes:
    return hashlib.sha256(previous + body).digest()


class Server:
    """A ledger in memory. A transaction is all or nothing; its answer may be lost either way.

    Clients in `old` are of a version that does not note who holds a lease: what a newer one noted stays behind.
    """

    def __init__(self, dice: random.Random, old: frozenset[str] = frozenset()) -> None:
        self.dice = dice
        self.odds = 0.08  # that a message is the last one of its line
        self.remote: Remote | None = None
        self.log: list[Row] = []
        self.reachable = True
        self.forcing = False
        self.old = old
        self.client = ""
        self.noted: tuple[str | None, int] = (None, 0)
        self.last_holder = ""  # the truth, whatever anybody noted
        self._work: tuple[Remote | None, list[Row]] | None = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._maybe_break()
        self._work = (self.remote, list(self.log))
        try:
            yield
            self._maybe_break()  # before the commit was heard: nothing of it happened
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
            if remote is not None:
                self.last_holder = remote.owner or self.last_holder
                if self.client not in self.old:
                    self.noted = (remote.last, remote.generation)
        finally:
            self._work = None
        self._maybe_break()  # after the commit, before its answer

    def _maybe_break(self) -> None:
        if not self.reachable or self.dice.random() < self.odds:
            raise LineLost

    def look(self, session_id: str) -> Remote | None:
        assert self._work is not None
        remote, (last, generation) = self._work[0], self.noted
        if remote is None:
            return None
        return msgspec.structs.replace(remote, last=last if generation == remote.generation else None)

    def code_at(self, session_id: str, seq: int) -> bytes | None:
        log = self._work[1] if self._work is not None else self.log
        return log[seq - 1][3] if 1 <= seq <= len(log) else None

    def append(self, session_id: str, batch: Batch) -> int:
        assert self._work is not None
        self._maybe_break()
        remote, log = self._work
        new = [row for row in batch.events if row[0] > len(log)]
        assert [row[0] for row in new] == list(range(len(log) + 1, len(log) + 1 + len(new))), "a gap"
        self._work = (remote, [*log, *new])
        return len(new)

    def put(self, session_id: str, remote: Remote, *, new: bool, renewed: bool = True) -> None:
        assert self._work is not None and new is (self._work[0] is None)
        self._work = (remote, self._work[1])


@dataclass
class Node:
    """One machine: its log, of which a part is durable, and what its cursor remembers, which a crash may forget."""

    name: str
    dice: random.Random
    log: list[Row] = field(default_factory=list)
    durable: int = 0
    generations: list[int] = field(default_factory=lambda: [0])  # that the cursor held, one after the other
    may_write: bool = False
    stopped: str = ""
    link: Link = field(default_factory=Link)
    refusals: list[str] = field(default_factory=list)
    had: set[bytes] = field(default_factory=set)  # the codes of all events that were ever durable here

    @property
    def generation(self) -> int:
        return self.generations[-1]

    def write(self) -> None:
        body = f"{self.name}{len(self.log)}{self.dice.random()}".encode()
        before = self.log[-1][3] if self.log else b""
        self.log.append((len(self.log) + 1, SESSION, body, code(before, body)))

    def make_durable(self) -> None:
        self.durable = len(self.log)
        self.had.update(row[3] for row in self.log)

    def code_at(self, seq: int) -> bytes | None:
        return self.log[seq - 1][3] if 1 <= seq <= len(self.log) else None

    def batch(self, after: int) -> Batch:
        return Batch(events=self.log[after : min(self.durable, after + 1 + self.dice.randrange(4))])

    def sign(self, seq: int, head: bytes) -> bytes | None:
        return sign_end(KEYS, SESSION, seq, head)

    def signed_end(self, signed: bytes | None) -> SignedEnd | None:
        return read_end(KEYS, SESSION, signed)

    def mine(self) -> Mine:
        return Mine(node=self.name, generation=self.generation, seq=len(self.log))

    def push(self, server: Server, now: float) -> None:
        if not self.link.may_try(now):
            return
        server.client = self.name
        try:
            done = push(server, SESSION, self.mine(), self, holder=self.name)
        except LineLost:
            self.link = after_failure(self.link, "transient", now=now, dice=self.dice.random())
            assert now < self.link.retry_at <= now + RETRY_S_MAX
            return
        self.link = after_success()
        if isinstance(done, Pushed):
            assert done.generation >= self.generation
            assert server.log == self.log[: len(server.log)], "it may write on without having what is there"
            self.generations.append(done.generation)
            return
        self.judge(server, done)
        self.may_write, self.stopped = False, type(done).__name__
        self.refusals.append(self.stopped)

    def judge(self, server: Server, done: Refusal) -> None:
        """A refusal says why, and why must be true."""
        assert server.remote is not None
        everything_was_here = server.remote.head in self.had
        match done:
            case Fenced():
                assert server.remote.owner not in (None, self.name)
            case Diverged():
                last = min(len(server.log), len(self.log))
                assert server.log[:last] != self.log[:last]
            case RolledBack():
                assert everything_was_here, "nothing durable was ever lost here"
            case Behind():
                known = server.noted[1] == server.remote.generation or self.generation == server.remote.generation
                assert not (known and server.last_holder == self.name), "it had been the last to hold it"
                assert server.log[: len(self.log)] == self.log

    def give_back(self, server: Server, now: float) -> None:
        """At the end of a run: what is left, then the lease."""
        self.make_durable()
        for _ in range(PARTING_BATCHES):
            if self.log and not self.stopped:
                self.push(server, now)
        server.client = self.name
        with contextlib.suppress(LineLost):
            if release(server, SESSION, self.mine(), head=self.code_at(len(self.log))):
                assert server.log == self.log, "given back although something is owed"
                self.may_write = False

    def pull(self, server: Server, *, own: bool, force: bool) -> bool:
        """The rows come down, as the command does it; whether the lease may be asked for."""
        server.client = self.name
        with server.transaction():
            remote = server.look(SESSION)
        if remote is None or remote.seq == 0:
            return False
        if own and isinstance(decide_take(self.name, remote, force=force), Fenced):
            return False
        last = min(len(self.log), remote.seq)
        common = common_seq(last, lambda seq: self.code_at(seq) == server.code_at(SESSION, seq))
        plan = decide_pull(len(self.log), remote, common=common, force=force, keep_ahead=own)
        if isinstance(plan, Diverged):
            assert not force
            return False
        if isinstance(plan, Bring):
            self.log = [*self.log[: plan.after], *server.log[plan.after : remote.seq]]
            self.make_durable()
            if remote.owner == self.name:
                self.generations.append(remote.generation)
                self.may_write, self.stopped = True, ""
            else:
                self.may_write, self.stopped = False, "a copy"
        return own

    def take_over(self, server: Server, *, own: bool, force: bool) -> None:
        """Pull, then the lease; a lost answer leaves it to be tried again."""
        with contextlib.suppress(LineLost):
            if not self.pull(server, own=own, force=force):
                return
            server.forcing = force
            try:
                generation = self._take_lease(server, force=force)
            finally:
                server.forcing = False
            if generation is not None:
                self.generations.append(generation)
                self.may_write, self.stopped = True, ""

    def _take_lease(self, server: Server, *, force: bool) -> int | None:
        with server.transaction():
            remote = server.look(SESSION)
            if remote is None or remote.head != self.code_at(remote.seq):
                return None
            verdict = decide_take(self.name, remote, force=force)
            if isinstance(verdict, Take):
                lease = msgspec.structs.replace(
                    remote, generation=verdict.generation, owner=self.name, last=self.name, holder=self.name
                )
                server.put(SESSION, lease, new=False)
        return verdict.generation if isinstance(verdict, Take | Keep) else None

    def claim(self) -> None:
        """A person says that the session is this machine's, whatever was heard of others."""
        if self.log:
            self.may_write, self.stopped = True, ""

    def crash(self) -> None:
        """Power loss: what was not durable is gone, and so may be what the cursor remembered."""
        self.log = self.log[: self.durable]
        if self.dice.random() < 0.5 and len(self.generations) > 1:
            self.generations.pop()

    def restore_outputs(self) -> None:
        """Somebody restores an older copy of the database: log and cursor are as they once were."""
        self.log = self.log[: self.dice.randrange(self.durable + 1)]
        self.durable = len(self.log)
        self.generations = self.generations[: 1 + self.dice.randrange(len(self.generations))]
        if not self.log:
            self.may_write = False


def simulate(seed: int) -> Counter[str]:
    dice = random.Random(seed)
    server = Server(dice, old=frozenset("b") if seed % 4 == 0 else frozenset())
    nodes = [Node("a", dice, may_write=True), Node("b", dice)]
    seen: Counter[str] = Counter()
    now = 0.0
    for _ in range(TURNS):
        now += dice.random() * 5
        node = dice.choice(nodes)
        act = dice.random()
        if act < 0.30 and node.may_write and not node.stopped:
            node.write()
            if dice.random() < 0.7:
                node.make_durable()
        elif act < 0.62:
            if node.log:
                node.push(server, now)
        elif act < 0.69:
            node.give_back(server, now)
        elif act < 0.79:
            node.take_over(server, own=dice.random() < 0.7, force=dice.random() < 0.4)
            seen["taken"] += node.may_write
        elif act < 0.86:
            node.crash()
        elif act < 0.875:
            node.restore_outputs()
        elif act < 0.89:
            node.claim()
        else:
            server.reachable = not server.reachable
        assert all(row[0] == number for number, row in enumerate(server.log, 1))
    quiesce(server, nodes, now)
    for node in nodes:
        seen.update(node.refusals)
    return seen


def quiesce(server: Server, nodes: list[Node], now: float) -> None:
    """The storm is over: each side tries until nothing changes. Then the server has the owner's log, whole."""
    server.reachable = True
    for node in nodes:
        node.make_durable()
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
    owners = [node for node in nodes if node.name == server.remote.owner and node.log and not node.stopped]
    for owner in owners:
        assert server.log == owner.log, "the server does not hold what its owner wrote"
    for node in nodes:
        if not node.stopped and node not in owners:
            assert server.log[: len(node.log)] == node.log, "a machine that is not stopped has a history of its own"


@pytest.mark.req("FR-011c-053", "FR-011c-055")
@pytest.mark.parametrize("block", first_of(*range(4)))
def test_whatever_is_lost_the_shared_log_is_one_history_without_gaps_or_repeats(block: int) -> None:
    size = SEEDS_IN_GATE // 4
    seen = [simulate(seed) for seed in range(block * size, (block + 1) * size)]
    total = sum(seen, Counter())
    assert total["taken"] > size // 2
    for refusal in ("Fenced", "Behind", "Diverged", "RolledBack"):
        assert total[refusal] > size // 150, f"{refusal}: too few of them to have tested anything"


def test_a_machine_that_only_looked_is_behind_and_one_that_lost_its_log_was_rolled_back() -> None:
    """Found by the sweep: a copy was told that its log had been rolled back, because it knew the generation."""
    dice = random.Random()
    server, a, b = Server(dice), Node("a", dice, may_write=True), Node("b", dice)
    server.odds = 0.0

    def carried_on() -> None:
        a.write()
        a.make_durable()
        a.push(server, 0.0)

    carried_on()
    b.take_over(server, own=False, force=False)  # looks while a holds the lease
    kept = list(a.log)
    carried_on()
    a.give_back(server, 0.0)
    b.claim()
    b.push(server, 0.0)
    assert b.refusals == ["Behind"] and b.log == kept
    a.log, a.durable = kept, len(kept)
    a.push(server, 0.0)
    assert a.refusals == ["RolledBack"], "a had it last and had everything"
    b.take_over(server, own=True, force=False)
    b.write()
    b.give_back(server, 0.0)
    a.stopped = ""
    a.push(server, 0.0)
    assert a.refusals == ["RolledBack", "Behind"], "b has carried it on since"


@pytest.mark.release
def test_whatever_is_lost_the_shared_log_is_one_history_over_many_seeds() -> None:
    for seed in range(SEEDS_IN_SWEEP):
        simulate(seed)

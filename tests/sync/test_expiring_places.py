"""A session of a fleet in many places, as a simulation with one seed: nobody acts whose lease has ended.

The places are real workspaces with real databases, and the worker's own functions decide in them: the attempt that
takes the lease, sets a diverged workspace aside and gives the lease back; the renewal; the end of the lease in its
file. In memory are the server, the clock, and the command of a step, which ends when its keeper would end it. Others
act while it runs: they try to take over, workers are killed, renewals are late or lost, the server is away or restarts.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acode import lease_file, seal
from acode.engine.held_session import created, held
from acode.engine.workspace_store import opened
from acode.engine.world import World
from acode.errors import AcodeError, LeaseExpired
from acode.events import types as ev
from acode.fleet import attempt as attempts
from acode.fleet import renewal as renewals
from acode.fleet.attempt import Attempt
from acode.fleet.places import Places
from acode.fleet.queue import Job
from acode.fleet.renewal import Renewal
from acode.fleet.schedule import End, Outcome, Parked
from acode.fleet.server import Held, Member, Renewed
from acode.lease_file import read_deadline, renew_every_s, stop_s
from acode.state import State
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync import ownership
from acode.sync import push_now as sync_now
from acode.sync.delivery import Delivery, as_error
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.outbox import node_of
from acode.sync.postgres import ServerFailure
from acode.sync.protocol import Remote
from tests.builders import OWNER
from tests.simulated_server import URL, Server
from tests.sync.test_places import SECRET, is_step
from tests.worlds import world

SEEDS_IN_GATE = 12
SEEDS_TO_FIND = 40
SEEDS_IN_PORTION, PORTIONS = 300, 10
HOSTS, TURNS = 3, 30
LEASE_S = 6.0


class TimedServer(Server):
    """One clock for all: no machine's clock is compared with another's, and each that is used here runs alike."""

    def __init__(self, dice: random.Random, simulation: Simulation) -> None:
        super().__init__(dice)
        self.simulation = simulation
        self.clock_s = 1000.0

    def tick(self) -> None:
        self.simulation.pass_time(self.dice.choice([0.01, 0.05, 0.3]))


@dataclass
class Command:
    """The command of a step under its keeper."""

    host: Host
    step: int
    deadline_file: str
    dead_at_s: float = float("inf")


class SimulatedRenewal(Renewal):
    """On the server in memory, at the simulation's time."""

    server: Server

    def _connected(self, give_up: Any) -> Any:
        return self

    def renew(self, worker: int | None, held: list[Held], about: dict[str, Any]) -> Renewed:
        ledger = self.server.connect(URL, lambda: False)
        confirmed = set()
        with ledger.transaction():
            for one in held:
                remote = ledger.look(one.session_id)
                if remote is not None and (remote.owner, remote.generation) == (one.node, one.generation):
                    ledger.put(one.session_id, remote, new=False)
                    confirmed.add(one.session_id)
        return Renewed(worker=1, confirmed=frozenset(confirmed), cancelled={}, drain=False)


class Host:
    """A worker of a fleet with its disk, which is all that is left when it is killed."""

    def __init__(self, simulation: Simulation, home: Path) -> None:
        self.simulation = simulation
        home.mkdir()
        env = {"ACODE_POSTGRES_URL": URL, seal.SECRET_VARIABLE: SECRET, "PATH": "/nonexistent"}
        self.world = world(home, env=env)
        self.places = Places(home / "root")
        self.start()

    def start(self) -> None:
        self.renewal = SimulatedRenewal(self.world, LEASE_S, {}, lambda drain: None)
        self.renewal.server = self.simulation.server

    def node(self, session_id: str) -> str:
        return node_of(self.world.state_dir, self.places.workspace(session_id))


class Killed(BaseException):
    """The worker was killed where nothing of its own is left to be done."""


class SimulatedAttempt(Attempt):
    """The worker's own, with a child that performs one step in this process."""

    def __init__(self, simulation: Simulation, host: Host) -> None:
        session_id = simulation.session_id
        plain: dict[str, Any] = dict.fromkeys(Member.__struct_fields__)
        member = Member(**(plain | {"session_id": session_id, "source": {"kind": "none"}, "labels": []}))
        super().__init__(
            *(host.world, host.places, host.renewal),
            starter=None,  # type: ignore[arg-type]  # no process is started
            job=Job(id=1, session_id=session_id, queue="default", worker=1),
            member=member,
            lease_s=LEASE_S,
            holder=host.world.state_dir.parent.name,
        )
        self.simulation, self.host = simulation, host

    def _resume(self) -> End:
        simulation = self.simulation
        simulation.maybe_kill()
        child = msgspec.structs.replace(self._world, confirm_ownership=lambda store, session_id, must: None)
        try:
            with held(child, self._session_id) as run:
                step = 1 + sum(is_step(body) for _, body, _ in run.store.rows(self._session_id))
                if run.session.state is State.PAUSED:
                    run.append(ev.SessionExecuting(reason="resume"))
                run.append(ev.Noted(what="a step"))
                self._wait_for_server(child, run.store)
                simulation.act(self.host, step, self._lease.path)
                run.append(ev.SessionPaused(reason="user"))
        except AcodeError as error:
            return End(exit_code=error.exit_code, error_code=error.code, message=error.message)
        simulation.maybe_kill()
        return End(exit_code=143)

    def _wait_for_server(self, child: World, store: Store) -> None:
        """As the pusher does it directly before an act, without its thread."""
        while True:
            if self._lease.expired():
                raise LeaseExpired("the lease has ended")
            with contextlib.suppress(ServerFailure, Contradiction):
                last = sync_cursor.last_seq(store, self._session_id)
                ledger: Any = self.simulation.server.connect(URL, lambda: False)
                done = Delivery(child, store, ledger).deliver(self._session_id, last)
                if not isinstance(done, Pushed):
                    raise as_error(self._session_id, done)
                if done.seq >= last:
                    break
            self.simulation.pass_time(0.2)
        if self._lease.expired():
            raise LeaseExpired("the lease has ended")


class Simulation:
    def __init__(self, seed: int, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.dice = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.commands: list[Command] = []
        self.acted: set[int] = set()
        self.nested = False
        self.server = TimedServer(self.dice, self)
        for module in (ownership, sync_now):
            patch.setattr(module, "connect", self.server.connect)
        for module in (lease_file, attempts, renewals):
            patch.setattr(module, "boot_clock_s", lambda: self.server.clock_s)
        self.session_id = ""
        with self.server.reliable():
            self.session_id = self.submit(directory / "laptop")
        self.hosts = [Host(self, directory / f"host{number}") for number in range(HOSTS)]

    def submit(self, home: Path) -> str:
        home.mkdir()
        env = {"ACODE_POSTGRES_URL": URL, seal.SECRET_VARIABLE: SECRET, "PATH": "/nonexistent"}
        laptop = world(home, env=env)
        event = ev.SessionCreated(title="shared", task="shared", owner=OWNER, acode_version="0")
        with created(laptop, event, ev.SessionPaused(reason="submitted"), blobs={}) as run:
            session_id = run.session.session_id
        with opened(laptop, look_only=False) as store:
            ledger: Any = self.server.connect(URL, lambda: False)
            delivery = Delivery(laptop, store, ledger)
            delivery.deliver(session_id, sync_cursor.last_seq(store, session_id))
            delivery.release(session_id)
        return session_id

    # Time.

    def pass_time(self, seconds: float) -> None:
        """Keepers look at the file of their lease all the time: whoever reads an end that has come stops for good."""
        self.server.clock_s += seconds
        for one in self.commands:
            deadline_s = read_deadline(one.deadline_file)
            if self.server.clock_s >= deadline_s:
                one.dead_at_s = min(one.dead_at_s, deadline_s + stop_s(LEASE_S))

    # The world outside.

    def act(self, host: Host, step: int, deadline_file: str) -> None:
        alive = [one for one in self.commands if one.dead_at_s > self.server.clock_s]
        assert not alive, f"{alive[0].host.world.state_dir.parent.name} can still act"
        assert step not in self.acted, f"step {step} is done again"
        remote = self.server.sessions[self.session_id].remote
        assert remote.owner == host.node(self.session_id), "who acts is not the owner"
        self.acted.add(step)
        self.seen["acted"] += 1
        command = Command(host, step, deadline_file)
        self.commands.append(command)
        self.pass_time(0.0)
        if not self.nested:
            self.nested = True
            try:
                self.meanwhile(host)
            finally:
                self.nested = False
        if command.dead_at_s != float("inf"):
            self.pass_time(max(0.0, command.dead_at_s - self.server.clock_s))
            self.seen["stopped"] += 1
            raise LeaseExpired("the lease has ended: the command was stopped")
        self.commands.remove(command)

    def meanwhile(self, host: Host) -> None:
        others = [one for one in self.hosts if one is not host]
        for _ in range(self.dice.randrange(8)):
            self.turn(self.dice.choice([host, *others, *others]), busy=host)

    def maybe_kill(self) -> None:
        if self.dice.random() < 0.15:
            raise Killed

    # What happens.

    def run(self) -> Counter[str]:
        for _ in range(TURNS):
            self.turn(self.dice.choice(self.hosts), busy=None)
        self.come_to_rest()
        return self.seen

    def turn(self, host: Host, *, busy: Host | None) -> None:
        kind = self.dice.choices(["move on", "renew", "wait", "line", "restart"], [8, 6, 5, 2, 1])[0]
        if kind == "move on" and host is not busy:
            self.move_on(host)
        elif kind == "renew":
            host.renewal._renew()
        elif kind == "wait":
            self.pass_time(self.dice.choice([renew_every_s(LEASE_S), LEASE_S / 2, LEASE_S * 1.1]))
        elif kind == "line":
            self.server.line = self.dice.choice(["fine", "fine", "slow", "away"])
        elif kind == "restart":
            self.server.started_s = self.server.clock_s

    def move_on(self, host: Host) -> Outcome | None:
        """One attempt of a worker, from the lease to its end."""
        before = self.server.sessions[self.session_id].remote
        try:
            outcome = SimulatedAttempt(self, host).run()
        except Killed:
            self.seen["killed"] += 1
            host.start()
            return None
        after = self.server.sessions[self.session_id].remote
        if before.owner is not None and before.owner != host.node(self.session_id) and after.last != before.owner:
            self.seen["taken over"] += 1
        assert not isinstance(outcome, Parked), outcome
        return outcome

    def come_to_rest(self) -> None:
        """When the trouble is over, any worker can move the session on."""
        self.server.line = "fine"
        with self.server.reliable():
            self.pass_time(3 * LEASE_S)
            self.dice = random.Random(1)
            done = len(self.acted)
            for _ in range(3):
                with contextlib.suppress(Killed):
                    SimulatedAttempt(self, self.dice.choice(self.hosts)).run()
            assert len(self.acted) > done, "no worker can move it on"


def simulate(seed: int, directory: Path, **planted: Any) -> Counter[str]:
    """`planted`: other functions in the place of the attempt's, with a defect."""
    directory.mkdir()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, function in planted.items():
                patch.setattr(SimulatedAttempt, name, function)
            return Simulation(seed, directory, patch).run()
    finally:
        shutil.rmtree(directory)


def test_nobody_acts_whose_lease_has_ended_in_real_workspaces(tmp_path: Path) -> None:
    seen = sum((simulate(seed, tmp_path / str(seed)) for seed in range(SEEDS_IN_GATE)), Counter[str]())
    for what in ("acted", "taken over", "stopped", "killed"):
        assert seen[what] >= SEEDS_IN_GATE // 4, f"{what}: too few to have tested anything: {seen}"


def test_a_lease_that_its_worker_takes_again_runs_from_then_on_on_the_server_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another machine could take it over while this one, which counts from its request, still acts."""
    fleet = Simulation(0, tmp_path, monkeypatch)
    with fleet.server.reliable():
        SimulatedAttempt(fleet, fleet.hosts[0])._take()
        fleet.hosts[0].start()  # killed and started again: its disk and its lease are left
        fleet.pass_time(LEASE_S * 0.9)
        asked_at_s = fleet.server.clock_s
        assert SimulatedAttempt(fleet, fleet.hosts[0])._take().owned
    assert fleet.server.sessions[fleet.session_id].remote.renewed_s >= asked_at_s


def found(directory: Path, **planted: Any) -> str:
    """What the simulation says of a defect, at the first seed that shows it."""
    with pytest.raises(AssertionError) as told:
        for seed in range(SEEDS_TO_FIND):
            simulate(seed, directory / str(seed), **planted)
    return str(told.value)


def test_the_simulation_finds_a_step_that_begins_before_the_server_knows_of_it(tmp_path: Path) -> None:
    """A machine that takes over knows only what the server does."""

    def only_ask_the_clock(attempt: SimulatedAttempt, child: World, store: Store) -> None:
        if attempt._lease.expired():
            raise LeaseExpired("the lease has ended")

    assert "done again" in found(tmp_path, _wait_for_server=only_ask_the_clock)


def test_the_simulation_finds_a_command_that_outlives_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lease_file, renewals):
        monkeypatch.setattr(module, "deadline_of", lambda asked_at_s, lease_s: asked_at_s + 2 * lease_s)
    assert "can still act" in found(tmp_path)


def test_the_simulation_finds_a_lease_that_is_taken_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remote, "ends_in_s", lambda remote: 0.0)
    assert "can still act" in found(tmp_path)


@pytest.mark.release
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_nobody_acts_whose_lease_has_ended_over_many_seeds(tmp_path: Path, portion: int) -> None:
    for seed in range(portion * SEEDS_IN_PORTION, (portion + 1) * SEEDS_IN_PORTION):
        simulate(seed, tmp_path / str(seed))

"""A round: three hosts, sessions of every sort, every host and the server hurt. All end, or are parked for a reason
that is named; the ledger outside shows every effect of what has ended, once unless a decision is on record.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from acode.events import types as ev
from tests.driver import Running
from tests.fleets import Fleet, Host, processes_of_sessions, temporary_fleet
from tests.machines import socket_of
from tests.networks import Link, links_to, namespaces_work
from tests.postgres import Server

LEASE_S = 3.0
OUTAGE_S = LEASE_S * 1.7
ROUND_S_MAX = 240.0
LARGE_ROUND_S_MAX = 1500.0
SORTS = ("plain", "idempotent", "outputs", "gate", "probe", "writes")
# Why a session may need a person here, and the word by which its reason is known.
REASONS = {17: ".", 18: "", 19: "work."}


def act(fleet: Fleet, tag: str, step: str) -> str:
    """Says in the ledger that it began and ended; and that another was at work on it, if so."""
    lock = f"exec 9> {fleet.place}/{tag}.lock; flock -n 9 || echo {tag} {step} overlap >> {fleet.ledger}"
    return f"{lock}; echo {tag} {step} began >> {fleet.ledger}; sleep 0.4; echo {tag} {step} ended >> {fleet.ledger}"


def plan(fleet: Fleet, tag: str, sort: str) -> str:
    how = {"idempotent": "idempotent: true", "outputs": f"outputs: [{tag}.out]"}.get(sort, "")
    if sort == "probe":
        how = f"probe: \"grep -q '{tag} work.2 ended' {fleet.ledger}\""
    left = f"; echo out >> {tag}.out" if sort == "outputs" else ""
    between = {"gate": "approve: Go on?", "writes": f'write: {{path: {tag}.2, content: "y\\n"}}'}.get(sort, "read: in")
    return f"""
title: {tag}
tasks:
  - title: Work
    steps:
      - write: {{path: in, content: "x\\n"}}
      - run: "{act(fleet, tag, "work.2")}{left}"
        {how}
      - {between}
      - run: "{act(fleet, tag, "work.4")}"
        idempotent: true
"""


# The judgement.


@dataclass
class Told:
    """What the server says of a session when nothing moves any more."""

    tag: str
    state: str
    ended_with: int | None
    reason: str
    starts: Counter[str] = field(default_factory=Counter)
    decided: Counter[str] = field(default_factory=Counter)
    completed: set[str] = field(default_factory=set)


def told_of(fleet: Fleet, session_id: str, tag: str) -> Told:
    row = fleet.row(session_id)
    settled = [one for one in fleet.events(session_id, ev.StepSettled) if one.outcome is not ev.Settled.UNKNOWN]
    return Told(
        tag=tag,
        state=row["state"],
        ended_with=row["ended_with"],
        reason=row["reason"],
        starts=Counter(one.step for one in fleet.events(session_id, ev.StepStarted)),
        decided=Counter(one.step for one in settled),
        completed={one.step for one in fleet.events(session_id, ev.StepCompleted)},
    )


def wrong_in(lines: list[str], sessions: list[Told]) -> list[str]:
    """What the ledger outside and the records do not agree on. It knows nothing of how a fleet works."""
    seen = Counter(lines)
    wrong = [line for line in seen if line.endswith("overlap")]
    for one in sessions:
        wrong += [f"{one.tag} {what}" for what in _wrong_state(one)]
        for step in ("work.2", "work.4"):
            began, ended = (seen[f"{one.tag} {step} {word}"] for word in ("began", "ended"))
            wrong += [f"{one.tag} {step} {what}" for what in _wrong_effect(one, step, began, ended)]
    return wrong


def _wrong_state(one: Told) -> Iterator[str]:
    if one.state == "parked":
        if one.ended_with not in REASONS or not one.reason or REASONS[one.ended_with] not in one.reason:
            yield f"is parked with {one.ended_with}, and its reason is {one.reason!r}"
    elif one.state != "done":
        yield f"is lost: {one.state}"


def _wrong_effect(one: Told, step: str, began: int, ended: int) -> Iterator[str]:
    if began > one.starts[step] or one.starts[step] > 1 + one.decided[step]:
        yield f"began {began} times, with {one.starts[step]} starts and {one.decided[step]} decisions on record"
    if ended > began:
        yield f"ended {ended} times and began {began} times"
    over = one.state == "done" or step in one.completed
    if over and not ended:
        yield "has no effect, and is over"
    if over and not one.decided[step] and (began, ended) != (1, 1):
        yield f"began {began} times and ended {ended} times, and nobody decided that"


def assert_found(lines: list[str], sessions: list[Told]) -> None:
    """What the judgement must not overlook: a line that is lost or too many where nobody decided anything, a session
    that is nowhere, one that is parked without a word."""
    calm = [one for one in sessions if one.state == "done" and not one.decided["work.4"]]
    assert calm, "a round in which every session was hurt twice tells nothing"
    for one in calm[:2]:
        for line in (f"{one.tag} work.4 began", f"{one.tag} work.4 ended"):
            position = lines.index(line)
            assert wrong_in(lines[:position] + lines[position + 1 :], sessions), "a lost effect was overlooked"
            assert wrong_in([*lines, line], sessions), "a repeated effect was overlooked"
        for state in ("queued", "running", "parked"):
            assert wrong_in(lines, [Told(**{**vars(one), "state": state})]), "a lost session was overlooked"


# The round.


@dataclass
class Round:
    fleet: Fleet
    hosts: list[Host]
    links: list[Link]
    workers: list[Running]
    server: Server

    def hurt(self, kind: str, number: int) -> None:
        """Kill a worker alone, with its sessions' processes, or with all that it started; cut its link, or take the
        server down, for longer than a lease. Afterwards all are back."""
        worker = self.workers[number]
        if kind == "cut":
            self.links[number].cut()
            time.sleep(OUTAGE_S)
            self.links[number].mend()
        elif kind == "server":
            self.server.kill()
            time.sleep(OUTAGE_S)
            self.server.restart()
        else:
            if kind == "everything":
                worker.kill_everything()
            else:
                processes = processes_of_sessions(worker) if kind == "processes" else []
                worker.kill()
                for process in processes:
                    process.kill()
            self.workers[number] = self.hosts[number].work("--slots", "3")


def perform(fleet: Fleet, server: Server, hurts: list[tuple[str, int]], *, count: int, seed: int, real: bool) -> None:
    dice = random.Random(seed)
    seconds = ROUND_S_MAX if count <= len(SORTS) else LARGE_ROUND_S_MAX
    with links_to(socket_of(server), 3, real=real) as links:
        short = {"ACODE_FLEET_LEASE_SECONDS": str(LEASE_S)}
        hosts = [fleet.host(f"host{number}", link=link, **short) for number, link in enumerate(links, 1)]
        sessions = {}
        for number in range(count):
            sort = SORTS[number % len(SORTS)]
            sessions[fleet.submit(plan(fleet, f"{sort}{number}", sort))] = f"{sort}{number}"
        workers = [host.work("--slots", "3") for host in hosts]
        fleet.until(lambda: len(fleet.lines()) >= 2, seconds)
        performed = Round(fleet, hosts, links, workers, server)
        for kind, host in hurts:
            time.sleep(dice.uniform(0, 1))
            performed.hurt(kind, host)
        await_rest(performed, sessions, seconds)
        told, lines = [told_of(fleet, one, tag) for one, tag in sessions.items()], fleet.lines()
        assert wrong_in(lines, told) == []
        assert fleet.jobs() == 0
        assert_found(lines, told)
        for worker in performed.workers:
            worker.signal(signal.SIGTERM)


def await_rest(performed: Round, sessions: dict[str, str], seconds: float) -> None:
    """Until nothing moves any more; gates are answered on the way. A worker never ends by itself."""
    fleet, answered = performed.fleet, set[str]()

    def at_rest() -> bool:
        ended = [worker.finish() for worker in performed.workers if worker.ended]
        assert not ended, "\n\n".join(f"a worker ended with {one.exit_code}:\n{one.stderr}" for one in ended)
        rows = {one: fleet.row(one) for one in sessions}
        for one, row in rows.items():
            if row["state"] == "parked" and row["ended_with"] == 10 and one not in answered:
                answered.add(one)
                assert fleet.laptop("session", "approve", one).exit_code == 0
                return False
        return all(row["state"] in ("done", "parked") for row in rows.values())

    fleet.until(at_rest, seconds, lambda: str({tag: fleet.row(one) for one, tag in sessions.items()}))


@pytest.mark.timeout(500)
def test_hosts_and_a_server_that_fail_repeat_nothing_that_nobody_decided_and_lose_nothing(
    tmp_path: Path, postgres_server: Server, tables: str
) -> None:
    with postgres_server.database(tables) as dsn, temporary_fleet(tmp_path, dsn) as fleet:
        hurts = [("everything", 0), ("cut", 1), ("alone", 2), ("server", 0)]
        perform(fleet, postgres_server, hurts, count=len(SORTS), seed=1, real=False)


@pytest.mark.release
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(50))
def test_thirty_sessions_survive_a_round_in_which_everything_is_hurt(
    fleet: Fleet, postgres_server: Server, seed: int
) -> None:
    """Each host is killed once and its link cut once, the server is killed once; in an order by seed."""
    dice = random.Random(seed)
    kills = dice.sample(["alone", "processes", "everything"], 3)
    hurts = [*((kind, host) for host, kind in enumerate(kills)), *(("cut", host) for host in range(3)), ("server", 0)]
    dice.shuffle(hurts)
    perform(fleet, postgres_server, hurts, count=30, seed=seed, real=namespaces_work())


@pytest.mark.release
def test_a_server_that_was_away_for_longer_than_a_lease_takes_nothing_from_the_living(
    fleet: Fleet, postgres_server: Server
) -> None:
    """Its leases are older than a lease when it comes back, and their holders live."""
    session_id = fleet.submit(plan(fleet, "plain", "idempotent"))
    fleet.host("one", hasty=True).work()
    fleet.until(lambda: len(fleet.lines()) >= 1)
    postgres_server.kill()
    time.sleep(OUTAGE_S * 2)
    postgres_server.restart()
    fleet.host("two", hasty=True).work()
    fleet.wait(session_id, "done", "parked")
    assert wrong_in(fleet.lines(), [told_of(fleet, session_id, "plain")]) == []
    assert fleet.row(session_id)["state"] == "done"

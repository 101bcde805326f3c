"""A round: three hosts, sessions of every sort, every host hurt once. All end, or are parked for the right reason; the
ledger outside shows no repeat that nobody decided, none lost, and never two at work on the same step.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from acode.events import types as ev
from tests.driver import Running
from tests.fleets import LEASE_S, Fleet, Host, Link, temporary_fleet
from tests.machines import socket_of, url_of
from tests.postgres import Server

ROUND_S_MAX = 240.0
SORTS = ("plain", "idempotent", "outputs", "gate", "probe", "writes")
REASONS = {10, 17, 18, 19}  # a gate, a file that is gone with its host, workers that died, an outcome nobody saw


@pytest.fixture
def fleet(tmp_path: Path, database: str) -> Iterator[Fleet]:
    with temporary_fleet(tmp_path, database) as made:
        yield made


def act(fleet: Fleet, tag: str, step: str) -> str:
    """Says in the ledger that it began and ended; and that another was at work on it, if so."""
    lock = f"exec 9> {fleet.place}/{tag}.lock; flock -n 9 || echo {tag} {step} overlap >> {fleet.ledger}"
    return f"{lock}; echo {tag} {step} began >> {fleet.ledger}; sleep 0.4; echo {tag} {step} ended >> {fleet.ledger}"


def plan(fleet: Fleet, tag: str, sort: str) -> str:
    how = {"idempotent": "idempotent: true", "outputs": f"outputs: [{tag}.out]"}.get(sort, "")
    if sort == "probe":
        how = f"probe: \"grep -q '{tag} work.2 ended' {fleet.ledger}\""
    left = f"; echo out >> {tag}.out" if sort == "outputs" else ""
    gate = "      - approve: Go on?\n" if sort == "gate" else ""
    third = "work.4" if gate else "work.3"
    return f"""
title: {tag}
tasks:
  - title: Work
    steps:
      - write: {{path: {tag}.txt, content: "x\\n"}}
      - run: "{act(fleet, tag, "work.2")}{left}"
        {how}
{gate}      - run: "{act(fleet, tag, third)}"
        idempotent: true
"""


def hurt(kind: str, worker: Running, link: Link, host: Host) -> Running:
    """Kill the worker alone, or with all that it started, or cut its link for longer than a lease; then it is back."""
    if kind == "cut":
        link.cut()
        time.sleep(LEASE_S * 1.7)
        link.mend()
        return worker
    if kind == "alone":
        worker.kill()
    elif kind == "worker":
        children = psutil.Process(worker.pid).children()
        worker.kill()
        for child in children:
            child.kill()
    else:
        worker.kill_everything()
    return host.work("--slots", "3")


def assert_kept(fleet: Fleet, sessions: dict[str, str]) -> None:
    lines = Counter(fleet.lines())
    assert not [line for line in lines if line.endswith("overlap")]
    for session_id, tag in sessions.items():
        row = fleet.row(session_id)
        assert row["state"] == "done" or row["ended_with"] in REASONS, (tag, row)
        settled = [one for one in fleet.events(session_id, ev.StepSettled) if one.outcome is not ev.Settled.UNKNOWN]
        completed = {one.step for one in fleet.events(session_id, ev.StepCompleted)}
        for step in ("work.2", "work.3", "work.4"):
            decided = sum(one.step == step for one in settled)
            assert lines[f"{tag} {step} began"] <= 1 + decided, (tag, step, fleet.lines(), settled)
            if step in completed and lines[f"{tag} {step} began"] == 0:
                assert step == "work.3" and "gate" in tag, "a step that was never done is no completed one"


def round_of(fleet: Fleet, server: Server, count: int, seed: int) -> None:
    dice = random.Random(seed)
    links = [Link(socket_of(server)) for _ in range(3)]
    try:
        hosts = [fleet.host(f"host{number}", url=url_of(fleet.dsn, link.port)) for number, link in enumerate(links, 1)]
        sessions = {}
        for number in range(count):
            sort = SORTS[number % len(SORTS)]
            tag = f"{sort}{number}"
            sessions[fleet.submit(plan(fleet, tag, sort))] = tag
        workers = [host.work("--slots", "3") for host in hosts]
        kinds = ["alone", "everything", "cut"] if seed % 2 else ["worker", "everything", "cut"]
        dice.shuffle(kinds)
        fleet.until(lambda: len(fleet.lines()) >= 2, ROUND_S_MAX)
        for number, kind in enumerate(kinds):
            time.sleep(dice.uniform(0, 1))
            workers[number] = hurt(kind, workers[number], links[number], hosts[number])
        await_rest(fleet, sessions)
        assert_kept(fleet, sessions)
        for worker in workers:
            worker.signal(signal.SIGTERM)
    finally:
        for link in links:
            link.close()


def await_rest(fleet: Fleet, sessions: dict[str, str]) -> None:
    """Until nothing moves any more; gates are answered on the way."""
    answered: set[str] = set()

    def at_rest() -> bool:
        rows = {one: fleet.row(one) for one in sessions}
        for one, row in rows.items():
            if row["state"] == "parked" and row["ended_with"] == 10 and one not in answered:
                answered.add(one)
                assert fleet.laptop("session", "approve", one).exit_code == 0
                return False
        return all(row["state"] in ("done", "parked") for row in rows.values())

    fleet.until(at_rest, ROUND_S_MAX, lambda: str({tag: fleet.row(one) for one, tag in sessions.items()}))


@pytest.mark.timeout(400)
def test_hosts_that_are_killed_and_cut_off_repeat_nothing_that_nobody_decided_and_lose_nothing(
    fleet: Fleet, postgres_server: Server
) -> None:
    round_of(fleet, postgres_server, len(SORTS), seed=1)


@pytest.mark.release
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(50))
def test_thirty_sessions_survive_a_round_in_which_every_host_is_hurt(
    fleet: Fleet, postgres_server: Server, seed: int
) -> None:
    round_of(fleet, postgres_server, 30, seed)


def test_a_server_that_was_away_for_longer_than_a_lease_takes_nothing_from_the_living(
    tmp_path: Path, postgres_server: Server
) -> None:
    """Its leases are older than a lease when it comes back, and their holders live."""
    with postgres_server.database() as dsn, temporary_fleet(tmp_path, dsn) as fleet:
        session_id = fleet.submit(plan(fleet, "plain", "idempotent"))
        fleet.host("one").work()
        fleet.until(lambda: len(fleet.lines()) >= 1)
        postgres_server.kill()
        time.sleep(LEASE_S * 1.5)
        postgres_server.restart()
        fleet.host("two").work()
        fleet.wait(session_id, "done", "parked")
        assert_kept(fleet, {session_id: "plain"})
        assert fleet.row(session_id)["state"] == "done"

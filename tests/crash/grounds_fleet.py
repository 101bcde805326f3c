"""Grounds of a fleet: a session that waits on the server for a worker, for a person, or for somebody to take it over.

A worker has no end of its own, so each that works here is drained as soon as nothing is left to do for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from acode.events import decode
from acode.events import types as ev
from tests.crash import grounds
from tests.crash.grounds_shared import share
from tests.crash.oracle import undecided_in
from tests.crash.place import Place
from tests.driver import Acode
from tests.fleets import LEASE_S, LOOK_S, SETTINGS

WORKER = "one"
NO_ATTEMPT_MORE = ("parked", "done", "failed", "cancelled")
TURNS_MAX = 8
WAITS_FOR_GO = 'while [ ! -e "$LEDGER.go" ]; do sleep 0.1; done'
PLANS = {
    "fleet": "",
    "fleet_gate": "      - approve: Go on?\n        id: gate\n",
    "fleet_fails": f"      - run: {json.dumps(f'{grounds.NOTE}; exit 1')}\n        id: fails\n",
    "fleet_slow": f"      - run: {json.dumps(f'{grounds.NOTE}; {WAITS_FOR_GO}')}\n        id: slow\n"
    "        idempotent: true\n",
}
PLAN = """
title: Fleet
tasks:
  - title: work
    steps:
      - write: {{path: a.txt, content: "a\\n"}}
{middle}      - run: {last}
        id: last
"""


def fleet(place: Place) -> None:
    """A server, settings for a short lease, and plans; nobody has submitted anything."""
    place.outside.empty()
    share(place)
    place.more_env |= SETTINGS
    for name, middle in PLANS.items():
        (place.root / f"{name}.yml").write_text(PLAN.format(middle=middle, last=json.dumps(grounds.NOTE)))


def submitted(place: Place, plan: str = "fleet") -> None:
    fleet(place)
    ended = place.acode("submit", f"../{plan}.yml", "--json")
    assert ended.exit_code == 0, ended
    place.names["there"] = ended.json["session_id"]


def parked(place: Place, plan: str, code: int) -> None:
    submitted(place, plan)
    work(place)
    assert rows(place) == [("parked", code)], rows(place)


waits_for_a_yes = partial(parked, plan="fleet_gate", code=10)
waits_for_an_outcome = partial(parked, plan="fleet_fails", code=19)
slow = partial(submitted, plan="fleet_slow")


def of_a_dead_worker(place: Place) -> None:
    """Its worker was killed with everything while a command ran, on another machine, and its lease has ended."""
    submitted(place, "fleet_slow")
    other = Place(place.root.parent / "elsewhere")
    other.workspace.mkdir(parents=True, exist_ok=True)
    other.more_env = {**place.more_env, "LEDGER": os.fspath(place.ledger)}
    worker = Acode(other.workspace).process("worker", "--name", WORKER, env=other.env())
    try:
        wait_until(lambda: bool(place.effects()))
    finally:
        worker.kill_everything()
    let_go(place)
    with asked(place) as connection:
        connection.execute("UPDATE acode_sessions SET renewed_at = now() - interval '1 hour'")
        wait_until(lambda: up_s(connection) > LEASE_S)


def up_s(connection: psycopg.Connection[Any]) -> float:
    row = connection.execute("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8").fetchone()
    assert row is not None
    return float(row[0])


# The server's word.


@contextlib.contextmanager
def asked(place: Place) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(place.outside.dsn, autocommit=True) as connection:
        yield connection


def rows(place: Place) -> list[tuple[str, int | None]]:
    """Every session of the fleet: its state, and the exit status of its last attempt. Before the first one is submitted
    the server has no tables of a fleet.
    """
    with asked(place) as connection:
        if connection.execute("SELECT to_regclass('acode_fleet_sessions')").fetchone() == (None,):
            return []
        return connection.execute("SELECT state, ended_with FROM acode_fleet_sessions ORDER BY 1").fetchall()


def reasons(place: Place) -> list[tuple[str]]:
    with asked(place) as connection:
        return connection.execute("SELECT reason FROM acode_fleet_sessions ORDER BY 1").fetchall()


def number_of_sessions(place: Place) -> int:
    return len(rows(place))


def logs(place: Place) -> dict[str, list[Any]]:
    """The events of each session."""
    found: dict[str, list[Any]] = {}
    with asked(place) as connection:
        for session_id, seq, body in connection.execute("SELECT session_id, seq, body FROM acode_events ORDER BY 1, 2"):
            found.setdefault(session_id, []).append(decode(bytes(body), session_id, seq).event)
    return found


def in_the_fleet(place: Place) -> dict[str, Any]:
    """All that a person could find on the server when nothing is to do any more."""
    with asked(place) as connection:
        left = {
            "jobs": connection.execute("SELECT count(*) FROM procrastinate_jobs").fetchone(),
            "held": connection.execute("SELECT count(*) FROM acode_sessions WHERE owner IS NOT NULL").fetchone(),
            "progress": connection.execute("SELECT steps_done, steps_total FROM acode_sessions").fetchall(),
        }
    undecided = [step for one in logs(place).values() for step in undecided_in(one)]
    return {"rows": rows(place), **left, "undecided": undecided}


# What people and workers do.


def wait_until(there: Callable[[], bool]) -> None:
    """A sweep has its own time limit."""
    pause = threading.Event()
    while not there():
        pause.wait(LOOK_S)


def work(place: Place, until: Callable[[], bool] | None = None) -> None:
    """A worker in this process, asked to end as soon as this is so; else when no session has an attempt before it."""
    ended = threading.Event()
    enough = until or (lambda: all(state in NO_ATTEMPT_MORE for state, _ in rows(place)))

    def drain() -> None:
        with asked(place) as connection:
            while not ended.wait(LOOK_S):
                if enough():
                    connection.execute("UPDATE acode_fleet_workers SET drain = true WHERE NOT drain")

    helper = threading.Thread(target=drain, daemon=True)
    helper.start()
    try:
        said = place.acode("worker", "--name", WORKER)
        assert said.exit_code == 0, said
    finally:
        ended.set()
        helper.join()


def to_the_end(place: Place, plan: str = "fleet") -> None:
    """What a person does: submit what is not there, answer what is asked, and let a worker do the rest."""
    if not rows(place):
        assert place.acode("submit", f"../{plan}.yml", "--json").exit_code == 0
    let_go(place)
    for _ in range(TURNS_MAX):
        match rows(place):
            case [("done", _)]:
                return
            case [("parked", 10)]:
                said = place.acode("session", "approve", session_of(place), "--json")
            case [("parked", 19)]:
                said = say_what_became(place)
            case [("parked", code)]:
                raise AssertionError(f"parked with {code}: {reasons(place)}")
            case _:
                work(place)
                continue
        assert said.exit_code == 0, said
    raise AssertionError(f"not finished after {TURNS_MAX} turns: {rows(place)}")


def go_of(place: Place) -> Path:
    return place.ledger.with_name(f"{place.ledger.name}.go")


def let_go(place: Place) -> None:
    """Slow commands end from here on."""
    go_of(place).touch()


def session_of(place: Place) -> str:
    with asked(place) as connection:
        ((name,),) = connection.execute("SELECT session_id FROM acode_fleet_sessions").fetchall()
    return str(name)


def say_what_became(place: Place) -> Any:
    """The person looks at what is really there, and is believed."""
    (events,) = logs(place).values()
    ended = {one.step for one in events if isinstance(one, ev.StepCompleted)}
    step = next(one.step for one in reversed(events) if isinstance(one, ev.StepStarted) and one.step not in ended)
    happened = "--applied" if place.effects()[step] else "--not-applied"
    return place.acode("session", "resolve", session_of(place), step, happened, "--json")


def one_session(place: Place) -> None:
    """A worker performs a session that was submitted, and is started again until it is done."""
    with grounds.environment(place):
        to_the_end(place)


def drained(place: Place) -> None:
    """A worker is drained while a command of its session runs, and another performs the rest."""
    with grounds.environment(place):
        if not go_of(place).exists() and not place.effects():
            work(place, until=lambda: bool(place.effects()))
        to_the_end(place)

"""A fleet for tests: a laptop that submits, and hosts with a home, a state and a root of their own, on one server."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from acode.events import decode
from acode.events import types as ev
from tests.driver import WAIT_S_MAX, Ended, Running
from tests.machines import Machine, url_of
from tests.networks import ENTER, Link

LEASE_S = 6.0  # where a test waits for its end
CALM_S = 15.0  # elsewhere: on a busy machine a worker may be late, and no test is about that
LOOK_S = 0.1
SETTINGS = {
    "ACODE_FLEET_LEASE_SECONDS": str(LEASE_S),
    "ACODE_RESUME_COOLDOWN_SECONDS_PROCESS_CRASH": "0",
    "ACODE_RESUME_COOLDOWN_SECONDS_TOOL_FAILURE": "0",
    "ACODE_RESUME_COOLDOWN_SECONDS_TIMEOUT": "0",
}


class Host(Machine):
    """A machine of the fleet, whose worker is a real process. `hasty`: its leases end soon; `link`: how it reaches the
    server."""

    patient = False

    def __init__(self, place: Path, dsn: str, *, hasty: bool, link: Link | None = None, **settings: str) -> None:
        super().__init__(place, url_of(dsn, link.port, link.address) if link is not None else url_of(dsn))
        self._namespace = link.namespace if link is not None else ""
        lease_s = LEASE_S if hasty else CALM_S
        self.env |= SETTINGS | {"ACODE_FLEET_LEASE_SECONDS": str(lease_s)} | settings
        self.name = place.name

    def work(self, *words: str) -> Running:
        return self.process("worker", "--name", self.name, *words)

    def process(self, *args: str | Path, **env: str) -> Running:
        if not self._namespace:
            return super().process(*args, **env)
        return self.program(ENTER, *args, ACODE_TEST_NETWORK=self._namespace, **env)

    def program(self, text: str, *args: str | Path, **env: str) -> Running:
        """A program that becomes acode."""
        path = os.pathsep.join([os.environ["PYTHONPATH"], os.fspath(Path(__file__).parent.parent)])
        return self._acode.process(*args, env={**self.env, "PYTHONPATH": path, **env}, program=("-c", text))

    def root(self) -> Path:
        return self.place / "state" / "fleet" / self.name

    def workspace_of(self, session_id: str) -> Path:
        return self.root() / "sessions" / session_id


class Fleet:
    """What a test asks of a fleet, and what the server knows of it."""

    def __init__(self, place: Path, dsn: str) -> None:
        self.place = place
        self.dsn = dsn
        self.laptop = Machine(place / "laptop", url_of(dsn))
        self.ledger = place / "ledger"
        self._hosts: list[Host] = []
        self._line: psycopg.Connection[Any] | None = None

    def host(self, name: str, *, link: Link | None = None, hasty: bool = False, **settings: str) -> Host:
        made = Host(self.place / name, self.dsn, hasty=hasty, link=link, **settings)
        self._hosts.append(made)
        return made

    def submit(self, text: str, *words: str | Path) -> str:
        ended = self.laptop("submit", self.laptop.plan(text), *words, "--json")
        assert ended.exit_code == 0, ended.stderr + ended.stdout
        return str(ended.json["session_id"])

    def close(self) -> None:
        for host in self._hosts:
            host.stop()
        if self._line is not None:
            self._line.close()

    # The server's word.

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """On one connection: whoever waits asks often, and each new one is a process of the server's."""
        if self._line is not None and not self._line.closed:
            with contextlib.suppress(psycopg.OperationalError):  # the server was killed since
                return self._line.execute(query.encode(), values).fetchall()
        self._line = psycopg.connect(self.dsn, autocommit=True)
        return self._line.execute(query.encode(), values).fetchall()

    def row(self, session_id: str) -> dict[str, Any]:
        names = "state, job, worker, attempts, deaths, ended_with, reason, next_action, key, due_at"
        (row,) = self.ask(f"SELECT {names} FROM acode_fleet_sessions WHERE session_id = %s", session_id)
        return dict(zip(names.split(", "), row, strict=True))

    def wait(self, session_id: str, *states: str, seconds: float = WAIT_S_MAX) -> dict[str, Any]:
        self.until(lambda: self.row(session_id)["state"] in states, seconds, lambda: str(self.row(session_id)))
        return self.row(session_id)

    def until(self, there: Callable[[], bool], seconds: float = WAIT_S_MAX, shown: Callable[[], str] = str) -> None:
        until = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < until, shown()
            time.sleep(LOOK_S)

    def events(self, session_id: str, kind: type[Any]) -> list[Any]:
        query = "SELECT seq, body FROM acode_events WHERE session_id = %s ORDER BY seq"
        found = [decode(bytes(body), session_id, seq).event for seq, body in self.ask(query, session_id)]
        return [event for event in found if isinstance(event, kind)]

    def holder(self, session_id: str) -> str | None:
        query = "SELECT CASE WHEN owner IS NULL THEN NULL ELSE holder END FROM acode_sessions WHERE session_id = %s"
        ((name,),) = self.ask(query, session_id)
        return None if name is None else str(name)

    def jobs(self) -> int:
        ((number,),) = self.ask("SELECT count(*) FROM procrastinate_jobs")
        return int(number)

    # The world outside.

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def assert_each_repeat_was_decided(self, session_id: str, word: str, step: str) -> None:
        """Every line in the ledger but the first stands for an attempt that a recorded decision allowed."""
        settled = [one for one in self.events(session_id, ev.StepSettled) if one.step == step]
        allowed = [one for one in settled if one.outcome is not ev.Settled.UNKNOWN]
        assert self.lines().count(word) <= 1 + len(allowed), (self.lines(), settled)


def processes_of_sessions(worker: Running) -> list[psutil.Process]:
    """Those of the attempts, with the server that forks them; their commands have keepers of their own."""
    found = psutil.Process(worker.pid).children()
    for server in list(found):
        with contextlib.suppress(psutil.NoSuchProcess):  # some other child, which has ended
            found += server.children()
    return found


@contextlib.contextmanager
def temporary_fleet(place: Path, dsn: str) -> Iterator[Fleet]:
    fleet = Fleet(place, dsn)
    try:
        yield fleet
    finally:
        fleet.close()


def last_document(ended: Ended) -> Any:
    return json.loads(ended.stdout)

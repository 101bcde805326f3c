"""A fleet for tests: a laptop that submits, and hosts with a home, a state and a root of their own, on one server."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from acode.events import decode
from acode.events import types as ev
from tests.driver import WAIT_S_MAX, Ended, Running
from tests.machines import Machine, shared_log, url_of

LEASE_S = 3.0
SETTINGS = {
    "ACODE_FLEET_LEASE_SECONDS": str(LEASE_S),
    "ACODE_RESUME_COOLDOWN_SECONDS_PROCESS_CRASH": "0",
    "ACODE_RESUME_COOLDOWN_SECONDS_TOOL_FAILURE": "0",
    "ACODE_RESUME_COOLDOWN_SECONDS_TIMEOUT": "0",
}


class Host(Machine):
    """A machine of the fleet; its worker is a real process."""

    patient = False

    def __init__(self, place: Path, url: str, **settings: str) -> None:
        super().__init__(place, url)
        self.env |= SETTINGS | settings
        self.name = place.name

    def work(self, *words: str) -> Running:
        return self.process("worker", "--name", self.name, *words)

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

    def host(self, name: str, *, url: str | None = None, **settings: str) -> Host:
        made = Host(self.place / name, url or url_of(self.dsn), **settings)
        self._hosts.append(made)
        return made

    def submit(self, text: str, *words: str | Path) -> str:
        ended = self.laptop("submit", self.laptop.plan(text), *words, "--json")
        assert ended.exit_code == 0, ended.stderr + ended.stdout
        return str(ended.json["session_id"])

    def close(self) -> None:
        for host in self._hosts:
            host.stop()

    # The server's word.

    def row(self, session_id: str) -> dict[str, Any]:
        names = "state, job, worker, attempts, deaths, ended_with, reason, key, due_at"
        with psycopg.connect(self.dsn) as connection:
            query = f"SELECT {names} FROM acode_fleet_sessions WHERE session_id = %s"
            row = connection.execute(query.encode(), (session_id,)).fetchone()
        assert row is not None
        return dict(zip(names.split(", "), row, strict=True))

    def wait(self, session_id: str, *states: str, seconds: float = WAIT_S_MAX) -> dict[str, Any]:
        self.until(lambda: self.row(session_id)["state"] in states, seconds, lambda: str(self.row(session_id)))
        return self.row(session_id)

    def until(self, there: Callable[[], bool], seconds: float = WAIT_S_MAX, shown: Callable[[], str] = str) -> None:
        until = time.monotonic() + seconds
        while not there():
            assert time.monotonic() < until, shown()
            time.sleep(0.05)

    def events(self, session_id: str, kind: type[Any]) -> list[Any]:
        found = [decode(bytes(body), session_id, seq).event for seq, body, _ in shared_log(self.dsn, session_id)]
        return [event for event in found if isinstance(event, kind)]

    def holder(self, session_id: str) -> str | None:
        with psycopg.connect(self.dsn) as connection:
            query = "SELECT CASE WHEN owner IS NULL THEN NULL ELSE holder END FROM acode_sessions WHERE session_id = %s"
            row = connection.execute(query, (session_id,)).fetchone()
        assert row is not None
        return None if row[0] is None else str(row[0])

    def jobs(self) -> int:
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute("SELECT count(*) FROM procrastinate_jobs").fetchone()
        assert row is not None
        return int(row[0])

    # The world outside.

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def assert_each_repeat_was_decided(self, session_id: str, word: str, step: str) -> None:
        """Every line in the ledger but the first stands for an attempt that a recorded decision allowed."""
        settled = [one for one in self.events(session_id, ev.StepSettled) if one.step == step]
        allowed = [one for one in settled if one.outcome is not ev.Settled.UNKNOWN]
        assert self.lines().count(word) <= 1 + len(allowed), (self.lines(), settled)


@contextlib.contextmanager
def temporary_fleet(place: Path, dsn: str) -> Iterator[Fleet]:
    fleet = Fleet(place, dsn)
    try:
        yield fleet
    finally:
        fleet.close()


def last_document(ended: Ended) -> Any:
    return json.loads(ended.stdout)


class Link:
    """A host's way to the server: a port here that leads to the server's socket. Cut, it swallows everything and says
    nothing, as a network does that drops packets."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._up = threading.Event()
        self._up.set()
        self._closed = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._up.clear()

    def mend(self) -> None:
        self._up.set()

    def close(self) -> None:
        self._closed = True
        self._up.set()
        for one in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                there.connect(self._path)
            except OSError:  # the server is down
                here.close()
                there.close()
                continue
            self._sockets += [here, there]
            for source, target in ((here, there), (there, here)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._up.wait()
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

"""Renew all leases of a worker at once, and say until when its sessions may act.

One thread, one connection, one transaction for all sessions. The deadline of each goes to its file only when the server
has confirmed it, timed from before it was asked: whatever happens to this process, what it wrote last is true.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from acode.engine.world import World
from acode.errors import AcodeError
from acode.fleet.server import FleetServer, Held
from acode.lease_file import Lease, boot_clock_s, deadline_of, renew_every_s, write_deadline
from acode.sync.exchange import Contradiction
from acode.sync.postgres import ServerFailure, connect, translated
from acode.sync.push_now import server_of


class Renewal:
    """The leases of one worker. `on_news`: told what people want of it."""

    def __init__(self, world: World, lease_s: float, about: dict[str, Any], on_news: Callable[[bool], None]) -> None:
        self._world = world
        self._lease_s = lease_s
        self._about = about
        self._on_news = on_news
        self._held: dict[str, tuple[Held, Lease]] = {}
        self._turn = threading.Condition()
        self._hurried = False
        self._ends = False
        self._server: FleetServer | None = None
        self._thread = threading.Thread(target=self._run, name="acode-renewal", daemon=True)
        self.worker: int | None = None  # its number, from the first answer of the server on
        self.cancelled: dict[str, str] = {}
        self.problem = ""  # why the server could not be asked; empty: it could

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._turn:
            self._ends = True
            self._turn.notify_all()
        self._thread.join()
        if self._server is not None:
            self._server.ledger.close()

    def wait_until_known(self, seconds: float) -> bool:
        """Whether the server has given this worker its number."""
        with self._turn:
            return self._turn.wait_for(lambda: self.worker is not None or self._ends, seconds)

    def hold(self, held: Held, lease: Lease, asked_at_s: float) -> None:
        """A lease that was just taken, by a request that began then."""
        write_deadline(lease.path, deadline_of(asked_at_s, lease.seconds))
        with self._turn:
            self._held[held.session_id] = (held, lease)
            self._hurried = True
            self._turn.notify_all()

    def let_go(self, session_id: str) -> None:
        with self._turn:
            self._held.pop(session_id, None)

    def _run(self) -> None:
        while True:
            self._renew()
            with self._turn:
                self._turn.wait_for(lambda: self._ends or self._hurried, renew_every_s(self._lease_s))
                self._hurried = False
                if self._ends:
                    return

    def _renew(self) -> None:
        with self._turn:
            held = dict(self._held)
        asked_at_s = boot_clock_s()
        until_s = asked_at_s + max(1.0, self._lease_s / 3)
        try:
            server = self._connected(lambda: boot_clock_s() > until_s or self._ends)
            answer = server.renew(self.worker, [one for one, _ in held.values()], self._about)
        except (ServerFailure, Contradiction, AcodeError) as error:
            self.problem = self._world.redactor.text(str(error))
            if self._server is not None:
                self._server.ledger.close()
                self._server = None
            return
        self.problem = ""
        for session_id in answer.confirmed:
            lease = held[session_id][1]
            write_deadline(lease.path, deadline_of(asked_at_s, lease.seconds))
        with self._turn:
            self.worker, self.cancelled = answer.worker, answer.cancelled
            self._turn.notify_all()
        self._on_news(answer.drain)

    def _connected(self, give_up: Callable[[], bool]) -> FleetServer:
        if self._server is None:
            ledger = connect(server_of(self._world), give_up)
            self._server = FleetServer(ledger)
            with translated(ledger.url):
                self._server.queue.prepare()
        self._server.ledger.connection.give_up = give_up  # type: ignore[attr-defined]
        return self._server

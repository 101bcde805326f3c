"""A line to a PostgreSQL server that tests can cut before or after any message, both ways, make slow, or make deaf."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

Way = Literal["to the server", "to the client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """At this message of one direction, counted over all connections; `delivered`: it still arrives, its answer not."""

    way: Way
    message: int
    delivered: bool
    then: Callable[[], None] = lambda: None


class Line:
    """Listens on a port of this machine and passes everything on to a socket, message by message."""

    def __init__(self, server: str, *, cut: Cut | None = None, reply_delay_s: float = 0.0) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.cut = cut
        self.reply_delay_s = reply_delay_s
        self.deaf = False  # whoever calls is hung up on
        self.cuts = 0
        self.was_cut = threading.Event()
        self.replies = 0
        self.messages: dict[Way, int] = {"to the server": 0, "to the client": 0}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._open = True
        self._start(self._accept)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open = False
        for end in list(self._ends):
            hang_up(end)
        for thread in list(self._threads):
            thread.join()
        for end in self._ends:
            end.close()

    def hang_up(self) -> None:
        """Cut all connections that stand now."""
        for end in self._ends[1:]:
            hang_up(end)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while self._open:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._ends.append(client)
                if self.deaf:
                    hang_up(client)
                    continue
                server = socket.socket(socket.AF_UNIX)
                self._ends.append(server)
                try:
                    server.connect(self._server)
                except OSError:  # the server is down
                    hang_up(client)
                    continue
                self._start(self._pass_on, client, server, "to the server")
                self._start(self._pass_on, server, client, "to the client")

    def _pass_on(self, source: socket.socket, target: socket.socket, way: Way) -> None:
        with contextlib.suppress(OSError):
            pending, starting = b"", way == "to the server"
            while data := source.recv(65_536):
                pending += data
                while (size := message_size(pending, way, starting=starting)) is not None:
                    message, pending = pending[:size], pending[size:]
                    starting = starting and size == 8  # a request for encryption is followed by the real beginning
                    if not self._let_through(message, way, source, target):
                        return
        hang_up(source)
        hang_up(target)

    def _let_through(self, message: bytes, way: Way, source: socket.socket, target: socket.socket) -> bool:
        with self._lock:
            number = self.messages[way]
            self.messages[way] += 1
            hit = self.cut is not None and not self.cuts and (self.cut.way, self.cut.message) == (way, number)
            self.cuts += hit
        if hit and self.cut is not None:
            self.cut.then()
            self.was_cut.set()
            client, server = (source, target) if way == "to the server" else (target, source)
            if self.cut.delivered:
                if way == "to the server":
                    hang_up(client)  # first: the answer must not get through
                with contextlib.suppress(OSError):
                    target.sendall(message)
                    target.shutdown(socket.SHUT_WR)
            if not (self.cut.delivered and way == "to the server"):
                hang_up(server)
            hang_up(client)
            return False
        if way == "to the client" and message[:1] == b"Z":  # ready for the next question: an answer is complete
            self.replies += 1
            if self.reply_delay_s:
                time.sleep(self.reply_delay_s)  # the slowness is what is tested
        target.sendall(message)
        return True


def message_size(pending: bytes, way: Way, *, starting: bool) -> int | None:
    """How many bytes the first message has, or None while it is not whole."""
    if starting:
        size = int.from_bytes(pending[:4]) if len(pending) >= 4 else None
    elif way == "to the client" and len(pending) == 1 and pending in (b"N", b"S"):
        size = 1
    else:
        size = 1 + int.from_bytes(pending[1:5]) if len(pending) >= 5 else None
    return size if size is not None and len(pending) >= size else None


def hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it; closing alone would not

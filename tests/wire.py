"""A wire to a PostgreSQL server, cut at a step's COMMIT: before the server hears it, or before the client does."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Literal


class Wire:
    """Listens on a port of this machine and passes everything on, until the COMMIT of the n-th sql step."""

    def __init__(
        self,
        server: str,
        *,
        cut: Literal["before", "after"],
        step: int = 1,
        then: Callable[[], None] = lambda: None,
        heals: bool = True,
    ) -> None:
        self._server = server
        self._cut = cut
        self._step = step
        self._then = then
        self._heals = heals
        self._keys = 0
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for it; closing alone would not
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._ends.append(client)
                if self.cuts and not self._heals:
                    client.shutdown(socket.SHUT_RDWR)
                    continue
                server = socket.socket(socket.AF_UNIX)
                self._ends.append(server)
                server.connect(self._server)
                self._start(self._from_client, client, server)
                self._start(self._from_server, server, client)

    def _from_client(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65_536):
                self._keys += b"INSERT INTO" in data and b"acode_applied" in data
                if self._keys == self._step and b"COMMIT\0" in data and not self.cuts:
                    self.cuts += 1
                    self._then()
                    client.shutdown(socket.SHUT_RDWR)  # first: the answer must not get through
                    if self._cut == "after":
                        server.sendall(data)
                    break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _from_server(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

"""How the hosts of a test reach a server: each by a link of its own that can be cut.

Where root may make network namespaces each host is in one of its own, with a real address and a cable that is taken
down. Elsewhere a port on this machine leads to the server, and swallows everything while it is cut.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Protocol

# What a process runs first that belongs into a namespace; Python has no such call before 3.12.
ENTER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.setns(os.open(os.environ["ACODE_TEST_NETWORK"], os.O_RDONLY), 0x40000000):
    raise OSError(ctypes.get_errno(), "setns")
from acode.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Link(Protocol):
    address: str
    port: int
    namespace: str  # a file; empty: that of this process

    def cut(self) -> None: ...
    def mend(self) -> None: ...


class Forwarder:
    """A port that leads to a server's socket. Cut, it swallows everything and says nothing, as a network does that
    drops packets."""

    namespace = ""

    def __init__(self, path: str, address: str = "127.0.0.1") -> None:
        self.address = address
        self._path = path
        self._up = threading.Event()
        self._up.set()
        self._closed = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server((address, 0))
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


class Cable:
    """The cable of a host in a namespace of its own; all cables end in one bridge, at which the server listens."""

    def __init__(self, name: str, address: str, port: int) -> None:
        self._name = name
        self.address = address
        self.port = port
        self.namespace = f"/var/run/netns/{name}"

    def cut(self) -> None:
        ip("link", "set", self._name, "down")

    def mend(self) -> None:
        ip("link", "set", self._name, "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def namespaces_work() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"acn{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@contextlib.contextmanager
def links_to(path: str, count: int, *, real: bool) -> Iterator[list[Link]]:
    """`real`: in namespaces; the caller has asked whether they work."""
    with contextlib.ExitStack() as stack:
        if not real:
            ports = [Forwarder(path) for _ in range(count)]
            for one in ports:
                stack.callback(one.close)
            yield list(ports)
            return
        yield list(cables(stack, path, count))


def cables(stack: contextlib.ExitStack, path: str, count: int) -> list[Cable]:
    bridge, net = f"acb{os.getpid()}", f"10.{201 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
    ip("link", "add", bridge, "type", "bridge")
    stack.callback(ip, "link", "delete", bridge)
    ip("address", "add", f"{net}.1/24", "dev", bridge)
    ip("link", "set", bridge, "up")
    server = Forwarder(path, f"{net}.1")
    stack.callback(server.close)
    made = []
    for number in range(count):
        name = f"acn{os.getpid()}x{number}"
        ip("netns", "add", name)
        stack.callback(ip, "netns", "delete", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", name, "master", bridge, "up")
        for words in (("address", "add", f"{net}.{number + 2}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            ip("-n", name, *words)
        made.append(Cable(name, server.address, server.port))
    return made

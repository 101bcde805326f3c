"""The resident: it has the engine loaded, and forks a process for each payload that a hook brings.

It saves the time that loading takes, and decides nothing: it holds no session, no lock and no connection, and a hook
that gets no whole answer handles its payload itself. It ends with the agents that it serves, when its code is replaced,
or when nobody has called for a while. Only its own user reaches it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from acode.disk import file_lock
from acode.disk.own_files import open_own
from acode.forked import stamp_of_code
from acode.observed.hook import agent_pid
from acode.observed.hook_payload import PAYLOAD_BYTES_MAX
from acode.redact import redactor

IDLE_S = 900.0
LEARN_AFTER_S = 0.5
PIPE_BYTES_MAX = 60_000
BACKLOG = 64
HEADER_BYTES_MAX = 200
ENVIRONMENT_BYTES_MAX = 16 * 1024 * 1024


Handled = Callable[[str, bytes, dict[str, str], int], tuple[int, bytes, bytes, Callable[[], None] | None]]


class Hook(NamedTuple):
    """What the program of the hook does itself where nobody serves it: one way for both."""

    handled: Handled  # doors, payload, environment and parent: the exit status, what is printed, what records that
    record_said: Callable[[Callable[[], None]], None]
    refusal: Callable[[BaseException], bytes]
    socket_name: Callable[[int], str]


def serve_from_hook(doors: str, parent: int, hook: Hook) -> None:
    """Leave a resident behind, unless there is one. The hook's own process ends as if there were none."""
    if sys.platform != "linux":
        return
    agent = agent_pid(parent)
    if os.fork():
        return
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        signal.setitimer(signal.ITIMER_REAL, 0)
        serve(doors, agent, hook)
    finally:
        os._exit(0)


def serve(doors: str, agent: int, hook: Hook) -> None:
    directory = os.open(doors, os.O_RDONLY | os.O_DIRECTORY)
    path = hook.socket_name(directory)
    lock = open_own(f"{path}.lock", os.O_RDWR | os.O_CREAT)
    if not file_lock.try_lock(lock):
        return  # another one serves already
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(BACKLOG)
        try:
            Resident(listener, doors, hook).serve(agent)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


class Resident:
    def __init__(self, listener: socket.socket, doors: str, hook: Hook) -> None:
        self.listener, self.doors, self.hook = listener, doors, hook
        self.agents: dict[int, int] = {}  # by descriptor: the processes whose end is its own
        self.code = stamp_of_code()
        self.learning: list[int] = []
        redactor([]).text("its rules are made with the first text")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    def serve(self, agent: int) -> None:
        self.watch(agent)
        while self.agents and self.code == stamp_of_code():
            watched = [self.listener.fileno(), *self.agents]
            ready, _, _ = select.select(watched, [], [], LEARN_AFTER_S if self.learning else IDLE_S)
            if not ready and not self.learning:
                return
            for ended in [one for one in ready if one in self.agents]:
                os.close(ended)
                del self.agents[ended]
            if self.listener.fileno() in ready and self.code == stamp_of_code():
                self.answer()
            elif self.learning:
                self.learn()
            self.reap()

    def watch(self, pid: int) -> None:
        if sys.platform != "linux":
            raise NotImplementedError
        if pid not in self.agents.values():
            with contextlib.suppress(OSError):
                self.agents[os.pidfd_open(pid)] = pid

    def answer(self) -> None:
        connection, _ = self.listener.accept()
        with connection:
            request = Request.read(connection, self.doors) if is_ours(connection) else None
            if request is None:
                return
            self.watch(agent_pid(request.parent))
            learned, learning = os.pipe()
            if os.fork() == 0:
                os.close(learned)
                request.answer(connection, learning, self.hook)
            os.close(learning)
            self.learning.append(learned)

    def learn(self) -> None:
        """Load what the processes before had to load, so that the next ones find it."""
        for learned in self.learning:
            with contextlib.suppress(OSError), open(learned, encoding="utf-8") as names:
                for name in names.read().split():
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
        self.learning.clear()
        gc.collect()
        gc.freeze()  # what is never looked at again is not copied by the next one

    @staticmethod
    def reap() -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


class Request:
    """A payload with the environment of the hook that brings it."""

    def __init__(self, parent: int, env: dict[str, str], data: bytes, doors: str) -> None:
        self.parent, self.env, self.data, self.doors = parent, env, data, doors

    @classmethod
    def read(cls, connection: socket.socket, doors: str) -> Request | None:
        connection.settimeout(5.0)
        try:
            text = b""
            while b"\n" not in text:
                piece = connection.recv(65_536)
                if not piece or (b"\n" not in text + piece and len(text) > HEADER_BYTES_MAX):
                    return None
                text += piece
            head, _, body = text.partition(b"\n")
            parent, env_bytes, data_bytes = map(int, head.split())
            if env_bytes > ENVIRONMENT_BYTES_MAX or data_bytes > PAYLOAD_BYTES_MAX + 1:
                return None
            pieces, size = [body], len(body)
            while size < env_bytes + data_bytes and (piece := connection.recv(1024 * 1024)):
                pieces.append(piece)
                size += len(piece)
        except (OSError, ValueError):
            return None
        whole = b"".join(pieces)
        if len(whole) != env_bytes + data_bytes:
            return None
        pairs = (os.fsdecode(one).partition("=") for one in whole[:env_bytes].split(b"\0") if one)
        return cls(parent, {name: value for name, _, value in pairs}, whole[env_bytes:], doors)

    def answer(self, connection: socket.socket, learning: int, hook: Hook) -> NoReturn:
        """In the forked process: as if the hook itself handled it."""
        known = set(sys.modules)
        try:
            os.environ.clear()
            os.environ.update(self.env)
            try:
                status, out, err, once_said = hook.handled(self.doors, self.data, self.env, self.parent)
            except BaseException as error:
                status, out, err, once_said = 2, b"", hook.refusal(error), None
            connection.settimeout(5.0)
            head = b"%d %d %d %d\n" % (status, len(out), len(err), once_said is not None)
            connection.sendall(head + out + err)
            if once_said is not None and connection.recv(1):  # the hook has printed it
                hook.record_said(once_said)
            connection.close()
            os.write(learning, "\n".join(name for name in sys.modules if name not in known).encode()[:PIPE_BYTES_MAX])
        finally:
            os._exit(0)


def is_ours(connection: socket.socket) -> bool:
    """Whether the other end belongs to this user, by the kernel's word."""
    if sys.platform != "linux":
        raise NotImplementedError
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", found)[1] == os.geteuid())

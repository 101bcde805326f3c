"""Start the keeper of one command: by the keeper server on Linux, as a process of its own elsewhere.

The keeper is handed the lock on `alive`, which acode took before, and the pipe that it wakes acode by. Whatever dies in
between, either the keeper has them or they are closed. A process that was itself forked with everything loaded forks
its keeper server (`fork_server`); every other one starts it as a program.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from acode import forked
from acode.steps import keeper

if TYPE_CHECKING:
    import socket

_INHERITED = ("Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp", "Cpus_allowed")
_SPACES = ("mnt", "net", "pid", "user", "ipc", "uts", "cgroup")


def start_keeper(request: dict[str, Any], env: dict[str, str], cwd: str, alive: int, wake: int) -> None:
    if can_serve():
        _SERVER.send({**request, "env": env, "keeper_cwd": cwd}, alive, wake)
    else:
        _start_alone({**request, "wake_fd": wake if sys.platform != "win32" else None}, env, cwd, (alive, wake))


def can_serve() -> bool:
    return sys.platform == "linux" and hasattr(os, "memfd_create") and os.path.exists("/proc/self/status")


class KeeperServer:
    """The server of this process, started with the first command and again where it has ended."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | ForkedServer | None = None
        self._inherited: object = None

    def send(self, request: dict[str, Any], alive: int, wake: int) -> None:
        if sys.platform != "linux":  # elsewhere every keeper is started by itself
            raise NotImplementedError
        import socket

        body = os.memfd_create("request", os.MFD_CLOEXEC)  # of any size, and never on a disk
        try:
            with open(body, "wb", closefd=False) as file:
                file.write(json.dumps(request).encode())
            os.lseek(body, 0, os.SEEK_SET)
            with self._turn:
                try:
                    socket.send_fds(self._ready(), [b"."], [body, alive, wake])
                except (BrokenPipeError, ConnectionResetError):  # it has ended, and so has taken nothing
                    self._end()
                    socket.send_fds(self._ready(), [b"."], [body, alive, wake])
        finally:
            os.close(body)

    def _ready(self) -> socket.socket:
        """A server that hands on to commands what this process would: its limits, its user, its umask."""
        inherited = _inherited()
        if self._socket is None or inherited != self._inherited:
            self._end()
            return self._have(*_started_server(), inherited)
        return self._socket

    def fork(self) -> None:
        self._have(*_forked_server(), _inherited())

    def _have(
        self, line: socket.socket, process: subprocess.Popen[bytes] | ForkedServer, inherited: object
    ) -> socket.socket:
        self._socket, self._process, self._inherited = line, process, inherited
        forked.own(self, KeeperServer._disown)
        atexit.unregister(self._disown)
        atexit.register(self._disown)  # it ends when the socket does; nobody waits for it at the end of a program
        return line

    def _end(self) -> None:
        """It ends by itself when its socket closes; keepers that it has forked live on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._process.wait()
            self._process = None

    def _disown(self) -> None:
        """In a forked child: the server is the parent's, and must see the parent's end. At the end of this process:
        the same, without a warning about a process that still runs.
        """
        self._turn = threading.Lock()
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for
        self._process = None


def _started_server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        program = Path(keeper.__file__).resolve().with_name("keeper_server.py")
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", os.fspath(program), str(theirs.fileno()), json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},  # every command brings its own
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return ours, process


class ForkedServer:
    """A keeper server that is a fork of this process, with what is asked of a process here."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> None:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _forked_server() -> tuple[socket.socket, ForkedServer]:
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        pid = os.fork()
        if pid == 0:
            _become_server(theirs)
    return ours, ForkedServer(pid)


def _become_server(requests: socket.socket) -> NoReturn:
    """Keep nothing of the process that it was forked from, as if it were a program of its own."""
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        from acode.steps.keeper_server import serve

        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != requests.fileno():
                with contextlib.suppress(OSError):  # that of the list itself
                    os.close(number)
        os.environ.clear()  # every command brings its own
        serve(requests, sys.path)
    finally:
        os._exit(1)


def _inherited() -> object:
    """What a process hands on to those that it starts, as far as a running one can change it."""
    if sys.platform != "linux":
        raise NotImplementedError
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        status = [line for line in file if line.startswith(_INHERITED)]
    with open("/proc/self/limits", encoding="utf-8", errors="replace") as file:
        limits = file.read()
    spaces = [os.readlink(f"/proc/self/ns/{name}") for name in _SPACES if os.path.exists(f"/proc/self/ns/{name}")]
    return status, limits, spaces, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)


def _start_alone(request: dict[str, Any], env: dict[str, str], cwd: str, inherited: tuple[int, int]) -> None:
    os.set_inheritable(inherited[1], True)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", os.fspath(Path(keeper.__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=env,
        pass_fds=inherited if sys.platform != "win32" else (),
        start_new_session=sys.platform != "win32",
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
    _ALONE[process.pid] = process


_SERVER = KeeperServer()
_ALONE: dict[int, subprocess.Popen[bytes]] = {}  # keepers that are our children, so that they can be reaped


def fork_server() -> None:
    """In a process with one thread, which has loaded what a keeper needs: its keeper server is a fork of it. One that
    cannot be forked now is started with the first command."""
    if can_serve():
        with contextlib.suppress(OSError):
            _SERVER.fork()


def reap() -> None:
    for pid, process in list(_ALONE.items()):
        if process.poll() is not None:
            del _ALONE[pid]

"""The attempt server: a process of a worker that has the engine loaded, and forks one process for each attempt.

To load the engine takes several times as long as a short plan. What a fork begins with is what a new interpreter would:
one thread, no session, lock, connection or id, the dispositions of signals and the environment that the worker has
given. It is a process of its own, which lives on when the worker or this server dies, and which nothing but its lease
stops then. The server ends with the worker, by its end of the socket; a request to end that goes to all processes of a
unit waits here until then, because the worker still wants to know how its attempts end.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
from typing import Any, NamedTuple, NoReturn

from acode.forked import stamp_of_code
from acode.steps import keeper_start

FDS = 3  # the request, what the attempt says, how it ends
BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else ()
READY, FORKED, REPLACED, FAILED = b"ready", b"forked", b"replaced", b"failed"
# What `acode resume` of a plan loads when it is called.
LOADED = (
    "acode.cli.app",
    "acode.cli.begin_anew",
    "acode.cli.follow_run",
    "acode.cli.resume",
    "acode.engine.resume",
    "acode.engine.source",
    "acode.steps.keeper_server",
    "acode.sync.pusher",
    "getpass",
    "psycopg",
    "rfc8785",
    "uuid_utils",
)


class Asked(NamedTuple):
    """An attempt that is to be made by this process."""

    request: dict[str, Any]
    said: int


class AttemptServer:
    def __init__(self, line: socket.socket, code: object) -> None:
        self._line = line
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._running: dict[int, tuple[int, int]] = {}  # by descriptor of the process: its number, where its end goes
        self._code = code
        self._closed = False
        self._unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)

    def serve(self) -> Asked:
        """Returns in each forked process; the server itself ends here, when nobody can ask any more and the last
        attempt has ended."""
        self._line.send(READY)
        while self._running or not self._closed:
            for key, _ in self._selector.select():
                if key.fileobj is not self._line:
                    self._tell_end(key.fd)
                elif (asked := self._answer()) is not None:
                    return asked
        os._exit(0)

    def _answer(self) -> Asked | None:
        word, fds, _, _ = socket.recv_fds(self._line, 1, FDS)
        if not word:
            self._closed = True
            self._selector.unregister(self._line)
        with contextlib.ExitStack() as opened:
            for fd in fds:
                opened.callback(os.close, fd)
            if self._closed:
                return None
            if len(fds) != FDS:
                self._line.send(FAILED)
            elif stamp_of_code() != self._code:  # the rest of it would be loaded from another version
                self._line.send(REPLACED)
            elif self._forked(fds[2]):
                opened.pop_all()
                self._become_attempt()
                with open(fds[0], "rb") as file:
                    return Asked(json.loads(file.read()), fds[1])
        return None

    def _forked(self, end: int) -> bool:
        """Whether this is the new process."""
        if sys.platform != "linux":  # elsewhere every attempt is a new interpreter
            raise NotImplementedError
        try:
            pid = os.fork()
        except OSError:
            self._line.send(FAILED)
            return False
        if pid == 0:
            return True
        process = os.pidfd_open(pid)
        self._running[process] = (pid, os.dup(end))
        self._selector.register(process, selectors.EVENT_READ)
        socket.send_fds(self._line, [FORKED], [process])
        return False

    def _become_attempt(self) -> None:
        """Leave what is the server's. The pipe for the end stays open: a worker whose server was killed reads on it
        that this process is gone too."""
        self._line.close()
        self._selector.close()
        for process, (_, end) in self._running.items():
            os.close(process)
            os.close(end)
        os.setpgid(0, 0)

    def _tell_end(self, process: int) -> None:
        pid, end = self._running.pop(process)
        self._selector.unregister(process)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)
        os.close(process)

    def unblock(self) -> None:
        """A signal that came since the fork is heard now."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._unblocked)


def load() -> None:
    from acode.redact import redactor

    for name in LOADED:
        importlib.import_module(name)
    redactor([]).text("password=made-with-the-first-text")  # all rules: those of a text, and those of a keeper's stream
    gc.collect()
    gc.freeze()  # what is never looked at again is not copied by a fork


def main(line: socket.socket) -> NoReturn:
    code = stamp_of_code()
    load()
    server = AttemptServer(line, code)
    asked = server.serve()
    os.dup2(asked.said, 1)
    os.close(asked.said)
    sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(asked.request["env"])
    sys.argv = ["acode", *asked.request["words"]]
    server.unblock()
    keeper_start.fork_server()
    from acode.cli import main as command

    end(command())


def end(status: int) -> NoReturn:
    """As an interpreter ends, but taking it apart would cost as much as the attempt."""
    if threading.active_count() > 1:
        raise SystemExit(status)  # which waits for them
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

"""The keeper server: a process with all that a keeper needs already loaded, which forks one keeper per command.

To start Python and compile the redaction rules takes many times as long as a short command; here it is done once for
each process of acode. The server knows nothing of steps. A request comes with the locked `alive` file and the pipe that
wakes acode, and a keeper that was forked is on its own: it lives on when acode dies, and so does every other one.
Started as a program; it ends when the last request can have come, that is, when acode's end of its socket is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

if __name__ == "__main__":  # started without the paths that acode is found on; behind the standard library's own
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from acode.steps import keeper

FDS = 3  # the request, `alive`, the pipe that wakes acode


def serve(requests: socket.socket, path: list[str]) -> NoReturn:
    sys.path[:] = path
    from acode.redact import redactor

    redactor([]).stream().feed(b"loaded before the first command, which may replace this very installation\n")
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        word, fds, _, _ = socket.recv_fds(requests, 1, FDS)
        if not word:
            os._exit(0)
        if len(fds) == FDS:
            with contextlib.suppress(OSError):  # no process is left: the pipe closes, and no mark says that none ran
                if os.fork() == 0:
                    _keep(requests, *fds)
        for fd in fds:
            os.close(fd)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keep(requests: socket.socket, request_fd: int, alive: int, wake: int) -> NoReturn:
    """In the new process: be the keeper of one command."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        os.setsid()
        with open(request_fd, "rb") as file:
            request: dict[str, Any] = json.loads(file.read())
        os.chdir(request["keeper_cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        request["wake_fd"] = _last_to_close(wake)
        from acode.redact import redactor

        keeper.keep(request, redactor(request["secrets"], strict=request["strict"]).stream())
    finally:
        os.close(alive)  # before the pipe: acode, which reads the end of that, finds the lock free
        os._exit(0)


def _last_to_close(fd: int) -> int:
    """The kernel lets the files of a killed process go in the reverse order of their numbers: acode, which reads the
    end of this one, knows that the lock and all others are gone. A command gets an input of its own."""
    os.dup2(fd, 0, inheritable=False)
    os.close(fd)
    return 0


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))

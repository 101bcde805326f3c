"""Real processes of acode without the time of its imports, for tests in which the process is the point.

One interpreter for each worker of pytest has loaded acode (`tests/warm_interpreter.py`) and copies itself for each
process that is asked for. The copy is a child of the test: it is signalled, killed and waited for like any other.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# The whole gate runs with one version; the fast subset with the newer ones starts its few processes from the beginning.
CAN_COPY = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") and sys.version_info < (3, 12)
# What an interpreter reads when it starts cannot be changed in a copy.
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC")


def started(command: list[str], *, cwd: Path, env: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
    """`python -m acode …` or `python program.py …`, from a copy where that is the same as from the beginning."""
    kind = WarmPopen if can_be_copied(command, env) else subprocess.Popen
    return kind(command, cwd=cwd, env=dict(env), text=True, **streams)


def can_be_copied(command: list[str], env: Mapping[str, str]) -> bool:
    if not CAN_COPY or command[0] != sys.executable:
        return False
    if command[1:3] != ["-m", "acode"] and not command[1].endswith(".py"):
        return False
    read = [name for name in env if name.startswith(READ_AT_START) and name != "PYTHONPATH"]
    return all(env[name] == os.environ.get(name) for name in read)


class Interpreter:
    """The one that is copied; started when it is needed first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None

    def copy(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """The number of the new process, whose parent is this one."""
        with self._lock:
            line = self._line or self._start()
            socket.send_fds(line, [json.dumps(request).encode()], descriptors)
            return int(line.recv(64))

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm_interpreter", str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.fspath(ROOT / "src")},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        atexit.register(process.wait)
        atexit.register(ours.close)  # it ends when nobody is left to ask; called before the wait
        self._line = ours
        return ours


INTERPRETER = Interpreter()


class WarmPopen(subprocess.Popen[str]):
    """A Popen whose child is a copy of the interpreter that has loaded acode."""

    def _execute_child(self, *arguments: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *arguments).arguments  # type: ignore[attr-defined]
        inherited = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        descriptors = [number if given == -1 else given for number, given in enumerate(inherited)]
        request = {
            "arguments": asked["args"][1:],
            "cwd": os.fspath(asked["cwd"]),
            "env": asked["env"],
            "own_session": asked["start_new_session"],
        }
        self.pid = INTERPRETER.copy(request, descriptors)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]

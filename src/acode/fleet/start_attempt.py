"""Start the process of one attempt: by the attempt server on Linux, as a new interpreter elsewhere.

Either way it is `acode resume` in a process group of its own, whose output and end are read here. A process that the
server has forked is not a child of this one: its end comes through a pipe, which closes without a word where server and
process are gone, and signals go to its descriptor, which is never another process's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    import socket

PROGRAM = "acode.cli.attempt_server"
WORD_BYTES_MAX = 16
READY, FORKED, REPLACED = b"ready", b"forked", b"replaced"


class AttemptProcess(NamedTuple):
    said: BinaryIO
    ask_to_end: Callable[[], None]
    wait: Callable[[], int | None]  # the exit status, negative for a signal; None: nobody knows it


class AttemptStarter:
    """Of one worker. The server is started with the worker, and again where it has ended or its code was replaced."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._turn = threading.Lock()
        self._line: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._replaced: list[subprocess.Popen[bytes]] = []  # until the last of their attempts has ended
        if can_fork():
            self._start_server()

    def start(self, words: list[str], env: Mapping[str, str]) -> AttemptProcess:
        with self._turn:
            for _ in range(2):
                forked = self._forked(words, env) if self._is_ready() else None
                if forked is not None:
                    return forked
                self._end_server()
                if can_fork():
                    self._start_server()
        return _alone(words, env)

    def close(self) -> None:
        with self._turn:
            self._end_server()
            for one in self._replaced:
                one.wait()

    def _is_ready(self) -> bool:
        if self._line is not None and not self._ready:
            with contextlib.suppress(OSError):
                self._ready = self._line.recv(WORD_BYTES_MAX) == READY
        return self._ready

    def _start_server(self) -> None:
        import socket

        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._env,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._line, self._ready = ours, False

    def _end_server(self) -> None:
        """It ends by itself when its socket is closed and its attempts have ended."""
        if self._line is not None:
            self._line.close()
        if self._server is not None:
            self._replaced.append(self._server)
        self._replaced = [one for one in self._replaced if one.poll() is None]
        self._line, self._server, self._ready = None, None, False

    def _forked(self, words: list[str], env: Mapping[str, str]) -> AttemptProcess | None:
        """None: the server has made no process, and is to be replaced."""
        if sys.platform != "linux":
            raise NotImplementedError
        import socket

        assert self._line is not None
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            (said, say), (end, tell) = os.pipe(), os.pipe()
            body = os.memfd_create("request", os.MFD_CLOEXEC)  # of any size, and never on a disk
            for stack, number in ((ours, said), (ours, end), (theirs, say), (theirs, tell), (theirs, body)):
                stack.callback(os.close, number)
            with open(body, "wb", closefd=False) as file:
                file.write(json.dumps({"words": words, "env": dict(env)}).encode())
            os.lseek(body, 0, os.SEEK_SET)
            try:
                socket.send_fds(self._line, [b"."], [body, say, tell])
                word, fds, _, _ = socket.recv_fds(self._line, WORD_BYTES_MAX, 1)
            except (BrokenPipeError, ConnectionResetError):  # it has ended, and so has taken nothing
                return None
            if word == REPLACED:
                return None
            if word != FORKED and word:
                raise OSError("no process can be made for the attempt")
            # Without an answer the server was killed just now: if it had forked, the pipes tell when that one is gone.
            ours.pop_all()
            return AttemptProcess(open(said, "rb"), *_watched(fds[0] if fds else None, end))


def can_fork() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and _has_process_descriptors()


def _has_process_descriptors() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _watched(process: int | None, end: int) -> tuple[Callable[[], None], Callable[[], int | None]]:
    turn = threading.Lock()
    open_process = process

    def ask_to_end() -> None:
        if sys.platform != "linux":
            raise NotImplementedError
        with turn, contextlib.suppress(ProcessLookupError):
            if open_process is not None:
                signal.pidfd_send_signal(open_process, signal.SIGTERM)

    def wait() -> int | None:
        nonlocal open_process
        with open(end, "rb") as file:
            status = file.read()
        with turn:
            if open_process is not None:
                os.close(open_process)
            open_process = None
        return int(status) if status else None

    return ask_to_end, wait


def _alone(words: list[str], env: Mapping[str, str]) -> AttemptProcess:
    child = subprocess.Popen(
        [sys.executable, "-m", "acode", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(env),
        process_group=0,
    )
    assert child.stdout is not None

    def ask_to_end() -> None:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)

    return AttemptProcess(child.stdout, ask_to_end, child.wait)  # type: ignore[arg-type]

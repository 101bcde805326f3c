"""Driving acode from tests: in this process, for speed, or as a real one that can be signalled and killed.

It knows the command line and nothing behind it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from tests.warm import started

WAIT_S_MAX = 60.0  # a busy machine is no failure; whoever waits goes on as soon as it may


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command left: its exit status and both streams."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The JSON Lines on stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class Running:
    """A real acode process. Waiting for a line replaces sleeping."""

    def __init__(self, command: list[str], *, cwd: Path, env: Mapping[str, str] | None, stdin: int | None) -> None:
        self._lines: list[str] = []
        self._streams: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._news = threading.Condition()
        self._process = started(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a test's Ctrl+C or kill of the group must not reach pytest
        )
        self._readers = [self._read("stdout", self._process.stdout), self._read("stderr", self._process.stderr)]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, text: str) -> None:
        """Type this; the process must have been started with `stdin=subprocess.PIPE`."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def wait_for_line(self, pattern: str, *, timeout_s: float = WAIT_S_MAX) -> str:
        """The first line of either stream in which the pattern is found, waiting for it if need be."""

        def found() -> str | None:
            return next((line for line in self._lines if re.search(pattern, line)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or not self._alive(), timeout_s)
            line = found()
        if line is None:
            raise AssertionError(f"no line with {pattern!r} within {timeout_s} s in:\n{''.join(self._lines)}")
        return line

    def signal(self, number: int) -> None:
        """To this process alone."""
        self._process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """To the process group, as a terminal does for Ctrl+C."""
        os.killpg(self.pid, number)

    def kill(self) -> Ended:
        """kill -9 of acode alone; commands it started live on."""
        self._process.kill()
        return self.finish()

    def kill_everything(self) -> Ended:
        """kill -9 of acode and of everything it started, also in sessions of their own."""
        if self._process.poll() is not None:  # its number may be somebody else's by now
            return self.finish()
        with contextlib.suppress(psutil.NoSuchProcess):
            acode = psutil.Process(self.pid)
            # Stopped first, so that it cannot start another child between the look and the kill.
            acode.suspend()
            children = acode.children(recursive=True)
            for process in [*children, acode]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            wait_for_deaths(children)  # a kill takes a moment
        return self.finish()

    def finish(self, *, timeout_s: float = WAIT_S_MAX) -> Ended:
        """Wait for the end. A command that outlives acode may hold the streams; it is not waited for."""
        self._process.wait(timeout_s)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        for reader in self._readers:
            reader.join(timeout=1.0)
        stdout, stderr = ("".join(self._streams[name]) for name in ("stdout", "stderr"))
        return Ended(exit_code=self._process.returncode, stdout=stdout, stderr=stderr)

    def _alive(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def _read(self, name: str, stream: IO[str] | None) -> threading.Thread:
        assert stream is not None

        def pump() -> None:
            with stream:
                for line in stream:
                    with self._news:
                        self._lines.append(line)
                        self._streams[name].append(line)
                        self._news.notify_all()
            with self._news:
                self._news.notify_all()

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        return thread


def freeze(pid: int) -> list[psutil.Process]:
    """Stop a process and all that it started, whatever of it ends or begins meanwhile."""
    frozen: list[psutil.Process] = []
    new = [psutil.Process(pid)]
    while new:
        for process in new:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        frozen += new
        new = [one for one in frozen[0].children(recursive=True) if one not in frozen]
    return frozen


def thaw(frozen: Sequence[psutil.Process]) -> None:
    for process in frozen:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def wait_for_deaths(processes: Sequence[psutil.Process], *, timeout_s: float = WAIT_S_MAX) -> None:
    """A zombie is dead, however long whoever inherited it takes to ask for its end: psutil would wait for that too."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            ending = os.pidfd_open(process.pid)
            try:
                assert select.select([ending], [], [], timeout_s)[0], f"{process} did not die"
            finally:
                os.close(ending)


def kill_and_wait(*pids: int) -> None:
    """In this order; none of them is seen to live any more. A signal alone takes a moment."""
    dying = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    for process in dying:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_for_deaths(dying)


def end_all_below(directory: Path) -> None:
    """Whatever works there dies without a word."""
    here = os.path.realpath(directory)
    while _killed_below(here):  # until none is left: a kill takes a moment, and a shell may have forked meanwhile
        time.sleep(0.01)


def _killed_below(here: str) -> bool:
    found = False
    for name in filter(str.isdigit, os.listdir("/proc") if sys.platform == "linux" else ()):
        with contextlib.suppress(OSError):
            # The directory of a zombie cannot be read any more: it has ended.
            if f"{os.readlink(f'/proc/{name}/cwd')}/".startswith(f"{here}/") and int(name) != os.getpid():
                os.kill(int(name), signal.SIGKILL)
                found = True
    return found


class Acode:
    """`acode("status", "--json")` runs in this process; `acode.process(...)` starts a real one."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self._started: list[Running] = []

    def __call__(
        self, *args: str | Path, cwd: Path | None = None, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> Ended:
        from acode.cli import main

        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        asked = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with (
            pytest.MonkeyPatch.context() as world,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            world.chdir(cwd or self.workspace)
            world.setattr(sys, "stdin", asked)
            for name, value in (env or {}).items():
                world.setenv(name, value)
            try:
                status = main([str(arg) for arg in args])
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
        return Ended(exit_code=int(status or 0), stdout=_text(out), stderr=_text(err))

    def process(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        program: Sequence[str] = ("-m", "acode"),
    ) -> Running:
        command = [sys.executable, *program, *(str(arg) for arg in args)]
        running = Running(command, cwd=cwd or self.workspace, env=env, stdin=stdin)
        self._started.append(running)
        return running

    def stop_all(self) -> None:
        for running in self._started:
            running.kill_everything()
        if self._started:
            end_all_below(self.workspace)  # also what outlived an acode that was killed alone


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()

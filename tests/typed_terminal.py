"""A shell in a real terminal (tmux) of a person with a new home and a bare path: what is typed, what is seen."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S_MAX = 120.0
PROMPT = "ready>"


class TypedTerminal:
    def __init__(self, socket: Path, shell_pid: int) -> None:
        self._socket = socket
        self.shell_pid = shell_pid

    def type(self, line: str) -> None:
        tmux(self._socket, "send-keys", "-t", "typed", "-l", line)
        tmux(self._socket, "send-keys", "-t", "typed", "Enter")

    def screen(self) -> str:
        """All that was shown, also what has left the window; wrapped lines in one piece."""
        return tmux(self._socket, "capture-pane", "-t", "typed", "-p", "-J", "-S", "-2000")

    def wait_for(self, pattern: str) -> str:
        until = time.monotonic() + WAIT_S_MAX
        while not re.search(pattern, shown := self.screen()):
            assert time.monotonic() < until, f"no {pattern!r} on the screen:\n{shown}"
            time.sleep(0.1)
        return shown

    def run(self, line: str) -> str:
        """Type it, and wait for the next prompt; what it printed."""
        before = self.screen().count(PROMPT)
        self.type(line)
        until = time.monotonic() + WAIT_S_MAX
        while self.screen().rstrip().count(PROMPT) <= before or not self.screen().rstrip().endswith(PROMPT):
            assert time.monotonic() < until, f"{line} has not ended:\n{self.screen()}"
            time.sleep(0.1)
        return self.screen().rstrip().rsplit(PROMPT, 2)[-2]

    def kill_all_named(self, pattern: str) -> None:
        """As `pkill -9 -f` finds them, but below this shell alone: another user's acode is not meant."""
        found = [pid for pid in processes_below(self.shell_pid) if re.search(pattern, command_line(pid))]
        assert found, f"no process is called {pattern}"
        for pid in found:
            os.kill(pid, signal.SIGKILL)


def processes_below(pid: int) -> list[int]:
    """Its children first, and theirs."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [one for child in map(int, listed) for one in (child, *processes_below(child))]


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def tmux(socket: Path, *words: str) -> str:
    done = subprocess.run(["tmux", "-S", str(socket), *words], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def typed_terminal(place: Path, programs: Path) -> Iterator[TypedTerminal]:
    """In `place`, with a home in it; the path has the system's programs and those in `programs`."""
    home = place / "home"
    home.mkdir(parents=True)
    socket = place / "tmux"
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PS1": PROMPT,
        "TERM": "xterm",
    }
    words = [f"{name}={value}" for name, value in environment.items()]
    shell = ["env", "-i", *words, "bash", "--norc", "--noprofile"]
    subprocess.run(
        [
            "tmux",
            "-S",
            str(socket),
            "-f",
            os.devnull,
            "new-session",
            "-d",
            "-s",
            "typed",
            "-x",
            "100",
            "-y",
            "50",
            *shell,
        ],
        check=True,
        cwd=place,
    )
    try:
        pid = int(tmux(socket, "display-message", "-p", "-t", "typed", "#{pane_pid}"))
        terminal = TypedTerminal(socket, pid)
        terminal.wait_for(PROMPT)
        yield terminal
    finally:
        tmux(socket, "kill-server")

"""The processes of this machine, looked at once: whose session is alive, and which one looks like a call in flight.

A pid alone proves nothing: it is reused, and it means another process in another container. A zombie has ended. Where
nothing proves that a session lives or is dead, that is what is said.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final

import psutil

from acode import lock
from acode.observed.interface import Agent
from acode.observed.session import Liveness, ObservedSession, RecordedProcess

ARGUMENTS_CHARS_MAX: Final = 100_000
STARTED_SECONDS_MAX: Final = 300.0  # between the start of a process and its own note of it
BOOT_SECONDS_MAX: Final = 120.0  # by which clock and boot time may disagree
CALL_SECONDS_MAX: Final = 1.5  # the start of a process is known to a second; a call is written down before it
WORDS_CHARS_MIN: Final = 6
GOES_ELSEWHERE: Final = re.compile(r"(?:^|[\s;&|('\"])(?:cd|pushd)\s")
INTERPRETERS: Final = ("node", "bun", "deno")
INITIAL_PID_NAMESPACE: Final = "pid:[4026531836]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A process that has not ended."""

    pid: int
    name: str
    argv: tuple[str, ...]
    directory: str
    started_at: datetime

    @property
    def line(self) -> str:
        return " ".join(self.argv)


class Processes:
    """A picture of all processes, taken when it is first needed."""

    @cached_property
    def running(self) -> tuple[Running, ...]:
        return tuple(_running())

    def liveness(self, agent: Agent, session: ObservedSession) -> Liveness:
        """Its own record first, then the agent's processes that show this session."""
        noted = judge_record(session.process) if session.process is not None else None
        if noted is not None and (noted.state == "alive" or (noted.state == "dead" and _is_exact(session.process))):
            return noted
        owned = [one for one in self.running if is_program(agent, one)]
        if noted is not None and noted.state == "dead" and not any(_is_contained(one.pid) for one in owned):
            return noted
        for one in owned:
            if session.session_id and session.session_id in one.argv:
                return Liveness(
                    state="alive", reason=f"pid {one.pid} names the session on its command line", pid=one.pid
                )
            if not session.shares_transcript and _has_open(one.pid, session.transcript):
                return Liveness(state="alive", reason=f"pid {one.pid} has its transcript open", pid=one.pid)
        # A process that began after the last line of the transcript did not write it.
        near = [one for one in owned if _may_be(one, session)]
        if near:
            pid = near[0].pid
            reason = f"pid {pid}, {agent.TITLE}, runs in its directory and may be this session"
            return Liveness(state="unknown", reason=reason, pid=pid)
        reason = f"no process of {agent.TITLE} shows this session"
        return Liveness(state="no_process_found", reason=f"{noted.reason}; {reason}" if noted is not None else reason)

    def like(self, command: str, since: datetime | None, directory: str) -> list[Running]:
        """Those that look like the command: the same words, begun with the call, at work in its directory."""
        return [one for one in self._since(since) if _looks_like(one, command, directory)]

    def begun_in(self, directory: str, since: datetime) -> list[Running]:
        """Those that began after this moment and work in this directory, whatever they are."""
        return [one for one in self._since(since) if _beneath(one.directory, directory)]

    def _since(self, since: datetime | None) -> Iterator[Running]:
        for one in self.running:
            if is_an_agent(one):
                continue
            early = since is not None and (since - one.started_at).total_seconds() > CALL_SECONDS_MAX
            if one.pid != os.getpid() and not early:
                yield one


def _running() -> Iterator[Running]:
    for pid in psutil.pids():  # `process_iter` keeps what it saw earlier under a pid that is another one's by now
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    continue
                started = datetime.fromtimestamp(process.create_time(), UTC)
                yield Running(
                    pid=pid,
                    name=process.name(),
                    argv=_argv(process),
                    directory=_directory(process),
                    started_at=started,
                )
        except (psutil.Error, OSError, ValueError, OverflowError):
            continue  # it has ended meanwhile


def _argv(process: psutil.Process) -> tuple[str, ...]:
    """Cut to a length; another user's may be hidden."""
    try:
        found = process.cmdline()
    except psutil.Error:
        return ()
    return tuple(word[:ARGUMENTS_CHARS_MAX] for word in found[:1000])


def _directory(process: psutil.Process) -> str:
    try:
        return process.cwd()
    except (psutil.Error, OSError):
        return ""


def _has_open(pid: int, path: Path) -> bool:
    try:
        return any(one.path == os.path.realpath(path) for one in psutil.Process(pid).open_files())
    except (psutil.Error, OSError):
        return False


def is_program(agent: Agent, process: Running) -> bool:
    """Whether the process is this agent: by its own name, or by the script that an interpreter runs."""
    words = process.argv[:1]
    if words and Path(words[0]).name.startswith(INTERPRETERS):
        words = process.argv[:3]
    names = {process.name, *(Path(word).name for word in words)}
    return any(program in names or any(f"/{program}/" in word for word in words) for program in agent.PROGRAMS)


def is_an_agent(process: Running) -> bool:
    """An agent is not the command that it runs, though it may stand on its command line."""
    from acode.observed import AGENTS

    return any(is_program(agent, process) for agent in AGENTS.values())


def _may_be(process: Running, session: ObservedSession) -> bool:
    inside = bool(session.directory) and process.directory == session.directory
    return inside and process.started_at <= session.updated_at


def judge_record(noted: RecordedProcess) -> Liveness:
    """The evidence of the agent's own note of its process. Never `dead` for a pid from another namespace."""
    pid = noted.pid
    now_started = lock.process_started(pid)
    if not _is_of_this_boot(noted):
        reason = f"pid {pid} was noted before this machine started, or on another one"
        return Liveness(state="unknown", reason=reason, pid=pid)
    if now_started is not None and _is_same(noted, now_started):
        return Liveness(state="alive", reason=f"pid {pid} runs", pid=pid)
    if now_started is None and psutil.pid_exists(pid):
        return Liveness(state="dead", reason=f"pid {pid} is a zombie: it has ended", pid=pid)
    if sys.platform == "linux" and lock.pid_namespace() not in ("", INITIAL_PID_NAMESPACE):
        return Liveness(state="unknown", reason=f"pid {pid} is not in this container, but may be outside", pid=pid)
    elsewhere = _same_start(noted)
    if elsewhere is not None:
        reason = f"pid {elsewhere} began at the same moment, and may be pid {pid} of a container"
        return Liveness(state="unknown", reason=reason, pid=elsewhere)
    return Liveness(state="dead", reason=f"pid {pid} is gone", pid=pid)


def _is_exact(noted: RecordedProcess | None) -> bool:
    """Without an exact start a pid of a container looks like a local one that has ended."""
    return noted is not None and noted.start_ticks is not None


def _is_same(noted: RecordedProcess, started: float) -> bool:
    """By the exact start where the agent has noted it, else by the clock."""
    if noted.start_ticks is not None and sys.platform == "linux":
        return noted.start_ticks == started
    try:
        created = psutil.Process(noted.pid).create_time()
    except psutil.Error:
        return False
    # Without a noted start the pid is all there is; that it lives must then not be denied.
    return noted.started_at is None or -2.0 <= noted.started_at.timestamp() - created <= STARTED_SECONDS_MAX


def _is_of_this_boot(noted: RecordedProcess) -> bool:
    if noted.started_at is None:
        return True
    since_boot = noted.started_at.timestamp() - psutil.boot_time()
    if since_boot < -BOOT_SECONDS_MAX:
        return False
    if noted.start_ticks is None or sys.platform != "linux":
        return True
    began = noted.start_ticks / os.sysconf("SC_CLK_TCK")  # the note is made a moment after the start
    return -BOOT_SECONDS_MAX <= since_boot - began <= BOOT_SECONDS_MAX + STARTED_SECONDS_MAX


def _same_start(noted: RecordedProcess) -> int | None:
    """A process with the very same start under another pid: ticks since the boot are the same in every container."""
    if noted.start_ticks is None or sys.platform != "linux":
        return None
    return next(
        (pid for pid in psutil.pids() if lock.process_started(pid) == noted.start_ticks and _is_contained(pid)),
        None,
    )


def _is_contained(pid: int) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid") != lock.pid_namespace()
    except OSError:
        return True  # hidden: it cannot be ruled out


def _beneath(directory: str, root: str) -> bool:
    return bool(root) and (directory == root or directory.startswith(root.rstrip("/") + "/"))


def _looks_like(process: Running, command: str, directory: str) -> bool:
    """Its arguments hold the command, or are a part of it: a shell gets it whole, a child of the shell gets a part. The
    same arguments in another directory are another `make test`, unless the command itself changes the directory.
    """
    line, wanted = process.line.strip(), command.strip()
    if not wanted or not line:
        return False
    inside = not directory or _beneath(process.directory, directory)
    if wanted in line or shlex.quote(wanted) in line:
        return inside or not process.directory or GOES_ELSEWHERE.search(wanted) is not None
    parts = [line, *(word for word in process.argv[1:] if " " in word.strip())]
    return inside and any(len(part.strip()) >= WORDS_CHARS_MIN and part.strip() in wanted for part in parts)

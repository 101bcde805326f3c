"""Look whether acode sees what an agent does: one harmless command goes through it, and hook and front must report it.

An agent ignores a wrong setting in silence, so that nothing short of a real command shows that it works.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from acode.child_process import HeldSignals, end_group
from acode.config import state_dir
from acode.engine.world import World
from acode.errors import Usage
from acode.hints import Command, Hint
from acode.observed import AGENTS
from acode.observed.doors import Doors, doors_in, lone_fronts
from acode.observed.recorded_calls import recorded_calls
from acode.observed.setup import SETUPS
from acode.observed.setup.config_file import Where
from acode.steps.keeper_notes import read_status

PROBE_S_MAX: Final = 300
VERSION_S_MAX: Final = 60
OUTPUT_CHARS_SHOWN: Final = 300
CLOCK_STEP_S: Final = 0.05  # a file's time is that of the kernel's last tick
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Which of the four reports of one command have arrived."""

    hook_start: bool
    hook_end: bool
    front_begin: bool
    front_end: bool

    def everything(self, *, front: bool) -> bool:
        return self.hook_start and self.hook_end and (not front or (self.front_begin and self.front_end))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    agent: str
    program: str
    version: str | None
    tested_version: str
    seen: Seen
    ok: bool
    problems: list[str] = field(default_factory=list)  # why it was not seen, or could be missed
    notes: list[str] = field(default_factory=list)


def find_program(agent: str, where: Where) -> str:
    """The agent's own program, as a shell of the user would find it."""
    name = SETUPS[agent].TESTED.command[0]
    program = shutil.which(name, path=where.environment.get("PATH"))
    if program is None:
        raise Usage(
            f"{AGENTS[agent].TITLE} is not installed: {name} is not in PATH", hint="Check the spelling and PATH."
        )
    return program


def check(agent: str, program: str, where: Where, *, world: World, front: bool = True) -> Checked:
    """Run one command through the agent, in the project's directory, with the model that the user has set up there."""
    setup, title = SETUPS[agent], AGENTS[agent].TITLE
    doors = doors_in(state_dir(where.environment))
    version = _version([program, *setup.TESTED.command[1:]], where)
    problems = _missing_settings(agent, where, doors, front=front) + setup.notes(where)
    command = f"echo acode-check-{secrets.token_hex(8)}"
    prompt = f"Run exactly this command with your shell tool, once, and then stop: {command}"
    words = setup.probe(prompt, command)
    began = time.time()
    ended = _run([program, *words[1:]], where)
    seen = _seen(agent, command, doors, world, since=began)
    ok = seen.everything(front=front)
    if not ok:
        problems += _explained(agent, title, seen, ended)
    notes = []
    if version != setup.TESTED.tested:
        notes.append(f"acode was tested with {title} {setup.TESTED.tested}; this is {version or 'an unknown version'}")
    return Checked(
        agent=agent,
        program=program,
        version=version,
        tested_version=setup.TESTED.tested,
        seen=seen,
        ok=ok,
        problems=problems,
        notes=notes,
    )


def _seen(agent: str, command: str, doors: Doors, world: World, *, since: float) -> Seen:
    """An agent that has ended took its commands' notes along; then the hook's own note tells that it saw the front."""
    calls = recorded_calls(world, agent=agent, command=command)
    alone = lone_fronts(doors, command=command)
    newest = calls[0] if calls else None
    front = newest.front if newest is not None else None
    noted = newest is not None and _noted_since(doors.directory / "seen" / agent, since)
    is_ended = newest is not None and newest.ended
    return Seen(
        hook_start=newest is not None,
        hook_end=is_ended,
        front_begin=bool(alone) or noted or (front is not None and front.began),
        front_end=(noted and is_ended)
        or (front is not None and front.ended)
        or any(read_status(one.place) is not None for one in alone),
    )


def _noted_since(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since - CLOCK_STEP_S
    except OSError:
        return False


def _missing_settings(agent: str, where: Where, doors: Doors, *, front: bool) -> list[str]:
    missing = []
    for file in SETUPS[agent].files(where, doors, front=front):
        try:
            text = file.path.read_bytes().decode() if file.path.exists() else ""
            lacks = any(step(text) != text for step in file.add)
        except (OSError, ValueError) as error:
            missing.append(f"{file.path} cannot be read: {error}")
            continue
        if lacks:
            scope = " --project" if where.scope == "project" else ""
            install = Command(f"hook install {agent}{scope}")
            missing.append(Hint("{} lacks acode's settings: {}", str(file.path), install).as_command())
    return missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    status: int | None  # None: it was stopped because it took too long
    output: str


def _explained(agent: str, title: str, seen: Seen, ended: _Ended) -> list[str]:
    """What each missing report means, most telling first."""
    said = " ".join(ended.output.split())[-OUTPUT_CHARS_SHOWN:]
    if ended.status is None:
        return [f"{title} did not end within {PROBE_S_MAX} seconds; its last words: {said}"]
    if not seen.hook_start and not seen.front_begin:
        first = f"neither the hook nor the front saw the command; {title} ended with status {ended.status}"
        return [f"{first}: {said}" if said else first]
    found = []
    if not seen.hook_start:
        trust = ": Codex runs no hook until you trust it; start codex and type /hooks" if agent == "codex" else ""
        found.append(f"the front saw the command and the hook did not{trust}")
    elif not seen.hook_end:
        found.append("the hook saw the beginning of the call and not its end")
    if not seen.front_begin:
        found.append("the hook saw the call and the front did not: the setting for the shell has no effect")
    elif not seen.front_end:
        found.append("the front noted that the command began and not that it ended, as in a sandbox")
    return found


def _version(command: list[str], where: Where) -> str | None:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            env=dict(where.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=VERSION_S_MAX,
        )
        found = _VERSION.search(done.stdout)
        return found.group() if found else None
    return None


def _run(command: list[str], where: Where) -> _Ended:
    """In a session of its own, so that all of it can be ended."""
    child = None
    try:
        with HeldSignals():
            child = subprocess.Popen(
                command,
                cwd=where.project,
                env=_environment(where.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        output, _ = child.communicate(timeout=PROBE_S_MAX)
        return _Ended(status=child.returncode, output=output)
    except BaseException as error:
        if child is not None:
            end_group(child)
        if child is not None and isinstance(error, subprocess.TimeoutExpired):
            output, _ = child.communicate()
            return _Ended(status=None, output=output)
        raise


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """An agent that is started by another one may refuse to work, or take itself for a part of that one."""
    return {name: value for name, value in environment.items() if name != "CLAUDECODE"}

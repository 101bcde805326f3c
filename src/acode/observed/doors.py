"""The doors: the small programs that an agent's configuration names, and what hook and front say to each other.

They lie in the user's state directory. The scripts name the Python of this installation by its path. Without it a hook
says nothing, and a command runs as if acode were not there: an agent must never be left without its shell.

    hook            before and after each tool, at a start and at a prompt
    front           Claude Code's shell prefix
    shells/NAME     a shell of that name, for opencode
    bash_env.sh     what bash reads before the commands of Codex and Gemini CLI
    open/AGENT/     calls that a hook has recorded and no front has taken yet, by the agent's process
    lone/AGENT/     notes of commands that no hook has recorded
    seen/AGENT      a process, and an agent by its name, whose commands a front was seen to take
    sessions/       which workspace a session of an agent belongs to
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acode import lock as locks
from acode.disk.fsync import sync_file
from acode.disk.own_files import read_own
from acode.disk.private_files import make_private_directory, write_private
from acode.events import types as ev
from acode.events.definition import Run, command_line
from acode.steps.keeper import CLAIM
from acode.steps.keeper_notes import RAW_OUTPUT, RAW_TAIL

NAME: Final = "doors"
LONE: Final = "lone"  # in the place of a call: where its front made its notes instead
_SHELL_AROUND = re.compile(r"\s*(?:\S*/)?(?:sh|bash|zsh|dash)\s+-c\s+(.*)\Z", re.DOTALL)
_PATH = "import sys; sys.path.append({root!r}); "


@dataclass(frozen=True, slots=True)
class Doors:
    """Where they lie."""

    directory: Path

    @property
    def hook(self) -> Path:
        return self.directory / "hook"

    @property
    def front(self) -> Path:
        return self.directory / "front"

    @property
    def bash_env(self) -> Path:
        return self.directory / "bash_env.sh"

    def shell(self, name: str, real: str = "") -> Path:
        """A shell of this name that is the front of the real one; without a path, of the first one that is found."""
        path = self.directory / "shells" / name
        make_private_directory(path.parent)
        found = real or shutil.which(name) or f"/bin/{name}"
        _write_script(path, _fronted(self.directory, f'shell {shlex.quote(found)} "$@"', f'{shlex.quote(found)} "$@"'))
        return path

    def open_calls(self, agent: ev.Performer) -> Path:
        return self.directory / "open" / process_name(agent)

    def lone_calls(self, agent: ev.Performer) -> Path:
        return self.directory / "lone" / process_name(agent)


def doors_in(state_dir: Path) -> Doors:
    return Doors(state_dir / NAME)


def at(directory: str) -> Doors:
    return Doors(Path(directory))


def process_name(process: ev.Performer) -> str:
    """As the front names a process: a pid alone is somebody else's tomorrow."""
    return f"{process.pid}-{process.started:.0f}"


# The scripts.


def write_doors(state_dir: Path) -> Doors:
    """Write them all, for the Python that runs this; durably: settings that outlive a power cut name them."""
    doors = doors_in(state_dir)
    for place in (doors.directory, *(doors.directory / name for name in ("open", "lone", "seen", "shells"))):
        make_private_directory(place)
    hook = f"from acode.hook_entry import main; main({os.fspath(doors.directory)!r})"
    _write_script(doors.hook, f"{_python(hook)} || exit 0\n")
    _write_script(doors.front, _fronted(doors.directory, 'prefix "$1"', '/bin/sh -c "$1"'))
    write_private(doors.bash_env, _bash_env(doors).encode())
    for name in ("bash", "zsh", "sh"):
        doors.shell(name)
    write_private(doors.directory / "namespace", locks.pid_namespace().encode(), durable=False)
    return doors


def remove_doors(state_dir: Path) -> None:
    """What was written, and what was noted; the agents' configurations must not name them any more."""
    shutil.rmtree(doors_in(state_dir).directory, ignore_errors=True)


def _python(code: str) -> str:
    """-I -S: neither the user's variables nor a package's start-up files change or slow what runs here."""
    root = os.fspath(Path(__file__).resolve().parents[2])
    python = shlex.quote(sys.executable)
    return f"[ -x {python} ] && exec {python} -I -S -c {shlex.quote(_PATH.format(root=root) + code)}"


def _fronted(directory: Path, arguments: str, otherwise: str) -> str:
    """The front with these arguments; where its Python is gone, the shell alone."""
    code = f"from acode.front import main; main([{os.fspath(directory)!r}, *sys.argv[1:]])"
    return f"{_python(code)} {arguments}\nexec {otherwise}\n"


def _bash_env(doors: Doors) -> str:
    """Read by bash before a command. It puts the command behind the front once: what the command starts finds the
    user's own BASH_ENV, or none. The agent's own calls to its shell, and acode's hook, pass as they are."""
    code = f"from acode.front import main; main([{os.fspath(doors.directory)!r}, *sys.argv[1:]])"
    return (
        'case "${BASH_EXECUTION_STRING-}" in\n'
        # Codex reads its variables in a shell of its own first, and hands them on to the command's: they must stay.
        f"  ''|__CODEX_SNAPSHOT*|*{_in_pattern(doors.hook)}*)\n"
        '     [ -z "${ACODE_BASH_ENV-}" ] || . "$ACODE_BASH_ENV" ;;\n'
        "  *)\n"
        '     if [ -n "${ACODE_BASH_ENV-}" ]; then export BASH_ENV="$ACODE_BASH_ENV"; else unset BASH_ENV; fi\n'
        "     unset ACODE_BASH_ENV\n"
        f'     {_python(code)} shell "$BASH" -c "$BASH_EXECUTION_STRING" "$0" "$@"\n'
        '     [ -z "${BASH_ENV-}" ] || . "$BASH_ENV" ;;\n'
        "esac\n"
    )


def _in_pattern(path: Path) -> str:
    return shlex.quote(os.fspath(path))


def _write_script(path: Path, text: str) -> None:
    """With its permission to be executed: without that a power cut would leave an agent without its shell."""
    write_private(path, f"#!/bin/sh\n{text}".encode())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o700)
        sync_file(descriptor)
    finally:
        os.close(descriptor)


# What a hook tells the front: where the notes of a call go, and by which commands it is known.


def publish(doors: Doors, agent: ev.Performer, place: Path, command: str) -> None:
    """Written before the agent is answered, so that the front finds it."""
    directory = doors.open_calls(agent)
    make_private_directory(directory)
    text = "\n".join([os.fspath(place), *wanted_forms(command)])
    write_private(directory / place.name, text.encode("utf-8", "surrogateescape"), durable=False)


def withdraw(doors: Doors, agent: ev.Performer, place: Path) -> None:
    """The call has ended or was settled: no front takes it any more."""
    with contextlib.suppress(OSError):
        (doors.open_calls(agent) / place.name).unlink()
    with contextlib.suppress(OSError):
        doors.open_calls(agent).rmdir()


def wanted_forms(command: str) -> list[str]:
    """As the front is told them: length and digest, and never the command itself."""
    return [f"{len(one)} {hashlib.sha256(one).hexdigest()}" for one in forms_of(command)]


def forms_of(command: str) -> tuple[bytes, ...]:
    """The command as a shell may be given it: Gemini CLI leaves out a shell that the command itself calls."""
    found = [command, command.strip()]
    if around := _SHELL_AROUND.match(command):
        inner = around[1].strip()
        found.append(inner)
        if len(inner) > 1 and inner[0] == inner[-1] and inner[0] in "'\"":
            found.append(inner[1:-1])
            found.append(inner[1:-1].strip())
    return tuple(dict.fromkeys(one.encode("utf-8", "surrogateescape") for one in found if one))


# Whether the front is known to be in the way.


def note_front(doors: Doors, agent: ev.Performer) -> None:
    """A front took a command of this process: its settings were read when it began, so that all others pass it too."""
    with contextlib.suppress(OSError):
        for name in (process_name(agent), agent.name):
            (doors.directory / "seen" / name).touch(mode=0o600)


def front_known(doors: Doors, agent: ev.Performer, env: Mapping[str, str]) -> bool:
    """Whether every command of this process is known to pass the front. Claude Code gives its hooks the setting."""
    if env.get("CLAUDE_CODE_SHELL_PREFIX") == os.fspath(doors.front):
        return True
    return (doors.directory / "seen" / process_name(agent)).exists()


# Commands that no hook has recorded.


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneFront:
    """The notes of a command that a front took without a hook's record."""

    place: Path
    command: str
    directory: str
    ancestors: tuple[str, ...]  # the processes above the front then, the nearest first


def lone_fronts(doors: Doors, command: str | None = None, *, since: float = 0.0) -> tuple[LoneFront, ...]:
    """Those of one command, or all of them, the newest first. Older ones than `since` are not even read."""
    found = (place for place in (doors.directory / "lone").glob("*/*") if _noted_at(place) >= since)
    return tuple(_lone_in(found, command))


def _noted_at(place: Path) -> float:
    text = place.name.partition("-")[0]
    return int(text) / 1e9 if text.isdecimal() else 0.0


def _lone_in(places: Iterable[Path], command: str | None) -> Iterator[LoneFront]:
    for place in sorted(places, key=lambda one: one.name, reverse=True):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = read_own(place / "command").decode()
            if command is None or any(form in text.encode() for form in forms_of(command)):
                above, directory = _ancestors_of(place), read_own(place / "directory").decode()
                yield LoneFront(place=place, command=text, directory=directory, ancestors=above)


def _ancestors_of(place: Path) -> tuple[str, ...]:
    """The parent alone in notes of a front that did not know the others yet."""
    with contextlib.suppress(FileNotFoundError):
        return (place.parent.name, *read_own(place / "ancestors").decode().split())
    return (place.parent.name,)


def lone_of(place: Path) -> Path | None:
    """Where the front of this call makes its notes instead."""
    with contextlib.suppress(OSError):
        return Path(os.fsdecode(read_own(place / LONE)))
    return None


def copy_notes(lone: Path, place: Path) -> None:
    """What the front has noted so far, to where the notes of the call are looked for."""
    for name in (CLAIM, "command", "started", RAW_OUTPUT, RAW_TAIL, "status"):
        with contextlib.suppress(FileNotFoundError):
            write_private(place / name, read_own(lone / name), durable=name == "status")


def take_lone(doors: Doors, started: ev.StepStarted, place: Path) -> None:
    """The hook of a call died after it had recorded the start and before the front could find it: the notes that the
    front then made for itself are those of this call."""
    if started.performer is None or started.definition is None or not isinstance(started.definition.action, Run):
        return
    mine = place / LONE
    with contextlib.suppress(OSError):
        lone = lone_of(place)
        if lone is not None:
            pass
        elif (place / CLAIM).exists():
            return
        else:
            command = command_line(started.definition.action.command)
            found = list(_lone_in(doors.lone_calls(started.performer).glob("*"), command))
            if not found:
                return
            lone = found[-1].place
            write_private(mine, os.fsencode(lone), durable=False)
        copy_notes(lone, place)
        if (place / "status").exists():
            shutil.rmtree(lone, ignore_errors=True)

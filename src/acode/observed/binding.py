"""Which workspace a session of an agent belongs to: bound when the agent starts, and never changed by a later `cd`.

The binding lies in the user's state directory. It is also where the hook finds the session of acode quickly; lost, it
is made again from the log.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from acode.config import state_dir
from acode.disk.own_files import read_own
from acode.disk.private_files import make_private_directory, write_private
from acode.observed.doors import Doors
from acode.workspacepath import OWN_DIRECTORY

ROOTS = (OWN_DIRECTORY, ".git")
PROCESSES_MAX = 8
RUN_VARIABLE = "ACODE_AGENT_RUN"  # names the `acode run --agent` to the hooks of the agent that it started


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A session of an agent, and where it is recorded."""

    agent: str
    agent_session: str
    workspace: str
    directory: str  # where the agent was started
    title: str = ""  # the first prompt, without secrets
    session_id: str = ""  # of acode; empty until the first call is recorded, and after the end
    ended_session: str = ""  # the one before, which has ended
    run: str = ""  # the `acode run --agent` that started the agent
    since: float = 0.0  # when it was bound; 0 in bindings of earlier versions
    processes: tuple[str, ...] = ()  # of the agent, that its hooks have named; the last ones
    arguments: tuple[str, ...] = ()  # which a person gave it then, for its resumes
    told_to: str = ""  # the process that was told last how calls ended
    told: tuple[str, ...] = ()  # and of which steps; lost, they are told again


def workspace_for(directory: str | Path, env: Mapping[str, str]) -> Path:
    """The project's root, else the directory itself; a store of its own for places that are no workspaces."""
    here = Path(os.path.realpath(directory))
    above = [place for place in (here, *here.parents) if not _too_wide(place, env)]
    found = next((place for place in above if any((place / name).exists() for name in ROOTS)), here)
    if _too_wide(found, env) or not os.access(found, os.W_OK | os.X_OK) or not found.is_dir():
        name = hashlib.sha256(os.fsencode(here)).hexdigest()[:16]
        return Path(os.path.realpath(state_dir(env))) / "agents" / name
    return found


def _too_wide(place: Path, env: Mapping[str, str]) -> bool:
    home = env.get("HOME") or ""
    return place == Path(place.anchor) or (bool(home) and os.path.realpath(home) == os.fspath(place))


def read_binding(doors: Doors, agent: str, agent_session: str) -> Binding | None:
    try:
        found = msgspec.json.decode(read_own(_place(doors, agent, agent_session)), type=Binding)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if (found.agent, found.agent_session) == (agent, agent_session) else None


def bind(doors: Doors, agent: str, agent_session: str, directory: str, env: Mapping[str, str]) -> Binding:
    """The binding of this session; made now where there is none."""
    found = read_binding(doors, agent, agent_session)
    if found is not None and Path(found.workspace).is_dir():
        return found
    workspace = workspace_for(directory, env)
    make_private_directory(workspace)
    binding = Binding(
        agent=agent,
        agent_session=agent_session,
        workspace=os.fspath(workspace),
        directory=directory,
        run=env.get(RUN_VARIABLE, ""),
        since=time.time(),
    )
    keep_binding(doors, binding)
    return binding


def name_process(doors: Doors, binding: Binding, process: str) -> Binding:
    """So that what this process leaves behind is known for this session's."""
    if process in binding.processes:
        return binding
    named = msgspec.structs.replace(binding, processes=(*binding.processes, process)[-PROCESSES_MAX:])
    keep_binding(doors, named)
    return named


def bindings(doors: Doors) -> Iterator[Binding]:
    """All that are there; what cannot be read is nobody's."""
    for place in sorted((doors.directory / "sessions").glob("*")):
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            yield msgspec.json.decode(read_own(place), type=Binding)


def keep_binding(doors: Doors, binding: Binding) -> None:
    place = _place(doors, binding.agent, binding.agent_session)
    make_private_directory(place.parent)
    write_private(place, msgspec.json.encode(binding), durable=False)


def _place(doors: Doors, agent: str, agent_session: str) -> Path:
    name = hashlib.sha256(f"{agent}\0{agent_session}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return doors.directory / "sessions" / f"{agent}-{name}"

"""How an observed agent is started for a task and told to resume: its own commands, without a permission of acode's.

What it may do is between the agent and its user: acode adds no flag that allows anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from acode.errors import Usage
from acode.formats.agent_driver import start
from acode.observed import AGENTS
from acode.observed.binding import Binding, bindings, read_binding
from acode.observed.doors import Doors
from acode.observed.session import ObservedSession
from acode.state import Session

__all__ = ["Launch", "binding_of", "binding_of_run", "find_program", "resume", "start"]
CONTINUE: Final = "Continue from where you left off."


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line of the agent, and the directory that it works in."""

    command: tuple[str, ...]
    directory: str


def resume(session: Session, binding: Binding | None, *, headless: bool) -> Launch:
    """The agent's own way to continue its session: in its terminal, or without one where nobody watches."""
    agent, own_id = session.source, session.run_id
    arguments = binding.arguments if binding is not None else ()
    directory = binding.directory if binding is not None else ""
    if not headless:
        command = AGENTS[agent].resume_command(_as_observed(agent, own_id, directory))
        return Launch(command=command, directory=directory)
    match agent:
        case "codex":
            command = ("codex", "exec", *arguments, "resume", own_id, CONTINUE)
        case "opencode":
            command = ("opencode", "run", "--session", own_id, *arguments, CONTINUE)
        case _:
            command = (agent, "--resume", own_id, "-p", CONTINUE, *arguments)
    return Launch(command=command, directory=directory)


def binding_of(doors: Doors, session: Session) -> Binding | None:
    return read_binding(doors, session.source, session.run_id)


def binding_of_run(doors: Doors, run: str) -> Binding | None:
    """The session of the agent that was started by this run; None where no hook was called."""
    return next((one for one in bindings(doors) if one.run == run), None)


def find_program(command: tuple[str, ...], env: Mapping[str, str]) -> str:
    import shutil

    found = shutil.which(command[0], path=env.get("PATH", os.defpath))
    if found is None:
        raise Usage(f"{command[0]} is not on the PATH", hint=f"Install {command[0]}, or start it yourself.")
    return found


def _as_observed(agent: str, session_id: str, directory: str) -> ObservedSession:
    return ObservedSession(
        agent=agent,
        session_id=session_id,
        transcript=Path(),
        config=None,
        directory=directory,
        version="",
        updated_at=datetime.now(UTC),
        prompt="",
        ending="unknown",
    )

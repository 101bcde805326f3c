"""What an adapter for one agent says, and the place that a trial gives it.

An adapter is a module of about thirty lines: how the agent is told to use the scripted model, how it is started without
a terminal, how it resumes its last session, and what its tools take. It is all that another agent needs to take part.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from tests.agents.wanted_calls import WantedCall

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".dev" / "agents"
PINS = Path(__file__).parent / "clients"
NAMES = ("claude", "codex", "gemini", "opencode")
MARK = "ACODE_TRIAL"  # in the environment of everything that a trial starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A home and a workspace that nothing else has used, and where the scripted model listens."""

    home: Path
    workspace: Path
    url: str

    def write(self, name: str, content: Any) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")
        return path

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        temporary = self.home / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "SHELL": "/bin/bash",
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "NO_PROXY": "*",
            "TMPDIR": str(temporary),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "ACODE_HOME": str(self.home / "acode"),
            MARK: str(self.home),
            **own,
        }


class Client(Protocol):
    @property
    def PROGRAM(self) -> str: ...  # noqa: N802 -- below the directory that npm made for it

    @property
    def PROCESSES(self) -> tuple[str, ...]: ...  # noqa: N802 -- what its own executables are called

    @property
    def WRITES(self) -> bool: ...  # noqa: N802 -- whether it offers the model a tool that writes a file

    def configure(self, place: Place) -> dict[str, str]:
        """Write its configuration; the variables that it is started with."""

    def start(self, prompt: str) -> list[str]: ...

    def resume(self, prompt: str) -> list[str]: ...

    def interactive(self, *, resumes: bool) -> list[str]: ...

    def arguments(self, call: WantedCall) -> tuple[str, dict[str, Any] | str]: ...


def client_of(name: str) -> Client:
    return cast("Client", importlib.import_module(f"tests.agents.on_{name}"))


def program(name: str, client: Client) -> Path:
    return INSTALLED / name / "node_modules" / client.PROGRAM


def pinned_version(name: str) -> str:
    """Of the agent; opencode's package for plugins is of the same version."""
    (version,) = set(json.loads((PINS / name / "package.json").read_text())["dependencies"].values())
    return str(version)


def is_supported_machine(name: str) -> bool:
    """opencode is pinned as its native program for one platform; the others bring all of theirs."""
    return platform.system() == "Linux" and (name != "opencode" or platform.machine() == "x86_64")

"""What every module for an agent offers to `install`: its files, and acode's settings in each of them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from acode.observed.doors import Doors
from acode.observed.setup import json_text

Step = Callable[[str], str]
Scope = Literal["user", "project"]
HOOK, FRONT, BASH_ENV = "/doors/hook", "/doors/front", "/doors/bash_env.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """For whom the agent is set up: for the user, or for one project."""

    scope: Scope
    project: Path
    environment: Mapping[str, str]

    @property
    def home(self) -> Path:
        return Path(self.environment.get("HOME") or Path.home())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """One file of an agent. Each step adds one setting and changes nothing where it is there; `remove` finds them all.

    `replaced` reads the user's own value that a step replaces and that has no place in the file meanwhile; `restore`
    writes it back after `remove`.
    """

    path: Path
    add: tuple[Step, ...]
    remove: Step
    replaced: Callable[[str], str | None] = lambda _: None
    restore: Callable[[str, str], str] = lambda text, _: text


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that the kill trials were run with."""

    tested: str
    command: tuple[str, ...]  # prints it


class Setup(Protocol):
    @property
    def TESTED(self) -> Version: ...  # noqa: N802

    def files(self, where: Where, doors: Doors, *, front: bool) -> tuple[ConfigFile, ...]:
        """The files in the order in which they are written: what is harmless alone comes first."""

    def probe(self, prompt: str, command: str) -> list[str]:
        """The agent's command line that lets its model run one command without a terminal."""

    def notes(self, where: Where) -> list[str]:
        """What would make the agent ignore the settings in silence."""


# Hooks as Claude Code, Codex and Gemini CLI configure them, in JSON.


def add_hook(event: str, doors: Doors, extra: Mapping[str, Any]) -> Step:
    def step(text: str) -> str:
        found = json_text.find(json_text.parse(text), ["hooks", event]) if text.strip() else None
        if found is not None and found.kind == "array" and any(map(_is_ours, found.data)):
            return text
        hook = {"type": "command", "command": shlex.quote(str(doors.hook)), **extra}
        return json_text.append_item(text, ["hooks", event], {"matcher": "*", "hooks": [hook]})

    return step


def remove_hooks(text: str) -> str:
    """Without acode's entries, and without the lists that held nothing else."""
    found = json_text.find(json_text.parse(text), ["hooks"]) if text.strip() else None
    if found is None or found.kind != "object":
        return text
    for event, groups in found.data.items():
        if isinstance(groups, list) and any(map(_is_ours, groups)):
            text = json_text.remove_items(text, ["hooks", event], _is_ours)
            if len(groups) == 1:
                text = json_text.remove_member(text, ["hooks", event])
    left = json_text.find(json_text.parse(text), ["hooks"])
    return json_text.remove_member(text, ["hooks"]) if left is not None and not left.data and found.data else text


def _is_ours(group: Any) -> bool:
    """A group with acode's hook and nothing else: acode never adds its hook to a group of the user."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list) or len(hooks) != 1 or not isinstance(hooks[0], dict):
        return False
    try:
        words = shlex.split(str(hooks[0].get("command", "")))
    except ValueError:
        return False
    return len(words) == 1 and words[0].endswith(HOOK)

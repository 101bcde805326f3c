"""Codex: hooks in hooks.json, the switch for them and BASH_ENV in config.toml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from acode.observed.codex import config_directories
from acode.observed.doors import Doors
from acode.observed.setup import toml_text
from acode.observed.setup.config_file import BASH_ENV, ConfigFile, Step, Version, Where, add_hook, remove_hooks

TESTED: Final = Version(tested="0.166.0", command=("codex", "--version"))
EVENTS: Final = ("PreToolUse", "PostToolUse", "SessionStart", "UserPromptSubmit", "Stop")
TIMEOUT_S: Final = 60
SET: Final = ("shell_environment_policy", "set")
SWITCH: Final = ("features", "hooks")
OURS, CHAINED, LEVEL = (*SET, "BASH_ENV"), (*SET, "ACODE_BASH_ENV"), (*SET, "SHLVL")


def _directory(where: Where) -> Path:
    (config,) = config_directories(where.environment)
    return config if where.scope == "user" else where.project / ".codex"


def files(where: Where, doors: Doors, *, front: bool) -> tuple[ConfigFile, ...]:
    hooks = tuple(add_hook(event, doors, {"timeout": TIMEOUT_S}) for event in EVENTS)
    theirs = where.environment.get("BASH_ENV", "")
    settings = (_switch, *([_front(doors, theirs)] if front else []))
    directory = _directory(where)
    return (
        ConfigFile(path=directory / "hooks.json", add=hooks, remove=remove_hooks),
        ConfigFile(path=directory / "config.toml", add=settings, remove=_remove),
    )


def _switch(text: str) -> str:
    return text if _at(text, SWITCH) is True else toml_text.set_value(text, SWITCH, True)


def _front(doors: Doors, exported: str) -> Step:
    def step(text: str) -> str:
        current = _at(text, OURS)
        if current == str(doors.bash_env):
            return text
        theirs = current if isinstance(current, str) else exported
        text = toml_text.set_value(text, OURS, str(doors.bash_env))
        # In its sandbox bash reads BASH_ENV only at this level; without a sandbox the level stays as it is.
        if toml_text.read(text).get("sandbox_mode") != "danger-full-access" and _at(text, LEVEL) is None:
            text = toml_text.set_value(text, LEVEL, "1")
        if theirs and not theirs.endswith(BASH_ENV):
            text = toml_text.set_value(text, CHAINED, theirs)
        return text

    return step


def _remove(text: str) -> str:
    """The switch for hooks stays where the user may have hooks of their own by now."""
    current, theirs = _at(text, OURS), _at(text, CHAINED)
    if not isinstance(current, str) or not current.endswith(BASH_ENV):
        return text
    text = toml_text.remove_value(text, CHAINED)
    is_kept = isinstance(theirs, str)
    text = toml_text.set_value(text, OURS, str(theirs)) if is_kept else toml_text.remove_value(text, OURS)
    return toml_text.remove_value(text, LEVEL) if _at(text, LEVEL) == "1" else text


def _at(text: str, path: tuple[str, ...]) -> object:
    found: object = toml_text.read(text)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def probe(prompt: str, command: str) -> list[str]:
    return ["codex", "exec", "--skip-git-repo-check", "--json", prompt]


def notes(where: Where) -> list[str]:
    found = []
    shell = os.path.basename(where.environment.get("SHELL", ""))
    if shell and shell != "bash":
        found.append(f"your shell is {shell}: Codex runs commands with it, and only bash reads BASH_ENV")
    return found

"""Gemini CLI: hooks in settings.json, BASH_ENV in the .env file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from acode.observed.doors import Doors
from acode.observed.setup import env_text
from acode.observed.setup.config_file import BASH_ENV, ConfigFile, Step, Version, Where, add_hook, remove_hooks

TESTED: Final = Version(tested="0.61.0", command=("gemini", "--version"))
EVENTS: Final = ("BeforeTool", "AfterTool", "SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd")
TIMEOUT_MS: Final = 60_000
OURS, CHAINED = "BASH_ENV", "ACODE_BASH_ENV"


def _directory(where: Where) -> Path:
    if where.scope == "project":
        return where.project / ".gemini"
    return Path(where.environment.get("GEMINI_CLI_HOME") or where.home) / ".gemini"


def files(where: Where, doors: Doors, *, front: bool) -> tuple[ConfigFile, ...]:
    directory = _directory(where)
    hooks = tuple(add_hook(event, doors, {"name": "acode", "timeout": TIMEOUT_MS}) for event in EVENTS)
    settings = ConfigFile(path=directory / "settings.json", add=hooks, remove=remove_hooks)
    if not front:
        return (settings,)
    return settings, ConfigFile(path=directory / ".env", add=(_front(doors),), remove=_remove)


def _front(doors: Doors) -> Step:
    def step(text: str) -> str:
        current = env_text.value_of(text, OURS)
        if current == str(doors.bash_env):
            return text
        text = env_text.set_variable(text, OURS, str(doors.bash_env))
        return env_text.set_variable(text, CHAINED, current) if current and not current.endswith(BASH_ENV) else text

    return step


def _remove(text: str) -> str:
    current, theirs = env_text.value_of(text, OURS), env_text.value_of(text, CHAINED)
    if current is None or not current.endswith(BASH_ENV):
        return text
    text = env_text.remove_variable(text, CHAINED)
    return env_text.remove_variable(text, OURS) if theirs is None else env_text.set_variable(text, OURS, theirs)


def probe(prompt: str, command: str) -> list[str]:
    return ["gemini", "-p", prompt, "-o", "json", "--allowed-tools", f"run_shell_command({command})"]


def notes(where: Where) -> list[str]:
    """The first .env file that it finds is the only one that it reads."""
    found = []
    if BASH_ENV not in where.environment.get("BASH_ENV", BASH_ENV):
        found.append("BASH_ENV is exported in your shell, and Gemini CLI prefers that to its .env file")
    ours = _directory(where) / ".env"
    for directory in (where.project, *where.project.parents):
        for path in (directory / ".gemini" / ".env", directory / ".env"):
            if path == ours:
                return found
            if path.is_file():
                return [*found, f"{path} hides {ours}: Gemini CLI reads the first .env file that it finds"]
    return found

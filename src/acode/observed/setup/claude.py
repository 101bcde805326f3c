"""Claude Code: hooks and the shell prefix in settings.json; for a project in settings.local.json, which stays here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from acode.observed.claude import config_directories
from acode.observed.doors import Doors
from acode.observed.setup import json_text
from acode.observed.setup.config_file import FRONT, ConfigFile, Step, Version, Where, add_hook, remove_hooks

TESTED: Final = Version(tested="2.1.197", command=("claude", "--version"))
EVENTS: Final = (
    *("PreToolUse", "PostToolUse", "PostToolUseFailure"),
    *("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
)
TIMEOUT_S: Final = 60
PREFIX, CHAINED = ("env", "CLAUDE_CODE_SHELL_PREFIX"), ("env", "ACODE_SHELL_PREFIX")


def files(where: Where, doors: Doors, *, front: bool) -> tuple[ConfigFile, ...]:
    (config,) = config_directories(where.environment)
    path = config / "settings.json" if where.scope == "user" else where.project / ".claude" / "settings.local.json"
    hooks = [add_hook(event, doors, {"timeout": TIMEOUT_S}) for event in EVENTS]
    theirs = where.environment.get(PREFIX[1], "")
    return (ConfigFile(path=path, add=(*hooks, *([_front(doors, theirs)] if front else [])), remove=_remove),)


def _front(doors: Doors, exported: str) -> Step:
    def step(text: str) -> str:
        current = _text_at(text, PREFIX)
        if current == str(doors.front):
            return text
        theirs = exported if current is None else current
        if theirs and not theirs.endswith(FRONT):
            text = json_text.set_member(text, CHAINED, theirs)
        return json_text.set_member(text, PREFIX, str(doors.front))

    return step


def _remove(text: str) -> str:
    """The prefix first: without the front behind it, every command of Claude Code would fail."""
    if not text.strip():
        return text
    if (_text_at(text, PREFIX) or "").endswith(FRONT):
        theirs = _text_at(text, CHAINED)
        changed = (
            json_text.remove_member(text, PREFIX) if theirs is None else json_text.set_member(text, PREFIX, theirs)
        )
        text = json_text.remove_member(changed, CHAINED)
        left = json_text.find(json_text.parse(text), ["env"])
        if left is not None and left.data == {}:
            text = json_text.remove_member(text, ["env"])
    return remove_hooks(text)


def _text_at(text: str, path: tuple[str, ...]) -> str | None:
    found = json_text.find(json_text.parse(text), path) if text.strip() else None
    return found.data if found is not None and isinstance(found.data, str) else None


def probe(prompt: str, command: str) -> list[str]:
    return ["claude", "-p", prompt, "--allowedTools", f"Bash({command})", "--output-format", "json"]


def notes(where: Where) -> list[str]:
    (config,) = config_directories(where.environment)
    places = [
        config / "settings.json",
        *(where.project / ".claude" / name for name in ("settings.json", "settings.local.json")),
    ]
    return [
        f"{path} sets {name}: Claude Code runs no hooks of yours"
        for path in (*places, Path("/etc/claude-code/managed-settings.json"))
        for name in ("disableAllHooks", "allowManagedHooksOnly")
        if _is_set(path, name)
    ]


def _is_set(path: Path, name: str) -> bool:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get(name) is True

"""The step of acode that stands for a call of an agent's tool: a command, a written file, or something else.

A write or an edit of one file in the workspace carries its own evidence: its content before and after. A command has
the front. Everything else is a call of which only its agent can tell how it ended.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from acode.events.definition import Action, Call, Run
from acode.events.definition import Write as WriteFile
from acode.observed.hook_payload import HookEvent
from acode.observed.session import Command, Edit, Write
from acode.observed.transcript import is_true
from acode.workspacepath import Outside, inside_workspace

FILE_BYTES_MAX: Final = 8 * 1024 * 1024
SHOWN_CHARS_MAX: Final = 2_000
_ALL = ("replace_all", "replaceAll", "allow_multiple")


def command_of(event: HookEvent) -> str | None:
    """The line for a shell, where the call is one command and nothing else."""
    match event.effects:
        case (Command(text=text),):
            return text
        case _:
            return None


def action_of(event: HookEvent, workspace: Path) -> Action:
    match event.effects:
        case (Command(text=text),):
            return Run(command=text)
        case (Write(path=path, content=content),):
            return _write(event, workspace, path, content)
        case (Edit(path=path) as edit,):
            after = edited(_absolute(event, path), edit, everywhere=_everywhere(event))
            return _other(event) if after is None else _write(event, workspace, path, after)
        case _:
            return _other(event)


def shown_arguments(event: HookEvent) -> str:
    """The arguments for people; the recorder redacts them."""
    plain = msgspec.json.encode(event.arguments or {}).decode("utf-8", "replace")
    return plain[:SHOWN_CHARS_MAX]


def edited(path: str, edit: Edit, *, everywhere: bool) -> str | None:
    """The content that the edit will leave; None where that cannot be told: the tool itself says why it fails."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:
            return None
        with open(path, encoding="utf-8", newline="") as file:
            content = file.read()
    except (OSError, ValueError):
        return None
    for old, new in edit.replacements:
        times = content.count(old)
        if times == 0 or (times > 1 and not everywhere):
            return None
        content = content.replace(old, new)
    return content


def _everywhere(event: HookEvent) -> bool:
    return any(is_true((event.arguments or {}).get(name)) for name in _ALL)


def _absolute(event: HookEvent, path: str) -> str:
    return os.path.join(event.directory, path)


def _write(event: HookEvent, workspace: Path, path: str, content: str) -> Action:
    """In the workspace by its real place: a link that leads out of it is somebody else's file."""
    directory, name = os.path.split(_absolute(event, path))
    real = os.path.join(os.path.realpath(directory), name)
    try:
        content.encode("utf-8")
        inside = inside_workspace(os.path.relpath(real, workspace), changes=True)
    except (Outside, ValueError):
        return _other(event)
    return _other(event) if os.path.islink(real) else WriteFile(path=inside, content=content)


def _other(event: HookEvent) -> Action:
    return Call(function=event.tool)

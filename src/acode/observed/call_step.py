"""The step of acode that stands for a call of an agent's tool: a command, a written file, or something else.

A write or an edit of files in the workspace carries its own evidence: their contents before and after. A command has
the front. Everything else is a call of which only its agent can tell how it ended.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from acode.events.definition import Action, Call, NamedFile, Run
from acode.events.definition import Write as WriteFile
from acode.observed.hook_payload import HookEvent
from acode.observed.session import Command, Delete, Edit, Effect, Reads, Write
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
        case (Edit(path=path, moved_from="") as edit,):
            after = edited(_absolute(event, path), edit, everywhere=_everywhere(event))
            return _change(event, workspace) if after is None else _write(event, workspace, path, after)
        case _:
            return _change(event, workspace)


def shown_arguments(event: HookEvent) -> str:
    """The arguments for people; the recorder redacts them."""
    plain = msgspec.json.encode(event.arguments or {}).decode("utf-8", "replace")
    return plain[:SHOWN_CHARS_MAX]


def edited(path: str, edit: Edit, *, everywhere: bool) -> str | None:
    """The content that the edit will leave; None where that cannot be told: the tool itself says why it fails."""
    if not edit.replacements and not edit.moved_from:
        return None
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
    inside = _inside(event, workspace, path)
    return WriteFile(path=inside, content=content) if inside and _is_text(content) else _change(event, workspace)


def _inside(event: HookEvent, workspace: Path, path: str) -> str | None:
    """In the workspace by its real place: a link that leads out of it is somebody else's file."""
    directory, name = os.path.split(_absolute(event, path))
    real = os.path.join(os.path.realpath(directory), name)
    try:
        inside = inside_workspace(os.path.relpath(real, workspace), changes=True)
    except (Outside, ValueError):
        return None
    return None if os.path.islink(real) or os.path.isdir(real) else inside


def _is_text(content: str) -> bool:
    try:
        content.encode("utf-8")
    except ValueError:
        return False
    return True


def _change(event: HookEvent, workspace: Path) -> Action:
    """A call with the files that it names, as far as they lie in the workspace."""
    files: dict[str, NamedFile] = {}
    more = False
    for effect in event.effects:
        path = effect.path if isinstance(effect, Write | Edit | Delete) else ""
        inside = _inside(event, workspace, path) if path else None
        if inside is None:
            more = more or not isinstance(effect, Reads)
            continue
        twice = inside in files  # what the second change makes of it depends on the first
        files[inside] = NamedFile(path=inside, foreseen=False) if twice else _named(event, inside, effect)
    return Call(function=event.tool, files=tuple(files.values()), more=more and bool(files))


def _named(event: HookEvent, inside: str, effect: Effect) -> NamedFile:
    match effect:
        case Delete():
            return NamedFile(path=inside)
        case Write(content=content):
            after: str | None = content
        case Edit(path=path, moved_from=source):
            after = edited(_absolute(event, source or path), effect, everywhere=_everywhere(event))
        case _:
            after = None
    if after is None or not _is_text(after):
        return NamedFile(path=inside, foreseen=False)
    return NamedFile(path=inside, after_sha256=hashlib.sha256(after.encode("utf-8")).hexdigest())

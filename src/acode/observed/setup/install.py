"""Set acode up in an agent, and take it out again, without changing anything else in the agent's settings.

All texts are made before the first file is written, so that a file that cannot be changed leaves the others as they
were. Each file is replaced whole. Killed in between, some files are changed and the record names them: the same command
completes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from acode.config import state_dir
from acode.disk.replace_file import replace_file
from acode.disk.write_errors import NO_ROOM
from acode.errors import AgentSettingsUnusable, DiskFull, NotWritable, Usage
from acode.hints import Command, Hint
from acode.observed.doors import Doors, doors_in, remove_doors, write_doors
from acode.observed.setup import SETUPS, install_record
from acode.observed.setup.config_file import ConfigFile, Where
from acode.observed.setup.install_record import ChangedFile, InstallRecord, digest, splice

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a command did: the files that it wrote, and those that it left as they were."""

    written: tuple[Path, ...]
    unchanged: tuple[Path, ...]
    left: tuple[Path, ...] = ()  # the user has changed them since; only acode's settings were taken out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    file: ConfigFile
    before: str | None
    after: str
    changed: ChangedFile


def install(agent: str, where: Where, *, front: bool) -> Changes:
    """Idempotent: what is there already stays as it is."""
    state = state_dir(where.environment)
    doors = write_doors(state)
    for record in install_record.all_records(doors.directory):
        for shell in filter(None, (file.replaced for file in record.files)):
            doors.shell(os.path.basename(shell), real=shell)  # written anew, it would stand for another one
    _refuse_second_place(agent, where, doors)
    path = install_record.record_path(doors.directory, agent, where.scope, where.project)
    known = install_record.load(path)
    planned = [_plan(file, known) for file in SETUPS[agent].files(where, doors, front=front)]
    project = str(where.project) if where.scope == "project" else ""
    files = tuple(one.changed for one in planned)
    record = InstallRecord(agent=agent, scope=where.scope, project=project, files=files)
    if record != known:
        install_record.save(path, record)
    for one in planned:
        if one.before != one.after:
            _write(one.file.path, one.after)
    written = tuple(one.file.path for one in planned if one.before != one.after)
    return Changes(written=written, unchanged=tuple(one.file.path for one in planned if one.before == one.after))


def _plan(file: ConfigFile, known: InstallRecord | None) -> _Planned:
    before = _read(file.path)
    text, splices = before or "", []
    replaced = _understood(file, file.replaced, text)
    for step in file.add:
        changed = _understood(file, step, text)
        if changed != text:
            splices.append(splice(text, changed))
            text = changed
    entry = known.of(file.path) if known is not None else None
    if entry is not None and entry.after == digest(text) and before is not None:
        return _Planned(file=file, before=before, after=text, changed=entry)
    made = tuple(str(one) for one in _missing_directories(file.path.parent))
    changed_file = ChangedFile(
        path=str(file.path),
        existed=before is not None if entry is None else entry.existed,
        made_directories=made if entry is None else entry.made_directories,
        after=digest(text),
        splices=tuple(splices),
        replaced=replaced if replaced is not None or entry is None else entry.replaced,
    )
    return _Planned(file=file, before=before, after=text, changed=changed_file)


def _refuse_second_place(agent: str, where: Where, doors: Doors) -> None:
    """Set up for the user and for a project, each call would be recorded twice."""
    for record in install_record.all_records(doors.directory):
        other = "project" if where.scope == "user" else "user"
        same_project = record.scope == "user" or where.scope == "user" or record.project == str(where.project)
        if record.agent == agent and record.scope == other and same_project:
            place = f" --project (in {record.project})" if other == "project" else ""
            raise Usage(
                f"{agent} is set up already {'for you' if other == 'user' else f'for the project {record.project}'}",
                hint=Hint("Take that out first: {}", Command(f"hook uninstall {agent}{place}")),
            )


def uninstall(agent: str, where: Where) -> Changes:
    """The agent's settings first and acode's own programs last: an agent must never be told to use what is gone."""
    state = state_dir(where.environment)
    doors = doors_in(state)
    path = install_record.record_path(doors.directory, agent, where.scope, where.project)
    known = install_record.load(path)
    written: list[Path] = []
    unchanged: list[Path] = []
    left: list[Path] = []
    # The front's file comes last when it is written, and first when it goes.
    for file in reversed(SETUPS[agent].files(where, doors, front=True)):
        before = _read(file.path)
        entry = known.of(file.path) if known is not None else None
        if before is None:
            continue
        after, exact = _without(file, before, entry)
        if after == before:
            unchanged.append(file.path)
            continue
        (written if exact else left).append(file.path)
        _write_or_remove(file.path, after, entry)
    path.unlink(missing_ok=True)
    if not install_record.any_installed(doors.directory):
        remove_doors(state)
    return Changes(written=tuple(written), unchanged=tuple(unchanged), left=tuple(left))


def _without(file: ConfigFile, text: str, entry: ChangedFile | None) -> tuple[str, bool]:
    if entry is not None and digest(text) == entry.after:
        original = install_record.take_out(text, entry)
        if _understood(file, file.remove, original) == original:
            return original, True
    removed = _understood(file, file.remove, text)
    if entry is not None and entry.replaced is not None and removed != text:
        removed = file.restore(removed, entry.replaced)
    return removed, False


def _write_or_remove(path: Path, text: str, entry: ChangedFile | None) -> None:
    if text.strip() and (entry is None or entry.existed or text.strip() != "{}"):
        _write(path, text)
        return
    if entry is not None and entry.existed:
        _write(path, text)
        return
    path.unlink()
    for made in entry.made_directories if entry is not None else ():
        with suppress(OSError):  # somebody else uses it by now
            os.rmdir(made)


# Files.


def _understood(file: ConfigFile, step: Callable[[str], Result], text: str) -> Result:
    try:
        return step(text)
    except ValueError as error:
        raise AgentSettingsUnusable(f"{file.path} cannot be changed: {error}") from error


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(install_record.FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentSettingsUnusable(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > install_record.FILE_BYTES_MAX:
        raise AgentSettingsUnusable(f"{path} is larger than {install_record.FILE_BYTES_MAX >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise AgentSettingsUnusable(f"{path} is not UTF-8: {error.reason}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        refusal = DiskFull if error.errno in NO_ROOM else NotWritable
        raise refusal(f"{path} cannot be written: {error.strerror}") from error


def _missing_directories(directory: Path) -> list[Path]:
    """Those that have to be made, the innermost first."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    return missing

"""The event files of a run: found in a fixed order, opened one after the other, never through a link."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import groupby

import msgspec

from acode.errors import AcodeError, FileTooLarge, UnsafePath
from acode.formats.agent_memory.disk import Folder, OpenFile
from acode.formats.agent_memory.values import (
    EVENT_BYTES_PER_RUN_MAX,
    EVENT_FILES_PER_RUN_MAX,
    EVENT_FOLDER_DEPTH_MAX,
)
from acode.formats.messages import shown
from acode.formats.unreadable import machine_refused, reason

EVENTS_FOLDER = "events"
WARNINGS_MAX = 300


class EventFile(msgspec.Struct, frozen=True):
    """An event file found: where it lies below the run's folder, and which actor's folder it is in."""

    folders: tuple[str, ...]
    name: str

    @property
    def actor(self) -> str:
        return self.folders[0] if self.folders else ""

    @property
    def shown_as(self) -> str:
        return "/".join((EVENTS_FOLDER, *self.folders, self.name))


class Notes:
    """The parts of a run that could not be used, and those that the machine refused: these may hold anything."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.unread: list[str] = []

    def warn(self, text: str) -> None:
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(text)

    def cannot_read(self, what: str, error: Exception) -> None:
        text = shown(f"{what} cannot be read: {why(error)}", chars_max=500)
        self.warn(text)
        if machine_refused(error) and len(self.unread) < WARNINGS_MAX:
            self.unread.append(text)


def event_files(run: Folder, notes: Notes) -> tuple[EventFile, ...]:
    """Every events/**/*.jsonl, in the order in which they are read. Links are named in a warning, never entered."""
    files: list[EventFile] = []
    try:
        with run.below(EVENTS_FOLDER) as events:
            _collect(events, (), files, notes)
    except FileNotFoundError:
        pass
    except (OSError, AcodeError) as error:
        notes.cannot_read(f"{EVENTS_FOLDER}/", error)
    if len(files) >= EVENT_FILES_PER_RUN_MAX:
        raise FileTooLarge(f"{shown(run.path, chars_max=500)} has {EVENT_FILES_PER_RUN_MAX} event files or more")
    folders = {item.folders: position for position, item in reversed(tuple(enumerate(files)))}
    return tuple(sorted(files, key=lambda item: folders[item.folders]))  # those of a folder one after the other


def _collect(folder: Folder, above: tuple[str, ...], files: list[EventFile], notes: Notes) -> None:
    unread = 0
    for entry in folder.entries():
        where = shown("/".join((EVENTS_FOLDER, *above, entry.name)), chars_max=500)
        if len(files) >= EVENT_FILES_PER_RUN_MAX:
            return
        if entry.is_link:
            notes.warn(f"{where} is a link; links are not followed")
        elif entry.is_folder and len(above) >= EVENT_FOLDER_DEPTH_MAX:
            notes.warn(f"{where} lies too deep; it is not read")
        elif entry.is_folder:
            try:
                with folder.below(entry.name) as inner:
                    _collect(inner, (*above, entry.name), files, notes)
            except (OSError, AcodeError) as error:
                notes.cannot_read(where, error)
        elif entry.is_file and entry.name.endswith(".jsonl"):
            files.append(EventFile(above, entry.name))
        elif not entry.name.startswith("."):
            unread += 1
    if unread:
        here = shown("/".join((EVENTS_FOLDER, *above)), chars_max=500)
        notes.warn(f"{here}/ holds {unread} other file{'s' if unread > 1 else ''} than .jsonl; not read")


def opened_files(run: Folder, files: tuple[EventFile, ...], notes: Notes) -> Iterator[tuple[EventFile, OpenFile]]:
    """Each event file, open; each folder is opened once, reached component by component below the run."""
    for folders, group in groupby(files, key=lambda item: item.folders):
        with ExitStack() as opened:
            try:
                here = run
                for name in (EVENTS_FOLDER, *folders):
                    here = opened.enter_context(here.below(name))
            except (OSError, UnsafePath) as error:
                notes.cannot_read("/".join((EVENTS_FOLDER, *folders)), error)
                continue
            for item in group:
                try:
                    file = here.open_file(item.name)
                except (OSError, UnsafePath) as error:
                    notes.cannot_read(item.shown_as, error)
                    continue
                with file:
                    yield item, file


def weighed_files(run: Folder, files: tuple[EventFile, ...], notes: Notes) -> Iterator[tuple[EventFile, OpenFile]]:
    """The same, up to the limit of their bytes. Half a log could say the opposite of it: too much is an error."""
    left = EVENT_BYTES_PER_RUN_MAX
    for item, file in opened_files(run, files, notes):
        left -= file.size_bytes
        if left < 0:
            where = shown(run.path, chars_max=500)
            raise FileTooLarge(f"the event files of {where} are over {EVENT_BYTES_PER_RUN_MAX} bytes")
        yield item, file


def why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else shown(str(error), chars_max=300)

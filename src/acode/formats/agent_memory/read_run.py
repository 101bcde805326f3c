"""Read one run from disk into a `Run`. Reads only; nothing found in it is executed or followed as a link."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from acode.errors import AcodeError, FileTooLarge, UnknownSession, UnsafePath
from acode.formats.agent_memory.disk import Entry, Folder, OpenFile, blocks_of_lines
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.graph import parse_graph
from acode.formats.agent_memory.phase_numbers import parse_state
from acode.formats.agent_memory.values import (
    APPROVED_ARTIFACTS,
    ARTIFACT_BYTES_MAX,
    CORE_ARTIFACTS,
    EVENT_BYTES_PER_RUN_MAX,
    EVENT_FILES_PER_RUN_MAX,
    EVENT_FOLDER_DEPTH_MAX,
    EVENT_LINE_BYTES_MAX,
    GRAPH_BYTES_MAX,
    Artifact,
    Graph,
    Run,
    WorkflowState,
)
from acode.formats.messages import shown
from acode.formats.unreadable import machine_refused, needed, reason

EVENTS_FOLDER = "events"
STATE_BYTES_MAX = 1024 * 1024
CONTRACT_BYTES_MAX = 64 * 1024
WARNINGS_MAX = 300
_NEWER_STATE_FILE = "workflow-state.json"


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
        text = shown(f"{what} cannot be read: {_why(error)}", chars_max=500)
        self.warn(text)
        if machine_refused(error) and len(self.unread) < WARNINGS_MAX:
            self.unread.append(text)


def read(path: str | os.PathLike[str]) -> Run:
    """The run in this folder. The value names the parts that cannot be read; no folder at all is an error."""
    path = os.fspath(path)
    try:
        with needed(shown(path, chars_max=500)), Folder.at(path) as folder:
            return read_folder(folder)
    except (OSError, ValueError) as error:
        raise UnknownSession(f"no run can be read at {shown(path, chars_max=500)}: {_why(error)}") from error


def read_task_contract(path: str | os.PathLike[str], task_id: str) -> str | None:
    """The text of tasks/<task-id>.md, cut to a limit; None where there is none or the id is no safe file name.

    A driver without the contract would do another task: one that is there and cannot be read is an error.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", task_id):
        return None
    try:
        with (
            needed(f"tasks/{task_id}.md"),
            Folder.at(os.fspath(path)) as run,
            run.below("tasks") as tasks,
            tasks.open_file(f"{task_id}.md") as file,
        ):
            return file.head(CONTRACT_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError, UnsafePath):
        return None


def read_folder(folder: Folder) -> Run:
    """The run in a folder that is already open."""
    entries = {entry.name: entry for entry in folder.entries()}
    notes = Notes()
    touched_us: list[int] = []
    artifacts: dict[str, Artifact] = {}
    for name in CORE_ARTIFACTS:
        artifact = _artifact(folder, entries.get(name), notes, touched_us)
        if artifact is not None:
            artifacts[name] = artifact
    graph = _graph(artifacts, notes)
    fold = EventFold()
    fold_all(folder, event_files(folder, notes), fold, notes, touched_us)
    return Run(
        run_id=os.path.basename(os.path.abspath(folder.path)),
        path=folder.path,
        artifacts=artifacts,
        graph=graph,
        run_events=fold.run_events(),
        workflow=_workflow(folder, entries.get(_NEWER_STATE_FILE), notes),
        files_touched_us=max(touched_us, default=None),
        warnings=tuple(notes.warnings),
        unread=tuple(notes.unread),
    )


def _artifact(folder: Folder, entry: Entry | None, notes: Notes, touched_us: list[int]) -> Artifact | None:
    if entry is None:
        return None
    if not entry.is_file:
        notes.warn(f"{entry.name} is {'a link' if entry.is_link else 'no regular file'}; it is not read")
        return None
    limit = GRAPH_BYTES_MAX if entry.name.endswith(".json") else ARTIFACT_BYTES_MAX
    try:
        with folder.open_file(entry.name) as file:
            data = file.head(limit)
            sha256 = _sha256(data, file) if entry.name in APPROVED_ARTIFACTS else ""
            touched_us.append(file.touched_us)
            size = file.size_bytes
    except (OSError, AcodeError) as error:
        notes.cannot_read(entry.name, error)
        return None
    if not data.strip(b" \t\r\n\0"):
        notes.warn(f"{entry.name} is empty; it counts as missing")
        return None
    text = data.decode("utf-8", "replace")
    return Artifact(name=entry.name, size_bytes=size, text=text, truncated=size > len(data), sha256=sha256)


def _sha256(head: bytes, file: OpenFile) -> str:
    """The hash of the file whose beginning was just read: the very bytes that are used, and the rest after them."""
    digest = hashlib.sha256(head)
    for chunk in file.chunks(bytes_max=file.size_bytes - len(head)):
        digest.update(chunk)
    return digest.hexdigest()


def _workflow(folder: Folder, entry: Entry | None, notes: Notes) -> WorkflowState | None:
    """The state file of newer versions; None where there is none. One that cannot be used leaves the phase unclear."""
    if entry is None:
        return None
    try:
        with folder.open_file(entry.name) as file:
            if file.size_bytes > STATE_BYTES_MAX:
                return WorkflowState(problem=f"it is over {STATE_BYTES_MAX} bytes")
            return parse_state(file.head(STATE_BYTES_MAX), file.touched_us)
    except (OSError, AcodeError) as error:
        notes.cannot_read(entry.name, error)
        return WorkflowState(problem=_why(error))


def _graph(artifacts: dict[str, Artifact], notes: Notes) -> Graph | None:
    """Take the graph's text out of the artifacts and parse it; a graph that cannot be used counts as missing."""
    artifact = artifacts.get("task-graph.json")
    if artifact is None:
        return None
    if artifact.truncated:
        graph: Graph | str = f"over {GRAPH_BYTES_MAX} bytes"
    else:
        graph = parse_graph(artifact.text.encode("utf-8", "replace"))
    if isinstance(graph, str):
        notes.warn(f"task-graph.json cannot be used: {graph}")
        del artifacts["task-graph.json"]
        return None
    artifacts["task-graph.json"] = msgspec.structs.replace(artifact, text="")
    for warning in graph.warnings:
        notes.warn(warning)
    return graph


def event_files(run: Folder, notes: Notes) -> tuple[EventFile, ...]:
    """Every events/**/*.jsonl, in a fixed order. Links are named in a warning, never entered."""
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
    return tuple(files)


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


def fold_all(run: Folder, files: tuple[EventFile, ...], fold: EventFold, notes: Notes, touched_us: list[int]) -> None:
    """Stream every event file into the telling. Half a log could say the opposite of it: too much is an error."""
    left = EVENT_BYTES_PER_RUN_MAX
    for item, file in opened_files(run, files, notes):
        left -= file.size_bytes
        if left < 0:
            where = shown(run.path, chars_max=500)
            raise FileTooLarge(f"the event files of {where} are over {EVENT_BYTES_PER_RUN_MAX} bytes")
        touched_us.append(file.touched_us)
        try:
            blocks = blocks_of_lines(file, line_bytes_max=EVENT_LINE_BYTES_MAX)
            fold.fold_blocks(item.shown_as, item.actor, blocks)
        except OSError as error:
            notes.cannot_read(item.shown_as, error)


def opened_files(run: Folder, files: tuple[EventFile, ...], notes: Notes) -> Iterator[tuple[EventFile, OpenFile]]:
    """Each event file, open; each folder is opened once, reached component by component below the run."""
    groups: dict[tuple[str, ...], list[EventFile]] = {}
    for item in files:
        groups.setdefault(item.folders, []).append(item)
    for folders, group in groups.items():
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


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else shown(str(error), chars_max=300)

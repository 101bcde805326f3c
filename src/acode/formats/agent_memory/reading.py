"""Read one run from disk into a `Run`. Reads only; nothing found in it is executed or followed as a link."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import msgspec

from acode.errors import AcodeError, FileTooLarge, UnknownSession, UnsafePath
from acode.formats.agent_memory.disk import Entry, Folder, lines
from acode.formats.agent_memory.graph import parse_graph
from acode.formats.agent_memory.shape import (
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
)
from acode.formats.agent_memory.story import Telling
from acode.formats.agent_memory.wording import shown

EVENTS_FOLDER = "events"
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


class Listing(msgspec.Struct, frozen=True):
    files: tuple[EventFile, ...]
    warnings: tuple[str, ...]


def read(path: str | os.PathLike[str]) -> Run:
    """The run in this folder. What cannot be read of it is a warning in the value; no folder at all is an error."""
    path = os.fspath(path)
    try:
        with Folder.at(path) as folder:
            return read_folder(folder)
    except (OSError, ValueError) as error:
        raise UnknownSession(f"no run can be read at {shown(path, chars_max=500)}: {_why(error)}") from error


def read_task_contract(path: str | os.PathLike[str], task_id: str) -> str | None:
    """The text of tasks/<task-id>.md, cut to a limit; None where there is none or the id is no safe file name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", task_id):
        return None
    try:
        with (
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
    warnings: list[str] = []
    touched_us: list[int] = []
    artifacts: dict[str, Artifact] = {}
    for name in CORE_ARTIFACTS:
        artifact = _artifact(folder, entries.get(name), warnings, touched_us)
        if artifact is not None:
            artifacts[name] = artifact
    graph = _graph(folder, artifacts, warnings)
    if _NEWER_STATE_FILE in entries:
        warnings.append(
            f"{_NEWER_STATE_FILE} belongs to a newer version of this format; it is not read, the events decide"
        )
    telling = Telling()
    listing = event_files(folder)
    hear_all(folder, listing.files, telling, touched_us)
    warnings.extend(listing.warnings)
    return Run(
        run_id=os.path.basename(os.path.abspath(folder.path)),
        path=folder.path,
        artifacts=artifacts,
        graph=graph,
        story=telling.story(),
        files_touched_us=max(touched_us, default=None),
        warnings=tuple(warnings[:WARNINGS_MAX]),
    )


def _artifact(folder: Folder, entry: Entry | None, warnings: list[str], touched_us: list[int]) -> Artifact | None:
    if entry is None:
        return None
    if not entry.is_file:
        warnings.append(f"{entry.name} is {'a link' if entry.is_link else 'no regular file'}; it is not read")
        return None
    limit = GRAPH_BYTES_MAX if entry.name.endswith(".json") else ARTIFACT_BYTES_MAX
    try:
        with folder.open_file(entry.name) as file:
            data = file.head(limit)
            touched_us.append(file.touched_us)
            size = file.size_bytes
    except (OSError, AcodeError) as error:
        warnings.append(f"{entry.name} cannot be read: {_why(error)}")
        return None
    if not data.strip(b" \t\r\n\0"):
        warnings.append(f"{entry.name} is empty; it counts as missing")
        return None
    return Artifact(name=entry.name, size_bytes=size, text=data.decode("utf-8", "replace"), truncated=size > len(data))


def _graph(folder: Folder, artifacts: dict[str, Artifact], warnings: list[str]) -> Graph | None:
    """Take the graph's text out of the artifacts and parse it; a graph that cannot be used counts as missing."""
    artifact = artifacts.get("task-graph.json")
    if artifact is None:
        return None
    if artifact.truncated:
        graph: Graph | str = f"over {GRAPH_BYTES_MAX} bytes"
    else:
        graph = parse_graph(artifact.text.encode("utf-8", "replace"))
    if isinstance(graph, str):
        warnings.append(f"task-graph.json cannot be used: {graph}")
        del artifacts["task-graph.json"]
        return None
    artifacts["task-graph.json"] = msgspec.structs.replace(artifact, text="")
    warnings.extend(graph.warnings)
    return graph


def event_files(run: Folder) -> Listing:
    """Every events/**/*.jsonl, in a fixed order. Links are named in a warning, never entered."""
    files: list[EventFile] = []
    warnings: list[str] = []
    try:
        with run.below(EVENTS_FOLDER) as events:
            _collect(events, (), files, warnings)
    except FileNotFoundError:
        pass
    except (OSError, AcodeError) as error:
        warnings.append(f"{EVENTS_FOLDER}/ cannot be read: {_why(error)}")
    if len(files) >= EVENT_FILES_PER_RUN_MAX:
        raise FileTooLarge(f"{shown(run.path, chars_max=500)} has {EVENT_FILES_PER_RUN_MAX} event files or more")
    return Listing(tuple(files), tuple(warnings[:WARNINGS_MAX]))


def _collect(folder: Folder, above: tuple[str, ...], files: list[EventFile], warnings: list[str]) -> None:
    unread = 0
    for entry in folder.entries():
        where = shown("/".join((EVENTS_FOLDER, *above, entry.name)), chars_max=500)
        if len(files) >= EVENT_FILES_PER_RUN_MAX:
            return
        if entry.is_link:
            warnings.append(f"{where} is a link; links are not followed")
        elif entry.is_folder and len(above) >= EVENT_FOLDER_DEPTH_MAX:
            warnings.append(f"{where} lies too deep; it is not read")
        elif entry.is_folder:
            try:
                with folder.below(entry.name) as inner:
                    _collect(inner, (*above, entry.name), files, warnings)
            except (OSError, AcodeError) as error:
                warnings.append(f"{where} cannot be read: {_why(error)}")
        elif entry.is_file and entry.name.endswith(".jsonl"):
            files.append(EventFile(above, entry.name))
        elif not entry.name.startswith("."):
            unread += 1
    if unread:
        here = shown("/".join((EVENTS_FOLDER, *above)), chars_max=500)
        warnings.append(f"{here}/ holds {unread} other file{'s' if unread > 1 else ''} than .jsonl; not read")


def hear_all(run: Folder, files: tuple[EventFile, ...], telling: Telling, touched_us: list[int]) -> None:
    """Stream every event file into the telling. Half a log could say the opposite of it: too much is an error."""
    left = EVENT_BYTES_PER_RUN_MAX
    for folder, group in _by_folder(run, files, telling):
        for item in group:
            try:
                with folder.open_file(item.name) as file:
                    left -= file.size_bytes
                    if left < 0:
                        where = shown(run.path, chars_max=500)
                        raise FileTooLarge(f"the event files of {where} are over {EVENT_BYTES_PER_RUN_MAX} bytes")
                    touched_us.append(file.touched_us)
                    telling.hear_file(item.shown_as, item.actor, lines(file, line_bytes_max=EVENT_LINE_BYTES_MAX))
            except (OSError, UnsafePath) as error:
                telling.warn(f"{item.shown_as} cannot be read: {_why(error)}")


def _by_folder(run: Folder, files: tuple[EventFile, ...], telling: Telling) -> Iterator[tuple[Folder, list[EventFile]]]:
    """The files of one folder at a time, with that folder open, reached component by component below the run."""
    groups: dict[tuple[str, ...], list[EventFile]] = {}
    for item in files:
        groups.setdefault(item.folders, []).append(item)
    for folders, group in groups.items():
        opened: list[Folder] = []
        try:
            here = run
            for name in (EVENTS_FOLDER, *folders):
                here = here.below(name)
                opened.append(here)
            yield here, group
        except (OSError, UnsafePath) as error:
            telling.warn(f"{'/'.join((EVENTS_FOLDER, *folders))} cannot be read: {_why(error)}")
        finally:
            for folder in reversed(opened):
                folder.close()


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    return shown(str(error), chars_max=300)

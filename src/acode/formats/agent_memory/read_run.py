"""Read one run from disk into a `Run`. Reads only; nothing found in it is executed or followed as a link."""

from __future__ import annotations

import hashlib
import os
import re

import msgspec

from acode.errors import AcodeError, UnknownSession, UnsafePath
from acode.formats.agent_memory.disk import Entry, Folder, OpenFile
from acode.formats.agent_memory.event_files import Notes, event_files, why
from acode.formats.agent_memory.fold_cache import FoldCache
from acode.formats.agent_memory.fold_files import fold_events
from acode.formats.agent_memory.graph import parse_graph
from acode.formats.agent_memory.phase_numbers import parse_state
from acode.formats.agent_memory.values import (
    APPROVED_ARTIFACTS,
    ARTIFACT_BYTES_MAX,
    CORE_ARTIFACTS,
    GRAPH_BYTES_MAX,
    Artifact,
    Graph,
    Run,
    WorkflowState,
)
from acode.formats.messages import shown
from acode.formats.unreadable import needed

STATE_BYTES_MAX = 1024 * 1024
CONTRACT_BYTES_MAX = 64 * 1024
_NEWER_STATE_FILE = "workflow-state.json"


def read(path: str | os.PathLike[str], *, cache: FoldCache | None = None) -> Run:
    """The run in this folder. The value names the parts that cannot be read; no folder at all is an error.

    With a cache, event lines that were folded before are hashed and not folded again; the value is the same.
    """
    path = os.fspath(path)
    try:
        with needed(shown(path, chars_max=500)), Folder.at(path) as folder:
            return read_folder(folder, cache)
    except (OSError, ValueError) as error:
        raise UnknownSession(f"no run can be read at {shown(path, chars_max=500)}: {why(error)}") from error


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


def read_folder(folder: Folder, cache: FoldCache | None = None) -> Run:
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
    fold = fold_events(folder, event_files(folder, notes), notes, touched_us, cache)
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
        return WorkflowState(problem=why(error))


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

"""Find the runs below a workspace, and say which of them one means.

A listing must not read every log. While its budget lasts a run is read wholly and its figures are exact; after that
only the ends of its event files are looked at: whether the run has ended, and when it was last active. The latest event
in those ends decides, and it is the latest of all as long as the files were appended to in order of time; `read` and
`diagnose` do not rely on that. Links are never followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime

import msgspec

from acode.errors import AcodeError, UnknownSession
from acode.formats.agent_memory import diagnosis
from acode.formats.agent_memory.dialect import file_time_us, moment
from acode.formats.agent_memory.disk import Folder, OpenFile
from acode.formats.agent_memory.event_files import Notes, event_files, opened_files
from acode.formats.agent_memory.event_fold import EventFold
from acode.formats.agent_memory.graph import count_tasks
from acode.formats.agent_memory.phase_numbers import position
from acode.formats.agent_memory.read_run import read_folder
from acode.formats.agent_memory.values import EVENT_LINE_BYTES_MAX, GRAPH_BYTES_MAX, RUNS_MAX, Ending, RunEvents
from acode.formats.messages import shown
from acode.formats.unreadable import machine_refused

RUNS_FOLDER = (".agent-memory", "runs")
EXACT_BYTES_MAX = 1024 * 1024
"""Event bytes that one listing reads wholly, newest runs first."""
TAIL_BYTES = 2 * 1024
ID_PART_CHARS_MIN = 4
CANDIDATES_SHOWN_MAX = 20


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A run as a listing shows it."""

    run_id: str
    path: str
    title: str
    created_at: datetime | None
    """As its id says."""
    updated_at: datetime | None
    ending: Ending | None
    tasks_total: int | None
    tasks_done: int | None
    """None where only the ends of the logs were looked at: `diagnose` knows."""
    phase: int | None
    exact: bool
    problem: str | None = None
    """Why the run, or a part of it, cannot be read; then nothing above but its id is sure."""

    @property
    def incomplete(self) -> bool:
        return self.ending is None


class Located(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[Found, ...] = ()
    """The most recently active first."""
    warnings: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Why the folder of the runs could not be looked through: there may be others in it."""

    @property
    def incomplete(self) -> tuple[Found, ...]:
        return tuple(run for run in self.runs if run.incomplete)


class FreshStart(msgspec.Struct, frozen=True):
    """No incomplete run: there is nothing to continue."""


class Ask(msgspec.Struct, frozen=True):
    """Several incomplete runs: the user says which."""

    candidates: tuple[Found, ...]


def locate(root: str | os.PathLike[str], *, exact_bytes_max: int = EXACT_BYTES_MAX) -> Located:
    """Every run under `.agent-memory/runs/` of this workspace, complete ones included."""
    opened: list[Folder] = []
    try:
        here = Folder.at(os.fspath(root))
        opened.append(here)
        for name in RUNS_FOLDER:
            here = here.below(name)
            opened.append(here)
        return _locate(here, exact_bytes_max)
    except (FileNotFoundError, NotADirectoryError):
        return Located(warnings=_link_warning(opened))
    except (OSError, ValueError, AcodeError) as error:
        told = (f"{'/'.join(RUNS_FOLDER)} cannot be read: {shown(str(error))}",)
        return Located(warnings=told, unread=told if machine_refused(error) else ())
    finally:
        for folder in reversed(opened):
            folder.close()


def choose(located: Located, run_id: str | None = None) -> Found | FreshStart | Ask:
    """The run that is meant: by its id or a unique beginning or end of it, else the only incomplete one."""
    if run_id is not None:
        return _by_id(located.runs, run_id)
    incomplete = located.incomplete
    if not incomplete:
        return FreshStart()
    return incomplete[0] if len(incomplete) == 1 else Ask(incomplete)


def title_of(run_id: str) -> str:
    """`20260115-1430-add-email-validation-a1b2` is about "add email validation"."""
    found = re.fullmatch(r"\d{8}-\d{4}-(.{1,200}?)(?:-[A-Za-z0-9]{4,8})?", run_id)
    return shown((found[1] if found else run_id).replace("-", " "))


def _by_id(runs: tuple[Found, ...], run_id: str) -> Found:
    exact = [run for run in runs if run.run_id == run_id]
    if exact:
        return exact[0]
    similar = []
    if len(run_id) >= ID_PART_CHARS_MIN:
        similar = [run for run in runs if run.run_id.startswith(run_id) or run.run_id.endswith(run_id)]
    if len(similar) == 1:
        return similar[0]
    candidates = [shown(run.run_id) for run in similar or runs][:CANDIDATES_SHOWN_MAX]
    what = "names more than one run" if similar else "names no run"
    listed = f" Candidates: {', '.join(candidates)}." if candidates else ""
    raise UnknownSession(f"{shown(run_id)} {what} under {'/'.join(RUNS_FOLDER)}.{listed}", candidates=candidates)


def _locate(runs: Folder, budget: int) -> Located:
    found: list[Found] = []
    warnings: list[str] = []
    entries = [entry for entry in runs.entries() if not entry.name.startswith(".")]
    # Ids begin with the time, so that going backwards spends the budget on the newest runs.
    for entry in reversed(entries):
        if entry.is_link:
            warnings.append(f"{'/'.join(RUNS_FOLDER)}/{shown(entry.name)} is a link; links are not followed")
        if not entry.is_folder:
            continue
        if len(found) >= RUNS_MAX:
            warnings.append(f"{'/'.join(RUNS_FOLDER)} holds more than {RUNS_MAX} runs; the rest is not listed")
            break
        try:
            with runs.below(entry.name) as folder:
                run, spent = _look(folder, entry.name, budget)
        except (OSError, AcodeError) as error:
            run, spent = _unreadable(os.path.join(runs.path, entry.name), entry.name, shown(str(error))), 0
        if run.problem is not None:
            warnings.append(f"run {shown(entry.name)} cannot be read: {run.problem}")
        budget -= spent
        found.append(run)
    found.sort(key=lambda run: (run.updated_at is not None, run.updated_at, run.run_id), reverse=True)
    return Located(runs=tuple(found), warnings=tuple(warnings))


def _look(folder: Folder, name: str, budget: int) -> tuple[Found, int]:
    notes = Notes()
    files = event_files(folder, notes)
    if budget > 0:
        weight = sum(file.size_bytes for _, file in opened_files(folder, files, notes))
        if weight <= budget:
            return _exactly(folder, name), weight
    fold = EventFold()
    touched_us: list[int] = []
    for item, file in opened_files(folder, files, notes):
        touched_us.append(file.touched_us)
        try:
            fold.fold_file(item.shown_as, item.actor, _last_lines(file))
        except OSError as error:
            notes.cannot_read(item.shown_as, error)
    run_events = fold.run_events()
    found = _found(folder.path, name, run_events, touched_us=max(touched_us, default=None), total=_tasks_total(folder))
    return _with_problem(found, notes.unread), max(0, budget)  # once a run is too heavy the rest is not even weighed


def _unreadable(path: str, name: str, problem: str) -> Found:
    """Listed, never dropped: a run that is left out would be taken for one that is not there."""
    found = _found(path, name, EventFold().run_events(), touched_us=None, total=None)
    return msgspec.structs.replace(found, problem=problem)


def _exactly(folder: Folder, name: str) -> Found:
    run = read_folder(folder)
    states = diagnosis.task_states(run)
    counted = diagnosis.counted_tasks(run, states)
    found = msgspec.structs.replace(
        _found(folder.path, name, run.run_events, touched_us=run.files_touched_us, total=len(counted)),
        tasks_done=sum(states[task] == "done" for task in counted),
        phase=position(run).phase,
        exact=True,
    )
    return _with_problem(found, run.unread)


def _with_problem(found: Found, unread: Sequence[str]) -> Found:
    """A run that seems to have ended may continue in an event file that cannot be read: it is not called ended."""
    return msgspec.structs.replace(found, ending=None, problem=unread[0]) if unread else found


def _found(path: str, name: str, run_events: RunEvents, *, touched_us: int | None, total: int | None) -> Found:
    created_us = file_time_us(name)
    updated_us = run_events.last_activity_us if run_events.last_activity_us is not None else touched_us
    return Found(
        run_id=name,
        path=path,
        title=title_of(name),
        created_at=None if created_us is None else moment(created_us),
        updated_at=None if updated_us is None else moment(updated_us),
        ending=diagnosis.ended(run_events),
        tasks_total=total,
        tasks_done=None,
        phase=None,
        exact=False,
    )


def _last_lines(file: OpenFile) -> list[tuple[bytes | None, bool]]:
    """The whole lines in the file's last few KiB; further back only where a single line is longer than that."""
    size = TAIL_BYTES
    while True:
        data = file.tail(size)
        whole = size >= file.size_bytes
        parts = data.split(b"\n")
        last = [(parts[-1], False)] if parts[-1].strip() else []
        lines: list[tuple[bytes | None, bool]] = [*((part, True) for part in parts[:-1]), *last]
        if whole or len(lines) > 1 or size > EVENT_LINE_BYTES_MAX:
            return lines if whole else lines[1:]
        size *= 16


def _tasks_total(folder: Folder) -> int | None:
    try:
        with folder.open_file("task-graph.json") as file:
            return count_tasks(file.head(GRAPH_BYTES_MAX)) if file.size_bytes <= GRAPH_BYTES_MAX else None
    except (OSError, AcodeError):
        return None


def _link_warning(opened: list[Folder]) -> tuple[str, ...]:
    """O_NOFOLLOW answers "not a directory" for a link too: the warning says why a linked folder is not searched."""
    depth = len(opened) - 1
    if 0 <= depth < len(RUNS_FOLDER):
        name = RUNS_FOLDER[depth]
        if any(entry.name == name and entry.is_link for entry in opened[-1].entries()):
            return (f"{'/'.join(RUNS_FOLDER[: depth + 1])} is a link; links are not followed",)
    return ()

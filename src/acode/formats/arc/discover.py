"""Find arc runs and read one of them. Nothing here writes, and nothing here follows a link.

Its own content decides which run is the newest: every copy and checkout reorders modification times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from acode.errors import AcodeError, ForeignUnreadable, MachineRefused, UnsafePath
from acode.formats.arc import disk
from acode.formats.arc import phases as p
from acode.formats.arc.checkpoint import CHECKPOINT_BYTES_MAX, Checkpoint, Raw, decode, moment, shown
from acode.formats.arc.migrations import migrate
from acode.formats.unreadable import machine_refused
from acode.formats.unreadable import reason as reason_of

HOMES: Final = (".claude/arc", ".rune/arc")  # later versions of the host tool moved from the first to the second
CHECKPOINT_NAME: Final = "checkpoint.json"
RUNS_MAX: Final = 10_000
BACKUP_NAME: Final = re.compile(r"checkpoint\.json\.(?:bak\.([0-9]{1,16})|schema-([0-9]{1,3})\.bak)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One run on disk. `problem` says why it cannot be read; such a run is listed, never dropped."""

    run_id: str
    path: Path
    updated_at: datetime | None
    mtime: float
    title: str = ""
    created_at: datetime | None = None
    phases_done: int = 0
    phases_total: int = 0
    next_phase: str | None = None
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    is_place: bool = False  # no run, but a directory of runs that the machine keeps back

    @property
    def last_active(self) -> float:
        return self.updated_at.timestamp() if self.updated_at else self.mtime


def locate(root: Path) -> list[Found]:
    """All arc runs below a workspace, the most recent first, unreadable ones last."""
    found = [run for home in HOMES for run in _runs_in(root, home)]
    found.sort(key=lambda run: (run.problem is not None, -run.last_active, -run.mtime, run.run_id))
    readable = [run for run in found if run.problem is None]
    if readable:
        newest_file = max(readable, key=lambda run: run.mtime)
        if newest_file.mtime > readable[0].mtime:
            found[0] = replace(found[0], warnings=(*found[0].warnings, _disagreement(found[0], newest_file)))
    return found


def _disagreement(chosen: Found, newest_file: Found) -> str:
    return (
        f"{chosen.run_id} is the most recent by its own updated_at; by modification time it would be "
        f"{newest_file.run_id}, whose file was touched later."
    )


def _runs_in(root: Path, home: str) -> list[Found]:
    try:
        with disk.directory(root, *home.split("/")) as runs:
            names = runs.names(RUNS_MAX)
            found = [run for name in names[:RUNS_MAX] if (run := _found(root, runs, home, name))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnsafePath) as problem:
        return [replace(_unreadable(home, root / home, problem), is_place=machine_refused(problem))]
    if len(names) > RUNS_MAX:
        found.append(_unreadable(home, root / home, f"more than {RUNS_MAX} runs; the rest is not listed"))
    return found


def _unreadable(run_id: str, path: Path, problem: object, mtime: float = 0.0) -> Found:
    return Found(run_id=shown(run_id), path=path, updated_at=None, mtime=mtime, problem=shown(problem))


def _found(root: Path, runs: disk.Directory, home: str, name: str) -> Found | None:
    path = root / home / name / CHECKPOINT_NAME
    mtime = 0.0
    try:
        kind = runs.kind(name)
        if kind == "link":
            return _unreadable(name, path, f"{home}/{name} is a link; links are not followed")
        if kind != "directory":
            return None
        inner = runs.below(name)
        try:
            data, status = disk.read_bounded(inner, CHECKPOINT_NAME, CHECKPOINT_BYTES_MAX)
            mtime = status.st_mtime
        finally:
            inner.close()
        raw = decode(data, name=f"{home}/{name}/{CHECKPOINT_NAME}")
        return _described(name, path, raw, mtime)
    except FileNotFoundError:
        return None
    except (OSError, AcodeError) as problem:
        return _unreadable(name, path, problem, mtime)


def _described(name: str, path: Path, raw: Raw, mtime: float) -> Found:
    updated_at = moment(raw.get("updated_at"))
    warnings = []
    if updated_at is None:
        warnings.append(f"{shown(name)} has no readable updated_at; its modification time stands for it.")
    if raw.get("id") not in (None, name):
        warnings.append(f"{shown(name)} holds a checkpoint of the run {shown(raw['id'])}.")
    title = shown(raw["plan_file"]) if isinstance(raw.get("plan_file"), str) else ""
    value = migrate(raw).value
    statuses = [p.status_of(value["phases"][phase]) for phase in p.phases_of(value)]
    upcoming = p.next_phase(value) or next(iter(p.unknown_unfinished(value)), None)
    return Found(
        run_id=shown(name),
        path=path,
        updated_at=updated_at,
        mtime=mtime,
        title=title,
        created_at=moment(raw.get("started_at")),
        phases_done=sum(status in p.DONE_STATUSES for status in statuses),
        phases_total=len(statuses),
        next_phase=upcoming,
        warnings=tuple(warnings),
    )


def place_of(path: Path) -> tuple[Path, str]:
    """The workspace that a checkpoint path lies in, and the path below it."""
    if len(path.parts) >= 5:
        root = path.parents[3]
        relative = path.relative_to(root).as_posix()
        if relative.rsplit("/", 2)[0] in HOMES:
            return root, relative
    raise UnsafePath(f"{shown(path)} is no checkpoint below {' or '.join(HOMES)}.")


def read(path: Path) -> Checkpoint:
    """One checkpoint; ForeignUnreadable names the reason and the newest backup that can be read."""
    root, relative = place_of(path)
    try:
        return _read_file(root, relative)
    except AcodeError as problem:
        reason = problem.message
    except OSError as problem:
        if machine_refused(problem):  # it may be as good as ever: no case for a backup
            raise MachineRefused(f"{relative} cannot be read: {reason_of(problem)}") from problem
        reason = f"{relative} cannot be read: {problem.strerror}."
    raise ForeignUnreadable(reason, **_backup_hint(root, relative))


def _read_file(root: Path, relative: str) -> Checkpoint:
    with disk.parent_of(root, relative) as (holder, name):
        data, status = disk.read_bounded(holder, name, CHECKPOINT_BYTES_MAX)
    raw = decode(data, name=relative)
    migrate(raw)  # without phases or a version it is as unreadable as torn JSON, also in a backup
    return Checkpoint(root=root, relative=relative, raw=raw, mtime=status.st_mtime)


def _backup_hint(root: Path, relative: str) -> dict[str, Any]:
    backup = newest_backup(root, relative)
    if backup is None:
        hint = "There is no backup that can be read. Start the run afresh; nothing was changed or deleted."
        return {"hint": hint, "backup": None, "next_action": "fresh_start"}
    hint = f"Restore the newest backup that can be read: {backup}. Or start the run afresh; nothing was deleted."
    return {"hint": hint, "backup": backup, "next_action": "fresh_start"}


def newest_backup(root: Path, relative: str) -> str | None:
    """The newest backup beside a checkpoint that decodes, as a path below the root."""
    above = relative.rsplit("/", 1)[0]
    try:
        with disk.directory(root, *disk.parts_of(above)) as holder:
            names = [name for name in holder.names(RUNS_MAX)[:RUNS_MAX] if BACKUP_NAME.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError, UnsafePath):
        return None
    readable = []
    for name in names:
        try:
            backup = _read_file(root, f"{above}/{name}")
        except (OSError, AcodeError):
            continue
        readable.append((_age_key(backup), name))
    return f"{above}/{max(readable)[1]}" if readable else None


def _age_key(backup: Checkpoint) -> tuple[float, float]:
    updated_at = moment(backup.raw.get("updated_at"))
    return (updated_at.timestamp() if updated_at else backup.mtime, backup.mtime)

"""Look at the world around a run: processes, directories, hashes, git. The only module a diagnosis needs that does I/O.

It only reads. A dry run is a look and a diagnosis, so nothing here may create, lock, touch or refresh anything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from acode.errors import AcodeError, MachineRefused, UnsafePath
from acode.formats.arc import disk
from acode.formats.arc.artifacts import recorded_artifacts
from acode.formats.arc.checkpoint import Checkpoint, Raw, decode, shown
from acode.formats.arc.diagnose import context_paths, plan_file_of
from acode.formats.arc.facts import Artifact, Facts, Process, StateFile, Team, TextFile
from acode.formats.arc.freshness import identifiers, needs_recheck, plan_head
from acode.formats.arc.git_state import current_branch, drift_since, modified_files
from acode.formats.arc.migrations import migrate
from acode.formats.arc.orphans import recorded_teams
from acode.formats.arc.permission import recorded_branch
from acode.formats.arc.repair import with_timeouts_failed
from acode.formats.unreadable import machine_refused, reason

ARTIFACT_BYTES_MAX: Final = 1024 * 1024 * 1024
TEXT_BYTES_MAX: Final = 1024 * 1024
STATE_FILES_MAX: Final = 1000
TMP_ENTRIES_MAX: Final = 100_000
STATE_TYPES: Final = ("work", "review", "mend", "audit", "forge", "gap-fix", "inspect")
PID_MAX: Final = 2**31 - 1


def resolve_config_dir(environment: Mapping[str, str]) -> str:
    """The host tool's directory, canonical: CLAUDE_CONFIG_DIR, else ~/.claude of the caller's environment."""
    home = environment.get("HOME") or environment.get("USERPROFILE") or os.path.expanduser("~")
    found = environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
    return own_place(found)


def look(checkpoint: Checkpoint, *, config_dir: str, own_pid: int) -> Facts:
    """Everything a diagnosis of this checkpoint will ask about."""
    value = with_timeouts_failed(migrate(checkpoint.raw).value)
    root = checkpoint.root
    plan_file = plan_file_of(value)
    plan = text_file(root, plan_file) if plan_file else TextFile(missing=True)
    head = plan_head(plan)
    drift = None
    if head and head.git_sha and needs_recheck(value, head):
        drift = drift_since(root, head.git_sha, identifiers(plan), plan_file or "")
    contexts = {path: text_file(root, path) for path in context_paths(value, checkpoint.run_id)}
    recorded = value.get("config_dir")
    return Facts(
        own_pid=own_pid,
        own_config_dir=own_place(config_dir),
        own_parent=parent(),
        current_branch=current_branch(root) if recorded_branch(value) else None,
        recorded_config_dir=canonical(recorded) if isinstance(recorded, str) and recorded else None,
        owner=process(value.get("owner_pid")),
        artifacts={path: artifact(root, path) for path in recorded_artifacts(value)},
        teams={name: team(config_dir, name) for name in recorded_teams(value)},
        state_files=tuple(state_files(root)),
        contexts=contexts,
        plan=plan,
        drift=drift,
        modified_files=modified_files(root) if contexts else None,
    )


def canonical(path: str) -> str | None:
    """A recorded path without links, as far as we may see: one that cannot be resolved fits none of ours."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # a NUL, or a name too long for any file system
        return None


def own_place(path: str) -> str:
    """A place of ours without links, written down and compared: a part that cannot be looked at is an error.

    `realpath` alone would pass it for no link.
    """
    try:
        return os.path.realpath(path, strict=True)
    except OSError as problem:
        if machine_refused(problem):
            raise
    return os.path.realpath(path)  # it is not there yet


def parent() -> int | None:
    """The process that started this one; none where that has ended and init has taken its place."""
    found = os.getppid()
    return found if found > 1 else None


def process(recorded: object) -> Process:
    """The process of a recorded number, which is text in some versions. No permission to signal it means alive."""
    pid = pid_of(recorded)
    if pid is None:
        return Process()
    try:
        found = psutil.Process(pid)
        # A zombie has ended: it holds a number until its parent looks, and works on nothing.
        alive = found.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return Process(pid=pid, alive=alive, started_at=found.create_time())
    except psutil.NoSuchProcess:
        return Process(pid=pid)
    except psutil.Error:  # access denied: it exists and belongs to somebody else
        return Process(pid=pid, alive=True)


def pid_of(recorded: object) -> int | None:
    if isinstance(recorded, str) and recorded.isascii() and recorded.isdigit() and len(recorded) <= 10:
        recorded = int(recorded)
    if isinstance(recorded, float) and recorded.is_integer():
        recorded = int(recorded)
    if isinstance(recorded, bool) or not isinstance(recorded, int) or not 1 <= recorded <= PID_MAX:
        return None
    return recorded


def below(root: Path, path: str) -> str:
    """A recorded path as one below the root; absolute ones are accepted when they name a place inside it."""
    if os.path.isabs(path):
        for base in (os.path.abspath(root), own_place(os.fspath(root))):
            if path.startswith(base + os.sep):
                return path[len(base) + 1 :].replace(os.sep, "/")
    return path


def artifact(root: Path, path: str) -> Artifact:
    try:
        with disk.parent_of(root, below(root, path)) as (holder, name):
            kind = holder.kind(name)
            if kind == "absent":
                return Artifact(kind="missing")
            if kind == "directory":
                return Artifact(kind="directory")
            sha256, status = disk.digest(holder, name, ARTIFACT_BYTES_MAX)
            return Artifact(kind="file" if sha256 else "too_large", sha256=sha256, mtime_ns=status.st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return Artifact(kind="missing")
    except UnsafePath:
        return Artifact(kind="unsafe")
    except ValueError:
        return Artifact(kind="unreadable")
    except OSError as problem:
        return Artifact(kind="unreadable", refused=_refused(problem))


def _refused(problem: OSError) -> str | None:
    return reason(problem) if machine_refused(problem) else None


def text_file(root: Path, path: str) -> TextFile:
    try:
        with disk.parent_of(root, path) as (holder, name):
            data, _ = disk.read_bounded(holder, name, TEXT_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return TextFile(missing=True)
    except AcodeError as problem:
        return TextFile(problem=shown(problem.message))
    except ValueError as problem:
        return TextFile(problem=shown(problem))
    except OSError as problem:
        return TextFile(problem=shown(problem), refused=_refused(problem))
    if len(data) > TEXT_BYTES_MAX:
        return TextFile(problem=f"it is over {TEXT_BYTES_MAX} bytes")
    return TextFile(data=data)


def team(config_dir: str, name: str) -> Team:
    return Team(teams=_kind_in(config_dir, "teams", name), tasks=_kind_in(config_dir, "tasks", name))


def _kind_in(config_dir: str, shelf: str, name: str) -> disk.Kind:
    """A path that cannot be examined counts as present: the clean-up tries to remove it, and reports a failure."""
    try:
        with disk.directory(config_dir, shelf) as holder:
            return holder.kind(name)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, UnsafePath):
        return "other"


def state_files(root: Path) -> list[StateFile]:
    """The state files of all sub-commands of the host tool, of every owner."""
    try:
        with disk.directory(root, "tmp") as holder:
            names = [name for name in holder.names(TMP_ENTRIES_MAX) if _is_state_name(name)]
            return [_state_file(root, holder, name) for name in names[:STATE_FILES_MAX]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except UnsafePath as problem:
        return [StateFile(path="tmp", problem=shown(problem))]
    except OSError as problem:
        return [StateFile(path="tmp", problem=shown(problem), refused=_refused(problem))]


def _is_state_name(name: str) -> bool:
    return name.endswith(".json") and any(name.startswith(f".rune-{kind}-") for kind in STATE_TYPES)


def _state_file(root: Path, holder: disk.Directory, name: str) -> StateFile:
    path = f"tmp/{name}"
    try:
        document = decode(disk.read_bounded(holder, name, TEXT_BYTES_MAX)[0], name=path)
        return StateFile(path=path, document=document, owner=process(_owner_pid(root, document)))
    except MachineRefused as problem:
        return StateFile(path=path, problem=shown(problem.message), refused=f"its run: {problem.message}")
    except AcodeError as problem:
        return StateFile(path=path, problem=shown(problem.message))
    except OSError as problem:
        return StateFile(path=path, problem=shown(problem), refused=_refused(problem))


def _owner_pid(root: Path, document: Raw) -> object:
    """The owner it names. A gap-fix file names none, but the run it belongs to, and that run names one.

    A run that is there and cannot be read may name one that is alive: that is an error, not "nobody".
    """
    run_id = document.get("id")
    if document.get("owner_pid") is not None or not isinstance(run_id, str):
        return document.get("owner_pid")
    for home in (".claude/arc", ".rune/arc"):
        found = text_file(root, f"{home}/{run_id}/checkpoint.json")
        if found.refused is not None:
            raise MachineRefused(found.refused)
        if found.data is not None:
            try:
                return decode(found.data, name=run_id).get("owner_pid")
            except AcodeError:
                return None
    return None

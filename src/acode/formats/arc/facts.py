"""The facts that a diagnosis uses: plain values about the machine, gathered by `look`, judged by `diagnose`.

`refused` is the machine's reason for refusing a file: such a file is neither present nor absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from acode.formats.arc.checkpoint import Raw
from acode.formats.arc.disk import Kind

ArtifactKind = Literal["file", "directory", "missing", "unsafe", "unreadable", "too_large"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The process that a file names as its owner. `pid` is None where nothing usable is recorded."""

    pid: int | None = None
    alive: bool = False
    started_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    kind: ArtifactKind
    sha256: str | None = None
    mtime_ns: int | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The directories under teams/ and tasks/ of the config directory for one team name."""

    teams: Kind = "absent"
    tasks: Kind = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    path: str
    document: Raw | None = None
    problem: str | None = None
    refused: str | None = None
    owner: Process = field(default_factory=Process)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """A file read for its content: data is None where `problem` says why."""

    data: bytes | None = None
    problem: str | None = None
    refused: str | None = None
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How far the repository has moved since the plan's commit. None: not found out within the time."""

    sha_reachable: bool
    commits_since: int | None = None
    changed_since: frozenset[str] | None = None
    identifiers_lost: tuple[str, ...] | None = None
    current_branch: str | None = None
    committed_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    own_pid: int
    own_config_dir: str
    own_parent: int | None = None
    """The process that started acode: a session may resume its own run through a command of its own."""
    current_branch: str | None = None
    recorded_config_dir: str | None = None
    owner: Process = field(default_factory=Process)
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    teams: Mapping[str, Team] = field(default_factory=dict)
    state_files: tuple[StateFile, ...] = ()
    contexts: Mapping[str, TextFile] = field(default_factory=dict)
    plan: TextFile = field(default_factory=lambda: TextFile(missing=True))
    drift: Drift | None = None
    modified_files: frozenset[str] | None = None
    lock_refused: str | None = None

    @property
    def unread(self) -> tuple[str, ...]:
        """Everything that the machine refused: a run is shown without it, and never continued."""
        found = [
            *(f"{path}: {one.refused}" for path, one in self.artifacts.items() if one.refused),
            *(f"{path}: {one.refused}" for path, one in self.contexts.items() if one.refused),
            *(f"{one.path}: {one.refused}" for one in self.state_files if one.refused),
        ]
        if self.plan.refused:
            found.append(f"the plan: {self.plan.refused}")
        if self.lock_refused:
            found.append(f"the run's lock: {self.lock_refused}")
        return tuple(found)

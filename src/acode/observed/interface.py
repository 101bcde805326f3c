"""The interface of an agent's module; `observed.AGENTS` holds them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from acode.observed.session import ObservedSession
from acode.observed.transcript import Listing


class Agent(Protocol):
    """A module: the place of an agent's sessions, their content, and the command that resumes one."""

    @property
    def TITLE(self) -> str: ...  # noqa: N802

    @property
    def PROGRAMS(self) -> tuple[str, ...]: ...  # noqa: N802

    def config_directories(self, environment: Mapping[str, str]) -> tuple[Path, ...]:
        """The directories of its sessions, for a user with this environment."""

    def configuration_variable(self, config: Path) -> tuple[str, str]:
        """The variable, and its value, that makes the agent use this configuration directory."""

    def transcripts(self, config: Path) -> Listing: ...

    def config_of(self, transcript: Path) -> Path | None:
        """The configuration directory that a transcript lies in; None for a file that lies elsewhere."""

    def recognizes(self, head: bytes) -> bool:
        """Whether a file that begins so is a transcript of this agent."""

    def read(self, path: Path, config: Path | None, within: Path | None) -> Iterator[ObservedSession]:
        """The sessions in a transcript that worked in this directory. Raises OSError where it is unreadable."""

    def resume_command(self, session: ObservedSession) -> tuple[str, ...]: ...

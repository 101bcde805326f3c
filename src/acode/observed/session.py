"""A session of another agent as its transcript shows it: frozen values, read and never written.

They hold foreign text as it was found. A caller that shows it redacts it and makes it printable; a comparison with
files needs it unaltered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

# The effect of a call that began.


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A line for a shell; `directory` is empty where the call names none."""

    text: str
    directory: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """The whole content of a file."""

    path: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Texts in a file that are replaced, in order: (old, new); none where the call does not say which."""

    path: str
    replacements: tuple[tuple[str, str], ...]
    moved_from: str = ""  # the file whose content it changes and takes to this path


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """It changes nothing, so nothing has to be settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """A tool whose effect acode cannot derive from its arguments."""

    reason: str = ""


Effect = Command | Write | Edit | Delete | Reads | Other


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInFlight:
    """A tool call without a result in the transcript."""

    call_id: str
    tool: str
    effects: tuple[Effect, ...]
    at: datetime | None
    line: int = 0  # where it stands in the transcript; 0 in a database
    abandoned: bool = False  # the session continued without its result
    subagent: str = ""  # of which helper of the agent, if it was not the agent's own call


# How the transcript ends. `unnamed_call`: there may have been a call; this agent writes none down before its end.
Ending = Literal["in_flight", "unnamed_call", "unfinished", "finished", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedProcess:
    """The process that the agent itself noted beside the session. It names neither a boot nor a pid namespace."""

    pid: int
    start_ticks: float | None  # of Linux, since the boot: exact
    started_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSession:
    """One session of one agent."""

    agent: str
    session_id: str
    transcript: Path
    config: Path | None  # the agent's configuration directory that it belongs to; None for a copy elsewhere
    directory: str  # where the agent worked; empty where the transcript does not say
    version: str
    updated_at: datetime
    prompt: str  # the last thing that a person asked
    ending: Ending
    calls: tuple[CallInFlight, ...] = ()
    calls_left_out: int = 0
    last_message_at: datetime | None = None
    process: RecordedProcess | None = None
    shares_transcript: bool = False  # with other sessions: that a process has it open shows nothing of this one
    parent_id: str = ""  # the session that started this one as its helper
    notes: tuple[str, ...] = ()  # what makes the reading uncertain, in sentences


# Findings about a session.

Outcome = Literal["applied", "not_applied", "partial", "running", "unknown", "no_effect"]
State = Literal["alive", "dead", "no_process_found", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Liveness:
    state: State
    reason: str
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One finding about a call: what it says of the outcome, and the sentence."""

    kind: Literal["file", "process", "git", "arguments"]
    outcome: Outcome
    text: str
    pid: int | None = None

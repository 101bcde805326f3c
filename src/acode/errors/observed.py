"""Refusals that concern agents of others: their transcripts, hooks and settings."""

from __future__ import annotations

from typing import ClassVar

from acode.errors.root import AcodeError
from acode.hints import Command, Hint


class TranscriptUnreadable(AcodeError):
    """A file is no transcript of an agent that acode knows, or cannot be read; nothing was changed."""

    code = "ACODE-OBSERVED-001"
    exit_code = 1
    default_hint: ClassVar[Hint | str] = Hint(
        "Name the agent, its configuration directory or the project's directory: {}", Command("inspect --help")
    )


class HookPayload(AcodeError):
    """What an agent told its hook cannot be understood, so that a call would run unrecorded."""

    code = "ACODE-OBSERVED-002"
    exit_code = 2
    default_hint: ClassVar[Hint | str] = Hint(
        "Is this version of the agent one that acode was tested with? {}", Command("hook check AGENT")
    )


class AgentSettingsUnusable(AcodeError):
    """An agent's settings cannot be read or changed without risk; none of its files was changed."""

    code = "ACODE-OBSERVED-011"
    exit_code = 1
    default_hint: ClassVar[Hint | str] = "Correct the file, or move it aside, and try again."


class HookNotSeen(AcodeError):
    """A command went through an agent, and acode did not see all of it."""

    code = "ACODE-OBSERVED-012"
    exit_code = 1

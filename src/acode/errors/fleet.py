"""Refusals that concern a fleet: its parts on this machine, its sessions, the sources of their workspaces."""

from __future__ import annotations

from typing import ClassVar

from acode.errors.root import AcodeError
from acode.hints import Command, Hint


class FleetUnsupported(AcodeError):
    """A command of a fleet is given and its parts are not installed."""

    code = "ACODE-FLEET-001"
    exit_code = 3
    default_hint: ClassVar[Hint | str] = 'Install them: pip install "acode-cli[fleet]"'


class NotInFleet(AcodeError):
    """The session was not submitted to the fleet, or is not in the state that the command needs."""

    code = "ACODE-FLEET-002"
    exit_code = 14
    default_hint: ClassVar[Hint | str] = Hint("List the sessions of the fleet: {}", Command("fleet status"))


class SourceUnavailable(AcodeError):
    """The workspace of a session cannot be made here: its source or a file that a finished step left is missing."""

    code = "ACODE-FLEET-003"
    exit_code = 17

"""acode session: the table of its commands."""

from __future__ import annotations

from acode.cli.flags import Group

COMMANDS = {
    "list": ("session_list", "List the sessions of this workspace."),
    "rollback": ("rollback", "Take finished steps back."),
}

command = Group("session", table=COMMANDS, help="List, inspect, answer, pause and end sessions.")

"""acode session: the table of its commands."""

from __future__ import annotations

from acode.cli.flags import Group

COMMANDS = {
    "list": ("session_list", "List the sessions of this workspace."),
    "show": ("session_show:show", "Everything about one session: plan, steps, origin."),
    "history": ("session_show:events", "The recorded events of a session."),
    "logs": ("session_output:logs", "What the steps of a session printed."),
    "watch": ("session_output:watch_session", "Follow a session that another process runs."),
    "diff": ("session_output:diff", "What a session or a step changed in files."),
    "verify": ("session_maintenance:verified", "Check chain, seals, blobs and anchor of a session."),
    "resolve": ("session_commands:resolve_step", "State the outcome of a step whose outcome is unknown."),
    "approve": ("session_commands:approve", "Say yes at the gate a session waits at."),
    "deny": ("session_commands:deny", "Say no at the gate a session waits at."),
    "checkpoint": ("session_commands:checkpoint", "Make a save point."),
    "unlock": ("session_commands:unlock_session", "Break the lock of a dead owner."),
    "pause": ("session_commands:pause_session", "Ask a running session to pause after its step."),
    "cancel": ("session_commands:cancel", "End a session that is not wanted any more."),
    "abandon": ("session_commands:abandon", "End a session that has failed for good."),
    "rollback": ("rollback", "Roll finished steps back."),
    "repair": ("session_maintenance:repair_session", "Make a session usable whose log was damaged."),
    "report": ("session_report", "Write a session as one HTML file."),
    "export": ("session_maintenance:export_session", "Write a session as one verifiable file."),
    "gc": ("session_maintenance:collect_garbage", "Remove sessions that ended long ago."),
}

HABITS = {"ls": ("list",), "log": ("logs",), "tail": ("logs", "-f")}

command = Group("session", table=COMMANDS, habits=HABITS, help="List, inspect, answer, pause and end sessions.")

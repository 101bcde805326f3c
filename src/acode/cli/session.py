"""acode session: the table of its commands."""

from __future__ import annotations

from acode.cli.flags import Group

COMMANDS = {
    "list": ("session_list", "List the sessions of this workspace."),
    "show": ("session_look:show", "Everything about one session: plan, steps, origin."),
    "history": ("session_look:events", "The recorded events of a session."),
    "verify": ("session_care:verified", "Check chain, seals, blobs and anchor of a session."),
    "resolve": ("session_acts:resolve_step", "Say what became of a step with an unknown outcome."),
    "approve": ("session_acts:approve", "Say yes at the gate a session waits at."),
    "deny": ("session_acts:deny", "Say no at the gate a session waits at."),
    "checkpoint": ("session_acts:checkpoint", "Make a save point."),
    "unlock": ("session_acts:unlock_session", "Break the lock of a dead owner."),
    "pause": ("session_acts:pause_session", "Ask a running session to pause after its step."),
    "cancel": ("session_acts:cancel", "End a session that is not wanted any more."),
    "abandon": ("session_acts:abandon", "End a session that has failed for good."),
    "rollback": ("rollback", "Take finished steps back."),
    "repair": ("session_care:repair_session", "Make a session usable whose log was damaged."),
    "export": ("session_care:export_session", "Write a session as one verifiable file."),
    "gc": ("session_care:collect_garbage", "Remove sessions that ended long ago."),
}

command = Group("session", table=COMMANDS, help="List, inspect, answer, pause and end sessions.")

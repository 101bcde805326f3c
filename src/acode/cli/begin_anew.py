"""Abort and start fresh: a person's answer to changed files ends the session and begins its plan anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from acode.cli.early_flags import Flags
from acode.cli.follow_run import Execution
from acode.cli.plan_argument import read_plan
from acode.cli.prompts import AtTerminal, confirm
from acode.cli.screen import Screen
from acode.cli.session_picker import whole
from acode.engine.create import run_plan
from acode.engine.session_commands import end
from acode.engine.world import Result, World, short
from acode.errors import ChangedFiles
from acode.text import one_line

REASON = "files were changed by somebody else; begun anew"


def carry_out_or_begin_anew(flags: Flags, world: World, execution: Execution, work: Callable[[World], Result]) -> int:
    """Resume; where the person wants to abort and start fresh instead, do that."""
    try:
        return execution.execute(work)
    except ChangedFiles:
        session = execution.follower.session
        asked = execution.world.answers
        if session is None or not isinstance(asked, AtTerminal) or not asked.wants_to_begin_anew:
            raise
        path = plan_path(world, session.session_id)
        screen = Screen(flags, world.env)
        if path is None or not confirmed(screen, session.session_id, path):
            raise
    end(world, session.session_id, cancelled=True, reason=REASON)
    screen.line(f"Cancelled: session {short(session.session_id)}")
    flags.resume_line, flags.error_printed = "", False
    planfile = read_plan(world, path)
    return Execution(flags, world).execute(lambda ready: run_plan(ready, planfile))


def plan_path(world: World, session_id: str) -> str | None:
    """The file that the session was begun from; None where there is none, or it is gone."""
    created = whole(world, session_id).created
    path = created.plan_path if created is not None else None
    return path if path is not None and (world.workspace / Path(path)).is_file() else None


def confirmed(screen: Screen, session_id: str, path: str) -> bool:
    """Finished steps are repeated: that is never what Enter means."""
    screen.insist(f"Session {short(session_id)} is cancelled, and {one_line(path)} begins with its first step.")
    return confirm(screen, "Start fresh?", default=False)

"""When the disk fails under a run: stop, derive the state from the log again, and leave a session that can be resumed.

Nothing is retried in place. Acknowledged events are on the disk; the next resume settles a step in flight. A little
ballast is kept on the disk, so that a full one still has room for the event that says why.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from acode.disk.own_files import open_own
from acode.engine.endings import ending
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.world import Result
from acode.errors import AcodeError, DiskFull, WriteFailed
from acode.events import types as ev
from acode.hints import Resume
from acode.state import State
from acode.store.store import Store

BALLAST_BYTES = 65_536


def paused_if_disk_fails(run: Held, work: Callable[[], Result]) -> Result:
    """Do the work; a full or failing disk ends it with a pause and a clear error instead of a traceback."""
    with contextlib.suppress(OSError):
        lay_ballast(run.world.agent_dir)
    try:
        result = work()
        run.flush()
        return result
    except (DiskFull, WriteFailed) as error:
        return stop_for_disk(run, error)


def ballast(agent_dir: Path) -> Path:
    return agent_dir / "run" / "ballast"


def lay_ballast(agent_dir: Path) -> None:
    path = ballast(agent_dir)
    if not path.exists():
        fd = open_own(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.write(fd, b"\0" * BALLAST_BYTES)
        finally:
            os.close(fd)


def stop_for_disk(run: Held, error: AcodeError) -> Result:
    """Throw the ballast overboard, open the log again, and note the pause; if even that fails, it was a crash."""
    if isinstance(error, DiskFull):
        error.give_hint(session_hint(run.session, "Make room, then: {}", Resume()))
    else:
        error.give_hint(session_hint(run.session, "{} Then: {}", error.unrendered_hint or "Check the disk.", Resume()))
    try:
        ballast(run.world.agent_dir).unlink(missing_ok=True)
        reopen(run)
        if run.session.state in (State.EXECUTING, State.PLANNING, State.AWAITING_APPROVAL):
            run.append(
                ev.SessionPaused(
                    reason="disk_full" if isinstance(error, DiskFull) else "error",
                    interruption=ev.InterruptionClass.TOOL_FAILURE,
                    message=error.message,
                )
            )
    except (AcodeError, OSError):
        raise error from None
    return ending(run, error, "disk_full", 0)


def reopen(run: Held) -> None:
    """With the generation of the lock in hand, not the one that stands there now: it may be a successor's."""
    generation = run.journal.generation
    session_id = run.session.session_id
    with contextlib.suppress(AcodeError):
        run.store.close()
    run.store = Store(run.world.agent_dir, run.store.keyring, clock=run.world.clock, new_id=run.world.new_id)
    run.journal = run.store.journal(run.store.load(session_id), generation)

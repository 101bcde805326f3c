"""The guards of a step, the same for every source of steps: before it acts, after it has acted, and while it waits.

A plan, a program, the agent and a foreign run all call these. A guard that only one of them had was missing in the
others: a program whose step removed the log ended well, and did everything again the next time.
"""

from __future__ import annotations

import os

from acode.engine.held_session import Held
from acode.engine.workspace_store import known_anchors, lost_error
from acode.errors import LogRolledBack, UnsafePath
from acode.events.definition import Run, Step
from acode.steps.interface import Site

WAIT_SLICE_S = 0.2


def refuse_outside(step: Step, site: Site) -> None:
    """The directory that a step names lies in the workspace; a link that stands there by now may lead out of it."""
    if isinstance(step.action, Run) and step.action.cwd is not None:
        refuse_directory_outside(step.action.cwd, site.root.path)


def refuse_directory_outside(cwd: str, workspace: str) -> None:
    inside = os.path.realpath(workspace)
    place = os.path.realpath(os.path.join(inside, cwd))
    if os.path.commonpath([inside, place]) != inside:
        raise UnsafePath(
            f"the working directory {cwd} leads out of the workspace, to {place}",
            hint="Name a directory inside the workspace, and put a directory in place of a link.",
            path=cwd,
        )


def guard_before_act(run: Held) -> None:
    """Called directly before the act: a process that slept since its start was recorded must not act on a lock that
    was broken meanwhile."""
    run.journal.refuse_if_fenced()


def guard_after_act(run: Held, step_id: str) -> None:
    """Called directly after the act. A step may have removed the log itself: nobody reads what is written to a removed
    file, so nothing more is recorded and nothing more is done."""
    try:
        os.stat(run.database)
    except (FileNotFoundError, NotADirectoryError):
        mine = [one for one in known_anchors(run.world) if one.session_id == run.session.session_id]
        lost = lost_error(run.world, mine)
        raise LogRolledBack(f"after step {step_id}: {lost.message}", hint=lost.hint, **lost.details) from None
    except OSError:
        return  # that it cannot be looked at does not say that it is gone


def wait(run: Held, seconds: float) -> bool:
    """Wait between two attempts; True where somebody wants the session to stop, which ends the wait at once."""
    run.flush()
    until = run.world.monotonic() + seconds
    while not run.world.stop.at_boundary():
        left = until - run.world.monotonic()
        if left <= 0:
            return False
        run.world.sleep(min(left, WAIT_SLICE_S))
    return True


async def wait_async(run: Held, seconds: float) -> bool:
    """The same for a task of an event loop, which must not be blocked."""
    import asyncio

    run.flush()
    until = run.world.monotonic() + seconds
    while not run.world.stop.at_boundary():
        left = until - run.world.monotonic()
        if left <= 0:
            return False
        await asyncio.sleep(min(left, WAIT_SLICE_S))
    return True

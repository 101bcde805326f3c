"""Take a program's finished steps back: their undo functions, in reverse order, each given what the step returned."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable
from typing import Any

from acode.engine.held_session import Held
from acode.engine.rollback import Past, RollbackResult, roll_back
from acode.errors import StepFailed, UnknownSession
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.library.importable_name import find_function
from acode.library.open_session import find_session, with_second_tier
from acode.library.recorded_steps import Record
from acode.library.world import errors_as_calls, world_of


def rollback(key: str, *, to: str | None = None, workspace: str | os.PathLike[str] = ".") -> RollbackResult:
    """Roll back every step that ended after `to`, the latest first; without `to`, all of them. Files are restored where
    nobody changed them since, undo commands and functions run. The steps are pending then: the next run of the program
    does them again. It is `acode session rollback`.
    """
    with errors_as_calls(key), contextlib.ExitStack() as stack:
        world = with_second_tier(stack, world_of(workspace))
        known = find_session(world, key)
        if known is None:
            raise UnknownSession(f"there is no session under the key {key}")
        return roll_back(world, known[0], to, call)


def call(run: Held, step: Step, past: Past) -> None:
    """One undo function; if it fails, the rollback stops there, and nothing more is rolled back."""
    assert isinstance(step.action, Call) and step.action.undo is not None
    try:
        function = find_function(step.action.undo, f"the undo of step {step.id}")
        result = Record(run, "raise").unpack(past.completed)
    except Exception:
        not_begun(run)
        raise
    try:
        undone = function(result)
        if hasattr(undone, "__await__"):  # it has done nothing yet: recorded as undone, it never would
            to_its_end(undone)
    except Exception as error:
        raise StepFailed(
            f"the undo of step {step.id} failed: {type(error).__name__}: {error}",
            hint="Finish it by hand, then abandon the session and begin again under another key.",
            step=step.id,
        ) from error


def not_begun(run: Held) -> None:
    """Nothing was called: no outcome is open, and the program may continue instead."""
    undo = run.session.undoing
    assert undo is not None
    note = "it could not be called"
    run.append(ev.UndoSettled(step=undo.step, attempt=undo.attempt, outcome=ev.Settled.NOT_APPLIED, note=note))


def to_its_end(work: Awaitable[Any]) -> None:
    """Run it in an event loop of its own; in another thread where this one runs a loop, which cannot run a second."""
    import asyncio

    async def ended() -> None:
        try:
            await work
        except asyncio.CancelledError as error:
            raise RuntimeError("it was cancelled before it had ended") from error

    if sys.modules["asyncio.events"]._get_running_loop() is None:
        asyncio.run(ended())
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="acode-undo") as thread:
        thread.submit(asyncio.run, ended()).result()

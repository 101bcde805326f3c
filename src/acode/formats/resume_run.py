"""Resume a run that another tool began: one native session records it, found again by source and run id.

A lock on the run is held around everything, so that only one of two resumes continues; a format with a lock of its own
takes that too. Without a driver nothing is executed: the run is repaired where its rules say so, and reported.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

from acode.config import Driver
from acode.engine import notices, session_commands
from acode.engine.create import TITLE_CHARACTERS_MAX, session_created
from acode.engine.disk_full import paused_if_disk_fails
from acode.engine.endings import complete
from acode.engine.held_session import created
from acode.engine.resume import resume
from acode.engine.start_lock import start_lock
from acode.engine.workspace_store import has_database, native_session_of, opened, refuse_lost
from acode.engine.world import Options, Result, World, short
from acode.errors import MachineRefused, TerminalState, Usage
from acode.events import types as ev
from acode.events.definition import Plan, digest_of_plan
from acode.formats import format_of
from acode.formats.drive_run import walk
from acode.formats.interface import ActiveRun, Run
from acode.hints import Hint, Resume
from acode.state import Session, State
from acode.state.source import FOREIGN_RUN


def driver_of(world: World, run: Run) -> Driver | None:
    return world.config.settings.drivers.get(run.source)


def native_session(world: World, run: Run) -> Session | None:
    """The native session of this run: the unfinished one, else the latest; None where it has none yet."""
    if not has_database(world):
        refuse_lost(world)
        return None
    with opened(world, look_only=True) as store:
        return native_session_of(store, run.run_id, run.source)


def resume_run(world: World, run: Run, driver: Driver, options: Options) -> Result:
    """Repair the run, then go from piece to piece until nothing is left, a gate is reached, or one fails."""
    with locked(world, run, wait=options.wait):
        session = native_session(world, run)
        unfinished = session is not None and not session.terminal
        if not unfinished:
            refuse_ended(world, run)
        with format_of(run.source).activate(world, run, options) as active:
            if session is not None and unfinished:
                return resume(world, session.session_id, options, walk(active, driver))
            return begin(world, run, active, driver)


def begin(world: World, run: Run, active: ActiveRun, driver: Driver) -> Result:
    """Create the run's native session at its first resume, then continue the run."""
    title = world.redactor.text(run.title)[:TITLE_CHARACTERS_MAX]
    plan = Plan(title=title, tasks=())
    creation = session_created(
        world,
        title=title,
        task=run.run_id,
        source=run.source,
        kind=FOREIGN_RUN.kind,
        plan=plan,
        plan_digest=digest_of_plan(plan),
    )
    planned = ev.SessionPlanned(tasks=0, steps=0, plan_digest=creation.plan_digest)
    with created(world, creation, planned, ev.SessionExecuting(reason="run"), blobs={}) as held:
        held.emit(
            notices.SessionStart(
                title=held.session.title,
                short_id=short(held.session.session_id),
                tasks=0,
                steps=0,
                workspace=str(world.workspace),
                source=run.source,
                run_id=run.run_id,
            )
        )
        return paused_if_disk_fails(held, lambda: walk(active, driver)(held, 0, complete))


def repair_run(world: World, run: Run, options: Options) -> tuple[str, ...]:
    """Repair the run by the format's rules without a driver, and execute nothing; describe each repair."""
    if not has_database(world):
        refuse_lost(world)
    refuse_ended(world, run)
    return format_of(run.source).repair_by_rules(world, run, options)


def refuse_ended(world: World, run: Run) -> None:
    if run.problem is not None:
        refuse_unread(world, run)
        raise MachineRefused(f"the run {run.run_id} could not be read when it was looked for: {run.problem}")
    if not run.resumable:
        raise TerminalState(
            f"Cannot resume {run.state} run {run.run_id}: “{run.title}” has ended",
            state=run.state,
            run_id=run.run_id,
        )


def refuse_unread(world: World, run: Run) -> None:
    """Refuse a run that could not be read; a close look names the fault and the next command."""
    for refusal in format_of(run.source).stand(world, run).refusals:
        if isinstance(refusal, MachineRefused):
            raise refusal


def approve_run(world: World, run: Run, *, granted: bool, note: str) -> str:
    """A person's answer at the run's gate: on record in its native session, and in the run's own terms."""
    with locked(world, run, wait=False):
        refuse_unread(world, run)  # an answer at a gate that cannot be seen would be on record in the session alone
        session = native_session(world, run)
        asked: dict[str, Any] | None = None
        if session is not None and session.state in (State.AWAITING_APPROVAL, State.PAUSED):
            try:
                answered, gate = session_commands.answer_gate(
                    world, session.session_id, None, granted=granted, note=note
                )
                asked = origin_of(answered, gate)
            except Usage:
                if not granted:
                    raise  # a yes is also for a gate that the run has reached and its session has not
        elif not granted:
            raise Usage(
                f"acode has not asked about the run {run.run_id}, so there is nothing to deny",
                hint="Change its plan, or cancel it, with the tool that made it.",
            )
        if not granted:
            return "the run stays at its gate; a resume asks again"
        return format_of(run.source).approve(world, run, note=world.redactor.text(note), asked=asked)


def origin_of(session: Session, step_id: str) -> dict[str, Any]:
    """The origin of the piece that a step was made from."""
    tasks = session.plan.tasks if session.plan is not None else ()
    return next((task.origin for task in tasks if any(step.id == step_id for step in task.steps)), {})


def locked(world: World, run: Run, *, wait: bool) -> contextlib.AbstractContextManager[None]:
    """One acode per run: two that both found no session for it would make two."""
    name = f"{run.source}-{hashlib.sha256(run.run_id.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"
    wait_s = world.config.settings.session.lock_timeout_seconds if wait else 0.0
    busy, hint = (
        f"another acode works on the run {run.run_id}",
        Hint("Wait for it: {}", Resume(wait=True), of=run.run_id),
    )
    return start_lock(world, name, wait_s=wait_s, busy=busy, hint=hint)

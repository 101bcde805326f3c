"""A step that one process begins and another ends, such as the hooks before and after the tool of an agent.

The process that acts is the performer, and neither of the two. The session lock is held only while an event is
appended, so that several performers and other commands work on the session in between; every append is fenced as ever.
A performer that is alive has not crashed: its step is waited for, and nobody settles it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from acode import lock as locks
from acode.engine.endings import complete
from acode.engine.held_session import Held, held
from acode.engine.resume import make_ready
from acode.engine.settle import settle_flights
from acode.engine.step import begin, careful, end, fail, prepare
from acode.engine.survey import chosen_strategy, retries_unknown, step_named
from acode.engine.world import Options, World
from acode.errors import OutcomeUnknown, TerminalState, Usage
from acode.events import types as ev
from acode.events.definition import Step
from acode.steps.interface import Done, Failed


def performer(pid: int, name: str) -> ev.Performer:
    """The process of this id as it is known here; one that has ended already performs nothing."""
    started = locks.process_started(pid)
    if started is None:
        raise Usage(f"process {pid} has ended: it cannot perform a step")
    return ev.Performer(
        pid=pid, started=started, boot_id=locks.boot_id(), pid_namespace=locks.pid_namespace(), name=name
    )


@contextlib.contextmanager
def briefly_held(world: World, session_id: str) -> Iterator[Held]:
    """The session for one append; another process that appends is waited for."""
    with held(world, session_id, wait=True, doing="record a step of") as run:
        yield run


def begin_for(
    world: World, session_id: str, step: Step, by: ev.Performer, *, asked: ev.Asked, shown: str = ""
) -> ev.StepStarted:
    """Record that the performer is about to act. The same step that is open or done is refused."""
    with briefly_held(world, session_id) as run:
        refuse_begun(run, step.id)
        prepared = prepare(run, step)
        return begin(run, step, prepared=prepared, asked=asked, shown=shown, performer=by)


def refuse_begun(run: Held, step_id: str) -> None:
    if step_id in run.session.in_flight:
        raise OutcomeUnknown(f"step {step_id} was begun and has not ended", step=step_id)
    if run.session.done(step_id):
        raise TerminalState(f"step {step_id} is done", step=step_id)


def end_for(world: World, session_id: str, key: str, outcome: Done | Failed) -> None:
    """Record how the step ended; `key` names the attempt, so that a late end of an earlier one changes nothing."""
    with briefly_held(world, session_id) as run:
        started = next((one.started for one in run.session.in_flight.values() if one.started.key == key), None)
        if started is None:
            raise Usage(f"no step with the key {key} is open in session {session_id[-8:]}")
        step = step_named(run.session, started.step)
        if isinstance(outcome, Done):
            end(run, step, started, outcome, durable=not careful(step, started))
        else:
            fail(run, started, outcome)


def settle_open(world: World, session_id: str, options: Options) -> None:
    """The performer is back: every step that is still open is settled by evidence, or a person is asked."""
    with held(world, session_id, wait=options.wait) as run:
        found, options = make_ready(run, options)
        stopped = settle_flights(
            run,
            found.continuation.in_flight,
            found.interruption,
            0,
            actor=options.actor,
            retry_unknown=retries_unknown(world),
            strategy=chosen_strategy(world, options),
        )
        if stopped is not None and stopped.error is not None:
            raise stopped.error


def complete_for(world: World, session_id: str) -> None:
    """Nothing is left to do; a step that is open keeps the session open."""
    with briefly_held(world, session_id) as run:
        if run.session.in_flight:
            raise OutcomeUnknown(f"steps still run: {', '.join(run.session.in_flight)}")
        complete(run, 0)

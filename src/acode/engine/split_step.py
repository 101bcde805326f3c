"""A step that one process begins and another ends, such as the hooks before and after the tool of an agent.

The process that acts is the performer, and neither of the two. The session lock is held only while an event is
appended, so that several performers and other commands work on the session in between; every append is fenced as ever.
A performer that is alive has not crashed: its step is waited for, and nobody settles it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from acode import lock as locks
from acode.engine.endings import complete
from acode.engine.held_session import Held, held
from acode.engine.session_list import is_at_work
from acode.engine.settle import note_unknown, settle_flights, settle_one
from acode.engine.step import begin, careful, end, fail, prepare
from acode.engine.survey import look_at, retries_unknown, step_named
from acode.engine.world import Options, World, short
from acode.errors import OutcomeUnknown, SessionLocked, TerminalState, Usage
from acode.events import types as ev
from acode.events.definition import Step
from acode.plan import Action, Outcome, Settlement, Strategy, settle
from acode.state import Session, State
from acode.state.session import InFlight
from acode.steps.interface import Done, Failed, Site
from acode.store.step_index import Finished

Seen = Callable[[Step, Site, ev.StepStarted], Done | Failed | None]  # None: it has not ended


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
    with held(world, session_id, wait=True, doing="record a step of", brief=True) as run:
        yield run


# The start.


def begin_for(
    world: World,
    session_id: str,
    step: Step,
    by: ev.Performer,
    *,
    asked: ev.Asked,
    shown: str = "",
    call: ev.ToolCall | None = None,
) -> ev.StepStarted:
    """Record that the performer is about to act. The same step that is open or done is refused."""
    with briefly_held(world, session_id) as run:
        return begin_held(run, step, by, asked=asked, shown=shown, call=call)


def begin_held(
    run: Held, step: Step, by: ev.Performer, *, asked: ev.Asked, shown: str = "", call: ev.ToolCall | None = None
) -> ev.StepStarted:
    refuse_begun(run, step.id)
    return begin(run, step, prepared=prepare(run, step), asked=asked, shown=shown, performer=by, call=call)


def refuse_begun(run: Held, step_id: str) -> None:
    if step_id in run.session.in_flight:
        raise OutcomeUnknown(f"step {step_id} was begun and has not ended", step=step_id)
    if run.session.done(step_id):
        raise TerminalState(f"step {step_id} is done", step=step_id)


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was asked for before: its outcome is unknown, or it ended while its performer was away."""

    step: str
    evidence: str
    completed: ev.StepCompleted | None = None  # None: unknown, and refused until a person resolves it
    arguments: str = ""  # of one that has completed
    running: bool = False  # or it runs on without its performer, and is refused until it has ended


def repeat_of(run: Held, asked: ev.Asked, by: ev.Performer) -> Repeat | None:
    """Whether this would repeat something without a decision. One that has ended is refused until the caller was shown
    the evidence and `record_denial` says so: that stands on record before the repeat.

    It ended while its performer was away, or in the last turn of another process of it: killed then, that one may not
    have kept the result.
    """
    for step, flight in run.session.in_flight.items():
        same = flight.started.asked is not None and flight.started.asked.arguments == asked.arguments
        if same and flight.unknown is not None:
            return Repeat(step=step, evidence=flight.unknown)
        if same and flight.started.performer is not None and not locks.alive(flight.started.performer):
            found = found_of(run, flight.started)
            if found.action is Action.WAIT:
                return Repeat(step=step, evidence=found.evidence, running=True)
    unkept = run.session.fresh if run.session.performer != by else {}
    step = {**unkept, **run.session.untold}.get(asked.arguments, "")
    completed = Finished(run.store, run.session.session_id).find(step) if step else None
    if completed is None:
        return None
    evidence = "it ended while its agent was away"
    return Repeat(step=step, evidence=evidence, completed=completed, arguments=asked.arguments)


def record_denial(run: Held, repeat: Repeat, by: ev.Performer) -> None:
    """Called when the evidence has been shown, never before: a process that is killed in between has shown nothing, and
    the next one must."""
    run.append(ev.RepeatDenied(step=repeat.step, arguments=repeat.arguments, performer=by))


# The end.


def end_for(world: World, session_id: str, key: str, outcome: Done | Failed) -> None:
    """Record how the step ended; `key` names the attempt, so that a late end of an earlier one changes nothing."""
    with briefly_held(world, session_id) as run:
        started = next((one.started for one in run.session.in_flight.values() if one.started.key == key), None)
        if started is None:
            raise Usage(f"no step with the key {key} is open in session {session_id[-8:]}")
        end_held(run, started, lambda step, site, begun: outcome)


def end_held(run: Held, started: ev.StepStarted, seen: Seen) -> bool:
    """Record the end as it was seen; False where the step has not ended."""
    step = step_named(run.session, started.step)
    outcome = seen(step, run.site(), started)
    if isinstance(outcome, Done):
        end(run, step, started, outcome, durable=not careful(step, started))
    elif isinstance(outcome, Failed):
        fail(run, started, outcome)
    return outcome is not None


# Settlement.


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was open, and what was found out about it. `action`: what that means for the step."""

    started: ev.StepStarted
    outcome: Outcome
    action: Action
    evidence: str


def settle_open(world: World, session_id: str, options: Options) -> Session:
    """The performer is to come back: every step that is still open is settled by evidence, or a person is asked.

    An observed agent that lives needs nobody to resume it. Its person changes files between two turns of it, and it
    looks at them itself: that is recorded, and no reason to stop.
    """
    from acode.engine.resume import make_ready  # the whole of a resume, which no hook needs

    with held(world, session_id, wait=options.wait) as run:
        if run.session.steps_from.observed:
            refuse_at_work(run.session)
            accepts = options.changed_files or "continue"
            options = msgspec.structs.replace(options, strategy=Strategy.RETRY, changed_files=accepts)
        found, options = make_ready(run, options)
        stopped = settle_flights(run, found, options)
        if stopped is not None and stopped.error is not None:
            raise stopped.error
        return run.session


def refuse_at_work(session: Session) -> None:
    who = session.performer
    if who is not None and is_at_work(session):
        raise SessionLocked(
            f"{who.name or 'its agent'}, pid {who.pid}, is at work on session {short(session.session_id)}",
            hint="Continue there, or end it and try again.",
        )


def settle_left(run: Held) -> tuple[Settled, ...]:
    """Each step whose performer is gone, or whose end was noted. Nothing is repeated or rolled back here: an observed
    agent does what it does itself. What no evidence shows stays open, and is on record as unknown."""
    found = [settled for flight in list(run.session.in_flight.values()) if (settled := settle_flight(run, flight))]
    return tuple(found)


def settle_flight(run: Held, flight: InFlight) -> Settled | None:
    """None: its performer lives, and nothing shows that it ended by itself. Cancelled or in the background, it is the
    performer's affair."""
    started = flight.started
    settlement = found_of(run, started)
    alive = started.performer is not None and locks.alive(started.performer)
    if alive and settlement.action in (Action.WAIT, Action.ASK):
        return None
    if settlement.action is Action.ASK:
        note_unknown(run, settlement)
    elif settlement.action is not Action.WAIT:
        settle_one(run, settlement)
    return Settled(started=started, outcome=settlement.outcome, action=settlement.action, evidence=settlement.evidence)


def found_of(run: Held, started: ev.StepStarted) -> Settlement:
    finding = look_at(step_named(run.session, started.step), run.site(), run.session)
    unknown_too = retries_unknown(run.world)
    return settle(started.step, started.kind, finding, strategy=Strategy.RETRY, retry_unknown=unknown_too)


def give_up(run: Held, started: ev.StepStarted, finding: Settlement, *, evidence: str) -> None:
    """The performer lives and has continued without the step: it was denied or cancelled, and its caller knows.

    Where the evidence shows no more, that is the decision on record: the same may be asked for again.
    """
    if finding.outcome in (Outcome.APPLIED, Outcome.NOT_APPLIED):
        settle_one(run, finding)
        return
    accepted = ev.Settled.RETRY_ACCEPTED
    run.append(ev.StepSettled(step=started.step, attempt=started.attempt, outcome=accepted, evidence=evidence))


# The session.


def pause_for(run: Held, message: str) -> None:
    """The performer waits for its person: that is no crash."""
    if run.session.state is State.EXECUTING and not run.session.in_flight:
        run.append(ev.SessionPaused(reason="user", message=message))


def complete_for(world: World, session_id: str) -> None:
    """Nothing is left to do; a step that is open keeps the session open."""
    with briefly_held(world, session_id) as run:
        if run.session.in_flight:
            raise OutcomeUnknown(f"steps still run: {', '.join(run.session.in_flight)}")
        complete_held(run)


def complete_held(run: Held) -> None:
    complete(run, 0)


def close_for(world: World, session_id: str, code: int, name: str) -> Session:
    """The performer has ended with this exit status, for the process that started it for one task."""
    with held(world, session_id, wait=True, ended_ok=True, doing="end", brief=True) as run:
        if run.session.terminal:
            return run.session
        settle_left(run)
        if code == 0 and not run.session.in_flight:
            complete_held(run)
        elif code > 0 and run.session.state is State.EXECUTING:
            failed = ev.InterruptionClass.TOOL_FAILURE
            message = f"{name} ended with exit status {code}"
            run.append(ev.SessionPaused(reason="error", interruption=failed, message=message))
        return run.session

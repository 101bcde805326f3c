"""A program's plain step in one piece: the order and the guards of `engine.step`, without what only other steps need.

Plain is the first call of a function of which nothing is declared and nothing is on record, in a session of which
nobody is told step by step. Its rows are those that `engine.step` writes, byte for byte, and its guards those of that
module. What turns out not to be plain, a failure or a result that does not stand in its row, is handed over to it.
"""

from __future__ import annotations

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.async_commits import settle_async
from acode.engine.held_session import Held, Recorded
from acode.engine.step import careful, guard_after_act, guard_before_act, start_of, withdraw
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.events.lean_steps import short_end, short_start
from acode.state import State
from acode.state.source import PROGRAM
from acode.steps.interface import Done

TOLD = frozenset({notices.StepStarted, notices.StepCompleted})


class PlainSteps(msgspec.Struct, frozen=True):
    """What all plain steps of a session have in common: whether a start must survive a power cut."""

    careful: bool
    careful_if_idempotent: bool


def plain_steps_of(run: Held) -> PlainSteps | None:
    """None where no step may be plain: they are no program's, or somebody is told of each."""
    if run.session.kind != PROGRAM.kind or not run.unheard >= TOLD:
        return None
    once, again = (Step(id="any", action=Call(function=""), idempotent=idempotent) for idempotent in (False, True))
    return PlainSteps(*(careful(step, start_of(run, step)[0]) for step in (once, again)))


def append_start(
    run: Held,
    step: str,
    function: str,
    asked: ev.Asked,
    shown: str,
    *,
    idempotent: bool,
    durable: bool,
    together: bool = False,
) -> tuple[ev.StepStarted, Recorded] | None:
    """Append the start; the caller has the turn, and has found nothing on record of the step. Nobody acts on it yet.
    None: the session has to be woken first. `together`: it is committed with what other tasks record."""
    session = run.journal.session
    if session.state is not State.EXECUTING:
        return None
    definition = Step(id=step, action=Call(function=function), idempotent=idempotent)
    started = ev.StepStarted(
        step=step,
        task=step.partition(".")[0],
        kind="call",
        attempt=1,
        key=f"{session.session_id}:{step}:1",
        action_digest="",
        idempotent=idempotent,
        boot_id=locks.boot_id(),
        asked=asked,
        definition=definition,
        shown=shown,
    )
    short = short_start(started, asked, function, session.boot_id, bytes.fromhex(asked.arguments))
    (envelope,) = run.journal.append(started, durable=durable, wait=False, short=short, together=together)
    return started, Recorded(envelope.seq, durable)


def confirm_start(run: Held, started: ev.StepStarted, record: Recorded) -> None:
    """The start is committed, and synced where it must be: only then may anybody act."""
    if record.durable or run.journal.committed.seq < record.seq:
        try:
            run.settle(record)
        except BaseException:
            withdraw(run, started)
            raise
    guard_before_act(run)


async def confirm_start_async(run: Held, started: ev.StepStarted, record: Recorded) -> None:
    """The same for a task of an event loop. It may be cancelled while it waits."""
    try:
        await settle_async(run, record)
    except BaseException:
        withdraw(run, started)
        raise
    guard_before_act(run)


def append_end(
    run: Held, started: ev.StepStarted, done: Done, took_ms: int, *, durable: bool, together: bool = False
) -> Recorded | None:
    """Append the completion; the caller has the turn. None: there is more to record than a result in its row."""
    step, session = started.step, run.journal.session
    guard_after_act(run, step)
    flight, records = session.in_flight.get(step), session.records
    if done.blobs or flight is None or flight.started is not started or records is None or step in records.steps:
        return None
    if records.manifest:  # of files that the session knows one may have been changed
        return None
    completed = ev.StepCompleted(
        step=step,
        task=started.task,
        attempt=1,
        key=started.key,
        start=flight.seq,
        duration_ms=took_ms,
        result=done.result,
    )
    short = short_end(completed, session.seq + 1)
    (envelope,) = run.journal.append(completed, durable=durable, wait=False, short=short, together=together)
    run.executed += 1
    return Recorded(envelope.seq, durable)

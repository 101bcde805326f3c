"""A step is performed here, whatever its source; `plain_step` has this order, and these guards, for a program's calls.

Guard, record the start, act, guard, record the end or the failure, wait and try again. A copy of this order for one
source lacked guards that the others had: a program whose step removed the log ended well, and did everything again the
next time. Each record is one transaction. A step that changes something starts durably, so that the log explains every
change in the world; one that changes nothing ends durably, so that a step costs one sync.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.async_commits import settle_async
from acode.engine.held_session import Held, Recorded
from acode.engine.shared_paths import Attributed, attribute, warn_of_shared
from acode.engine.step_files import NAMES_IN_EVENT_MAX, in_pieces, own_changes, restore_leftovers, seen
from acode.engine.workspace_store import anchor_of, lost_error
from acode.errors import AcodeError, DiskFull, LogRolledBack, UnsafePath, WriteFailed
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Run, Step, declared_outputs, describe
from acode.state import State
from acode.steps import kind_of
from acode.steps.interface import Done, Failed, Prepared, Site
from acode.steps.keeper_notes import make_run_directory
from acode.store.journal import Blob

T = TypeVar("T")
WAIT_SLICE_S = 0.2
NOTHING = Prepared()
HARMLESS_IF_IDEMPOTENT = frozenset({"call", "run", "model"})
PLANNING = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A source's request for one step, beside its definition."""

    retry: Callable[[Failed, int], float | None]  # the failure and their number: seconds until the next attempt
    check: Callable[[], None] = lambda: None  # raises where this process may not write for the session any more
    before: Callable[[], tuple[ev.Known, ...]] = tuple  # events that belong into the transaction of the start
    asked: ev.Asked | None = None
    shown: str = ""
    prepares: bool = True  # whether the kind of the step looks around before it begins
    ended: Callable[[ev.StepCompleted], None] = lambda completed: None  # called when the completion is on its way
    last: Callable[[], bool] | None = None  # asked at its end: whether it is visible outside, so that it is durable


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempt of a step, on record. `completed` is None where it failed, `stopped` where a person wants the
    session to stop instead of a further attempt."""

    started: ev.StepStarted
    outcome: Done | Failed
    completed: ev.StepCompleted | None = None
    stopped: bool = False


Since = tuple[ev.StepStarted, float]  # a start on record, and the moment of the act
Act = Callable[[ev.StepStarted], Done | Failed]
Recording = Generator[Recorded, None, T]  # waits at each record until it is committed, and synced where it must be
Lifecycle = Generator[ev.StepStarted | float | Recorded, Any, Performed]


def lifecycle(run: Held, step: Step, request: Request, since: Since | None = None) -> Lifecycle:
    """The attempts of one step; `since`: the first is on record and has acted. It yields a record, to be continued once
    that is committed or synced; a start, to be given the outcome of the act; or seconds to wait, to be given whether to
    stop. So one order serves functions, coroutines and commands, and steps at once share commits and syncs."""
    while True:
        started, outcome = (since[0], None) if since else (yield from begin_attempt(run, step, request))
        if outcome is None:
            began_at, since = since[1] if since else run.world.monotonic(), None
            outcome = yield started
            took_ms = int((run.world.monotonic() - began_at) * 1000)
            if isinstance(outcome, Done):
                durable = not careful(step, started)
                ended = record_end(run, step, started, outcome, took_ms=took_ms, durable=durable, request=request)
                completed = yield from ended
                return Performed(started=started, outcome=outcome, completed=completed)
            yield from record_failure(run, started, outcome, took_ms, check=request.check)
        with run.turn:
            wait_s = request.retry(outcome, failures_of(run, step.id))
            if wait_s is None:
                return Performed(started=started, outcome=outcome)
        yield from accept_retry(run, started, outcome)
        with run.turn:
            again = notices.StepRetry(after_seconds=wait_s, attempt=run.session.next_attempt(step.id))
            run.emit(again, step=step.id)
        if (yield float(wait_s)):
            return Performed(started=started, outcome=outcome, stopped=True)


def perform(run: Held, attempts: Lifecycle, act: Act, *, stopped: Callable[[], bool] | None = None) -> Performed:
    """Go through the attempts in this thread. `stopped`: ends the wait between two of them, as a person does."""
    answer: Done | Failed | bool | None = None
    failed: BaseException | None = None
    while True:
        try:
            wanted = attempts.send(answer) if failed is None else attempts.throw(failed)
        except StopIteration as ended:
            performed: Performed = ended.value
            return performed
        answer = failed = None
        if isinstance(wanted, Recorded):
            try:
                run.settle(wanted)
            except BaseException as error:
                failed = error
        else:
            answer = wait(run, wanted, stopped) if isinstance(wanted, float) else act(wanted)


async def perform_async(
    run: Held, attempts: Lifecycle, act: Callable[[ev.StepStarted], Awaitable[Done | Failed]]
) -> Performed:
    """The same for a task of an event loop, which is not blocked while the disk works."""
    answer: Done | Failed | bool | None = None
    failed: BaseException | None = None
    while True:
        try:
            wanted = attempts.send(answer) if failed is None else attempts.throw(failed)
        except StopIteration as ended:
            performed: Performed = ended.value
            return performed
        answer = failed = None
        if isinstance(wanted, Recorded):
            try:
                await settle_async(run, wanted)
            except BaseException as error:  # a task may be cancelled here
                failed = error
        else:
            answer = await (wait_async(run, wanted) if isinstance(wanted, float) else act(wanted))


def settle_all(run: Held, recording: Recording[T]) -> T:
    """Go through it in this thread."""
    failed: BaseException | None = None
    while True:
        try:
            record = next(recording) if failed is None else recording.throw(failed)
        except StopIteration as ended:
            value: T = ended.value
            return value
        try:
            run.settle(record)
            failed = None
        except BaseException as error:
            failed = error


def execute(run: Held, step: Step) -> Act:
    """The act of a step that acode itself executes."""
    kind, site = kind_of(step.kind), run.site()
    return lambda started: kind.execute(step, site, started)


# Guards.


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
    """Called directly before the act: one that slept since its start must not act on a lock that was broken then."""
    run.journal.refuse_if_fenced()


def guard_after_act(run: Held, step_id: str) -> None:
    """Called directly after the act. A step may have removed the log itself: nobody reads what is written to a removed
    file, so nothing more is recorded and nothing more is done."""
    if os.access(run.database, os.F_OK):  # cheaper than the look that follows where it says no
        return
    try:
        os.stat(run.database)
    except (FileNotFoundError, NotADirectoryError):
        lost = lost_error(run.world, [*filter(None, [anchor_of(run.world, run.session.session_id)])])
        hint = lost.unrendered_hint
        raise LogRolledBack(f"after step {step_id}: {lost.message}", hint=hint, **lost.details) from None
    except OSError:
        return  # that it cannot be looked at does not say that it is gone


def wait(run: Held, seconds: float, stopped: Callable[[], bool] | None = None) -> bool:
    """Wait between two attempts; True where somebody wants the session to stop, which ends the wait at once."""
    run.flush()
    stops = stopped or run.world.stop.at_boundary
    until = run.world.monotonic() + seconds
    while not stops():
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


# The start.


def begin_attempt(run: Held, step: Step, request: Request) -> Recording[tuple[ev.StepStarted, Failed | None]]:
    """The start of the next attempt, recorded now or with the completion of the step before it; and why it failed
    already, where it could not be prepared."""
    with run.journal.turn:
        begun = run.begun.pop(step.id, None) if run.begun else None
        if begun is not None:
            emit_started(run, step, begun)
            return begun, None
        request.check()
        restore_leftovers(run, step)
        failed, prepared = None, NOTHING
        try:
            if request.prepares:
                prepared = prepare(run, step)
        except (DiskFull, WriteFailed):
            raise  # the disk failed, not the step
        except AcodeError as error:
            if not run.source.fails_unprepared:
                raise
            failed = Failed(reason="error", message=": ".join(filter(None, (error.message, error.hint))))
            started, _ = start_of(run, step)
        else:
            asked, shown, before = request.asked, request.shown, request.before()
            started, record = append_start(run, step, prepared=prepared, asked=asked, shown=shown, before=before)
    if failed is not None:
        yield from record_failure(run, started, failed)
        return started, failed
    yield from confirm_start(run, step, started, record)
    return started, None


def prepare(run: Held, step: Step) -> Prepared:
    """Gather everything that must be known before anything happens."""
    site = run.site()
    refuse_outside(step, site)
    return kind_of(step.kind).prepare(step, site)


def begin(
    run: Held,
    step: Step,
    *,
    prepared: Prepared = NOTHING,
    asked: ev.Asked | None = None,
    shown: str = "",
    before: tuple[ev.Known, ...] = (),
    performer: ev.Performer | None = None,
    call: ev.ToolCall | None = None,
) -> ev.StepStarted:
    """Record the start. Then this process may act."""
    started, record = append_start(
        run, step, prepared=prepared, asked=asked, shown=shown, before=before, performer=performer, call=call
    )
    settle_all(run, confirm_start(run, step, started, record))
    return started


def append_start(
    run: Held,
    step: Step,
    *,
    prepared: Prepared = NOTHING,
    asked: ev.Asked | None = None,
    shown: str = "",
    before: tuple[ev.Known, ...] = (),
    performer: ev.Performer | None = None,
    call: ev.ToolCall | None = None,
) -> tuple[ev.StepStarted, Recorded]:
    """Append the start; durably, unless a repeat of the step would be harmless. Nobody acts on it yet."""
    started, blobs = start_of(run, step, prepared=prepared, asked=asked, shown=shown)
    if prepared.warning is not None and started.attempt == 1 and run.source.warns:
        run.emit(notices.StepWarning(message=prepared.warning), step=step.id)
    if started.kind == "run" and make_run_directory(run.world.agent_dir, started.key):
        started = msgspec.structs.replace(started, place_made=True)
    if performer is not None:
        started = msgspec.structs.replace(started, performer=performer, call=call)
    if started.before:
        warn_of_shared(run, step.id, started.before)
    with run.journal.turn:  # or two that wake a session at once would both say so
        record = run.record(*before, *awake(run), started, durable=careful(step, started), blobs=blobs)
    return started, record


def confirm_start(run: Held, step: Step, started: ev.StepStarted, record: Recorded) -> Recording[None]:
    """The start is committed, and synced where it must be: only then may anybody act."""
    try:
        yield record
    except BaseException:
        withdraw(run, started)
        raise
    if notices.StepStarted not in run.unheard:
        with run.turn:
            emit_started(run, step, started)
    if started.kind != "read":
        guard_before_act(run)


def withdraw(run: Held, started: ev.StepStarted) -> None:
    """Record, where that is possible, that the waiting task was cancelled or interrupted and has not acted."""
    with contextlib.suppress(AcodeError):
        run.append(settlement(started, ev.Settled.NOT_APPLIED, "it was cancelled before it acted"), durable=False)


def settlement(started: ev.StepStarted, outcome: ev.Settled, evidence: str) -> ev.StepSettled:
    return ev.StepSettled(step=started.step, attempt=started.attempt, outcome=outcome, evidence=evidence)


def start_of(
    run: Held,
    step: Step,
    *,
    attempt: int | None = None,
    prepared: Prepared = NOTHING,
    asked: ev.Asked | None = None,
    shown: str = "",
) -> tuple[ev.StepStarted, dict[str, Blob]]:
    """The start of an attempt, and what must be stored with it."""
    session, kind = run.journal.session, step.kind
    number = session.next_attempt(step.id) if attempt is None else attempt
    defined = run.source.definition(step)
    started = ev.StepStarted(
        step=step.id,
        task=step.task,
        kind=kind,
        attempt=number,
        key=make_key(session.session_id, step.id, number),
        action_digest=defined.digest,
        idempotent=step.idempotent,
        boot_id="" if kind == "approve" else locks.boot_id(),
        asked=asked,
        definition=defined.shown,
        definition_blob=defined.blob,
        shown=shown,
    )
    if prepared is NOTHING:
        return started, defined.blobs
    started = msgspec.structs.replace(
        started,
        before=prepared.before,
        before_complete=prepared.before_complete,
        astray=prepared.astray[:NAMES_IN_EVENT_MAX],
        after_sha256=prepared.after_sha256,
        after_mode=prepared.after_mode,
        target=prepared.target,
    )
    return started, {**prepared.blobs, **defined.blobs}


def careful(step: Step, started: ev.StepStarted) -> bool:
    """Whether the start must survive a power cut: the step may not be repeated, or it changes the workspace. If not,
    its end must."""
    if started.before or declared_outputs(step):
        return True
    return started.kind != "read" and not (step.idempotent and started.kind in HARMLESS_IF_IDEMPOTENT)


def awake(run: Held, reason: str = "") -> tuple[ev.Known, ...]:
    """The event with which a session that waited executes again; or plans, if that is what it did before."""
    session = run.journal.session
    if session.state is State.EXECUTING or session.state is State.PLANNING:
        return ()
    if session.state is State.PAUSED and session.before_pause is State.PLANNING:
        return (PLANNING,)
    return (ev.SessionExecuting(reason=reason or run.source.wakes),)


def emit_started(run: Held, step: Step, started: ev.StepStarted) -> None:
    if notices.StepStarted in run.unheard:
        return
    number, of = run.source.position(step)
    begun = notices.StepStarted(
        kind=step.kind,
        title=run.world.redactor.text(describe(step)),
        attempt=started.attempt,
        shown=started.shown if started.asked is not None else msgspec.UNSET,
        number=number,
        of=of,
        key=started.key,
    )
    run.emit(begun, step=step.id)


# The end.


def end(
    run: Held,
    step: Step,
    started: ev.StepStarted,
    done: Done,
    *,
    took_ms: int = 0,
    durable: bool = True,
    settled: bool = False,
    before: tuple[ev.Known, ...] = (),
    actor: str = "system",
) -> ev.StepCompleted:
    """Record that it ended well."""
    recording = record_end(
        run, step, started, done, took_ms=took_ms, durable=durable, settled=settled, before=before, actor=actor
    )
    return settle_all(run, recording)


def record_end(
    run: Held,
    step: Step,
    started: ev.StepStarted,
    done: Done,
    *,
    took_ms: int = 0,
    durable: bool = True,
    settled: bool = False,
    before: tuple[ev.Known, ...] = (),
    actor: str = "system",
    request: Request | None = None,
) -> Recording[ev.StepCompleted]:
    """The completion, its task's completion, the checkpoint and the start of a following read, in one transaction."""
    with run.journal.turn:
        if request is not None:
            request.check()
            durable = durable or (request.last is not None and request.last())
        guard_after_act(run, step.id)
        source, own = run.source, own_changes(run, started, done, settled=settled)
        touched = tuple([path for path in done.touched if path in own.touched]) if done.touched else ()
        pieces, files = in_pieces(step.id, started.attempt, own.files) if own.files else ((), ())
        completed = completion_of(run, started, done, took_ms=took_ms, settled=settled, files=files, touched=touched)
        ending = source.task_ending(step.id, completed.duration_ms) if source.planned else ()
        following = source.following_read(step) if source.planned and request is not None else None
        begun = () if following is None else (start_of(run, following)[0],)
        events = (*before, *own.accepted, *pieces, completed, *ending, *begun)
        record = run.record(*events, durable=durable, blobs=done.blobs, actor=actor)
        for one in begun:
            run.begun[one.step] = one
        if source.planned:
            source.keep_output(step.id, done)
        run.executed += not settled
        if request is not None:
            request.ended(completed)
    yield record
    if own.warnings or completed.unrecorded or ending or notices.StepCompleted not in run.unheard:
        with run.turn:
            warn_of(run, completed, own)
            emit_completed(run, completed, touched, record.seq)
            for task in ending:
                run.emit(notices.TaskCompleted(duration_ms=task.duration_ms), seq=record.seq, task=task.task)
    return completed


def completion_of(
    run: Held,
    started: ev.StepStarted,
    done: Done,
    *,
    took_ms: int,
    settled: bool,
    files: tuple[ev.FileState, ...],
    touched: tuple[str, ...],
) -> ev.StepCompleted:
    """A start that is on record says what was asked for; the completion only names it."""
    flight = run.journal.session.in_flight.get(started.step)
    start = flight.seq if flight is not None and flight.started is started else 0
    return ev.StepCompleted(
        step=started.step,
        task=started.task,
        attempt=started.attempt,
        key=started.key,
        start=start,
        duration_ms=done.duration_ms if done.duration_ms is not None else took_ms,
        settled=settled,
        output=done.output,
        files=files,
        touched=touched[:NAMES_IN_EVENT_MAX],
        unrecorded=done.unrecorded,
        result=done.result,
        asked=None if start else started.asked,
        spent=done.spent,
    )


def warn_of(run: Held, completed: ev.StepCompleted, own: Attributed) -> None:
    for warning in own.warnings:
        run.warn(warning)
    if completed.unrecorded:
        run.warn(
            f"step {completed.step} left more outputs than are recorded: {completed.unrecorded:,} of them are not"
            " compared before a resume, and a rollback leaves them where they are"
        )


def emit_completed(run: Held, completed: ev.StepCompleted, touched: tuple[str, ...], seq: int) -> None:
    if notices.StepCompleted not in run.unheard:
        done = notices.StepCompleted(
            duration_ms=completed.duration_ms,
            settled=completed.settled,
            touched=list(touched),
            done=run.session.steps_done,
            total=run.session.steps_total,
        )
        run.emit(done, seq=seq, step=completed.step)


# The failure.


def fail(run: Held, started: ev.StepStarted, failed: Failed, took_ms: int = 0) -> None:
    """Record that it failed."""
    settle_all(run, record_failure(run, started, failed, took_ms))


def record_failure(
    run: Held,
    started: ev.StepStarted,
    failed: Failed,
    took_ms: int = 0,
    *,
    check: Callable[[], None] = lambda: None,
) -> Recording[None]:
    """The failure: a step that ended by itself did not take effect; a stopped one is still open."""
    with run.turn:
        check()
        guard_after_act(run, started.step)
        own = attribute(run, started.step, seen(run, failed.files), failed.touched)
        pieces, files = in_pieces(started.step, started.attempt, own.files)
        failure = ev.StepFailed(
            step=started.step,
            task=started.task,
            attempt=started.attempt,
            reason=failed.reason,
            message=run.world.redactor.text(failed.message),
            exit_status=failed.exit_status,
            signal=failed.signal,
            duration_ms=took_ms,
            output=failed.output,
            files=files,
            touched=own.touched[:NAMES_IN_EVENT_MAX],
            error=failed.error,
        )
        events: list[ev.Known] = [*own.accepted, *pieces, failure]
        if failed.reason in ("exit", "error"):
            events.append(settlement(started, ev.Settled.NOT_APPLIED, failure.message))
        record = run.record(*events, blobs=failed.blobs)
    yield record
    told = notices.StepFailed(
        reason=failed.reason,
        message=failure.message,
        exit_status=failed.exit_status,
        output_tail=failed.output.tail if failed.output else "",
        touched=list(own.touched),
    )
    with run.turn:
        for warning in own.warnings:
            run.warn(warning)
        run.emit(told, seq=record.seq, step=started.step)


def failures_of(run: Held, step_id: str) -> int:
    """How often the step has failed since it last succeeded. The log counts, so the count survives a kill."""
    flight, record = run.session.in_flight.get(step_id), run.session.record(step_id)
    return flight.failures if flight is not None else record.failures if record is not None else 1


def accept_retry(run: Held, started: ev.StepStarted, failed: Failed) -> Recording[None]:
    """A step that was stopped in the middle and may be repeated is cleared for its next attempt."""
    if failed.reason in ("exit", "error"):
        return  # it is settled as not applied already
    evidence = f"{failed.message}; it is declared idempotent"
    yield run.record(settlement(started, ev.Settled.RETRY_ACCEPTED, evidence))

"""A step is performed here and nowhere else, whatever its source: a plan, a program, the agent or a foreign run.

Guard, record the start, act, guard, record the end or the failure, wait and try again. A copy of this order for one
source lacked guards that the others had: a program whose step removed the log ended well, and did everything again the
next time. Each record is one transaction. A step that changes something starts durably, so that the log explains every
change in the world; one that changes nothing ends durably, so that a step costs one sync.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.held_session import Held
from acode.engine.shared_paths import Attributed, attribute, warn_of_shared
from acode.engine.survey import begun_elsewhere, leftovers_elsewhere
from acode.engine.workspace_store import known_anchors, lost_error
from acode.errors import AcodeError, DiskFull, LogRolledBack, UnsafePath, WriteFailed
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Run, Step, declared_outputs, describe
from acode.state import State
from acode.steps import kind_of
from acode.steps.interface import Done, Failed, Prepared, RolledBack, Site
from acode.steps.run import make_place
from acode.store.journal import Blob
from acode.workspace import restat

WAIT_SLICE_S = 0.2
FILES_IN_EVENT_MAX = 500  # with paths of a thousand characters still below the limit of an event
NAMES_IN_EVENT_MAX = 500
NOTHING = Prepared()
HARMLESS_IF_IDEMPOTENT = frozenset({"call", "run", "model"})
PLANNING = ev.SessionPlanned(tasks=0, steps=0, plan_digest="")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a source wants of one step beside its definition."""

    retry: Callable[[Failed, int], float | None]  # the failure and their number: seconds until the next attempt
    check: Callable[[], None] = lambda: None  # raises where this process may not write for the session any more
    before: Callable[[], tuple[ev.Known, ...]] = tuple  # events that belong into the transaction of the start
    asked: ev.Asked | None = None
    shown: str = ""
    prepares: bool = True  # whether the kind of the step looks around before it begins
    last: bool = False  # whether its end is told to the outside, and so must be durable


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """The last attempt of a step, on record. `completed` is None where it failed, `stopped` where a person wants the
    session to stop instead of a further attempt."""

    started: ev.StepStarted
    outcome: Done | Failed
    completed: ev.StepCompleted | None = None
    stopped: bool = False


Act = Callable[[ev.StepStarted], Done | Failed]
Lifecycle = Generator[ev.StepStarted | float, Any, Performed]


def lifecycle(run: Held, step: Step, request: Request) -> Lifecycle:
    """The attempts of one step. It yields a start that is on record, to be given the outcome of the act; or seconds to
    wait, to be given whether the session is to stop. So one order serves functions, coroutines and commands."""
    while True:
        with run.turn:
            started, outcome = begin_attempt(run, step, request)
        if outcome is None:
            began_at = run.world.monotonic()
            outcome = yield started
            took_ms = int((run.world.monotonic() - began_at) * 1000)
            with run.turn:
                request.check()
                if isinstance(outcome, Done):
                    durable, following = request.last or not careful(step, started), run.source.following_read(step)
                    completed = end(run, step, started, outcome, took_ms=took_ms, durable=durable, following=following)
                    return Performed(started=started, outcome=outcome, completed=completed)
                fail(run, started, outcome, took_ms)
        with run.turn:
            wait_s = request.retry(outcome, failures_of(run, step.id))
            if wait_s is None:
                return Performed(started=started, outcome=outcome)
            accept_retry(run, started, outcome)
            again = notices.StepRetry(after_seconds=wait_s, attempt=run.session.next_attempt(step.id))
            run.emit(again, step=step.id)
        if (yield float(wait_s)):
            return Performed(started=started, outcome=outcome, stopped=True)


def perform(run: Held, attempts: Lifecycle, act: Act) -> Performed:
    """Go through the attempts in this thread."""
    answer: Done | Failed | bool | None = None
    while True:
        try:
            wanted = attempts.send(answer)
        except StopIteration as ended:
            performed: Performed = ended.value
            return performed
        answer = wait(run, wanted) if isinstance(wanted, float) else act(wanted)


async def perform_async(
    run: Held, attempts: Lifecycle, act: Callable[[ev.StepStarted], Awaitable[Done | Failed]]
) -> Performed:
    """The same for a task of an event loop."""
    answer: Done | Failed | bool | None = None
    while True:
        try:
            wanted = attempts.send(answer)
        except StopIteration as ended:
            performed: Performed = ended.value
            return performed
        answer = await (wait_async(run, wanted) if isinstance(wanted, float) else act(wanted))


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


# The start.


def begin_attempt(run: Held, step: Step, request: Request) -> tuple[ev.StepStarted, Failed | None]:
    """The start of the next attempt, recorded now or with the completion of the step before it; and why it failed
    already, where it could not be prepared."""
    begun, run.begun = run.begun, None
    if begun is not None and begun.step == step.id:
        emit_started(run, step, begun)
        return begun, None
    request.check()
    restore_leftovers(run, step)
    try:
        prepared = prepare(run, step) if request.prepares else NOTHING
    except (DiskFull, WriteFailed):
        raise  # the disk failed, not the step
    except AcodeError as error:
        if not run.source.fails_unprepared:
            raise
        failed = Failed(reason="error", message=": ".join(filter(None, (error.message, error.hint))))
        started, _ = start_of(run, step)
        fail(run, started, failed)
        return started, failed
    asked, before = request.asked, request.before()
    return begin(run, step, prepared=prepared, asked=asked, shown=request.shown, before=before), None


def prepare(run: Held, step: Step) -> Prepared:
    """What must be known before anything happens."""
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
) -> ev.StepStarted:
    """Record what is going to happen; durably, unless a repeat of it would be harmless. Then this process may act."""
    started, blobs = start_of(run, step, prepared=prepared, asked=asked, shown=shown)
    if prepared.warning is not None and started.attempt == 1 and run.source.warns:
        run.emit(notices.StepWarning(message=prepared.warning), step=step.id)
    if step.kind == "run" and make_place(run.world.agent_dir, started.key):
        started = msgspec.structs.replace(started, place_made=True)
    if performer is not None:
        started = msgspec.structs.replace(started, performer=performer)
    warn_of_shared(run, step.id, started.before)
    run.append(*before, *awake(run), started, durable=careful(step, started), blobs=blobs)
    emit_started(run, step, started)
    if step.kind != "read":
        guard_before_act(run)
    return started


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
    session = run.session
    number = session.next_attempt(step.id) if attempt is None else attempt
    defined = run.source.definition(step)
    started = ev.StepStarted(
        step=step.id,
        task=step.task,
        kind=step.kind,
        attempt=number,
        key=make_key(session.session_id, step.id, number),
        action_digest=defined.digest,
        idempotent=step.idempotent,
        boot_id="" if step.kind == "approve" else locks.boot_id(),
        before=prepared.before,
        before_complete=prepared.before_complete,
        astray=prepared.astray[:NAMES_IN_EVENT_MAX],
        after_sha256=prepared.after_sha256,
        after_mode=prepared.after_mode,
        target=prepared.target,
        asked=asked,
        definition=defined.shown,
        definition_blob=defined.blob,
        shown=shown,
    )
    return started, {**prepared.blobs, **defined.blobs}


def careful(step: Step, started: ev.StepStarted) -> bool:
    """Whether the start must survive a power cut: the step may not be repeated, or it changes the workspace. If not,
    its end must."""
    if started.before or declared_outputs(step):
        return True
    return step.kind != "read" and not (step.idempotent and step.kind in HARMLESS_IF_IDEMPOTENT)


def awake(run: Held, reason: str = "") -> tuple[ev.Known, ...]:
    """The event with which a session that waited executes again; or plans, if that is what it did before."""
    session = run.session
    if session.state in (State.EXECUTING, State.PLANNING):
        return ()
    if session.state is State.PAUSED and session.before_pause is State.PLANNING:
        return (PLANNING,)
    return (ev.SessionExecuting(reason=reason or run.source.wakes),)


def emit_started(run: Held, step: Step, started: ev.StepStarted) -> None:
    if not is_heard(run, notices.StepStarted):
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


def is_heard(run: Held, body: type[notices.Body]) -> bool:
    """Whether anybody listens; a step is over so quickly that a notice to nobody would be felt."""
    return body not in getattr(run.world.listener, "unheard", ())


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
    following: Step | None = None,
) -> ev.StepCompleted:
    """The completion, its task's completion, the checkpoint and the start of a following read, in one transaction."""
    guard_after_act(run, step.id)
    own = own_changes(run, started, done, settled=settled)
    touched = tuple(path for path in done.touched if path in own.touched)
    pieces, files = in_pieces(step.id, started.attempt, own.files)
    completed = ev.StepCompleted(
        step=step.id,
        task=step.task,
        attempt=started.attempt,
        key=started.key,
        duration_ms=done.duration_ms if done.duration_ms is not None else took_ms,
        settled=settled,
        output=done.output,
        files=files,
        touched=touched[:NAMES_IN_EVENT_MAX],
        unrecorded=done.unrecorded,
        result=done.result,
        asked=started.asked,
        spent=done.spent,
    )
    ending = run.source.task_ending(step.id, completed.duration_ms)
    begun = () if following is None else (start_of(run, following)[0],)
    events = (*before, *own.accepted, *pieces, completed, *ending, *begun)
    said = run.append(*events, durable=durable, blobs=done.blobs, actor=actor)
    run.begun = begun[0] if begun else None
    run.source.keep_output(step.id, done)
    run.executed += not settled
    warn_of(run, completed, own)
    emit_completed(run, completed, touched, said[-1].seq)
    for task in ending:
        run.emit(notices.TaskCompleted(duration_ms=task.duration_ms), seq=said[-1].seq, task=task.task)
    return completed


def own_changes(run: Held, started: ev.StepStarted, done: Done, *, settled: bool) -> Attributed:
    """The files that this step changed, told from those that another session changed meanwhile."""
    if started.kind != "call" or settled:
        return attribute(run, started.step, seen(run, done.files), done.touched)
    meanwhile = seen(run, changed_meanwhile(run))
    files, touched = (*seen(run, done.files), *meanwhile), (*done.touched, *content_changed(run, meanwhile))
    return attribute(run, started.step, files, touched)


def seen(run: Held, files: tuple[ev.FileState, ...]) -> tuple[ev.FileState, ...]:
    """Without regular files that the session knows and that could not be read just now: a sick disk must not make a
    step the author of a change. A file that really changed is found by the next resume."""
    records = run.session.records
    known = records.manifest if records is not None else {}

    def is_unread(one: ev.FileState) -> bool:
        return one.sha256 == "" and stat.S_ISREG(one.mode or 0) and one.path in known and bool(known[one.path].sha256)

    return tuple(one for one in files if not is_unread(one))


def changed_meanwhile(run: Held) -> tuple[ev.FileState, ...]:
    """Files that the session knows and that changed while a function ran: the change belongs to the step.

    The function has run, and that is recorded also where nobody can look: the next resume finds what differs.
    """
    records = run.session.records
    if records is None or not records.manifest:
        return ()
    try:
        return restat(run.root, records.manifest)
    except (AcodeError, OSError) as error:
        run.warn(f"whether the step changed files that the session knows could not be seen: {error}")
        return ()


def content_changed(run: Held, files: tuple[ev.FileState, ...]) -> tuple[str, ...]:
    assert run.session.records is not None
    known = run.session.records.manifest
    return tuple(one.path for one in files if (known[one.path].sha256, known[one.path].mode) != (one.sha256, one.mode))


def in_pieces(
    step: str, attempt: int, files: tuple[ev.FileState, ...]
) -> tuple[list[ev.FilesSeen], tuple[ev.FileState, ...]]:
    """A command may leave more files than an event can hold: the first ones precede it in events of their own."""
    if len(files) <= FILES_IN_EVENT_MAX:
        return [], files
    pieces = [files[at : at + FILES_IN_EVENT_MAX] for at in range(0, len(files), FILES_IN_EVENT_MAX)]
    seen = [ev.FilesSeen(step=step, attempt=attempt, files=piece) for piece in pieces[:-1]]
    return seen, pieces[-1]


def warn_of(run: Held, completed: ev.StepCompleted, own: Attributed) -> None:
    for warning in own.warnings:
        run.warn(warning)
    if completed.unrecorded:
        run.warn(
            f"step {completed.step} left more outputs than are recorded: {completed.unrecorded:,} of them are not"
            " compared before a resume, and a rollback leaves them where they are"
        )


def emit_completed(run: Held, completed: ev.StepCompleted, touched: tuple[str, ...], seq: int) -> None:
    if is_heard(run, notices.StepCompleted):
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
    """The failure, and what it means: a step that ended by itself did not take effect; a stopped one is still open."""
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
        events.append(
            ev.StepSettled(
                step=started.step, attempt=started.attempt, outcome=ev.Settled.NOT_APPLIED, evidence=failure.message
            )
        )
    said = run.append(*events, blobs=failed.blobs)
    for warning in own.warnings:
        run.warn(warning)
    told = notices.StepFailed(
        reason=failed.reason,
        message=failure.message,
        exit_status=failed.exit_status,
        output_tail=failed.output.tail if failed.output else "",
        touched=list(own.touched),
    )
    run.emit(told, seq=said[-1].seq, step=started.step)


def failures_of(run: Held, step_id: str) -> int:
    """How often the step has failed since it last succeeded. The log counts, so the count survives a kill."""
    flight, record = run.session.in_flight.get(step_id), run.session.record(step_id)
    return flight.failures if flight is not None else record.failures if record is not None else 1


def accept_retry(run: Held, started: ev.StepStarted, failed: Failed) -> None:
    """A step that was stopped in the middle and may be repeated is cleared for its next attempt."""
    if failed.reason in ("exit", "error"):
        return  # it is settled as not applied already
    evidence = f"{failed.message}; it is declared idempotent"
    outcome = ev.Settled.RETRY_ACCEPTED
    run.append(ev.StepSettled(step=started.step, attempt=started.attempt, outcome=outcome, evidence=evidence))


# Leftovers of an earlier attempt.


def restore_leftovers(run: Held, step: Step) -> None:
    """An attempt that failed, or that a person settled, left its outputs to look at; now they are rolled back."""
    record = run.session.record(step.id)
    left = record.left_behind if record is not None else None
    if record is None or left is None or not (left.before or declared_outputs(step)):
        return
    if begun_elsewhere(run.site(), record.left_seq or record.seq, left):
        run.warn(leftovers_elsewhere(step.id))
        return
    rolled = kind_of(step.kind).roll_back(step, run.site(), left)
    evidence = "the outputs of the attempt before were put back"
    settled = ev.StepSettled(step=step.id, attempt=record.attempt, outcome=ev.Settled.ROLLED_BACK, evidence=evidence)
    run.append(*with_restored(settled, rolled))
    emit_restored(run, step.id, rolled)


def with_restored(settled: ev.StepSettled, rolled: RolledBack) -> tuple[ev.Known, ...]:
    """The settlement, and before it the files for which it has no room."""
    seen, files = in_pieces(settled.step, settled.attempt, rolled.files)
    named = msgspec.structs.replace(settled, restored=rolled.restored[:NAMES_IN_EVENT_MAX], files=files)
    return (*seen, named)


def emit_restored(run: Held, step: str, rolled: RolledBack) -> None:
    if rolled.restored:
        secret = sum(image.secret for image in rolled.saved)
        restored = list(rolled.restored)
        run.emit(notices.StepRolledBack(restored=restored, saved=len(rolled.saved), saved_until_end=secret), step=step)

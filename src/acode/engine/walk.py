"""Perform steps: say it, do it, say it is done; each saying is one transaction.

Between two durable writes exactly one thing happens. A step that changes something starts durably, so that every
change in the world is explained by the log; one that changes nothing ends durably, so that a step costs one sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from acode import lock as locks
from acode.engine.grants import Allowed, allowed_by, why_not
from acode.engine.held_session import Held
from acode.engine.hints import mending, way_on
from acode.engine.shared_paths import Attributed, attribute, warn_of_shared
from acode.engine.step import guard_after_act, guard_before_act, refuse_outside, wait
from acode.engine.survey import begun_elsewhere, leftovers_elsewhere, retries_unknown
from acode.engine.world import Result, short
from acode.errors import (
    AcodeError,
    ApprovalDenied,
    DiskFull,
    InputRequired,
    StepFailed,
    StepTimeout,
    WriteFailed,
)
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import (
    Approve,
    Step,
    Task,
    declared_outputs,
    definition_digest,
    describe,
    describe_in_full,
    execution_order,
)
from acode.plan import covered_by, repeatable
from acode.state import State
from acode.steps import kind_of
from acode.steps.interface import Done, Failed, Prepared, RolledBack, Site
from acode.steps.run import make_place
from acode.steps.step_outputs import private_outputs, put_output

Ending = Result | None  # None: go on
FILES_IN_EVENT_MAX = 500  # with paths of a thousand characters still below the limit of an event
NAMES_IN_EVENT_MAX = 500
Finish = Callable[[Held, int], Result]  # ends what has no step left; the number is of steps that were skipped
Walk = Callable[[Held, int, Finish], Result]


def perform_all(run: Held, skipped: int, finish: Finish) -> Result:
    """Walk the plan's one order from the first step that is not done; `finish` ends what has no step left."""
    session = run.session
    assert session.plan is not None
    order = execution_order(session.plan)
    total = sum(len(task.steps) for task in order)
    for task in order:
        for number, step in enumerate(task.steps, 1):
            if session.done(step.id):
                continue
            if run.world.stop.at_boundary():
                return pause_by_signal(run, skipped)
            is_last = session.steps_done + 1 == total
            ending = perform(run, task, step, number, is_last=is_last, skipped=skipped)
            if ending is not None:
                return ending
    return finish(run, skipped)


def perform(run: Held, task: Task, step: Step, number: int, *, is_last: bool, skipped: int) -> Ending:
    if isinstance(step.action, Approve):
        return pass_gate(run, task, step, skipped=skipped)
    while True:
        outcome = attempt(run, task, step, number, is_last=is_last)
        if isinstance(outcome, Done):
            return None
        again = retry_after_s(run, step, outcome)
        if again is None:
            return stop_at_failure(run, step, outcome, skipped)
        run.emit("step_retry", step=step.id, after_seconds=again, attempt=run.session.next_attempt(step.id))
        if wait(run, again):
            return pause_by_signal(run, skipped)


def attempt(run: Held, task: Task, step: Step, number: int, *, is_last: bool) -> Done | Failed:
    """One attempt, from its start to its recorded end."""
    kind, site = kind_of(step.kind), run.site()
    if run.begun is not None and run.begun.step == step.id:
        started, careful = run.begun, False
    else:
        put_back_leftovers(run, step)
        prepared = prepare(run, task, step, site)
        if isinstance(prepared, Failed):
            return prepared
        started, careful = begin_step(run, task, step, prepared)
    run.begun = None
    run.emit(
        "step_started",
        step=step.id,
        kind=step.kind,
        title=describe(step),
        attempt=started.attempt,
        number=number,
        of=len(task.steps),
        key=started.key,
    )
    if step.kind != "read":
        guard_before_act(run)
    before = run.world.monotonic()
    outcome = kind.execute(step, site, started)
    guard_after_act(run, step.id)
    took_ms = int((run.world.monotonic() - before) * 1000)
    if isinstance(outcome, Done):
        following = following_read(run, task, number)
        record_done(
            run, task, step, started, outcome, took_ms=took_ms, durable=not careful or is_last, following=following
        )
    else:
        record_failure(run, started, outcome, took_ms)
    return outcome


def prepare(run: Held, task: Task, step: Step, site: Site) -> Prepared | Failed:
    """What must be known before anything happens; a step that cannot even begin has failed, and says why."""
    try:
        refuse_outside(step, site)
        return kind_of(step.kind).prepare(step, site)
    except (DiskFull, WriteFailed):
        raise  # the disk, not the step
    except AcodeError as error:
        failed = Failed(reason="error", message=": ".join(filter(None, (error.message, error.hint))))
    number = run.session.next_attempt(step.id)
    key = make_key(run.session.session_id, step.id, number)
    record_failure(run, start_of(step, task, number, key, Prepared()), failed, 0)
    return failed


def begin_step(run: Held, task: Task, step: Step, prepared: Prepared) -> tuple[ev.StepStarted, bool]:
    """Say what is going to happen; durably, unless nothing can come of it."""
    number = run.session.next_attempt(step.id)
    if prepared.warning is not None and number == 1:
        run.emit("step_warning", step=step.id, message=prepared.warning)
    careful = prepared.changes_workspace or not harmless(step)
    started = start_of(step, task, number, make_key(run.session.session_id, step.id, number), prepared)
    if step.kind == "run" and make_place(run.world.agent_dir, started.key):
        started = msgspec.structs.replace(started, place_made=True)
    warn_of_shared(run, step.id, started.before)
    run.append(started, durable=careful, blobs=prepared.blobs)
    return started, careful


def following_read(run: Held, task: Task, number: int) -> Step | None:
    """The next step of the task, if it is a read: it needs no preparation, so it begins with this one's completion.

    One transaction then says that one step is done and the next begins, and a read costs no commit of its own.
    """
    following = task.steps[number] if number < len(task.steps) else None
    if (
        following is None
        or following.kind != "read"
        or run.world.stop.at_boundary()
        or run.session.record(following.id)
    ):
        return None
    return following


def harmless(step: Step) -> bool:
    """Idempotent and without effect on the workspace: its start need not survive a power cut, its end must."""
    return step.kind == "read" or (step.kind == "run" and step.idempotent)


def start_of(step: Step, task: Task, attempt_number: int, key: str, prepared: Prepared) -> ev.StepStarted:
    return ev.StepStarted(
        step=step.id,
        task=task.id,
        kind=step.kind,
        attempt=attempt_number,
        key=key,
        action_digest=definition_digest(step),
        idempotent=step.idempotent,
        boot_id=locks.boot_id(),
        before=prepared.before,
        before_complete=prepared.before_complete,
        astray=prepared.astray[:NAMES_IN_EVENT_MAX],
        after_sha256=prepared.after_sha256,
        after_mode=prepared.after_mode,
        target=prepared.target,
    )


def record_done(
    run: Held,
    task: Task,
    step: Step,
    started: ev.StepStarted,
    done: Done,
    *,
    took_ms: int,
    durable: bool,
    settled: bool = False,
    before: tuple[ev.Known, ...] = (),
    actor: str = "system",
    following: Step | None = None,
) -> None:
    """The completion, its task's completion, the checkpoint and the start of a following read, in one transaction."""
    session = run.session
    assert session.records is not None
    own = attribute(run, step.id, done.files, done.touched)
    seen, files = in_pieces(step.id, started.attempt, own.files)
    duration = done.duration_ms if done.duration_ms is not None else took_ms
    completed = ev.StepCompleted(
        step=step.id,
        task=task.id,
        attempt=started.attempt,
        key=started.key,
        duration_ms=duration,
        settled=settled,
        output=done.output,
        files=files,
        touched=own.touched[:NAMES_IN_EVENT_MAX],
        unrecorded=done.unrecorded,
        result=done.result,
        asked=started.asked,
    )
    task_done = run.closes_task(task)
    task_ms = session.records.task_ms.get(task.id, 0) + duration
    ending = (ev.TaskCompleted(task=task.id, duration_ms=task_ms),) if task_done else ()
    begun = next_read(run, task, following)
    said = run.append(
        *before, *own.accepted, *seen, completed, *ending, *begun, durable=durable, blobs=done.blobs, actor=actor
    )
    run.begun = begun[0] if begun else None
    keep_output(run, step, done)
    run.executed += not settled
    warn_of(run, completed, own)
    run.emit(
        "step_completed",
        seq=said[-1].seq,
        step=step.id,
        duration_ms=duration,
        settled=settled,
        touched=list(own.touched),
        done=session.steps_done,
        total=session.steps_total,
    )
    if task_done:
        run.emit("task_completed", seq=said[-1].seq, task=task.id, duration_ms=task_ms)


def warn_of(run: Held, completed: ev.StepCompleted, own: Attributed) -> None:
    for warning in own.warnings:
        run.warn(warning)
    if completed.unrecorded:
        run.warn(
            f"step {completed.step} left more outputs than are recorded: {completed.unrecorded:,} of them are not"
            " compared before a resume, and a rollback leaves them where they are"
        )


def in_pieces(
    step: str, attempt_number: int, files: tuple[ev.FileState, ...]
) -> tuple[list[ev.FilesSeen], tuple[ev.FileState, ...]]:
    """A command may leave more files than an event can hold: the first ones go ahead in events of their own."""
    if len(files) <= FILES_IN_EVENT_MAX:
        return [], files
    pieces = [files[at : at + FILES_IN_EVENT_MAX] for at in range(0, len(files), FILES_IN_EVENT_MAX)]
    seen = [ev.FilesSeen(step=step, attempt=attempt_number, files=piece) for piece in pieces[:-1]]
    return seen, pieces[-1]


def next_read(run: Held, task: Task, following: Step | None) -> tuple[ev.StepStarted, ...]:
    if following is None:
        return ()
    key = make_key(run.session.session_id, following.id, 1)
    return (start_of(following, task, 1, key, Prepared()),)


def keep_output(run: Held, step: Step, done: Done) -> None:
    """The captured output under the step's name, for the commands that follow; a copy that can always be made again."""
    if done.output is None or done.output.blob is None or run.session.by_program:
        return  # a program is given the output of its commands, and gives it to others itself
    directory = private_outputs(run.site())
    data = done.blobs.get(done.output.blob, ("", None))[1]
    put_output(
        directory, step.id, data if data is not None else run.store.blob(run.session.session_id, done.output.blob)
    )


def record_failure(
    run: Held, started: ev.StepStarted, failed: Failed, took_ms: int, *, error: dict[str, Any] | None = None
) -> None:
    """The failure, and what it means: a step that ended by itself did not take effect; a stopped one is still open.

    error: what a program's function raised, for the program that is told of it again.
    """
    own = attribute(run, started.step, failed.files, failed.touched)
    seen, files = in_pieces(started.step, started.attempt, own.files)
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
        error=error or {},
    )
    events: list[ev.Known] = [*own.accepted, *seen, failure]
    if failed.reason in ("exit", "error"):
        events.append(
            ev.StepSettled(
                step=started.step, attempt=started.attempt, outcome=ev.Settled.NOT_APPLIED, evidence=failure.message
            )
        )
    said = run.append(*events, blobs=failed.blobs)
    for warning in own.warnings:
        run.warn(warning)
    run.emit(
        "step_failed",
        seq=said[-1].seq,
        step=started.step,
        reason=failed.reason,
        message=failure.message,
        exit_status=failed.exit_status,
        output_tail=failed.output.tail if failed.output else "",
        touched=list(own.touched),
    )


def put_back_leftovers(run: Held, step: Step) -> None:
    """An attempt that failed, or that a person settled, left its outputs to look at; now they are put back."""
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
    run.append(*with_what_was_put_back(settled, rolled))
    emit_restored(run, step.id, rolled)


def emit_restored(run: Held, step: str, rolled: RolledBack) -> None:
    if rolled.restored:
        secret = sum(image.secret for image in rolled.saved)
        run.emit(
            "step_rolled_back",
            step=step,
            restored=list(rolled.restored),
            saved=len(rolled.saved),
            saved_until_end=secret,
        )


def with_what_was_put_back(settled: ev.StepSettled, rolled: RolledBack) -> tuple[ev.Known, ...]:
    """The settlement, and before it the files for which it has no room."""
    seen, files = in_pieces(settled.step, settled.attempt, rolled.files)
    named = msgspec.structs.replace(settled, restored=rolled.restored[:NAMES_IN_EVENT_MAX], files=files)
    return (*seen, named)


def retry_after_s(run: Held, step: Step, failed: Failed) -> float | None:
    """Seconds until the next try, or None. The count is in the log, so a resume goes on counting."""
    record = run.session.record(step.id)
    if step.retry is None or record is None or record.status != "failed" or not repeatable(step):
        return None
    return step.retry.backoff_s if record.failures < step.retry.attempts else None


# Gates.


def pass_gate(run: Held, task: Task, step: Step, *, skipped: int) -> Ending:
    """Ask, unless a grant for exactly this is on record; a grant for anything else is none."""
    assert isinstance(step.action, Approve) and run.session.plan is not None and run.session.records is not None
    allowed = allowed_by(run, step)
    question = run.world.redactor.text(step.action.question)
    on_record = run.session.records.approvals.get(step.id)
    if on_record is not None and on_record.granted and on_record.action_digest == allowed.digest:
        open_gate(run, task, step, allowed, before=())
        return None
    why = why_not(run.session, step, on_record, allowed)
    if why is not None:
        run.warn(f"{why}: the question is asked again")
    if run.session.state is not State.AWAITING_APPROVAL:
        run.append(ev.SessionAwaitingApproval(step=step.id, question=question, action_digest=allowed.digest))
    behind = covered_by(execution_order(run.session.plan), step)
    covers = [run.world.redactor.text(describe_in_full(one)) for _, one in behind]
    run.emit("approval_request", step=step.id, question=question, covers=covers)
    match run.world.answers.approve(run.session, step.id, question, covers):
        case "yes":
            allowed = allowed_by(run, step)  # what the person has looked at may have been mended meanwhile
            grant = ev.ApprovalGranted(
                step=step.id, question=question, action_digest=allowed.digest, contents=allowed.contents
            )
            open_gate(run, task, step, allowed, before=(grant,))
            return None
        case "no":
            return deny(run, step, question, allowed.digest, skipped)
        case "stop":
            run.world.stop.press("SIGINT")
            return pause_by_signal(run, skipped)
        case None:
            return wait_for_approval(run, step, question if why is None else f"{question} ({why})", skipped)


def open_gate(run: Held, task: Task, step: Step, allowed: Allowed, *, before: tuple[ev.Known, ...]) -> None:
    """From here on the files behind it are the session's to know: a change by somebody else is seen by a resume."""
    number = run.session.next_attempt(step.id)
    started = ev.StepStarted(
        step=step.id,
        task=task.id,
        kind="approve",
        attempt=number,
        key=make_key(run.session.session_id, step.id, number),
        action_digest=definition_digest(step),
    )
    executing: tuple[ev.Known, ...] = (
        () if run.session.state is State.EXECUTING else (ev.SessionExecuting(reason="approved"),)
    )
    record_done(
        run,
        task,
        step,
        started,
        Done(files=tuple(state for state in allowed.files if state.sha256 is not None)),
        took_ms=0,
        durable=True,
        before=(*before, *executing),
        actor="user" if before else "system",
    )


def deny(run: Held, step: Step, question: str, allowed: str, skipped: int) -> Result:
    denied = ev.ApprovalDenied(step=step.id, question=question, action_digest=allowed)
    error = ApprovalDenied(
        f"approval denied at {step.id}: {question}",
        hint=f"The session waits at the gate; ask again with: acode resume {short(run.session.session_id)}",
    )
    if aborts(run):
        run.append(denied, ev.SessionFailed(reason="approval denied", step=step.id), actor="user")
        return ending(run, error, "approval_denied", skipped)
    run.append(denied, ev.SessionPaused(reason="denied", step=step.id, message=f"denied: {question}"), actor="user")
    return ending(run, error, "approval_denied", skipped)


def wait_for_approval(run: Held, step: Step, question: str, skipped: int) -> Result:
    name = short(run.session.session_id)
    error = InputRequired(
        f"step {step.id} needs an approval and nobody can be asked: {question}",
        hint=f"Answer with: acode session approve {name} (or deny), then: acode resume {name}",
        gate=step.id,
    )
    return ending(run, error, "approval_required", skipped)


# Endings.


def aborts(run: Held) -> bool:
    return run.session.plan is not None and run.session.plan.on_failure == "abort"


def stop_at_failure(run: Held, step: Step, failed: Failed, skipped: int) -> Result:
    message = run.world.redactor.text(failed.message)
    if failed.reason == "signal" and run.world.stop.at_boundary():
        return pause_by_signal(run, skipped)
    if failed.reason == "timeout":
        error: AcodeError = StepTimeout(f"step {step.id}: {message}", step=step.id)
        paused = ev.SessionPaused(
            reason="timeout", interruption=ev.InterruptionClass.TIMEOUT, step=step.id, message=message
        )
    else:
        error = StepFailed(f"step {step.id}: {message}", step=step.id, exit_status=failed.exit_status)
        paused = ev.SessionPaused(
            reason="step_failed", interruption=ev.InterruptionClass.TOOL_FAILURE, step=step.id, message=message
        )
    if aborts(run):
        run.append(ev.SessionFailed(reason=message, step=step.id))
    else:
        run.append(paused)
    error.hint = mending(run.session, error, retries_unknown=retries_unknown(run.world))
    return ending(run, error, "step_failed", skipped)


def pause_by_signal(run: Held, skipped: int) -> Result:
    """A person wanted it: no interruption class, no cool-down, no attempt used."""
    if run.world.stop.lost is not None:
        return pause_for_loss(run, run.world.stop.lost, skipped)
    signal = run.world.stop.signal or "SIGINT"
    if run.session.state is not State.PAUSED:
        run.append(
            *not_begun(run),
            ev.SessionPaused(reason="user" if signal == "SIGINT" else "signal", signal=signal),
            actor="user",
        )
    return ending(run, None, "paused_by_user", skipped, exit_code=130 if signal == "SIGINT" else 143)


def pause_for_loss(run: Held, error: AcodeError, skipped: int) -> Result:
    """Another machine has the session. What was done here is recorded here; a person decides which history stays."""
    if run.session.state is not State.PAUSED:
        run.append(*not_begun(run), ev.SessionPaused(reason="lease_lost", message=error.message))
    return ending(run, error, "lease_lost", skipped)


def not_begun(run: Held) -> tuple[ev.Known, ...]:
    """A read whose start was said ahead, and which a person stopped before it was read."""
    if run.begun is None:
        return ()
    begun, run.begun = run.begun, None
    return (
        ev.StepSettled(
            step=begun.step, attempt=begun.attempt, outcome=ev.Settled.NOT_APPLIED, evidence="paused before it was read"
        ),
    )


def complete(run: Held, skipped: int, *before: ev.Known) -> Result:
    """The end."""
    run.append(*before, ev.SessionCompleted(executed_steps=run.executed))
    return ending(run, None, "completed", skipped, exit_code=0)


def ending(run: Held, error: AcodeError | None, reason: str, skipped: int, *, exit_code: int | None = None) -> Result:
    session = run.session
    return Result(
        session_id=session.session_id,
        state=session.state,
        exit_code=exit_code if exit_code is not None else (error.exit_code if error else 0),
        reason_code=reason,
        executed_steps=run.executed,
        skipped_steps=skipped,
        remaining_steps=session.steps_total - session.steps_done,
        next_action=way_on(session, error, retries_unknown=retries_unknown(run.world)),
        error=error,
    )

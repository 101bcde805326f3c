"""Resume a session: lock, fold, survey, decide, validate, plan, settle, step, step, checkpoint. There is no second way
through the engine.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.accept_changes import accept_changes, files_that_are
from acode.engine.disk_full import paused_if_disk_fails
from acode.engine.endings import complete, ending
from acode.engine.environment import Report, changed_files, validate
from acode.engine.held_session import Held, held, refuse_unknown_events
from acode.engine.lease_state import sync_state
from acode.engine.missing_checkpoint import missing_checkpoint_on_record
from acode.engine.next_action import failure_hint, next_command, session_hint
from acode.engine.remediation import remedy
from acode.engine.replace_plan import foresee, refuse_unfit_plan, replace_plan
from acode.engine.rollback import refuse_half_undone
from acode.engine.settle import (
    ask_about_unknowns,
    ask_how,
    end_where_it_failed,
    is_choice,
    not_repeated_automatically,
    note_unknown,
    record_decision,
    settle_flights,
    unknown_error,
)
from acode.engine.shared_paths import with_sessions
from acode.engine.survey import Survey, missing_artifacts, retries_unknown, survey
from acode.engine.walk import Walk, perform_all
from acode.engine.world import Options, Result, World, short
from acode.errors import (
    AcodeError,
    CannotContinue,
    CoolingDown,
    EnvironmentInvalid,
    Escalated,
    MissingArtifacts,
    RecoveryTimeout,
    RefusedByPolicy,
    StepFailed,
)
from acode.events import types as ev
from acode.hints import Command, Force, Hint, Resume
from acode.plan import Action
from acode.policy import Reason, counted
from acode.state import Session, State
from acode.steps.step_outputs import holds_output, private_outputs, put_output
from acode.workspace import ChangedFile, changed


def resume(
    world: World,
    text: str,
    options: Options,
    walk: Walk = perform_all,
    call_program: Callable[[Session], Result] | None = None,
) -> Result:
    """Resume the session named `text` from the end of its log.

    `walk` performs the remaining steps: those of the plan, or of the session's other source of steps. A program's
    session is released and left to `call_program`: the program, called again, holds it itself.
    """
    with missing_checkpoint_on_record(world, options), held(world, text, wait=options.wait) as run:
        if call_program is None or not run.session.steps_from.asked:
            refuse_to_walk_alone(run, walk)
            found, options = make_ready(run, options)
            return paused_if_disk_fails(run, lambda: settle_and_perform(run, found, options, walk))
        session = run.session
    return call_program(session)


def make_ready(run: Held, options: Options) -> tuple[Survey, Options]:
    """Everything before the first step. A program that resumes its own session begins in the same way."""
    if options.reason:  # a person's words go into events
        options = msgspec.structs.replace(options, reason=run.world.redactor.text(options.reason))
    began = run.world.monotonic()
    refuse_unfit_plan(run.world, run.session, options)
    announce(run)
    accept_unknown_events(run, options)
    refuse_half_undone(run.session)
    back_up(run)
    found, options = look_around(run, options)
    ahead, found = foresee(run.world, run.session, found, options)
    decide_on_record(run, found, options)
    report = check_environment(run, ahead, found, options)
    start_on_record(run, found, report, options)
    refuse_slow_recovery(run, began)
    return found, options


def settle_and_perform(run: Held, found: Survey, options: Options, walk: Walk) -> Result:
    skipped = len(found.continuation.skipped_steps)
    stopped = settle_flights(run, found, options, skipped)
    if stopped is None:
        stopped = end_where_it_failed(run, skipped)
    if stopped is not None:
        return stopped
    replace_plan(run, options)
    # A step that was waited for was not done when the others were counted, and nobody executed it here.
    skipped += sum(one.action is Action.WAIT and run.session.done(one.step) for one in found.continuation.in_flight)
    restore_outputs(run)
    result = walk(run, skipped, finish_resume)
    return escalate_if_due(run, result)


def refuse_to_walk_alone(run: Held, walk: Walk) -> None:
    """The session of a foreign run gets its tasks from there; its plan alone would end too early.

    A program's session has no plan at all: only the program knows its steps.
    """
    if run.session.steps_from.asked and walk is perform_all:
        raise CannotContinue(
            f"session {short(run.session.session_id)} belongs to a program, which asks for its steps itself",
            hint="Run the program again; with the same key it resumes the session.",
        )
    if run.session.steps_from.carries_run and walk is perform_all:
        raise CannotContinue(
            f"session {short(run.session.session_id)} belongs to the {run.session.source} run {run.session.run_id}, and"
            " that run is not here",
            hint=Hint("Bring the run's files back, or give the session up: {}", Command("session abandon")),
        )


def announce(run: Held) -> None:
    run.emit(notices.reopened(run.session))
    for warning in run.warnings:
        run.emit(notices.RunWarning(message=warning))


def accept_unknown_events(run: Held, options: Options) -> None:
    """An unknown event may be a revocation; continuing past it is a person's recorded decision."""
    if not run.session.unknown_types:
        return
    if not options.lenient:
        refuse_unknown_events(run.session)
    names = ", ".join(sorted(set(run.session.unknown_types.values())))
    run.warn(f"events of unknown type are skipped: {names}")
    run.append(
        ev.Forced(what=f"unknown events skipped: {names}", reason=options.reason or "none given"), actor=options.actor
    )


def back_up(run: Held) -> None:
    """A copy of the database before anything changes, where the user wants one; by SQLite's own means."""
    if run.world.config.settings.resume.backup:
        target = run.store.back_up()
        run.emit(notices.Backup(path=str(target)))


def look_around(run: Held, options: Options) -> tuple[Survey, Options]:
    """The survey; a person at the terminal settles what no evidence can, or says how, and then it is looked again."""

    def look(how: Options) -> Survey:
        missing = missing_artifacts(run.store, run.session)
        return survey(
            run.world, run.session, run.site(), how, lock_touched_at=run.owner_seen_at, artifacts_missing=missing
        )

    found = look(options)
    asks = options.actor == "user" and found.continuation.needs_person
    if asks and ask_about_unknowns(run, found.continuation.in_flight, found.findings):
        found = look(options)
    open_how = [one for one in found.continuation.in_flight if one.action is Action.ASK and is_choice(one)]
    if asks and open_how and (strategy := ask_how(run, open_how[0])) is not None:
        options = msgspec.structs.replace(options, strategy=strategy)
        found = look(options)
    return found, options


# The decision.


def decide_on_record(run: Held, found: Survey, options: Options) -> None:
    """The decision, and what follows from a refusal: an escalation, the unknown outcomes, the error."""
    decision = found.decision
    record_decision(run, found.interruption, decision)
    if not decision.eligible:
        if decision.reason is Reason.LIMIT and not run.session.escalated:
            escalate(run, decision.reason)
        if found.continuation.needs_person:
            for settlement in found.continuation.in_flight:
                if settlement.action is Action.ASK:
                    note_unknown(run, settlement)
        raise refusal(run, found)
    if options.force:
        what = "attempt limit" if counted(run.session, run.world.limits) >= decision.attempts_max else "changed files"
        run.append(ev.Forced(what=what, reason=options.reason or "none given"), actor=options.actor)


def refusal(run: Held, found: Survey) -> AcodeError:
    """The reason code as an error: the refusal, its reason, and the hint."""
    decision, name = found.decision, short(run.session.session_id)
    details = {"reason_code": str(decision.reason), "session_id": run.session.session_id}
    broken = next((rule for rule in decision.rules if not rule.met and rule.reason is decision.reason), None)
    because = broken.because if broken else ""
    match decision.reason:
        case Reason.MISSING_ARTIFACTS:
            return MissingArtifacts(
                f"session {name} cannot be resumed: {because}",
                hint=session_hint(
                    run.session,
                    "Bring .agent/blobs back from a backup; or give it up: {}",
                    Command("session abandon SESSION"),
                ),
                **details,
            )
        case Reason.LIMIT:
            return Escalated(
                f"session {name} is escalated: {because}; it needs a person",
                hint=session_hint(
                    run.session, "Read why: {}. When it is fixed: {}", Command("explain SESSION"), Force()
                ),
                remedy=msgspec.to_builtins(remedy(run.session, drifted(run))),
                **details,
            )
        case Reason.NON_IDEMPOTENT:
            unknown = next((one for one in found.continuation.in_flight if one.action is Action.ASK), None)
            if unknown is not None:
                return unknown_error(run.session, unknown, reason_code=details["reason_code"])
            step = found.unsafe_step or run.session.last_attempted
            return not_repeated_automatically(run, step, because, reason_code=str(decision.reason))
        case Reason.COOLDOWN:
            return CoolingDown(
                f"session {name} is cooling down: {decision.cooldown_s_remaining} s remain",
                hint=session_hint(
                    run.session,
                    f"Try again in {decision.cooldown_s_remaining} s, or as a person now: {{}}",
                    Resume(in_person=True),
                ),
                cooldown_seconds_remaining=decision.cooldown_s_remaining,
                **details,
            )
        case _:
            return RefusedByPolicy(
                f"session {name} is not resumed automatically: {because}",
                hint=session_hint(run.session, "A person may: {}", Resume(in_person=True)),
                **details,
            )


def escalate(run: Held, reason: str) -> None:
    """The limit is reached: from here on a person must look, and finds what failed last."""
    failure = run.session.failure
    context = msgspec.to_builtins(failure) if failure is not None else {}
    run.append(
        ev.EscalatedToPerson(
            reason_code=str(reason),
            attempt=run.session.resumes_since_progress,
            step=failure.step if failure else run.session.last_attempted,
            context=context,
        )
    )
    found = remedy(run.session, drifted(run))
    run.emit(notices.Escalated(reason_code=str(reason), context=context, remedy=found))


def drifted(run: Held) -> tuple[ChangedFile, ...]:
    """Files that are not as the session left them; where they cannot be examined, the failure itself is still
    reported.
    """
    assert run.session.records is not None
    try:
        return changed(run.root, run.session.records.manifest)
    except AcodeError:
        return ()


def escalate_if_due(run: Held, result: Result) -> Result:
    """An attempt that failed and was the last one leaves an escalated session behind, not one that looks resumable."""
    limits = run.world.limits
    failed = result.error is not None and run.session.pause is not None and run.session.pause.interruption is not None
    if failed and counted(run.session, limits) >= limits.attempts_max and not run.session.escalated:
        escalate(run, Reason.LIMIT)
    unknown_too = retries_unknown(run.world)
    if run.session.escalated and isinstance(result.error, StepFailed) and not run.session.steps_from.asked:
        result.error.give_hint(failure_hint(run.session, result.error, retries_unknown=unknown_too))
    way = next_command(run.session, result.error, retries_unknown=unknown_too)
    return msgspec.structs.replace(result, next_action=way)


# The environment.


def check_environment(run: Held, session: Session, found: Survey, options: Options) -> Report | None:
    """The mismatches; None where a person chose to skip the check. `session`: with the plan to come."""
    settings = run.world.config.settings.resume
    wanted = options.validate_environment if options.validate_environment is not None else settings.validate_environment
    if not wanted:
        run.append(ev.ValidationSkipped(reason=options.reason or "none given"), actor=options.actor)
        run.warn("the environment is not validated: the workspace may not be the one the session left")
        note_changed_before(run, session, found.continuation.pending)
        return None
    report = validate(
        run.world,
        session,
        run.site(),
        pending=found.continuation.pending,
        lenient=options.lenient or settings.validation == "lenient",
    )
    run.emit(notices.EnvironmentChecked(report=report))
    name = short(run.session.session_id)
    if report.errors and not options.force:
        raise EnvironmentInvalid(
            f"session {name} cannot be resumed here: " + "; ".join(one.message for one in report.errors),
            hint=session_hint(
                run.session,
                "Look: {}. Fix it and resume, use {}, or start a new session.",
                Command("resume --dry-run SESSION"),
                Force(why=False, only_flag=True),
            ),
            mismatches=[msgspec.to_builtins(one) for one in report.errors],
        )
    if report.changed_files:
        accept_changes(run, report, options)
    return report


def note_changed_before(run: Held, session: Session, pending: tuple[str, ...]) -> None:
    """Without validation nothing is shown or refused, but what others changed until now is no work of the next step."""
    try:
        changes = changed_files(session, run.site(), pending)
    except (AcodeError, OSError) as error:
        run.warn(f"changes made by others before this resume may be reported as those of a step: {error}")
    else:
        run.changed_before = {one.path: one.found_hash for one in changes}


# On with it.


def start_on_record(run: Held, found: Survey, report: Report | None, options: Options) -> None:
    """The plan is logged before anything of it is executed."""
    continuation, session = found.continuation, run.session
    sync = sync_state(run.world, run.store, session.session_id)
    action = continuation.in_progress.action if continuation.in_progress else None
    started = ev.ResumeStarted(
        scenario=str(found.scenario),
        interruption_class=found.interruption.cls,
        counted=(found.interruption.cls is not None or not found.interruption.known) and not options.force,
        automatic=options.actor == "system",
        checkpoint_id=run.journal.checkpoint_id,
        point_seq=found.point.seq if found.point else None,
        point_event_id=session.id_of(found.point) if found.point else None,
        skipped_tasks=len(continuation.skipped_tasks),
        skipped_steps=len(continuation.skipped_steps),
        remaining_steps=len(continuation.pending),
        in_progress_action=str(action) if action else None,
        environment_valid=report.valid if report is not None else None,
        replay_last=session.seq,
        owner=locks.owner(),
    )
    executing: tuple[ev.Known, ...] = ()
    if session.state in (State.PAUSED, State.PLANNING):
        executing = (ev.SessionExecuting(reason="resume"),)
    said = run.append(started, *executing, actor=options.actor)
    run.emit(
        notices.ResumeStarted(
            started=started,
            state=str(session.state),
            skipped_task_ids=list(continuation.skipped_tasks),
            skipped_step_ids=list(continuation.skipped_steps),
            remaining_step_ids=list(continuation.pending),
            sync=sync,
            task_ms=dict(session.records.task_ms) if session.records else {},
        ),
        seq=said[0].seq,
    )


def refuse_slow_recovery(run: Held, began: float) -> None:
    limit = run.world.config.settings.resume.recovery_timeout_seconds
    took = run.world.monotonic() - began
    if took > limit:
        error = RecoveryTimeout(f"recovery took {took:.0f} s, the limit is {limit:g} s; nothing was executed")
        run.append(ev.SessionPaused(reason="error", interruption=ev.InterruptionClass.TIMEOUT, message=error.message))
        raise error


def restore_outputs(run: Held) -> None:
    """The outputs of finished steps are the variables of those to come: exactly these, and as the log has them."""
    assert run.session.records is not None
    directory = private_outputs(run.site())
    wanted = {step: output.blob for step, output in run.session.records.outputs.items() if output.blob is not None}
    for path in directory.iterdir():
        if path.name not in wanted:
            path.unlink()  # of a step that was rolled back, wholly or in part
    for step, blob in wanted.items():
        if not holds_output(directory, step, blob):
            put_output(directory, step, run.store.blob(run.session.session_id, blob))


def finish_resume(run: Held, skipped: int) -> Result:
    """Nothing is left to do: check once more that the workspace is what the log says, then end."""
    assert run.session.records is not None
    differing = changed(run.root, run.session.records.manifest)
    mismatches = with_sessions(run.store, run.session, run.root, differing)
    if not mismatches:
        result = complete(run, skipped, ev.ResumeCompleted(executed_steps=run.executed, skipped_steps=skipped))
        executed = result.executed_steps
        run.emit(notices.ResumeCompleted(state=str(result.state), executed_steps=executed, skipped_steps=skipped))
        return result
    names = ", ".join(one.path for one in mismatches[:5])
    error = EnvironmentInvalid(
        f"after the resume {files_that_are(mismatches, '', 'is', 'are')} not what the session wrote: {names}",
        hint=session_hint(run.session, "Look: {}. To accept them: {}", Command("explain SESSION"), Force(why=False)),
        mismatches=[msgspec.to_builtins(one) for one in mismatches],
    )
    run.append(
        ev.SessionPaused(reason="environment", interruption=ev.InterruptionClass.TOOL_FAILURE, message=error.message)
    )
    escalate(run, "post_resume_validation_failed")
    return ending(run, error, "post_resume_validation_failed", skipped)

"""Settle the steps in flight: the continuation says how, the log says that it was done.

A settlement is recorded before the step is touched again, so a crash in the middle of settling is itself settled by
the next start: every rollback here can be run twice.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from acode import lock as locks
from acode.engine import notices
from acode.engine.endings import aborts, ending, pause_by_signal, stop_at_failure
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.step import end, fail, failures_of, start_of, wait
from acode.engine.step_files import emit_restored, with_restored
from acode.engine.survey import (
    Survey,
    chosen_strategy,
    failed_steps,
    look_at,
    retries_unknown,
    step_named,
    unsafe_to_repeat,
)
from acode.engine.walk import retry_after_s
from acode.engine.world import SETTLED_BY_ANSWER, Options, Result
from acode.errors import AcodeError, OutcomeUnknown, StepStillRunning
from acode.events import types as ev
from acode.events.definition import Step
from acode.hints import ChooseStrategy, Resolve, Resume
from acode.plan import Action, Finding, Outcome, Settlement, Strategy, settle
from acode.policy import Decision, Facts, decide
from acode.resume_point import Interruption
from acode.state import Session, State
from acode.steps import kind_of
from acode.steps import run as commands
from acode.steps.interface import Failed
from acode.steps.keeper_notes import read_status, run_directory


def settle_flights(run: Held, found: Survey, options: Options, skipped: int = 0) -> Result | None:
    """Each step in flight, in the order in which they were started; a Result where the run cannot continue."""
    interruption, strategy = found.interruption, chosen_strategy(run.world, options)
    for planned in found.continuation.in_flight:
        settlement = planned
        if settlement.action is Action.WAIT:
            waited = wait_for_command(run, settlement, skipped)
            if waited is not None:
                return waited
            finding = look_at(step_named(run.session, settlement.step), run.site(), run.session)
            settlement = settle(
                settlement.step, settlement.kind, finding, strategy=strategy, retry_unknown=retries_unknown(run.world)
            )
            because = unsafe_to_repeat(run.session, settlement.step, finding)
            if because is not None and options.actor == "system" and not run.session.steps_from.told_of_ends:
                # The decision to resume was made while it ran, and allowed no second time.
                settle_one(run, msgspec.structs.replace(settlement, action=Action.ASK))
                return refuse_repeat(run, settlement, interruption, because, skipped)
            if settlement.action is Action.ASK and is_choice(settlement):
                how = ask_how(run, settlement) or strategy
                settlement = settle(settlement.step, settlement.kind, finding, strategy=how, retry_unknown=False)
        if settlement.action is Action.ASK:
            return leave_open(run, settlement, interruption, skipped)
        settle_one(run, settlement)
    return None


def settle_one(run: Held, settlement: Settlement, *, actor: str = "system", note: str = "") -> None:
    step = step_named(run.session, settlement.step)
    started = run.session.in_flight[step.id].started
    kind, site = kind_of(started.kind), run.site()
    has_failed = failed_by_itself(run, settlement)
    ends_with_it = has_failed and aborts(run) and step.retry is None
    run.emit(
        notices.StepSettled(
            kind=settlement.kind,
            outcome=str(settlement.outcome),
            action="end" if ends_with_it else str(settlement.action),
            evidence=settlement.evidence,
        ),
        step=step.id,
    )
    if settlement.action is Action.SKIP:
        record_applied(run, step, started, evidence=settlement.evidence, note=note, actor=actor)
        return
    forestall(run, started)
    failed = commands.collect(step, site, started) if has_failed else None
    if isinstance(failed, Failed) and run.session.steps_from.told_of_ends:
        record_ended(run, step, started, failed, evidence=settlement.evidence)
        return
    if isinstance(failed, Failed) and run.session.in_flight[step.id].stopped is None:
        fail(run, started, failed)
        return
    rolled = (
        kind.roll_back(step, site, started)
        if settlement.action is Action.ROLLBACK_AND_RETRY or settlement.kind == "write"
        else None
    )
    settled = ev.StepSettled(
        step=step.id,
        attempt=started.attempt,
        outcome=settled_as(settlement),
        evidence=settlement.evidence,
        note=note,
    )
    run.append(*(with_restored(settled, rolled) if rolled else (settled,)), actor=actor)
    if rolled is not None:
        emit_restored(run, step.id, rolled)


def record_ended(run: Held, step: Step, started: ev.StepStarted, failed: Failed, *, evidence: str) -> None:
    """In an agent's session a command that failed has been run: the model gets its end, and continues."""
    event = ev.StepSettled(step=step.id, attempt=started.attempt, outcome=ev.Settled.APPLIED, evidence=evidence)
    done = commands.as_ended(failed)
    end(run, step, started, done, settled=True, before=(event,))


def forestall(run: Held, started: ev.StepStarted) -> None:
    """Keep an attempt that will be repeated from beginning late."""
    if started.kind == "run" and not commands.forestall(run.site(), started):
        raise StepStillRunning(
            f"the command of step {started.step} is just being started by another process",
            hint=session_hint(run.session, "Wait a moment, then: {}", Resume()),
            step=started.step,
        )


def failed_by_itself(run: Held, settlement: Settlement) -> bool:
    """The command ended with a status of its own after acode had died: that is a failed step like any other."""
    if settlement.kind != "run" or settlement.outcome is not Outcome.NOT_APPLIED:
        return False
    started = run.session.in_flight[settlement.step].started
    status = read_status(run_directory(run.world.agent_dir, started.key))
    return status is not None and status.by_itself and status.exit != 0


def settled_as(settlement: Settlement) -> ev.Settled:
    if settlement.action is Action.ROLLBACK_AND_RETRY and settlement.outcome is not Outcome.UNKNOWN:
        return ev.Settled.ROLLED_BACK
    return ev.Settled.NOT_APPLIED if settlement.outcome is Outcome.NOT_APPLIED else ev.Settled.RETRY_ACCEPTED


def wait_for_command(run: Held, settlement: Settlement, skipped: int) -> Result | None:
    """The command, or a transaction on a server, lives on without its acode: wait for it, visibly; never start it again
    beside itself."""
    step = step_named(run.session, settlement.step)
    run.emit(notices.StepWaiting(evidence=settlement.evidence), step=step.id)
    started = run.session.in_flight[step.id].started
    if ends_in_time(run, step, started):
        return None
    # Without this, waiting three times for a command that takes its time would look like three failures.
    run.append(ev.ResumeWithdrawn(step=step.id, evidence=settlement.evidence))
    if run.world.stop.at_boundary():
        return pause_by_signal(run, skipped)
    error = StepStillRunning(
        f"step {step.id} still runs after its timeout: {settlement.evidence}",
        hint=session_hint(run.session, "Stop it or wait for it, then: {}", Resume()),
        step=step.id,
    )
    return ending(run, error, "step_still_running", skipped)


def ends_in_time(run: Held, step: Step, started: ev.StepStarted) -> bool:
    site = run.site()
    if started.performer is not None and (not performer_ends(run, step, started.performer) or started.kind != "run"):
        return not locks.alive(started.performer)
    if started.kind == "sql":
        from acode.steps.sql import wait_for_end

        return wait_for_end(step, site, started)
    return commands.wait_for_end(step, site, started)


def performer_ends(run: Held, step: Step, performer: ev.Performer) -> bool:
    """Whether the process that performs the step ends within the step's time; a person who stops the wait is heard."""
    until = run.world.monotonic() + (step.timeout_s or run.world.config.settings.steps.timeout_seconds)
    while locks.alive(performer):
        left = until - run.world.monotonic()
        if left <= 0 or wait(run, min(left, 1.0)):
            return False
    return True


def end_where_it_failed(run: Held, skipped: int) -> Result | None:
    """A plan that ends with its first failure ends with this one too: acode had died before it saw it, or said so."""
    if not aborts(run):
        return None
    failure = run.session.failure
    for name in failed_steps(run.session):
        if run.session.steps_from.asked and (failure is None or failure.step != name):
            continue  # its program has handled it, or will be given it again
        step = step_named(run.session, name)
        if retry_after_s(run, step, failures_of(run, name)) is not None:
            continue
        failed = Failed(reason="error", message="it failed")  # and the failure of another task is the last on record
        if failure is not None and failure.step == name:
            how: Literal["exit", "error"] = "exit" if failure.reason == "exit" else "error"
            failed = Failed(reason=how, message=failure.message, exit_status=failure.exit_status)
        return stop_at_failure(run, step, failed, skipped)
    return None


def refuse_repeat(run: Held, settlement: Settlement, interruption: Interruption, because: str, skipped: int) -> Result:
    """An automatic attempt waited for a command that then failed: as if it had come after its end, it is refused."""
    run.append(ev.ResumeWithdrawn(step=settlement.step, evidence=because))
    decision = decide(
        run.session,
        interruption,
        run.world.limits,
        now=run.world.clock(),
        actor="system",
        facts=Facts(unsafe_step=settlement.step, unsafe_because=because),
    )
    paused = ev.SessionPaused(
        reason="step_failed",
        interruption=ev.InterruptionClass.TOOL_FAILURE,
        step=settlement.step,
        message=settlement.evidence,
    )
    run.append(decision_event(run, interruption, decision), paused)
    step, reason = settlement.step, str(decision.reason)
    error = not_repeated_automatically(run, step, f"{step}: {because}", reason_code=reason)
    return ending(run, error, str(decision.reason), skipped)


def decision_event(run: Held, interruption: Interruption, decision: Decision) -> ev.ResumeDecision:
    return ev.ResumeDecision(
        run_id=run.session.session_id,
        interruption_class=interruption.cls,
        eligible=decision.eligible,
        reason_code=str(decision.reason),
        cooldown_seconds_remaining=decision.cooldown_s_remaining,
        attempt=decision.attempt,
        max_attempts=decision.attempts_max,
        at=run.world.clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
        actor=decision.actor,
    )


def record_decision(run: Held, interruption: Interruption, decision: Decision) -> None:
    """Every decision is an event, also a refusal; a refusal changes no counter."""
    said = run.append(decision_event(run, interruption, decision), actor=decision.actor)
    run.emit(
        notices.ResumeDecision(
            eligible=decision.eligible,
            reason_code=str(decision.reason),
            attempt=decision.attempt,
            max_attempts=decision.attempts_max,
            cooldown_seconds_remaining=decision.cooldown_s_remaining,
            advice=[rule.because for rule in decision.advice],
        ),
        seq=said[0].seq,
    )


def not_repeated_automatically(run: Held, step: str | None, because: str, **details: str) -> AcodeError:
    way = session_hint(run.session, "A person may retry it: {}", Resume())
    record = run.session.record(step) if step is not None else None
    if step is not None and (step in run.session.in_flight or (record is not None and record.status == "failed")):
        text = "A person may retry it: {}; or settle it: {}"
        way = session_hint(run.session, text, Resume(), Resolve(step))
    return OutcomeUnknown(
        f"the last attempted step may not be repeated automatically: {because}",
        hint=way,
        session_id=run.session.session_id,
        **details,
    )


def is_choice(settlement: Settlement) -> bool:
    """The evidence shows its outcome; only the way to continue is open, under the strategy `prompt`."""
    return settlement.outcome is not Outcome.UNKNOWN


def ask_how(run: Held, settlement: Settlement) -> Strategy | None:
    """The strategy `prompt`: a person chooses between rollback and retry; None if nobody does."""
    answer = run.world.answers.strategy(settlement)
    return Strategy(answer) if answer in ("rollback", "retry") else None


def leave_open(run: Held, settlement: Settlement, interruption: Interruption, skipped: int) -> Result:
    """Its outcome is unknown: the session waits for a person."""
    error = note_unknown(run, settlement)
    if run.session.state is not State.PAUSED:
        run.append(
            ev.SessionPaused(
                reason="outcome_unknown", interruption=interruption.cls, step=settlement.step, message=error.message
            )
        )
    return ending(run, error, "resume_non_idempotent_step", skipped)


def note_unknown(run: Held, settlement: Settlement) -> AcodeError:
    """Record once that the evidence says nothing, and say who must decide."""
    flight = run.session.in_flight[settlement.step]
    if flight.unknown is None and settlement.outcome is Outcome.UNKNOWN:
        run.append(
            ev.StepSettled(
                step=settlement.step,
                attempt=flight.started.attempt,
                outcome=ev.Settled.UNKNOWN,
                evidence=settlement.evidence,
            )
        )
    return unknown_error(run.session, settlement)


def unknown_error(session: Session, settlement: Settlement, **details: str) -> AcodeError:
    step = settlement.step
    if is_choice(settlement):
        return OutcomeUnknown(
            f"step {settlement.step} was in flight, and a person chooses how to continue: {settlement.evidence}",
            hint=session_hint(session, "Choose: {}", ChooseStrategy(step)),
            step=step,
            evidence=settlement.evidence,
            **details,
        )
    return OutcomeUnknown(
        f"step {settlement.step} was in flight and its outcome is unknown: {settlement.evidence}",
        hint=session_hint(
            session,
            "Find out whether it took effect, then state it: {}; then: {}",
            Resolve(step, in_words=True),
            Resume(),
        ),
        step=step,
        evidence=settlement.evidence,
        **({"last_output": settlement.last_output} if settlement.last_output else {}),
        **details,
    )


def ask_about_unknowns(run: Held, settlements: tuple[Settlement, ...], findings: dict[str, Finding]) -> bool:
    """A person at the terminal settles what no evidence can; True if anything was settled."""
    settled_any = False
    for settlement in settlements:
        if settlement.action is not Action.ASK or findings[settlement.step].outcome is not Outcome.UNKNOWN:
            continue
        answer = run.world.answers.unknown_outcome(settlement)
        if answer in (None, "stop"):
            continue
        resolve(run, settlement.step, str(answer), evidence="answered at the terminal", note="")
        settled_any = True
    return settled_any


def resolve(run: Held, step_id: str, answer: str, *, evidence: str, note: str) -> None:
    """A person's word on a step: recorded with its actor, and from then on as good as evidence."""
    step = step_named(run.session, step_id)
    flight, record = run.session.in_flight.get(step_id), run.session.record(step_id)
    started = flight.started if flight else None
    number = started.attempt if started else (record.attempt if record else 1)
    outcome = SETTLED_BY_ANSWER[answer]
    if outcome is not ev.Settled.APPLIED:
        if started is not None:
            forestall(run, started)
        if started is not None and started.kind == "write":
            kind_of("write").roll_back(step, run.site(), started)  # the file stays; what its writer left beside it goes
        settled = ev.StepSettled(
            step=step_id, attempt=number, outcome=outcome, evidence=evidence, note=note, via=run.world.via
        )
        run.append(settled, actor="user")
        return
    if started is None:  # it failed by itself, and a person has repaired it by hand since
        started, _ = start_of(run, step, attempt=number)
    record_applied(run, step, started, evidence=evidence, note=note, actor="user")


def record_applied(run: Held, step: Step, started: ev.StepStarted, *, evidence: str, note: str, actor: str) -> None:
    """It took effect: completed with the record of an undisturbed run, and with the origin of the evidence."""
    outcome = ev.Settled.APPLIED
    via = run.world.via if actor == "user" else ""
    event = ev.StepSettled(
        step=step.id, attempt=started.attempt, outcome=outcome, evidence=evidence, note=note, via=via
    )
    done = kind_of(started.kind).adopt(step, run.site(), started)
    end(run, step, started, done, settled=True, before=(event,), actor=actor)

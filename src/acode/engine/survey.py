"""Survey a session before a decision: the end of the last run, the outcome of the steps in flight, the remaining steps.
Nothing here changes anything. `preview` and `resume` make the same survey with the same functions, so that a dry run
shows the decisions of a resume.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from acode import lock as locks
from acode.engine.world import Options, World
from acode.errors import AcodeError, CannotContinue, IdempotencyConflict
from acode.events import types as ev
from acode.events.definition import Call, Run, Step
from acode.plan import Action, Continuation, Finding, Outcome, Strategy, continue_plan, repeatable
from acode.plan_replacement import Replacement
from acode.policy import Decision, Facts, decide, refused_by_lock
from acode.resume_point import (
    Interruption,
    Scenario,
    classify,
    detect_scenario,
    find_resume_point,
    half_undone,
    still_running,
)
from acode.state import Mark, Session
from acode.steps import kind_of
from acode.steps.interface import Site
from acode.steps.keeper import CLAIM
from acode.steps.keeper_notes import last_output, read_status, run_directory
from acode.store.store import Store
from acode.store.sync_cursor import cursor_of
from acode.workspace import matching_paths
from acode.workspace.rollback import is_back

PLAN_SNAPSHOT = "plan snapshot"
NOTHING_KNOWN = Continuation(skipped_tasks=(), skipped_steps=(), in_flight=(), pending=())


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known before the first change."""

    scenario: Scenario
    point: Mark | None
    interruption: Interruption
    findings: dict[str, Finding]
    continuation: Continuation
    decision: Decision
    unsafe_step: str | None = None  # one that failed and that automatic attempts may not repeat
    replacement: Replacement | None = None  # of an edited plan; then the continuation is that of the edited one


def survey(
    world: World,
    session: Session,
    site: Site,
    options: Options,
    *,
    lock_touched_at: datetime | None,
    artifacts_missing: tuple[str, ...] = (),
    running: bool = False,
) -> Survey:
    """The whole look, in the order in which a person would ask. `running`: a process holds the session."""
    scenario = detect_scenario(session)
    lost = PLAN_SNAPSHOT in artifacts_missing
    interruption = (
        still_running(session)
        if running
        else classify(
            session, lock_touched_at=lock_touched_at, context_lost="the plan snapshot is gone" if lost else None
        )
    )
    findings = {} if lost else look_at_flights(session, site)
    continuation = (
        NOTHING_KNOWN
        if lost
        else continue_plan(
            session, findings, strategy=chosen_strategy(world, options), retry_unknown=retries_unknown(world)
        )
    )
    facts = facts_of(session, continuation, findings, artifacts_missing)
    decision = decide(
        session,
        interruption,
        world.limits,
        now=world.clock(),
        actor=options.actor,
        facts=facts,
        forced=options.force,
    )
    return Survey(
        scenario=scenario,
        point=find_resume_point(session),
        interruption=interruption,
        findings=findings,
        continuation=continuation,
        decision=refused_by_lock(decision) if running else decision,
        unsafe_step=facts.unsafe_step,
    )


def chosen_strategy(world: World, options: Options) -> Strategy:
    return options.strategy or Strategy(world.config.settings.resume.in_progress_strategy)


def retries_unknown(world: World) -> bool:
    return world.config.settings.resume.unknown_outcome == "retry"


def look_at_flights(session: Session, site: Site) -> dict[str, Finding]:
    """The evidence about each step in flight."""
    return {step_id: look_at(step_named(session, step_id), site, session) for step_id in session.in_flight}


def look_at(step: Step, site: Site, session: Session) -> Finding:
    flight = session.in_flight[step.id]
    started = flight.started
    elsewhere = begun_elsewhere(site, flight.seq, started)
    if elsewhere:  # no finding here is no evidence about the other machine, which has its outputs too
        intact = site.lease is not None and started.before_complete and stands_as_before(site, started, step)
        started = msgspec.structs.replace(started, boot_id="", before_complete=intact)
    if started.performer is not None and not elsewhere and not noted_end(site, started):
        alive = seen_alive(started.performer)
        if alive is not None:
            return alive
    try:
        whole = whole_definition(site.store, session, step, started)
        if whole is None:  # restorable outputs prove nothing where its own probe cannot be asked
            started = msgspec.structs.replace(started, before_complete=False)
        found = kind_of(started.kind).look(whole or without_probe(step), site, started)
        if started.kind == "run" and found.outcome is Outcome.UNKNOWN:
            printed = last_output(run_directory(site.agent_dir, started.key))
            found = msgspec.structs.replace(found, last_output=printed)
        return (
            msgspec.structs.replace(found, evidence=f"begun on another machine; {found.evidence}")
            if elsewhere
            else found
        )
    except IdempotencyConflict:
        raise  # the same key with other content is no missing evidence but a wrong one
    except AcodeError as error:
        return Finding(outcome=Outcome.UNKNOWN, evidence=error.message)


def stands_as_before(site: Site, started: ev.StepStarted, step: Step) -> bool:
    """Whether all outputs of a step are here what they were before it began elsewhere. In a fleet its workspace was
    made anew, and its command is dead: then its effects, which are its outputs, are nowhere."""
    if not isinstance(step.action, Run) or not step.action.outputs:
        return False
    present = matching_paths(site.root, step.action.outputs)
    known = {image.path for image in started.before}
    return (
        not present.unreadable
        and known.issuperset(present.paths)
        and all(is_back(site.root, image) for image in started.before)
    )


def noted_end(site: Site, started: ev.StepStarted) -> bool:
    """Whether a front has noted the end of the command: then it does not matter who of those around it lives."""
    return started.kind == "run" and read_status(run_directory(site.agent_dir, started.key)) is not None


def seen_alive(performer: ev.Performer) -> Finding | None:
    """The finding while the process that performs a step lives; None where it is known to be dead."""
    who = f"{performer.name or 'its process'}, pid {performer.pid}"
    if locks.alive(performer):
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{who}, is alive and performs it", still_running=True)
    if locks.is_in_another_container(performer):
        return Finding(outcome=Outcome.UNKNOWN, evidence=f"{who}, ran in another container: nothing shows its end")
    return None


def begun_elsewhere(site: Site, seq: int, started: ev.StepStarted) -> bool:
    """Whether a step that the log knows from event `seq` ran on another machine: what it left, and what stood there
    before, is there. Rows that came down were written there, unless the command has left its own traces here."""
    taken_seq = cursor_of(site.store, site.session_id).taken_seq
    place = run_directory(site.agent_dir, started.key)
    # The place alone is made before the start is said: one killed in between leaves it, and may begin elsewhere. And
    # the settlement of an attempt puts a directory where its keeper would have put a file.
    claim = place / CLAIM
    ran_here = claim.is_file() if started.place_made else place.exists() and not claim.is_dir()
    return seq <= taken_seq and not ran_here


def leftovers_elsewhere(step: str) -> str:
    return f"the failed attempt of step {step} ran on another machine: what it left in its outputs is there, not here"


def step_named(session: Session, step_id: str) -> Step:
    if session.steps_from.asked:
        return step_asked_for(session, step_id)
    for step in session.steps():
        if step.id == step_id:
            return step
    raise CannotContinue(f"the plan of session {session.session_id[-8:]} has no step {step_id}")


def missing_artifacts(store: Store, session: Session) -> tuple[str, ...]:
    """Files or rows that the log says exist and that a resume would need."""
    assert session.records is not None
    missing = [] if session.plan is not None or session.steps_from.asked else [PLAN_SNAPSHOT]
    for step, output in session.records.outputs.items():
        if output.blob is not None and not store.has_blob(session.session_id, output.blob):
            missing.append(f"output of {step}")
    return tuple(missing)


def step_asked_for(session: Session, step_id: str) -> Step:
    """A step of a program, from its own start: there is no plan to find it in."""
    flight, record = session.in_flight.get(step_id), session.record(step_id)
    started = flight.started if flight else (record.left_behind if record else None)
    if started is not None and started.definition is not None:
        return started.definition
    idempotent = started is not None and started.idempotent
    return Step(id=step_id, action=Call(function=""), idempotent=idempotent)


def whole_definition(store: Store, session: Session, step: Step, started: ev.StepStarted) -> Step | None:
    """The step with the secrets of its probe and its undo, which are never in the log; None where they are gone. The
    masked text in the log must not be executed: it is another command.
    """
    if not started.definition_blob:
        return step
    if not store.has_blob(session.session_id, started.definition_blob):
        return None
    return msgspec.json.decode(store.blob(session.session_id, started.definition_blob), type=Step)


def without_probe(step: Step) -> Step:
    if not isinstance(step.action, Run):
        return step
    return msgspec.structs.replace(step, action=msgspec.structs.replace(step.action, probe=None))


def facts_of(
    session: Session, continuation: Continuation, findings: dict[str, Finding], artifacts_missing: tuple[str, ...]
) -> Facts:
    """The facts that bind the decision: an unknown outcome binds everyone, a failed step only automatic attempts."""
    if session.undoing is not None:
        step, because = session.undoing.step, half_undone(session.undoing)
        return Facts(artifacts_missing=artifacts_missing, unknown_step=step, unsafe_because=because)
    unknown = next((one for one in continuation.in_flight if one.action is Action.ASK), None)
    if unknown is not None:
        return Facts(artifacts_missing=artifacts_missing, unknown_step=unknown.step, unsafe_because=unknown.evidence)
    if PLAN_SNAPSHOT in artifacts_missing:
        return Facts(artifacts_missing=artifacts_missing)
    unsafe, because = _unsafe_failure(session, findings)
    return Facts(artifacts_missing=artifacts_missing, unsafe_step=unsafe, unsafe_because=because)


def _unsafe_failure(session: Session, findings: dict[str, Finding]) -> tuple[str | None, str]:
    """Only the steps attempted last are gated: one that failed by itself and that nothing allows to repeat."""
    found: tuple[str | None, str] = None, ""
    for step in last_attempted(session):
        found = _unsafe_to_attempt(session, step, findings)
        if found[0] is not None:
            return found
    return found


def last_attempted(session: Session) -> tuple[str, ...]:
    """The step attempted last, and before it those of a plan that failed or were cut off beside it."""
    last = session.last_attempted
    beside: list[str] = []
    if not session.steps_from.asked:
        beside = [step for step in (*failed_steps(session), *session.in_flight) if step != last]
    return (*beside, *(() if last is None else (last,)))


def failed_steps(session: Session) -> list[str]:
    if session.records is None:
        return []
    return [step for step, record in session.records.steps.items() if record.status == "failed"]


def _unsafe_to_attempt(session: Session, name: str, findings: dict[str, Finding]) -> tuple[str | None, str]:
    if session.done(name):
        return None, ""
    if session.steps_from.asked and name not in session.in_flight and session.record(name) is None:
        return None, ""  # it is finished: nothing is kept of it but that
    if session.plan is not None and session.plan.on_failure == "abort":
        return None, "the plan ends with its first failure, so that nothing would be repeated"
    step, record = step_named(session, name), session.record(name)
    if repeatable(step):
        return None, f"{name} carries its own evidence or is declared repeatable"
    if record is not None and record.status == "failed" and not record.resume_approved:
        return name, "it failed and is not idempotent, has no probe and no outputs"
    because = unsafe_to_repeat(session, name, findings.get(name))
    return (name, because) if because is not None else (None, "")


def unsafe_to_repeat(session: Session, step_id: str, finding: Finding | None) -> str | None:
    """Why a step that was in flight may not be repeated without a person, although it is known to have failed."""
    if finding is None or finding.outcome is not Outcome.NOT_APPLIED or finding.repeatable:
        return None
    if repeatable(step_named(session, step_id)) or (session.plan is not None and session.plan.on_failure == "abort"):
        return None
    return f"{finding.evidence}, and it is not idempotent"

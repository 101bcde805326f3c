"""Continue with an edited plan: compare it with what was done, refuse what contradicts that, record the change.

Steps in flight are settled by the definitions under which they began, and the leftovers of a failed attempt are rolled
back by them, before the event that replaces the plan. A kill before the event leaves the old plan, a kill behind it the
new one; there is nothing in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acode.engine import notices
from acode.engine.create import holds_secret, keep_plan, refuse_secret_names
from acode.engine.held_session import Held
from acode.engine.next_action import session_hint
from acode.engine.step_files import restore_leftovers
from acode.engine.survey import Survey, chosen_strategy, retries_unknown, step_named
from acode.engine.world import Options, World, short
from acode.errors import AcodeError, PlanConflict, StepStillRunning, Usage
from acode.hints import Approve, Hint, ReplacePlan, Resolve, Rollback
from acode.plan import Settlement, continue_plan
from acode.plan_replacement import Conflict, Replacement, as_replaced, compare_plans, event_of
from acode.state import Session
from acode.steps.declared_secrets import declared_values
from acode.store.journal import Blob

if TYPE_CHECKING:  # a program's session has no plan file, and does not load what reads one
    from acode.planfile import PlanFile

CONFLICTS_SHOWN_MAX = 5


def refuse_unfit_plan(world: World, session: Session, options: Options) -> None:
    """Before anything is told of a resume that would be refused. A step in flight is settled first, then compared."""
    if options.plan is None:
        return
    refuse_other_sources(session)
    if session.plan is not None and not session.in_flight:
        compared(world, session, options.plan)


def foresee(world: World, session: Session, found: Survey, options: Options) -> tuple[Session, Survey]:
    """The session and the survey as they will be with the edited plan; as they are, where none is given.

    An outcome that a person must tell comes first: nobody can say what a new plan means for a step of unknown outcome.
    """
    planfile = options.plan
    if planfile is None:
        return session, found
    refuse_other_sources(session)
    if session.plan is None or found.continuation.needs_person:
        return session, found
    replacement = compared(world, session, planfile, found.continuation.in_flight)
    event = event_of(session, replacement, **origin(world, planfile), plan_blob="")
    ahead = as_replaced(session, replacement, event)
    continuation = continue_plan(
        ahead, found.findings, strategy=chosen_strategy(world, options), retry_unknown=retries_unknown(world)
    )
    return ahead, msgspec.structs.replace(found, continuation=continuation, replacement=replacement)


def compared(world: World, session: Session, planfile: PlanFile, in_flight: tuple[Settlement, ...] = ()) -> Replacement:
    """What the file would change in the plan of the session; an error where the session cannot follow it."""
    world.redactor.learn(declared_values((step for task in planfile.plan.tasks for step in task.steps), world.env))
    refuse_secret_names(world, planfile.plan)
    found = compare_plans(session, planfile.plan, {one.step: one.action for one in in_flight})
    if found.conflicts:
        raise refusal(session, found)
    return found


def refuse_other_sources(session: Session) -> None:
    if session.steps_from.asked or session.steps_from.carries_run:
        whose = "a program" if session.steps_from.asked else f"the {session.source} run {session.run_id}"
        name = short(session.session_id)
        raise Usage(f"session {name} has its steps from {whose}: no plan file can replace them")


def refusal(session: Session, found: Replacement) -> AcodeError:
    """All steps that forbid the plan, by name, and how it becomes one that the session can follow."""
    name = short(session.session_id)
    running = [one.step for one in found.conflicts if one.why == "running"]
    if running and len(running) == len(found.conflicts):
        return StepStillRunning(
            f"the command of step {running[0]} still runs, and the new plan changes that step",
            hint=session_hint(session, "Wait for its end, or stop it; then again: {}", ReplacePlan("FILE")),
            step=running[0],
        )
    shown = "; ".join(describe(one) for one in found.conflicts[:CONFLICTS_SHOWN_MAX])
    more = len(found.conflicts) - CONFLICTS_SHOWN_MAX
    return PlanConflict(
        f"session {name} cannot continue with this plan: {shown}" + (f"; and {more} more" if more > 0 else ""),
        hint=conflict_hint(session, found.conflicts),
        session_id=session.session_id,
        conflicts=[msgspec.to_builtins(one) for one in found.conflicts],
    )


def describe(one: Conflict) -> str:
    match one.why:
        case "changed":
            return f"step {one.step} is finished, and was changed"
        case "shifted":
            return f"step {one.step} is finished, and stands under the id {one.now} now"
        case "removed":
            return f"step {one.step} was started, and was removed"
        case "asked":
            return f"the session has asked at gate {one.step}, and it was removed"
        case "running":
            return f"the command of step {one.step} still runs, and was changed"


def conflict_hint(session: Session, conflicts: tuple[Conflict, ...]) -> Hint | str:
    first = conflicts[0]
    if any(one.why == "shifted" for one in conflicts):
        return (
            "An insertion shifts the default ids of the steps behind it. Give those steps the ids that they have, for"
            f' example id: "{first.step.partition(".")[2]}"; or insert the new step behind the finished ones.'
        )
    match first.why:
        case "removed":
            text = "Leave it in the plan. If it is not to run again, say that it is done: {}"
            return session_hint(session, text, Resolve(first.step, "--applied"))
        case "asked":
            return session_hint(session, "Answer it first: {}", Approve(or_deny=True))
        case _:
            text = (
                "Leave finished steps as they were, and put new work into steps behind them. To do one again, roll it"
                " back first: {}"
            )
            return session_hint(session, text, Rollback("STEP"))


def origin(world: World, planfile: PlanFile) -> dict[str, str | None]:
    title = world.redactor.text(planfile.plan.title)
    return {"title": title, "plan_path": planfile.path, "plan_sha256": planfile.sha256}


def replace_plan(run: Held, options: Options) -> None:
    """From here on the session follows the edited plan; nothing is recorded where it is the same one."""
    planfile, session = options.plan, run.session
    if planfile is None:
        return
    found = compared(run.world, session, planfile)
    if found.plan == session.plan:
        run.warn("the plan is the one that the session follows already: nothing was replaced")
        return
    for step in found.replaced:
        restore_leftovers(run, step_named(session, step))
    encoded = msgspec.json.encode(found.plan)
    sensitive = holds_secret(run.world, found.plan, encoded)
    name, blob = keep_plan(encoded, sensitive=sensitive)
    blobs: dict[str, Blob] = {name: blob}
    event = event_of(session, found, **origin(run.world, planfile), plan_blob=name, plan_sensitive=sensitive)
    event = msgspec.structs.replace(event, reason=options.reason or "")
    said = run.append(event, actor=options.actor, blobs=blobs)
    session.plan = found.plan
    run.emit(notices.plan_replaced(found, event), seq=said[0].seq)

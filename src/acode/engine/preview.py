"""Preview a session without changing it: its state, the reason it stopped, and the decisions of a resume.

Previews append nothing and take no lock. They call the same pure functions as the resume itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from acode import hints
from acode.attention import Attention, attention_of, is_asking
from acode.engine.environment import Report, validate
from acode.engine.held_session import load_verified, make_site
from acode.engine.lease_state import DISABLED, NEXT_ELSEWHERE, SyncState, sync_state
from acode.engine.next_action import command_for, plan_name, session_hint
from acode.engine.refused_changes import was_refused
from acode.engine.session_list import Row, lock_seen, resumable, row, rows, with_agent
from acode.engine.session_place import find_place, refuse_copy
from acode.engine.survey import Survey, missing_artifacts, survey
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import Options, World, begin_again, short
from acode.errors import AcodeError, CopiedWorkspace, LogRolledBack
from acode.events import Envelope
from acode.lock import Seen
from acode.policy import Decision, Facts, Reason, decide
from acode.resume_point import Interruption, Scenario
from acode.state import Session, State
from acode.store.checkpoints import Checkpoint
from acode.store.log_tail import events_after
from acode.store.step_index import AskedBefore
from acode.store.verification import Problem, Verified
from acode.workspace import Root

LISTED_MAX = 1_000
NOT_LOOKED_AT = Report(valid=True, total_files=0, recommendation="nothing to do: the session has ended")
__all__ = ["Preview", "Row", "as_json", "history", "preview", "resumable", "row", "rows", "verify"]


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a dry run knows."""

    session: Session
    checkpoint: Checkpoint | None
    survey: Survey | None  # None: the session has ended
    environment: Report | None
    lock: Seen
    warnings: tuple[str, ...] = ()
    sync: SyncState = DISABLED
    ended: Decision | None = None  # of a session that has ended: the refusal of a resume
    original: Path | None = None  # the workspace that this one is a copy of, which still has the session
    refused: bool = False  # nobody has looked at the files now; the last resume was refused because of them

    @property
    def changed(self) -> bool:
        return self.refused if self.environment is None else bool(self.environment.changed_files)

    @property
    def attention(self) -> Attention | None:
        decision = self.survey.decision if self.survey is not None else None
        return attention_of(self.session, decision, running=self.lock.held, changed=self.changed)


def preview(world: World, text: str, options: Options, *, probes: bool = True, environment: bool = True) -> Preview:
    """The decisions of a `resume` that began now."""
    with opened(world, look_only=True) as store, Root(world.workspace) as root:
        session_id = resolve_id(world, store, text)
        loaded, warnings = load_verified(world, store, session_id)
        session = loaded.session
        seen = with_agent(lock_seen(world, session_id, store.generation(session_id)), session)
        sync = sync_state(world, store, session_id)
        if session.terminal:
            return Preview(
                session=session,
                checkpoint=loaded.checkpoint,
                survey=None,
                environment=NOT_LOOKED_AT,
                lock=seen,
                sync=sync,
                ended=refused_at_the_end(world, session, options),
            )
        site = make_site(world, store, root, session, probes=probes)
        missing = missing_artifacts(store, session)
        found = survey(
            world,
            session,
            site,
            options,
            lock_touched_at=seen.touched_at,
            artifacts_missing=missing,
            running=seen.held,
        )
        if options.plan is not None:
            from acode.engine.replace_plan import foresee

            session, found = foresee(world, session, found, options)
        lenient = options.lenient or world.config.settings.resume.validation == "lenient"
        report = (
            validate(world, session, site, pending=found.continuation.pending, lenient=lenient) if environment else None
        )
        return Preview(
            session=session,
            checkpoint=loaded.checkpoint,
            survey=found,
            environment=report,
            lock=seen,
            warnings=tuple(warnings),
            sync=sync,
            original=find_place(world, session_id).original if warnings else None,
            refused=was_refused(world.agent_dir, session),
        )


def refused_at_the_end(world: World, session: Session, options: Options) -> Decision:
    over = Interruption(cls=None, at=session.updated_at, evidence=f"the session has ended: {session.state}")
    return decide(session, over, world.limits, now=world.clock(), actor=options.actor, facts=Facts())


def history(world: World, text: str, *, after: int = 0) -> Iterator[tuple[Envelope, bytes]]:
    """The events behind number `after`, verified from the checkpoint before it; completions with what was asked for."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        asked = AskedBefore(store, session_id)
        for envelope, mac in events_after(store, session_id, after):
            yield asked.restore(envelope), mac


def verify(world: World, text: str) -> tuple[str, Verified]:
    """Chain, seals, blobs and anchor of one session, all of it."""
    with opened(world, look_only=True) as store:
        session_id = resolve_id(world, store, text)
        verified = store.verify(session_id)
        problems = list(verified.problems)
        if not problems:
            try:
                load_verified(world, store, session_id)
                refuse_copy(world, session_id)
            except AcodeError as error:
                way_out = error.hint if isinstance(error, CopiedWorkspace | LogRolledBack) else ""
                seq = error.details.get("seq")
                problems.append(Problem(code=error.code, seq=seq, message=error.message, hint=way_out))
        return session_id, msgspec.structs.replace(verified, problems=tuple(problems))


# The JSON objects of the contract.


def as_json(found: Preview, *, full: bool = False) -> dict[str, Any]:
    """The object of `resume --dry-run --json` and `explain --json`."""
    session = found.session
    common = {
        "session_id": session.session_id,
        "short_id": short(session.session_id),
        "source": session.source,
        "title": session.title,
        "state": str(session.state),
        "escalated": is_escalated(found),
        "attention": found.attention,
        "kind": session.steps_from.public_kind,
        "checkpoint": checkpoint_json(found.checkpoint),
        "sync": found.sync.as_json(),
    }
    if found.survey is None:
        return {
            **common,
            "scenario": str(Scenario.CLEAN_SHUTDOWN),
            "interruption_class": None,
            "decision": decision_json(found.ended) if found.ended is not None else None,
            "resume_point": None,
            **listed("skipped_tasks", (), last=True, full=full),
            **listed("skipped_steps", (), last=True, full=full),
            **listed("remaining_steps", (), last=False, full=full),
            "in_flight": [],
            "in_progress": None,
            "environment": environment_json(found.environment),
            "needs_human": False,
            "next_action": begin_again(session).as_command(),
        }
    survey_found, continuation = found.survey, found.survey.continuation
    point = survey_found.point
    in_flight = [msgspec.to_builtins(one) for one in continuation.in_flight]
    return {
        **common,
        "scenario": str(survey_found.scenario),
        "interruption_class": survey_found.interruption.cls,
        "interruption": {
            "evidence": survey_found.interruption.evidence,
            "at": msgspec.to_builtins(survey_found.interruption.at),
        },
        "decision": decision_json(survey_found.decision),
        "resume_point": {"event_id": session.id_of(point), "seq": point.seq, "task": point.task, "step": point.step}
        if point
        else None,
        **listed("skipped_tasks", continuation.skipped_tasks, last=True, full=full),
        **listed("skipped_steps", continuation.skipped_steps, last=True, full=full),
        **listed("remaining_steps", continuation.pending, last=False, full=full),
        "in_flight": in_flight,
        "in_progress": msgspec.to_builtins(continuation.in_progress),
        "environment": environment_json(found.environment),
        "needs_human": needs_human(found),
        "next_action": next_action(found),
        "warnings": list(found.warnings),
        **({"plan_changes": survey_found.replacement.as_json()} if survey_found.replacement is not None else {}),
        "rules": [msgspec.to_builtins(rule) for rule in survey_found.decision.rules],
    }


def listed(name: str, ids: tuple[str, ...], *, last: bool, full: bool) -> dict[str, Any]:
    shown = ids if full else (ids[-LISTED_MAX:] if last else ids[:LISTED_MAX])
    return {name: list(shown), f"{name}_total": len(ids)}


def checkpoint_json(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    if checkpoint is None:
        return None
    return {"id": checkpoint.id, "seq": checkpoint.seq, "created_at": msgspec.to_builtins(checkpoint.at), "valid": True}


def decision_json(decision: Decision) -> dict[str, Any]:
    return {
        "eligible": decision.eligible,
        "reason_code": decision.reason_code,
        "attempt": decision.attempt,
        "max_attempts": decision.attempts_max,
        "cooldown_seconds_remaining": decision.cooldown_s_remaining,
        "actor": decision.actor,
        "run_state": decision.run_state,
    }


def environment_json(report: Report | None) -> dict[str, Any] | None:
    if report is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(report)
    plain.pop("checks", None)
    return plain


def is_escalated(found: Preview) -> bool:
    if found.survey is None:
        return False
    return found.session.escalated or found.survey.decision.run_state == "resume_escalated"


def needs_human(found: Preview) -> bool:
    if found.survey is None:
        return False
    if found.lock.held:  # the process that runs it asks its own questions
        return found.session.state is State.AWAITING_APPROVAL
    changed = found.changed or bool(found.environment and found.environment.errors)
    gate = found.session.state is State.AWAITING_APPROVAL and is_asking(found.session)
    undone = found.session.undoing is not None
    decision = found.survey.decision
    by_hand = not decision.eligible and decision.reason is Reason.NON_IDEMPOTENT  # for the caller: a person may
    return is_escalated(found) or found.survey.continuation.needs_person or changed or gate or undone or by_hand


def next_action(found: Preview) -> str:
    """The one command to type next."""
    if found.lock.held:
        return session_hint(found.session, "wait, or pause it: {}", hints.Command("session pause SESSION")).as_command()
    return command_for(found.session, action_now(found))


def action_now(found: Preview) -> hints.Action:
    assert found.survey is not None
    session = found.session
    if found.original is not None:
        return hints.ResumeElsewhere(str(found.original))
    if (elsewhere := NEXT_ELSEWHERE.get(found.sync.standing)) is not None:
        return elsewhere
    if session.undoing is not None:
        return hints.Rollback(session.undoing.to)
    if found.survey.decision.reason is Reason.MISSING_ARTIFACTS:
        return hints.RestoreBlobs()
    settlement = found.survey.continuation.in_progress
    if found.survey.continuation.needs_person and settlement is not None:
        return hints.Resolve(settlement.step)
    if is_escalated(found):
        return hints.Force()
    if session.state is State.AWAITING_APPROVAL and is_asking(session):
        return hints.Approve()
    if found.changed:
        return hints.AcceptChanges()
    if found.survey.replacement is not None:
        return hints.ReplacePlan(plan_name(session))
    return hints.Resume()

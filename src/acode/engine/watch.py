"""The notices of a run, made from its log by somebody who only reads it.

They are the facts on record. What a running process tells and never records (warnings, waits between attempts) is not
among them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from acode.engine import notices
from acode.engine.follow_log import LogTail, Printed, followed
from acode.engine.held_session import load_verified
from acode.engine.lease_state import sync_state
from acode.engine.remediation import remedy
from acode.engine.survey import step_named
from acode.engine.world import World
from acode.events import Envelope
from acode.events import types as ev
from acode.events.definition import Approve, Step, describe, describe_in_full, execution_order
from acode.plan import Action, covered_by
from acode.state import Session, advance
from acode.store.store import Store

ACTIONS = {
    ev.Settled.APPLIED: Action.SKIP,
    ev.Settled.ROLLED_BACK: Action.ROLLBACK_AND_RETRY,
    ev.Settled.UNKNOWN: Action.ASK,
}


def watch(world: World, store: Store, session_id: str) -> Iterator[notices.Notice]:
    """First what the session is; then each fact as it is recorded, until nobody works on it any more."""
    loaded, _ = load_verified(world, store, session_id)
    reader = _Reader(world, store, loaded.session)
    yield reader.notice(notices.reopened(loaded.session), seq=loaded.session.seq)
    tail = LogTail(world, store, session_id, after=loaded.session.seq)
    tail.ended = loaded.session.terminal
    tail.join(loaded.session.in_flight)
    for entry in followed(world, tail, follow=True):
        yield from reader.notices_of(entry)


class _Reader:
    """Folds the session on, and says what each event means for a listener."""

    def __init__(self, world: World, store: Store, session: Session) -> None:
        self._world = world
        self._store = store
        self.session = session

    def notice(
        self, body: notices.Body, *, seq: int | None = None, step: str | None = None, task: str | None = None
    ) -> notices.Notice:
        session = self.session
        return notices.Notice(
            body=body,
            at=session.updated_at,
            session_id=session.session_id,
            seq=seq,
            task=task if task is not None or step is None else step.partition(".")[0],
            step=step,
            session=session,
        )

    def notices_of(self, entry: Envelope | Printed) -> Iterator[notices.Notice]:
        if isinstance(entry, Printed):
            body = notices.StepOutput(text=entry.data.decode("utf-8", "replace"))
            yield self.notice(body, step=entry.step)
            return
        is_failure = self._belongs_to_failure(entry.event)
        advance(self.session, entry)
        if isinstance(entry.event, ev.PlanChanged | ev.PlanReplaced):
            self.session.plan = self._store.plan_of(self.session)
        body_of = None if is_failure else self._of_step(entry.event) or self._of_session(entry.event)
        if body_of is not None:
            step, task = getattr(entry.event, "step", None), getattr(entry.event, "task", None)
            yield self.notice(body_of, seq=entry.seq, step=step, task=task)

    def _belongs_to_failure(self, event: ev.Known | ev.Unknown) -> bool:
        """A step that ended by itself is settled with its failure, which was told already."""
        if not isinstance(event, ev.StepSettled):
            return False
        flight = self.session.in_flight.get(event.step)
        return flight is not None and flight.stopped is not None and flight.stopped.reason in ("exit", "error")

    def _of_step(self, event: ev.Known | ev.Unknown) -> notices.Body | None:
        match event:
            case ev.StepStarted():
                return self._started(event)
            case ev.StepCompleted():
                return notices.StepCompleted(
                    duration_ms=event.duration_ms,
                    settled=event.settled,
                    touched=list(event.touched),
                    done=self.session.steps_done,
                    total=self.session.steps_total,
                )
            case ev.StepFailed():
                return notices.StepFailed(
                    reason=event.reason,
                    message=event.message,
                    exit_status=event.exit_status,
                    output_tail=event.output.tail if event.output else "",
                    touched=list(event.touched),
                )
            case ev.StepSettled():
                return notices.StepSettled(
                    kind=self._step(event.step).kind,
                    outcome=str(event.outcome),
                    action=str(ACTIONS.get(event.outcome, Action.RETRY)),
                    evidence=event.evidence,
                )
            case ev.SessionAwaitingApproval():
                return notices.ApprovalRequest(question=event.question, covers=self._covered(event.step))
            case _:
                return None

    def _of_session(self, event: ev.Known | ev.Unknown) -> notices.Body | None:
        match event:
            case ev.TaskCompleted():
                return notices.TaskCompleted(duration_ms=event.duration_ms)
            case ev.ResumeDecision():
                return notices.ResumeDecision(
                    eligible=event.eligible,
                    reason_code=event.reason_code,
                    attempt=event.attempt,
                    max_attempts=event.max_attempts,
                    cooldown_seconds_remaining=event.cooldown_seconds_remaining,
                    advice=[],
                )
            case ev.ResumeStarted():
                return self._resumed(event)
            case ev.ResumeCompleted():
                state, executed, skipped = str(self.session.state), event.executed_steps, event.skipped_steps
                return notices.ResumeCompleted(state=state, executed_steps=executed, skipped_steps=skipped)
            case ev.ChangesAccepted():
                return notices.ChangesAccepted(paths=[file.path for file in event.files])
            case ev.EscalatedToPerson():
                return notices.Escalated(
                    reason_code=event.reason_code, context=event.context, remedy=remedy(self.session, ())
                )
            case ev.PlanReplaced():
                return self._plan_replaced(event)
            case _:
                return None

    def _started(self, event: ev.StepStarted) -> notices.StepStarted:
        step = self._step(event.step)
        number, of = self._position(event.step)
        return notices.StepStarted(
            kind=event.kind,
            title=self._world.redactor.text(describe(step)),
            attempt=event.attempt,
            shown=event.shown if event.asked is not None else msgspec.UNSET,
            number=number,
            of=of,
            key=event.key,
        )

    def _resumed(self, event: ev.ResumeStarted) -> notices.ResumeStarted:
        records = self.session.records
        order = () if self.session.plan is None or self.session.steps_from.asked else execution_order(self.session.plan)
        done = self.session.done
        return notices.ResumeStarted(
            started=event,
            state=str(self.session.state),
            skipped_task_ids=[task.id for task in order if all(done(step.id) for step in task.steps)],
            skipped_step_ids=[step.id for task in order for step in task.steps if done(step.id)],
            remaining_step_ids=[step.id for task in order for step in task.steps if not done(step.id)],
            sync=sync_state(self._world, self._store, self.session.session_id),
            task_ms=dict(records.task_ms) if records is not None else {},
        )

    def _plan_replaced(self, event: ev.PlanReplaced) -> notices.PlanReplaced:
        changed = {*event.replaced, *event.added}
        return notices.PlanReplaced(
            previous_digest=event.previous_digest,
            plan_digest=event.plan_digest,
            kept=[step.id for step in self.session.steps() if step.id not in changed],
            replaced=list(event.replaced),
            added=list(event.added),
            removed=list(event.removed),
            asked_again=list(event.reopened),
        )

    def _step(self, name: str) -> Step:
        return step_named(self.session, name)

    def _position(self, name: str) -> tuple[int, int]:
        if self.session.plan is None or self.session.steps_from.asked:
            return 0, 0
        for task in self.session.plan.tasks:
            for number, step in enumerate(task.steps, 1):
                if step.id == name:
                    return number, len(task.steps)
        return 0, 0

    def _covered(self, gate: str) -> list[str]:
        if self.session.plan is None or self.session.steps_from.asked:
            return []
        step = self._step(gate)
        if not isinstance(step.action, Approve):
            return []
        behind = covered_by(execution_order(self.session.plan), step)
        return [self._world.redactor.text(describe_in_full(one)) for _, one in behind if not self.session.done(one.id)]

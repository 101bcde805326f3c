"""Plan the continuation: what is skipped, how the step in flight is treated, and what is still to do.

Pure: the findings about steps in flight come in, one continuation comes out. `preview` and `resume` call this same
function with the same findings, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from acode.errors import VERIFY, CannotContinue
from acode.events.definition import (
    Approve,
    Call,
    Commit,
    Model,
    Read,
    Run,
    Sql,
    Step,
    Task,
    Write,
    digest,
    execution_order,
    untitled,
)
from acode.hints import Hint
from acode.state import Session


class Outcome(StrEnum):
    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


class Action(StrEnum):
    SKIP = "skip"
    RETRY = "retry"
    ROLLBACK_AND_RETRY = "rollback_and_retry"
    ASK = "ask"
    WAIT = "wait"


class Strategy(StrEnum):
    ROLLBACK = "rollback"
    RETRY = "retry"
    PROMPT = "prompt"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence about a step in flight."""

    outcome: Outcome
    evidence: str
    still_running: bool = False
    repeatable: bool = False  # repeating it is safe by its nature or by its declaration
    rolls_back: bool = False  # its partial effects can be rolled back
    probe_pending: bool = False  # a probe would decide, and previews that run none must not guess
    last_output: str = ""  # the last lines that its command printed, for the person who states its outcome


class Settlement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    step: str
    kind: str
    outcome: Outcome
    action: Action
    evidence: str
    last_output: str = ""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    skipped_tasks: tuple[str, ...]
    skipped_steps: tuple[str, ...]
    in_flight: tuple[Settlement, ...]
    pending: tuple[str, ...]  # includes the steps in flight that will run again

    @property
    def in_progress(self) -> Settlement | None:
        """The one that a person must decide about; else the first: a task of an agent's stands before its steps."""
        asks = (one for one in self.in_flight if one.action is Action.ASK)
        return next(asks, self.in_flight[0] if self.in_flight else None)

    @property
    def needs_person(self) -> bool:
        return any(settlement.action is Action.ASK for settlement in self.in_flight)


def continue_plan(
    session: Session, findings: Mapping[str, Finding], *, strategy: Strategy, retry_unknown: bool
) -> Continuation:
    """The whole way that is left, in the one order that the plan has."""
    assert session.records is not None
    settlements = tuple(
        settle(step, flight.started.kind, findings[step], strategy=strategy, retry_unknown=retry_unknown)
        for step, flight in session.in_flight.items()
    )
    applied = {settlement.step for settlement in settlements if settlement.action is Action.SKIP}
    if session.steps_from.asked:
        # Only the program knows the remaining steps; its open steps are the ones to ask about.
        failed = (name for name, record in session.records.steps.items() if record.status != "completed")
        again = (*(name for name in session.in_flight if name not in applied), *failed)
        order = execution_order(session.plan) if session.plan is not None else ()
        return Continuation(
            skipped_tasks=tuple(task.id for task in order if session.done(task.id)),
            skipped_steps=tuple(step.id for task in order if session.done(task.id) for step in task.steps),
            in_flight=settlements,
            pending=(*again, *(step.id for task in order if not session.done(task.id) for step in task.steps)),
        )
    assert session.plan is not None
    known = {step.id for step in session.steps()}
    if strange := sorted((session.records.steps.keys() | session.in_flight.keys()) - known):
        raise CannotContinue(
            f"the log holds steps that the plan does not: {', '.join(strange[:5])}",
            hint=Hint("The plan snapshot and the log do not belong together: {}", VERIFY),
        )
    done = {step for step in known if session.done(step)} | applied
    order = execution_order(session.plan)
    return Continuation(
        skipped_tasks=tuple(task.id for task in order if all(step.id in done for step in task.steps)),
        skipped_steps=tuple(step.id for task in order for step in task.steps if step.id in done),
        in_flight=settlements,
        pending=tuple(step.id for task in order for step in task.steps if step.id not in done),
    )


def settle(step: str, kind: str, finding: Finding, *, strategy: Strategy, retry_unknown: bool) -> Settlement:
    action = _action(finding, strategy, retry_unknown)
    return Settlement(
        step=step,
        kind=kind,
        outcome=finding.outcome,
        action=action,
        evidence=finding.evidence,
        last_output=finding.last_output,
    )


def _action(finding: Finding, strategy: Strategy, retry_unknown: bool) -> Action:
    if finding.still_running:
        return Action.WAIT
    if finding.outcome is Outcome.APPLIED:
        return Action.SKIP
    unknown = finding.outcome is Outcome.UNKNOWN and not finding.repeatable
    if unknown and not retry_unknown:
        return Action.ASK
    if strategy is Strategy.PROMPT and not unknown:
        return Action.ASK
    if finding.rolls_back and strategy is Strategy.ROLLBACK:
        return Action.ROLLBACK_AND_RETRY
    return Action.RETRY


def repeatable(step: Step) -> bool:
    """Whether a failed step may be tried again without a person: its kind or its declaration carries the evidence."""
    match step.action:
        case Read() | Write() | Sql() | Commit() | Approve() | Model():
            return True
        case Call():
            return step.idempotent
        case Run(probe=probe, outputs=outputs):
            return step.idempotent or probe is not None or bool(outputs)


def approval_digest(session: Session, gate: Step, contents: Mapping[str, str | None] | None = None) -> str:
    """The hash of everything that a grant allows: the question and the definitions of all steps that depend on the
    gate.

    A grant for other words, other commands or another order is no grant. `contents`: the hashes of the files that these
    steps apply and that the plan only names.
    """
    assert session.plan is not None
    covered = covered_by(execution_order(session.plan), gate)
    covers = [[task, untitled(step)] for task, step in covered]
    what = {"session": session.session_id, "gate": untitled(gate), "covers": covers}
    return digest({**what, "contents": dict(contents)} if contents else what)


def covered_by(order: Iterable[Task], gate: Step) -> list[tuple[str, Step]]:
    """Steps after the gate that depend on it, up to the next gate on each way."""
    covered: list[tuple[str, Step]] = []
    reached: set[str] = set()
    for task in order:
        behind = bool(reached.intersection(task.needs))
        for step in task.steps:
            if step.id == gate.id:
                behind = True
            elif behind and isinstance(step.action, Approve):
                behind = False
            elif behind:
                covered.append((task.id, step))
        if behind:
            reached.add(task.id)
    return covered

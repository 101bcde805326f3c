"""Decide: a session, its interruption and the time become one `Decision` with one reason code.

Pure, and total: every combination has an answer. A decision changes nothing; a refusal changes no counter and no
cool-down. Automatic attempts obey all rules. A person who types `acode resume` is the explicit operator action:
informed about cool-down, class and settings, bound by the attempt limit, by missing files and by unknown outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from acode.events.types import InterruptionClass
from acode.resume_point import Interruption
from acode.state import Session, State


class Reason(StrEnum):
    ALLOWED = "resume_allowed"
    MISSING_CHECKPOINT = "resume_missing_checkpoint"
    UNKNOWN_CLASS = "resume_unknown_interruption_class"
    MISSING_ARTIFACTS = "resume_missing_runtime_artifacts"
    DISABLED = "resume_disabled"
    LIMIT = "resume_attempt_limit_reached"
    NON_IDEMPOTENT = "resume_non_idempotent_step"
    PAUSED_BY_USER = "resume_paused_by_user"
    COOLDOWN = "resume_blocked_cooldown"


COOLDOWN_S: Mapping[str, float] = {"tool_failure": 30, "timeout": 120, "context_reset": 10, "process_crash": 60}
# Rules that a person may step over by typing the command; the others bind everyone.
ADVICE_FOR_PERSONS = frozenset(
    {Reason.UNKNOWN_CLASS, Reason.DISABLED, Reason.NON_IDEMPOTENT, Reason.PAUSED_BY_USER, Reason.COOLDOWN}
)


LOCK_IS_HELD = "its lock is held"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    enabled: bool = True
    attempts_max: int = 3
    attempts: Literal["since_progress", "per_run"] = "since_progress"
    automatic_max: int = 20
    cooldown_s: Mapping[str, float] = msgspec.field(default_factory=lambda: COOLDOWN_S)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts from outside the log that a decision uses."""

    checkpoint_missing: str | None = None
    artifacts_missing: tuple[str, ...] = ()
    unknown_step: str | None = None  # a step in flight without evidence: binds everyone
    unsafe_step: str | None = None  # the last attempted step, if it may not be repeated without a person
    unsafe_because: str = ""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and whether it is met, for the person who asks why."""

    name: str
    reason: Reason | None  # None: the lock's rule, which is none of the policy
    met: bool
    because: str
    binding: bool


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    eligible: bool
    reason: Reason | None  # None: a process is at work on it, and nothing has interrupted that
    attempt: int
    attempts_max: int
    cooldown_s_remaining: int
    actor: str
    run_state: str
    rules: tuple[Rule, ...] = ()
    forced: bool = False
    unknown: bool = False  # the outcome of a step is unknown: a person must state it

    @property
    def reason_code(self) -> str | None:
        return str(self.reason) if self.reason is not None else None

    @property
    def describe(self) -> str:
        return self.reason_code or LOCK_IS_HELD

    @property
    def advice(self) -> tuple[Rule, ...]:
        """Rules that are not met and yet do not bind this actor."""
        return tuple(rule for rule in self.rules if not rule.met and not rule.binding)


def decide(
    session: Session,
    interruption: Interruption,
    limits: Limits,
    *,
    now: datetime,
    actor: str,
    facts: Facts,
    forced: bool = False,
) -> Decision:
    """The first binding rule that is not met names the reason; the order of the rules is their precedence."""
    automatic = actor == "system"
    waiting = cooldown_remaining_s(interruption, limits, now, refused_at=session.refused_at)
    for_all = frozenset({Reason.NON_IDEMPOTENT}) if facts.unknown_step is not None else frozenset()
    rules = tuple(
        msgspec.structs.replace(rule, binding=rule.reason in for_all or _binds(rule.reason, automatic, forced))
        for rule in _rules(session, interruption, limits, facts=facts, waiting=waiting, automatic=automatic)
    )
    broken = next((rule for rule in rules if not rule.met and rule.binding), None)
    return Decision(
        eligible=broken is None,
        reason=broken.reason if broken else Reason.ALLOWED,
        attempt=counted(session, limits) + 1,
        attempts_max=limits.attempts_max,
        cooldown_s_remaining=waiting,
        actor=actor,
        run_state=run_state(session, limits),
        rules=rules,
        forced=forced,
        unknown=facts.unknown_step is not None,
    )


def refused_by_lock(decision: Decision) -> Decision:
    """The refusal while a process works on the session: nothing has interrupted it, and its lock is held."""
    rule = Rule(name="no process is at work on it", reason=None, met=False, because=LOCK_IS_HELD, binding=True)
    return msgspec.structs.replace(
        decision, eligible=False, reason=None, cooldown_s_remaining=0, rules=(rule, *decision.rules)
    )


def _binds(reason: Reason | None, automatic: bool, forced: bool) -> bool:
    if forced and reason is Reason.LIMIT:
        return False
    return automatic or reason not in ADVICE_FOR_PERSONS


def _rules(
    session: Session, interruption: Interruption, limits: Limits, *, facts: Facts, waiting: int, automatic: bool
) -> tuple[Rule, ...]:
    used = counted(session, limits)
    unsafe = facts.unknown_step or facts.unsafe_step
    over_total = automatic and session.resumes_automatic >= limits.automatic_max
    cls = interruption.cls.value if interruption.cls else ("none needed" if interruption.known else "unknown")

    def rule(name: str, reason: Reason, met: bool, because: str) -> Rule:
        return Rule(name=name, reason=reason, met=met, because=because, binding=True)

    return (
        rule(
            "a valid checkpoint of an unfinished run exists",
            Reason.MISSING_CHECKPOINT,
            facts.checkpoint_missing is None and not session.terminal,
            facts.checkpoint_missing or _position(session),
        ),
        rule(
            "the interruption is classified",
            Reason.UNKNOWN_CLASS,
            interruption.known,
            f"{cls}: {interruption.evidence}",
        ),
        rule(
            "plan snapshot, state and history are readable",
            Reason.MISSING_ARTIFACTS,
            not facts.artifacts_missing,
            "missing: " + ", ".join(facts.artifacts_missing) if facts.artifacts_missing else "all are there",
        ),
        rule(
            "automatic resume is enabled",
            Reason.DISABLED,
            limits.enabled,
            f"resume.enabled is {str(limits.enabled).lower()}",
        ),
        rule(
            "attempts are left",
            Reason.LIMIT,
            used < limits.attempts_max and not over_total and not session.escalated,
            f"{used} of {limits.attempts_max} attempts used {_span(limits)}"
            + (f", {session.resumes_automatic} automatic ones in all" if over_total else ""),
        ),
        rule(
            "the last attempted step may be repeated",
            Reason.NON_IDEMPOTENT,
            unsafe is None,
            f"{unsafe}: {facts.unsafe_because}" if unsafe else (facts.unsafe_because or "nothing is left open"),
        ),
        rule(
            "the user did not pause it",
            Reason.PAUSED_BY_USER,
            not interruption.by_person,
            interruption.evidence if interruption.by_person else "it was not the user",
        ),
        rule(
            "the cool-down has passed",
            Reason.COOLDOWN,
            waiting == 0,
            _cooling(waiting, _window_s(interruption, limits)),
        ),
    )


def _position(session: Session) -> str:
    ended = f"the session has ended: {session.state}"
    return ended if session.terminal else f"the log is whole up to event {session.seq}"


def _cooling(waiting_s: int, window_s: float) -> str:
    return f"{waiting_s} s remain of the {window_s:g} s cool-down" if waiting_s else "nothing to wait for"


def _span(limits: Limits) -> str:
    return "in this run" if limits.attempts == "per_run" else "since the last progress"


def counted(session: Session, limits: Limits) -> int:
    return session.resumes_counted if limits.attempts == "per_run" else session.resumes_since_progress


def _window_s(interruption: Interruption, limits: Limits) -> float:
    if interruption.cls is None:
        return 0.0
    window = float(limits.cooldown_s.get(interruption.cls.value, COOLDOWN_S[interruption.cls.value]))
    return max(window, float(interruption.retry_after_s))


def cooldown_remaining_s(
    interruption: Interruption, limits: Limits, now: datetime, *, refused_at: datetime | None = None
) -> int:
    """Whole seconds still to wait, never more than the window: a clock that went back must not make it longer.

    Where the clock stands before the interruption it was ahead then, and the waiting would last until it is there: so
    it is counted from the first attempt that was refused since.
    """
    window = _window_s(interruption, limits)
    since = interruption.at
    if now < since:
        since = min(refused_at or now, now)
    elapsed = (now - since).total_seconds()
    return math.ceil(min(max(window - elapsed, 0.0), window))


def run_state(session: Session, limits: Limits) -> str:
    """The run's state in the policy's own vocabulary."""
    if session.state is State.COMPLETED:
        return "completed"
    if session.state in (State.FAILED, State.CANCELLED):
        return "failed"
    if session.escalated or counted(session, limits) >= limits.attempts_max:
        return "resume_escalated"
    stopped = session.pause is not None and session.pause.interruption is InterruptionClass.TOOL_FAILURE
    return "failed" if stopped else "in_progress"

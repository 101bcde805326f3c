"""The resume policy: its whole decision space against a table, and one test for each of its promises."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from acode.events import types as ev
from acode.policy import COOLDOWN_S, Decision, Facts, Limits, Reason, cooldown_remaining_s, decide, run_state
from acode.resume_point import Interruption, classify
from acode.state import Session, State
from tests.builders import (
    at,
    by_user,
    completed,
    crash,
    created,
    decided,
    did,
    executing,
    failed,
    finished,
    passing,
    paused,
    resumed,
    session,
    started,
)

WINDOW = {"tool_failure": 30, "timeout": 120, "context_reset": 10, "process_crash": 60}
LIMITS = Limits()
SOUND = Facts()


class Case(NamedTuple):
    """One point of the space, in words."""

    ending: str  # a class, "by person", "none needed" or "unknown"
    checkpoint: str  # in_progress, failed, missing, completed
    step: str  # repeatable, unsafe, unknown outcome
    artifacts: bool
    attempts: int  # relative to the limit
    escalated: bool
    clock: int  # seconds relative to the end of the cool-down; BACKWARDS: before the interruption
    enabled: bool
    actor: str
    forced: bool


BACKWARDS = -86_400
ENDINGS = (*WINDOW, "by person", "none needed", "unknown")
CLOCKS = (-1, 0, 1, BACKWARDS)
SPACE = (
    ("in_progress", "failed", "missing", "completed"),
    ("repeatable", "unsafe", "unknown outcome"),
    (True, False),
    (-1, 0, 1),
    (False, True),
    CLOCKS,
    (True, False),
)


def expected(case: Case) -> str:
    """The rules in their order of precedence, each with whom it binds; the first that stands in the way names it."""
    automatic = case.actor == "system"
    cooling = case.ending in WINDOW and case.clock < 0
    used_up = case.attempts >= 0 or case.escalated
    table = [
        # stands in the way                         binds                              reason
        (case.checkpoint in ("missing", "completed"), True, "resume_missing_checkpoint"),
        (case.ending == "unknown", automatic, "resume_unknown_interruption_class"),
        (not case.artifacts, True, "resume_missing_runtime_artifacts"),
        (not case.enabled, automatic, "resume_disabled"),
        (used_up, not case.forced, "resume_attempt_limit_reached"),
        (case.step == "unknown outcome", True, "resume_non_idempotent_step"),
        (case.step == "unsafe", automatic, "resume_non_idempotent_step"),
        (case.ending == "by person", automatic, "resume_paused_by_user"),
        (cooling, automatic, "resume_blocked_cooldown"),
    ]
    return next((reason for stands, binds, reason in table if stands and binds), "resume_allowed")


STATES = {
    "in_progress": session(created("a", "b"), did("a"), started("b")),
    "failed": session(created("a", "b"), did("a"), paused("step_failed", "tool_failure")),
    "missing": session(created("a", "b"), did("a"), started("b")),
    "completed": session(created("a"), did("a"), finished()),
}
STEPS = {
    "repeatable": {},
    "unsafe": {"unsafe_step": "main.b", "unsafe_because": "it failed"},
    "unknown outcome": {"unknown_step": "main.b", "unsafe_because": "no evidence"},
}


def ending(name: str) -> Interruption:
    cls = ev.InterruptionClass(name) if name in WINDOW else None
    person, known = name == "by person", name != "unknown"
    return Interruption(cls=cls, at=at(0), evidence="e", by_person=person, known=known)


def answer(case: Case) -> Decision:
    now = msgspec.structs.replace(
        STATES[case.checkpoint], resumes_since_progress=3 + case.attempts, escalated=case.escalated
    )
    missing = "it is gone" if case.checkpoint == "missing" else None
    artifacts = () if case.artifacts else ("plan snapshot",)
    window = WINDOW.get(case.ending, 0)
    return decide(
        now,
        ending(case.ending),
        Limits(enabled=case.enabled),
        now=at(BACKWARDS if case.clock == BACKWARDS else window + case.clock),
        actor=case.actor,
        facts=Facts(checkpoint_missing=missing, artifacts_missing=artifacts, **STEPS[case.step]),
        forced=case.forced,
    )


@pytest.mark.req("POL-INT-03", "POL-ELIG-05", "POL-AUDIT-02")
@pytest.mark.parametrize("forced", [False, True], ids=["", "forced"])
@pytest.mark.parametrize("actor", ["user", "system"])
@pytest.mark.parametrize("name", ENDINGS)
def test_the_whole_decision_space_is_decided_as_the_table_says(name: str, actor: str, forced: bool) -> None:
    for point in itertools.product(*SPACE):
        case = Case(name, *point, actor, forced)
        found = answer(case)
        assert found.reason == expected(case), case
        assert found.eligible is (found.reason is Reason.ALLOWED), case
        assert 0 <= found.cooldown_s_remaining <= WINDOW.get(name, 0), case
        assert found.attempt == 4 + case.attempts, case
        # The rules tell the same story: what names the reason is the first binding one that is not met.
        broken = [rule for rule in found.rules if rule.binding and not rule.met]
        assert [rule.reason for rule in broken[:1]] == ([] if found.eligible else [found.reason]), case


def test_the_space_holds_every_reason() -> None:
    cases = (Case(name, *point, "system", False) for name in ENDINGS for point in itertools.product(*SPACE))
    # What the lock says is said by a look, and is no rule of the policy.
    assert {expected(case) for case in cases} == set(Reason)


# Classes and cool-downs.


def asked(
    now: Session, *, seconds: float, actor: str = "system", limits: Limits = LIMITS, facts: Facts = SOUND, **more: Any
) -> Decision:
    """The decision about a session as its own log classifies it, so many seconds after its log began."""
    return decide(now, classify(now), limits, now=at(seconds), actor=actor, facts=facts, **more)


def paused_for(cls: str) -> Session:
    """Interrupted at second 5."""
    reasons = {"tool_failure": "step_failed", "timeout": "timeout"}
    return session(created("a"), started("a"), failed("a"), paused(reasons.get(cls, "error"), cls))


@pytest.mark.req("POL-COOL-01", "POL-COOL-02", "POL-COOL-03", "POL-COOL-04", "POL-CODE-06")
@pytest.mark.parametrize(("cls", "window"), WINDOW.items())
def test_each_class_cools_down_for_its_own_time_and_not_a_moment_longer(cls: str, window: int) -> None:
    now = paused_for(cls)
    began = classify(now).at
    for after, reason in ((window - 1, Reason.COOLDOWN), (window - 0.001, Reason.COOLDOWN), (window, Reason.ALLOWED)):
        found = decide(now, classify(now), LIMITS, now=began + timedelta(seconds=after), actor="system", facts=SOUND)
        assert found.reason is reason


@pytest.mark.req("POL-COOL-05")
def test_the_remaining_seconds_are_said_and_never_rounded_down_to_nothing() -> None:
    cooling = ending("timeout")
    assert [cooldown_remaining_s(cooling, LIMITS, at(seconds)) for seconds in (0, 33, 119, 119.5, 119.999, 120)] == [
        120,
        87,
        1,
        1,
        1,
        0,
    ]


def test_a_clock_that_went_back_does_not_make_the_cool_down_longer() -> None:
    for back in (-1, -3600, -(10**8)):
        assert cooldown_remaining_s(ending("process_crash"), LIMITS, at(back)) == 60


def refused(seconds: float) -> ev.ResumeDecision:
    """At this second by the clock of whoever asked, which is not the log's."""
    return msgspec.structs.replace(decided(False), at=at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ"))


def test_after_a_clock_that_was_ahead_the_cool_down_is_counted_from_the_first_refusal() -> None:
    words: list[Any] = [created("a"), started("a"), crash()]
    reasons = []
    for seconds in (-3600, -3590, -3541, -3540):
        reasons.append(asked(session(*words), seconds=seconds).reason)
        words.append(refused(seconds))
    assert reasons == [Reason.COOLDOWN, Reason.COOLDOWN, Reason.COOLDOWN, Reason.ALLOWED]


def test_a_clock_that_is_set_back_once_more_is_counted_from_anew() -> None:
    words: list[Any] = [created("a"), started("a"), crash(), refused(-3600)]
    assert asked(session(*words), seconds=-7200).cooldown_s_remaining == 60
    words.append(refused(-7200))
    assert asked(session(*words), seconds=-7140).reason is Reason.ALLOWED


def test_the_refusals_before_an_attempt_say_nothing_about_the_end_of_it() -> None:
    words: list[Any] = [created("a"), started("a"), crash(), refused(-3600), *resumed(), started("a", 2), crash()]
    assert asked(session(*words), seconds=-3500).cooldown_s_remaining == 60


def test_a_refusal_does_not_start_the_cool_down_again() -> None:
    words = [created("a"), started("a"), crash()]  # the last event is at second 3
    reasons = []
    for seconds in (20, 40, 62, 63):
        reasons.append(asked(session(*words), seconds=seconds).reason)
        words += [passing(15), decided(False)]
    assert reasons == [Reason.COOLDOWN, Reason.COOLDOWN, Reason.COOLDOWN, Reason.ALLOWED]


def test_windows_come_from_the_configuration_and_default_to_the_policys_own() -> None:
    shorter = Limits(cooldown_s={"timeout": 2})
    assert cooldown_remaining_s(ending("timeout"), shorter, at(0)) == 2
    assert cooldown_remaining_s(ending("tool_failure"), shorter, at(0)) == 30
    assert dict(COOLDOWN_S) == WINDOW


# Eligibility, one rule at a time.


@pytest.mark.req("POL-CODE-01", "POL-ELIG-01")
@pytest.mark.parametrize("actor", ["user", "system"])
def test_a_cooled_down_run_with_everything_in_place_is_resumed(actor: str) -> None:
    found = asked(paused_for("tool_failure"), seconds=100, actor=actor)
    assert found.eligible and found.reason == "resume_allowed"
    assert found.run_state == "failed"
    assert asked(session(created("a"), started("a")), seconds=100, actor=actor).run_state == "in_progress"


@pytest.mark.req("POL-ELIG-01", "POL-CODE-02")
@pytest.mark.parametrize("end", [finished(), ev.SessionFailed(reason="x"), ev.SessionCancelled()])
@pytest.mark.parametrize("actor", ["user", "system"])
def test_a_run_that_has_ended_is_never_eligible(end: Any, actor: str) -> None:
    found = asked(session(created("a"), did("a"), end), seconds=1000, actor=actor, forced=True)
    assert found.reason == "resume_missing_checkpoint"
    assert "has ended" in found.rules[0].because


@pytest.mark.req("POL-CODE-02")
def test_a_missing_checkpoint_binds_everyone_and_says_what_is_missing() -> None:
    for actor in ("user", "system"):
        found = asked(paused_for("timeout"), seconds=1000, actor=actor, facts=Facts(checkpoint_missing="row 5 is gone"))
        assert found.reason == "resume_missing_checkpoint"
        assert found.rules[0].because == "row 5 is gone"


@pytest.mark.req("POL-CLASS-05", "POL-CODE-03")
def test_an_unknown_class_is_refused_to_automatic_attempts_and_told_to_persons() -> None:
    strange = session(created("a"), did("a"), paused("moon_phase"))
    assert asked(strange, seconds=1000).reason == "resume_unknown_interruption_class"
    person = asked(strange, seconds=1000, actor="user")
    assert person.eligible
    assert [rule.reason for rule in person.advice] == [Reason.UNKNOWN_CLASS]


@pytest.mark.req("POL-ELIG-02", "POL-CODE-04")
def test_a_failed_step_that_may_not_be_repeated_stops_automatic_attempts_only() -> None:
    facts = Facts(unsafe_step="main.a", unsafe_because="it failed and is not idempotent")
    now = paused_for("tool_failure")
    assert asked(now, seconds=1000, facts=facts).reason == "resume_non_idempotent_step"
    assert asked(now, seconds=1000, facts=facts, actor="user").eligible


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("actor", ["user", "system"])
def test_an_unknown_outcome_binds_everyone_and_no_force_helps(actor: str, forced: bool) -> None:
    facts = Facts(unknown_step="main.a", unsafe_because="nothing shows whether it happened")
    found = asked(paused_for("timeout"), seconds=1000, facts=facts, actor=actor, forced=forced)
    assert found.reason == "resume_non_idempotent_step"


@pytest.mark.req("POL-ELIG-03", "POL-CODE-05")
def test_missing_artifacts_bind_everyone_and_are_named() -> None:
    facts = Facts(artifacts_missing=("plan snapshot", "output of main.a"))
    for actor in ("user", "system"):
        found = asked(paused_for("timeout"), seconds=1000, actor=actor, facts=facts, forced=True)
        assert found.reason == "resume_missing_runtime_artifacts"
        assert found.rules[2].because == "missing: plan snapshot, output of main.a"


def test_disabled_means_automatic_attempts_and_no_others() -> None:
    off = Limits(enabled=False)
    assert asked(paused_for("timeout"), seconds=1000, limits=off).reason == "resume_disabled"
    assert asked(paused_for("timeout"), seconds=1000, limits=off, actor="user").eligible


def test_an_automatic_attempt_leaves_a_users_pause_alone() -> None:
    now = session(created("a", "b"), did("a"), by_user(paused()))
    assert asked(now, seconds=1000).reason == "resume_paused_by_user"
    person = asked(now, seconds=4, actor="user")
    assert person.eligible and person.cooldown_s_remaining == 0


def test_a_person_is_told_about_the_cool_down_and_not_held_by_it() -> None:
    found = asked(paused_for("timeout"), seconds=10, actor="user")
    assert found.eligible and found.cooldown_s_remaining > 0
    assert [rule.reason for rule in found.advice] == [Reason.COOLDOWN]


# Attempts.


def crashed_again(count: int, *, counted: bool = True, automatic: bool = False) -> Session:
    words: list[Any] = [created("a"), started("a"), failed("a"), paused("step_failed", "tool_failure")]
    for attempt in range(2, count + 2):
        words += [resumed(counted=counted, automatic=automatic), executing(), started("a", attempt)]
        words += [failed("a", attempt), paused("step_failed", "tool_failure")]
    return session(*words)


@pytest.mark.req("POL-ELIG-04", "POL-ESC-01", "FR-040b-52", "FR-040b-54", "SEC-040b-05")
@pytest.mark.parametrize("actor", ["user", "system"])
def test_three_attempts_without_progress_are_the_limit_for_everyone(actor: str) -> None:
    """UT-040b-12"""
    assert LIMITS.attempts_max == 3
    reasons = [asked(crashed_again(count), seconds=10_000, actor=actor).reason for count in range(5)]
    assert reasons == [Reason.ALLOWED] * 3 + [Reason.LIMIT] * 2


@pytest.mark.req("POL-CODE-07", "POL-ESC-02", "FR-040b-55", "FR-040b-56")
def test_at_the_limit_the_run_is_escalated_and_stays_paused() -> None:
    """UT-040b-15"""
    now = crashed_again(3)
    found = asked(now, seconds=10_000)
    assert (found.reason, found.run_state) == ("resume_attempt_limit_reached", "resume_escalated")
    assert now.state is State.PAUSED


@pytest.mark.req("FR-040b-53")
def test_the_limit_comes_from_the_configuration() -> None:
    assert asked(crashed_again(1), seconds=10_000, limits=Limits(attempts_max=1)).reason is Reason.LIMIT
    assert asked(crashed_again(9), seconds=10_000, limits=Limits(attempts_max=10)).eligible


@pytest.mark.req("POL-ESC-03")
@pytest.mark.parametrize("actor", ["user", "system"])
def test_force_grants_one_attempt_and_leaves_the_counter(actor: str) -> None:
    now = crashed_again(3)
    found = asked(now, seconds=10_000, actor=actor, forced=True)
    assert found.eligible and found.attempt == 4 and found.forced
    assert found.run_state == "resume_escalated"
    assert asked(crashed_again(4), seconds=10_000, actor=actor).reason is Reason.LIMIT


def test_an_escalation_for_another_reason_binds_below_the_limit_too() -> None:
    """A failed validation after a resume escalates at once, at whatever count."""
    up = ev.EscalatedToPerson(reason_code="post_resume_validation_failed")
    now = session(created("a"), did("a"), paused("environment", "tool_failure"), up)
    assert asked(now, seconds=10_000, actor="user").reason is Reason.LIMIT
    assert asked(now, seconds=10_000, actor="user", forced=True).eligible


def test_progress_gives_the_attempts_back_unless_they_are_counted_per_run() -> None:
    words: list[Any] = [created("a", "b"), started("a")]
    words += [crash(), resumed(), crash(), resumed(), crash(), resumed(), completed("a"), started("b")]
    now = session(*words)
    assert asked(now, seconds=10_000).attempt == 1
    per_run = Limits(attempts="per_run")
    found = asked(now, seconds=10_000, limits=per_run)
    assert (found.attempt, found.reason) == (4, Reason.LIMIT)
    assert run_state(now, per_run) == "resume_escalated" and run_state(now, LIMITS) == "in_progress"


def test_the_total_cap_binds_automatic_attempts_only() -> None:
    now = msgspec.structs.replace(session(created("a"), started("a")), resumes_automatic=20)
    found = asked(now, seconds=10_000)
    assert found.reason is Reason.LIMIT
    assert "20 automatic ones in all" in next(rule.because for rule in found.rules if rule.reason is Reason.LIMIT)
    assert asked(now, seconds=10_000, actor="user").eligible
    below = msgspec.structs.replace(now, resumes_automatic=19)
    assert asked(below, seconds=10_000).eligible


def test_what_is_refused_changes_no_later_decision() -> None:
    words: list[Any] = [created("a"), started("a"), failed("a"), paused("step_failed", "tool_failure")]
    undisturbed = asked(session(*words), seconds=10_000)
    for _ in range(50):
        words.append(decided(False))
    assert asked(session(*words), seconds=10_000).reason is undisturbed.reason
    assert asked(session(*words), seconds=10_000).attempt == undisturbed.attempt


def test_resumes_after_a_users_pause_use_up_no_attempt() -> None:
    words: list[Any] = [created("a", "b"), did("a")]
    for _ in range(10):
        words += [by_user(paused()), resumed(counted=False), executing()]
    assert asked(session(*words, by_user(paused())), seconds=10_000, actor="user").attempt == 1


@pytest.mark.req("POL-AUDIT-02")
def test_each_rule_says_by_what_it_is_met_or_not() -> None:
    now = crashed_again(1)
    because = {rule.reason: rule.because for rule in asked(now, seconds=10_000).rules}
    limit = because.pop(Reason.LIMIT)
    assert limit.startswith("1 of 3 ") and limit.endswith(" since the last progress")
    assert because == {
        Reason.MISSING_CHECKPOINT: f"the log is whole up to event {now.seq}",
        Reason.UNKNOWN_CLASS: f"tool_failure: step main.a: it failed (event {now.seq - 2})",
        Reason.MISSING_ARTIFACTS: "all are there",
        Reason.DISABLED: "resume.enabled is true",
        Reason.NON_IDEMPOTENT: "nothing is left open",
        Reason.PAUSED_BY_USER: "it was not the user",
        Reason.COOLDOWN: "nothing to wait for",
    }
    repeatable = Facts(unsafe_because="main.a is declared repeatable")
    facts = Facts(unsafe_step="main.a", unsafe_because="it failed")
    said = {
        rule.reason: rule.because
        for rule in asked(now, seconds=15, limits=Limits(enabled=False, attempts="per_run"), facts=facts).rules
    }
    assert said[Reason.DISABLED] == "resume.enabled is false"
    assert said[Reason.LIMIT].endswith(" in this run")
    assert said[Reason.NON_IDEMPOTENT] == "main.a: it failed"
    assert "28 s remain" in said[Reason.COOLDOWN] and "30 s" in said[Reason.COOLDOWN]
    assert asked(now, seconds=15, facts=repeatable).rules[5].because == "main.a is declared repeatable"
    strange = session(created("a"), did("a"), paused("moon_phase"))
    assert asked(strange, seconds=1000).rules[1].because == "unknown: paused for an unknown reason: moon_phase"
    person = session(created("a", "b"), did("a"), by_user(paused()))
    assert asked(person, seconds=1000).rules[1].because == "none needed: paused by the user"
    assert asked(person, seconds=1000).rules[6].because == "paused by the user"


# The audit event.


@pytest.mark.req("POL-AUDIT-01")
def test_the_audit_event_has_exactly_the_fields_of_the_contract() -> None:
    plain = msgspec.to_builtins(decided(False))
    assert {*plain} - {"type"} | {"event"} == {
        "event",
        "run_id",
        "interruption_class",
        "eligible",
        "reason_code",
        "cooldown_seconds_remaining",
        "attempt",
        "max_attempts",
        "at",
        "actor",
    }
    assert plain["type"] == decided(False).event == "resume_decision"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ([finished()], "completed"),
        ([ev.SessionFailed(reason="x")], "failed"),
        ([ev.SessionCancelled()], "failed"),
        ([], "in_progress"),
        ([paused()], "in_progress"),
        ([paused("step_failed", "tool_failure")], "failed"),
        ([paused("timeout", "timeout")], "in_progress"),
        ([ev.EscalatedToPerson(reason_code="x")], "resume_escalated"),
    ],
)
def test_the_run_state_is_one_of_the_policys_own_words(words: list[Any], state: str) -> None:
    assert run_state(session(created("a"), did("a"), words), LIMITS) == state


# What a person reads who asks why.


def test_the_rules_are_told_in_the_order_of_their_precedence_by_these_sentences() -> None:
    now = session(created("a"), started("a"), crash())
    decision = decide(now, classify(now), LIMITS, now=at(1_000), actor="system", facts=SOUND)
    assert [(rule.name, rule.reason) for rule in decision.rules] == [
        ("a valid checkpoint of an unfinished run exists", Reason.MISSING_CHECKPOINT),
        ("the interruption is classified", Reason.UNKNOWN_CLASS),
        ("plan snapshot, state and history are readable", Reason.MISSING_ARTIFACTS),
        ("automatic resume is enabled", Reason.DISABLED),
        ("attempts are left", Reason.LIMIT),
        ("the last attempted step may be repeated", Reason.NON_IDEMPOTENT),
        ("the user did not pause it", Reason.PAUSED_BY_USER),
        ("the cool-down has passed", Reason.COOLDOWN),
    ]


@pytest.mark.parametrize("actor", ["system", "user"])
def test_a_decision_says_for_whom_and_within_which_limit_it_was_made(actor: str) -> None:
    now = session(created("a"), started("a"), crash())
    limits = Limits(attempts_max=7)
    decision = decide(now, classify(now), limits, now=at(1_000), actor=actor, facts=SOUND)
    assert (decision.actor, decision.attempts_max) == (actor, 7)


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "58 s remain of the 60 s cool-down"), (1_000, "nothing to wait for")]
)
def test_the_cool_down_is_told_with_what_remains_and_of_how_much(seconds: int, words: str) -> None:
    now = session(created("a"), started("a"), crash())
    decision = decide(now, classify(now), LIMITS, now=at(seconds), actor="system", facts=SOUND)
    assert decision.rules[-1].because == words

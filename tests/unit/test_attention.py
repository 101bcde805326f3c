"""What a session needs from a person, in one word and in the same words everywhere."""

from __future__ import annotations

import pytest

from acode.attention import Attention, attention_of, state_in_words
from acode.events import types as ev
from acode.policy import Facts, Limits, decide
from acode.resume_point import classify
from acode.state import Session
from tests.builders import (
    at,
    awaiting,
    created,
    did,
    executing,
    failed,
    finished,
    gate,
    paused,
    resumed,
    session,
    started,
)

GRANTED = ev.ApprovalGranted(step="main.ask", question="Go?", action_digest="d")
DENIED = ev.ApprovalDenied(step="main.ask", question="Go?", action_digest="d")
ESCALATED = ev.EscalatedToPerson(reason_code="resume_attempt_limit_reached")
CRASHED = session(created("a", "b"), did("a"), started("b"))
WAITING = session(created(gate("ask"), "b"), awaiting("ask"))


def needs(
    now: Session, *, running: bool = False, unknown: str | None = None, changed: bool = False
) -> Attention | None:
    if now.terminal:
        return attention_of(now, None, running=running, changed=changed)
    facts = Facts(unknown_step=unknown)
    decision = decide(now, classify(now), Limits(), now=at(99), actor="system", facts=facts)
    return attention_of(now, decision, running=running, changed=changed)


@pytest.mark.parametrize(
    ("now", "needed", "words"),
    [
        (CRASHED, "crashed", "crashed"),
        (session(created("a")), "crashed", "crashed"),
        (WAITING, "approve", "needs you: approve"),
        (session(created(gate("ask")), awaiting("ask"), DENIED, paused("denied")), "approve", "needs you: approve"),
        (session(created(gate("ask")), awaiting("ask"), GRANTED), None, "approved, to resume"),
        (session(created("a"), started("a"), failed("a"), paused("step_failed", "tool_failure")), None, "PAUSED"),
        (session(created("a"), paused()), None, "PAUSED"),
        (session(created("a"), paused(), ESCALATED), "escalated", "needs you: escalated"),
        (session(created("a"), did("a"), finished()), None, "COMPLETED"),
    ],
)
def test_a_session_is_shown_as_what_it_needs(now: Session, needed: Attention | None, words: str) -> None:
    assert needs(now) == needed
    assert state_in_words(now, needed, running=False) == words


def test_while_a_process_runs_it_only_a_question_needs_somebody() -> None:
    assert needs(CRASHED, running=True) is None and needs(WAITING, running=True) == "approve"
    assert state_in_words(CRASHED, None, running=True) == "EXECUTING (running)"


def test_an_outcome_is_told_before_an_attempt_is_granted() -> None:
    stopped = session(created("a"), started("a"), paused("outcome_unknown", step="main.a"), ESCALATED)
    assert needs(stopped, unknown="main.a") == "resolve"
    assert needs(stopped) == "escalated"


def test_a_gate_that_is_asked_once_more_waits_for_a_new_answer() -> None:
    again = session(created(gate("ask")), awaiting("ask"), GRANTED, resumed(), executing(), awaiting("ask"))
    assert needs(again) == "approve"


def test_files_that_somebody_changed_are_named_where_they_were_looked_at() -> None:
    assert needs(session(created("a"), paused()), changed=True) == "changed_files"
    assert needs(WAITING, changed=True) == "approve"

"""The pure parts of the page and the report: escaping, bars, the axis of time, the decision trail."""

from __future__ import annotations

from datetime import timedelta

import pytest

from acode.events import types as ev
from acode.ui.axis import WIDTH, Axis
from acode.ui.html import Html, el, join, text
from acode.ui.timeline import Gap, timeline_of
from acode.ui.trail import trail_of
from tests.builders import (
    at,
    awaiting,
    by_user,
    completed,
    crash,
    created,
    decided,
    did,
    failed,
    log,
    passing,
    paused,
    resumed,
    settled,
    started,
)


@pytest.mark.parametrize("hostile", ["<script>", '" onload="x', "a & b", "</pre>", "'"])
def test_text_is_escaped_in_content_and_attributes(hostile: str) -> None:
    made = el("p", hostile, title=hostile)
    for raw in ("<script>", '" onload', "</pre>"):
        assert raw not in made.removeprefix("<p").removesuffix("</p>")
    assert "&amp; b" in made if "&" in hostile else True


@pytest.mark.parametrize("steering", ["\x1b[31m", "\x9b31m", "\u202e", "\u2066", "\x00", "\ud800"])
def test_characters_that_steer_or_hide_are_spelled_out(steering: str) -> None:
    assert steering[0] not in text(f"a{steering}b")


def test_lines_and_tabs_stay_and_markup_is_joined_as_it_is() -> None:
    assert text("a\r\nb\tc") == "a\nb\tc"
    assert join(Html("<b>"), "<i>", None, ["x", Html("</b>")]) == "<b>&lt;i&gt;x</b>"
    assert el("input", disabled=True, hidden=False, value=None) == "<input disabled>"


# Times.


def test_each_attempt_is_a_bar_with_its_end_and_evidence() -> None:
    found = timeline_of(log(created("a", "b"), started("a"), failed("a"), started("a", 2), completed("a", 2)))
    assert found is not None
    attempts = found.steps["main.a"].attempts
    assert [(one.number, one.status) for one in attempts] == [(1, "failed"), (2, "completed")]
    assert all(one.end is not None for one in attempts)


def test_time_in_which_nothing_ran_is_dead_after_a_crash_and_waiting_after_a_pause() -> None:
    dead = timeline_of(log(created("a"), started("a"), crash(), passing(60), decided(True), resumed()))
    waited = timeline_of(log(created("a"), paused(), passing(60), decided(True), resumed()))
    assert dead is not None
    assert waited is not None
    assert [one.dead for one in dead.gaps] == [True]
    assert [one.dead for one in waited.gaps] == [False]


def test_an_unknown_outcome_keeps_its_bar_open_until_it_is_settled() -> None:
    words = [created("a"), started("a"), crash(), resumed(), settled("a", "unknown")]
    found = timeline_of(log(*words))
    assert found is not None
    assert (found.steps["main.a"].attempts[0].status, found.steps["main.a"].attempts[0].end) == ("unknown", None)
    found = timeline_of(log(*words, settled("a", "not_applied")))
    assert found is not None
    assert found.steps["main.a"].attempts[0].status == "not_applied"
    assert found.steps["main.a"].attempts[0].end is not None


def test_time_is_not_spent_on_work_by_a_resume_that_is_refused_or_an_answer() -> None:
    refused = (passing(60), decided(False), passing(600), decided(False))
    ended = timeline_of(log(created("a"), started("a"), failed("a"), paused(), *refused))
    resumed_later = timeline_of(
        log(created("a"), started("a"), crash(), *refused, passing(60), decided(True), resumed())
    )
    granted = ev.ApprovalGranted(step="main.ask", question="Go?", action_digest="d")
    answered = timeline_of(
        log(created("a"), did("a"), awaiting("ask"), passing(60), granted, passing(600), decided(True), resumed())
    )
    for found, dead, seconds in ((ended, False, 660), (resumed_later, True, 720), (answered, False, 660)):
        assert found is not None
        (gap,) = found.gaps
        assert gap.dead is dead
        assert timedelta(seconds=seconds) <= gap.end - gap.start <= timedelta(seconds=seconds + 10)


def test_a_gate_that_is_answered_while_its_process_waits_is_no_gap() -> None:
    granted = ev.ApprovalGranted(step="main.ask", question="Go?", action_digest="d")
    found = timeline_of(log(created("a"), awaiting("ask"), passing(60), granted, started("a"), completed("a")))
    assert found is not None and found.gaps == []


def test_no_events_make_no_timeline() -> None:
    assert timeline_of([]) is None


def test_the_axis_is_monotonic_and_a_night_of_dead_time_takes_little_of_it() -> None:
    night = Gap(start=at(10), end=at(10 + 8 * 3600), dead=True)
    axis = Axis(at(0), at(20 + 8 * 3600), [night])
    positions = [
        axis.x(at(second)) for second in (0, 5, 10, 10 + 4 * 3600, 10 + 8 * 3600, 15 + 8 * 3600, 20 + 8 * 3600)
    ]
    assert positions == sorted(positions)
    assert (positions[0], positions[-1]) == (0.0, WIDTH)
    assert axis.x(night.end) - axis.x(night.start) < WIDTH / 10
    assert axis.work_s == pytest.approx(20)


@pytest.mark.parametrize("count", [0, 1, 50])
def test_bars_stay_on_the_axis_and_are_never_invisible(count: int) -> None:
    gaps = [Gap(start=at(10 * n + 1), end=at(10 * n + 9), dead=True) for n in range(count)]
    axis = Axis(at(0), at(600), gaps)
    for second in range(-10, 620, 7):
        x, width = axis.bar(at(second), at(second) + timedelta(milliseconds=1))
        assert 0 <= x <= WIDTH
        assert width >= 2
        assert x + width <= WIDTH + 0.001


def test_a_session_of_one_moment_has_an_axis() -> None:
    assert Axis(at(0), at(0)).bar(at(0), at(0))[1] >= 2


# Decisions.


def test_the_trail_names_who_decided_what_and_why_and_leaves_out_ordinary_steps() -> None:
    entries = trail_of(
        log(
            created("a", "b"),
            did("a"),
            started("b"),
            crash(),
            decided(False, "resume_blocked_cooldown"),
            resumed(),
            settled("b", "unknown"),
            by_user(ev.StepSettled(step="main.b", attempt=1, outcome=ev.Settled.APPLIED, evidence="said", via="ui")),
            awaiting("c"),
        )
    )
    told = [(one.actor, one.what) for one in entries]
    assert ("system", "Resume refused") in told
    assert entries[-2].actor == "user"
    assert entries[-2].via == "ui"
    assert "took effect" in entries[-2].what
    assert not any("main.a" in one.what for one in entries)
    refused = next(one for one in entries if one.what == "Resume refused")
    assert refused.reason_code == "resume_blocked_cooldown"


def test_an_event_of_a_newer_version_is_named_in_the_trail() -> None:
    (*_, last) = trail_of(log(created("a"), ev.Unknown(type="revoked")))
    assert "revoked" in last.what

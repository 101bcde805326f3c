"""Commands whose hook was killed before it could record them: the next hook takes the front's notes over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from acode.events import types as ev
from acode.observed.doors import lone_fronts
from tests.observed.agents import EVENTS, Place, payload, wait_until
from tests.observed.test_hook import denied, told
from tests.variants import first_of

AGENTS = tuple(EVENTS)
LINE = "echo x >> ledger; echo last words"
KILLED = "echo x >> ledger; kill -9 $PPID; kill -9 $$"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run_unrecorded(place: Place, line: str, name: str = "claude") -> None:
    """The agent's prompt was heard; the hook of its call was killed; so is the agent when the command has ended."""
    with place.agent(name) as agent:
        agent.hook("prompt")
        agent.start_command(line)
        agent.answer()
        agent.kill()


def started(place: Place) -> list[ev.StepStarted]:
    return [one for one in place.history() if isinstance(one, ev.StepStarted)]


@pytest.mark.parametrize("name", first_of(*AGENTS))
def test_a_command_without_a_record_is_told_and_not_repeated_unseen(place: Place, name: str) -> None:
    run_unrecorded(place, LINE, name)
    with place.agent(name) as agent:
        words = told(agent.hook("prompt")[1])
        assert "took effect" in words and "last words" in words and "Do not run it again" in words
        assert "ran to its end before you came back" in denied(agent.begin(LINE)[1])
        assert place.lines("ledger") == ["x"]
        agent.perform(LINE)  # whoever asks again was shown the evidence
    first, second = started(place)
    assert first.call is not None and first.call.tool == "shell" and first.performer != second.performer
    assert place.types().count("repeat_denied") == 1
    assert lone_fronts(place.doors) == () and place.lines("ledger") == ["x", "x"]


def test_the_hook_before_the_same_call_denies_it_where_no_prompt_was_heard(place: Place) -> None:
    run_unrecorded(place, LINE)
    with place.agent() as agent:
        assert "ran to its end before you came back" in denied(agent.begin(LINE)[1])
        assert agent.begin("echo other") == (0, {}, "")


def test_the_line_is_known_in_the_wrapping_of_its_agent(place: Place) -> None:
    run_unrecorded(place, f"{{ {LINE}\n}}; __code=$?; exit $__code", "gemini")
    with place.agent("gemini") as agent:
        assert "ran to its end before you came back" in denied(agent.begin(LINE)[1])


def test_one_that_was_killed_with_everything_is_asked_of_a_person(place: Place) -> None:
    run_unrecorded(place, KILLED)
    with place.agent() as agent:
        assert "nothing shows whether it took effect" in told(agent.hook("start")[1])
        for _ in range(2):
            assert "acode session resolve" in denied(agent.begin(KILLED)[1])
        (flight,) = started(place)
        (row,) = place.rows()
        assert place.acode("session", "resolve", row["short_id"], flight.step, "--retry").returncode == 0
        assert agent.begin(KILLED) == (0, {}, ""), "the person has decided"
    assert place.lines("ledger") == ["x"]


def test_one_that_still_runs_is_waited_for(place: Place) -> None:
    line = "echo x >> ledger; while [ ! -e go ]; do sleep 0.02; done; echo last words"
    with place.agent() as agent:
        agent.hook("prompt")
        agent.start_command(line)
        wait_until(lambda: place.lines("ledger") != [], "the first effect")
        agent.kill()
    with place.agent() as agent:
        assert "still runs" in told(agent.hook("prompt")[1])
        assert "still runs" in denied(agent.begin(line)[1])
        (lone,) = lone_fronts(place.doors)
        (place.workspace / "go").touch()
        wait_until((lone.place / "status").exists, "the end of the command")
        words = told(agent.hook("prompt")[1])
        assert "took effect" in words and "last words" in words
        assert "ran to its end before you came back" in denied(agent.begin(line)[1])
    assert len(started(place)) == 1 and place.lines("ledger") == ["x"]
    assert lone_fronts(place.doors) == ()


def test_an_agent_that_lives_has_seen_the_end_and_is_denied_nothing(place: Place) -> None:
    with place.agent() as agent:
        agent.hook("prompt")
        agent.start_command(LINE)
        agent.answer()
        assert agent.begin(LINE) == (0, {}, "")
    assert place.types().count("step_started") == 2 and place.types().count("step_completed") == 1


def test_two_hooks_at_once_take_it_over_once(place: Place) -> None:
    run_unrecorded(place, LINE)
    data = json.dumps(payload("claude", "start", place.workspace))
    hooks = [
        subprocess.Popen([place.doors.hook], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place.env)
        for _ in range(2)
    ]
    for one in hooks:
        assert one.stdin is not None
        one.stdin.write(data)
        one.stdin.flush()
    words = [one.communicate()[0] for one in hooks]
    assert any("took effect" in one for one in words)
    assert len(started(place)) == 1 and place.types().count("step_completed") == 1


@pytest.mark.parametrize("stopped_before", first_of("copy_notes", "remove"))
def test_a_hook_that_is_killed_in_between_is_continued_by_the_next(place: Place, stopped_before: str) -> None:
    run_unrecorded(place, LINE)
    data = json.dumps(payload("claude", "start", place.workspace))
    code = (
        "import os, sys\n"
        "from acode.observed import doors, hook, lone_calls\n"
        f"lone_calls.{stopped_before} = lambda *given: os.kill(os.getpid(), 9)\n"
        "hook.handle(sys.stdin.buffer.read(), os.environ, doors.at(sys.argv[1]), os.getppid())\n"
    )
    line = [sys.executable, "-c", code, os.fspath(place.doors.directory)]
    ended = subprocess.run(line, input=data, text=True, env=place.env, check=False)
    assert ended.returncode == -9 and len(started(place)) == 1
    with place.agent() as agent:
        assert "took effect" in told(agent.hook("start")[1])
        assert "ran to its end before you came back" in denied(agent.begin(LINE)[1])
    assert len(started(place)) == 1 and place.types().count("step_completed") == 1
    assert lone_fronts(place.doors) == ()


# What is not this session's.


def other_answers(place: Place, **more: Any) -> str:
    with place.agent() as agent:
        return told(agent.hook("start", **more)[1])


def test_what_another_session_of_the_workspace_left_stays_for_its_return(place: Place) -> None:
    run_unrecorded(place, LINE)
    assert other_answers(place, session="another") == ""
    assert len(lone_fronts(place.doors)) == 1
    assert "took effect" in other_answers(place)


def test_what_was_run_in_another_workspace_stays_where_it_is(place: Place) -> None:
    elsewhere = place.base / "elsewhere"
    (elsewhere / ".git").mkdir(parents=True)
    assert other_answers(place, session="elsewhere", directory=elsewhere) == ""
    with place.agent() as agent:  # no hook of it was ever heard
        agent.start_command(LINE)
        agent.answer()
        agent.kill()
    assert other_answers(place, session="elsewhere", directory=elsewhere) == ""
    assert len(lone_fronts(place.doors)) == 1


def test_one_of_a_process_that_no_hook_has_named_is_found_by_its_directory(place: Place) -> None:
    assert other_answers(place) == ""
    with place.agent() as agent:
        agent.start_command(LINE)
        agent.answer()
        agent.kill()
    assert "took effect" in other_answers(place)


def test_what_is_older_than_the_session_stays_where_it_is(place: Place) -> None:
    with place.agent() as agent:
        agent.start_command(LINE)
        agent.answer()
        agent.kill()
    assert other_answers(place) == ""
    assert len(lone_fronts(place.doors)) == 1

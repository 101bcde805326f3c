"""A step that one process begins and another ends: who performs it decides whether it has crashed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.engine import session_commands, split_step
from acode.engine.create import create_program
from acode.engine.held_session import held
from acode.engine.world import World
from acode.errors import OutcomeUnknown, StepStillRunning, Usage
from acode.events import types as ev
from acode.events.definition import Call, Step
from acode.steps.interface import Done
from tests.worlds import world

STEP = Step(id="pay", action=Call(function="shell"))
ASKED = ev.Asked(arguments="x", after=None)


@pytest.fixture
def here(tmp_path: Path) -> World:
    (tmp_path / "workspace").mkdir()
    return world(tmp_path)


@pytest.fixture
def session(here: World) -> str:
    with create_program(here, "observed", entry=None, arguments={}) as run:
        return run.session.session_id


@pytest.fixture
def agent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def begin(here: World, session: str, pid: int) -> ev.StepStarted:
    return split_step.begin_for(here, session, STEP, split_step.performer(pid, "the agent"), asked=ASKED)


def test_in_between_the_session_is_free_for_others(here: World, session: str, agent: subprocess.Popen[bytes]) -> None:
    started = begin(here, session, agent.pid)
    with held(here, session) as run:
        assert run.session.in_flight["pay"].started.performer == split_step.performer(agent.pid, "the agent")
    split_step.end_for(here, session, started.key, Done(result={"v": 1}))
    split_step.complete_for(here, session)


def test_the_step_of_a_living_performer_is_not_settled(
    here: World, session: str, agent: subprocess.Popen[bytes]
) -> None:
    begin(here, session, agent.pid)
    with pytest.raises(StepStillRunning, match="is alive and performs it"):
        session_commands.resolve(here, session, "pay", "not_applied", note="", force=False)
    with pytest.raises(OutcomeUnknown, match="has not ended"):
        begin(here, session, agent.pid)
    with pytest.raises(OutcomeUnknown, match="still run"):
        split_step.complete_for(here, session)


def test_a_zombie_performs_nothing(here: World, session: str, agent: subprocess.Popen[bytes]) -> None:
    begin(here, session, agent.pid)
    agent.kill()
    os.waitid(os.P_PID, agent.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    session_commands.resolve(here, session, "pay", "not_applied", note="", force=False)
    with pytest.raises(Usage, match="has ended"):
        split_step.performer(agent.pid, "the agent")


def test_a_late_end_of_an_earlier_attempt_changes_nothing(
    here: World, session: str, agent: subprocess.Popen[bytes]
) -> None:
    first = begin(here, session, agent.pid)
    session_commands.resolve(here, session, "pay", "retry", note="", force=True)
    second = begin(here, session, agent.pid)
    assert second.attempt == first.attempt + 1
    with pytest.raises(Usage, match="no step with the key"):
        split_step.end_for(here, session, first.key, Done())
    split_step.end_for(here, session, second.key, Done())

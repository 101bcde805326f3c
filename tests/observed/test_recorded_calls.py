"""The recorded calls of an agent, as `acode hook check` asks for them."""

from __future__ import annotations

from pathlib import Path

from acode.observed.doors import lone_fronts
from acode.observed.recorded_calls import FrontNotes, recorded_calls
from tests.observed.agents import Place
from tests.worlds import world


def test_a_probe_is_found_with_the_words_of_hook_and_front(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with place.agent() as agent:
        agent.perform("echo probe-1")
        agent.begin("echo probe-2")
        agent.start_command("echo probe-3")
        agent.answer()
    (probe,) = recorded_calls(world(tmp_path), agent="claude", command="echo probe-1")
    assert probe.ended and probe.front == FrontNotes(began=True, ended=True, exit=0)
    (unseen,) = recorded_calls(world(tmp_path), agent="claude", command="echo probe-2")
    assert not unseen.ended and unseen.front is None
    assert recorded_calls(world(tmp_path), agent="codex") == ()
    assert [one.command for one in lone_fronts(place.doors, "echo probe-3")] == ["echo probe-3"]

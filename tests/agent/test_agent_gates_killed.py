"""An agent's session killed where nobody works: around the plan, its gate, a question, the shortening of its talk."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acode.events import types as ev
from acode.store.journal import Journal
from tests.agent.town import GOAL, Town, call, in_child, kill_self, plan_turn, served, task_turns
from tests.driver import Acode

SETTINGS = "model: {context_tokens: 3000}\nresume: {max_resume_attempts: 1000}\n"
NOTED = ["Your task now: Work", "What you noted down"]
SCRIPT: dict[str, Any] = {
    "models": ["scripted"],
    "turns": [
        plan_turn({"id": "work"}),
        {"says": "The record of a piece of work follows", "text": "Searched for words."},
        {"says": NOTED, "answers": 0, "calls": [call("ask_user", question="Which colour?")]},
        {"says": NOTED, "answers": 1, "text": "Done."},
        task_turns("Work", *[{"text": "x" * 3000, "calls": [call("search", text=f"w{n}")]} for n in range(3)]),
    ],
}
DEADLY = (ev.PlanChanged, ev.SessionAwaitingApproval, ev.ApprovalGranted, ev.ContextCompacted, ev.SessionExecuting)
LIVES_MAX = 100


@pytest.fixture
def town(acode: Acode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    with served(SCRIPT, tmp_path / "model") as (url, asked):
        for name, value in (("ACODE_MODEL", "scripted"), ("ACODE_MODEL_BASE_URL", url)):
            monkeypatch.setenv(name, value)
        town = Town(acode, url, asked)
        town.configure(SETTINGS)
        yield town


def lived(visited: set[str], words: list[str]) -> tuple[int, str]:
    """One life, which ends at the first of these events at which none has ended before, or by itself."""
    reading, writing = os.pipe()

    def live() -> int:
        from acode.cli import main

        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        append = Journal.append

        def die(phase: str, events: tuple[Any, ...]) -> None:
            names = [type(event).__name__ + getattr(event, "step", "") for event in events if isinstance(event, DEADLY)]
            place = json.dumps([phase, names])
            if names and place not in visited:
                os.write(writing, place.encode())
                kill_self()

        def watched(self: Journal, *events: Any, **how: Any) -> Any:
            die("before", events)
            done = append(self, *events, **how)
            die("after", events)
            return done

        Journal.append = watched  # type: ignore[method-assign]  # in this child alone
        return main(words)

    status = in_child(live)
    os.close(writing)
    told = os.read(reading, 4096).decode()
    os.close(reading)
    return status, told


@pytest.mark.timeout(300)  # a busy machine gives each of its lives a second
def test_killed_at_every_gate_and_shortening_each_question_is_asked_once_and_answered_once(town: Town) -> None:
    visited: set[str] = set()
    words = ["-C", str(town.workspace), "run", GOAL]
    answered = 0
    for _ in range(LIVES_MAX):
        status, place = lived(visited, words)
        words = ["-C", str(town.workspace), "resume", "--last"]
        if place:
            visited.add(place)
        elif status == 10:
            assert town.acode("session", "approve", town.short, "--note", "blue").exit_code == 0
            answered += 1
        else:
            break
    assert status == 0, f"after {visited}"
    assert answered == 2, "the plan and the model's question"
    assert len(visited) >= 10, visited
    assert set(town.asked().values()) == {1}, "no kill was at a request, so none was made twice"
    history = town.acode("session", "history", town.short, "--json", "--limit", "1000").stdout
    assert history.count('"context_compacted"') == 1
    assert "blue" in history

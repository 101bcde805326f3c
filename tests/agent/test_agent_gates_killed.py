"""An agent's session killed where nobody works: around the plan, its gate, a question, the shortening of its talk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acode.events import types as ev
from tests.agent.killing import lived
from tests.agent.town import GOAL, Town, call, plan_turn, served, task_turns
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


def gate(phase: str, events: tuple[Any, ...]) -> str | None:
    names = [type(event).__name__ + getattr(event, "step", "") for event in events if isinstance(event, DEADLY)]
    return f"{phase} {' '.join(names)}" if names else None


@pytest.mark.timeout(300)  # a busy machine gives each of its lives a second
def test_killed_at_every_gate_and_shortening_each_question_is_asked_once_and_answered_once(town: Town) -> None:
    visited: set[str] = set()
    words = ["-C", str(town.workspace), "run", GOAL]
    answered = 0
    for _ in range(LIVES_MAX):
        status, place = lived(words, gate, visited)
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

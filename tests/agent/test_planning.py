"""A plan between the model and a person: what was edited and approved is what is done, whenever a crash comes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acode.agent.context import Context
from acode.agent.messages import Reply
from acode.agent.planning import plan_of, plan_work
from acode.engine.world import Nobody
from acode.errors import BadPlan
from acode.events import types as ev
from acode.store.journal import Journal
from tests.agent.desk import SETUP, Desk
from tests.agent.town import in_child, kill_self

DRAFT = {"title": "Drafted", "tasks": [{"id": "work", "title": "Work", "needs": [], "steps": ["do"]}]}


class Editing(Nobody):
    """A person who gives every plan another title."""

    def __init__(self, asked: Path) -> None:
        self.asked = asked

    def plan(self, session: Any, text: str, wrong: str) -> Any:
        with self.asked.open("a") as file:
            file.write(text.splitlines()[0] + "\n")
        return "yes", text.replace("Drafted", "Edited")


def planned(desk: Desk) -> tuple[str, str]:
    """One life of planning: the title of what is to be done, and of the plan that the session shows."""
    with desk.life() as context:
        planning = Context(
            context.steps,
            SETUP,
            {"plan": "Plan.", "compact": "", "tools": "none"},
            "goal",
            lambda *_, **__: Reply(text=json.dumps(DRAFT)),
        )
        found = planning.task("plan", "Plan", [], lambda: plan_work(planning, approved=False))
        shown = context.steps.run.session.plan
        assert shown is not None
        return found["title"], shown.title


def killed(desk: Desk, phase: str) -> None:
    """Planning is killed before or after the log hears that the plan was approved."""

    def live() -> int:
        append = Journal.append

        def watched(self: Journal, *events: Any, **how: Any) -> Any:
            granted = any(isinstance(event, ev.ApprovalGranted) for event in events)
            if granted and phase == "before":
                kill_self()
            done = append(self, *events, **how)
            if granted:
                self.settle(done[-1].seq, durable=False)
                kill_self()
            return done

        Journal.append = watched  # type: ignore[method-assign]  # in this child alone
        planned(desk)
        return 0

    assert in_child(live) == -9


@pytest.mark.parametrize(("phase", "times"), [("before", 2), ("after", 1)])
def test_an_edited_plan_survives_a_crash_with_its_approval_or_is_asked_about_again(
    tmp_path: Path, phase: str, times: int
) -> None:
    asked = tmp_path / "asked"
    desk = Desk(tmp_path, answers=Editing(asked))
    killed(desk, phase)
    assert planned(desk) == ("Edited", "Edited")
    assert planned(desk) == ("Edited", "Edited"), "and in every later life"
    assert asked.read_text().splitlines() == ["title: Drafted"] * times
    changes = [event.reason for event in desk.events() if isinstance(event, ev.PlanChanged)]
    assert changes == ["the model's plan", "edited by a person"]


@pytest.mark.parametrize("text", ["{" * 100_000 + "}", "[1]", "{'a': 1}", ""])
def test_what_is_no_plan_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadPlan):
        plan_of(text)

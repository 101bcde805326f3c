"""An agent's session at a real terminal: the plan is shown, edited and approved; tools and questions are answered."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.town import GOAL, Town, call, plan_turn, served, task_turns
from tests.driver import Acode
from tests.terminals import Terminal, ended

LONG_S = 60  # the model library takes its time to load on a busy machine


@pytest.fixture
def town(acode: Acode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    script = {
        "models": ["scripted"],
        "turns": [
            plan_turn({"id": "work", "title": "Greet"}),
            task_turns(
                "Greet",
                {"text": "Whom?\n", "calls": [call("ask_user", question="Whom shall I greet?")]},
                {"calls": [call("run_command", command="echo hello > greeting")]},
                {"calls": [call("run_command", command="echo again >> greeting")]},
                {"text": "All are greeted.\n"},
            ),
            task_turns("Welcome", {"text": "Welcomed.\n"}),
        ],
    }
    with served(script, tmp_path / "model") as (url, ledger):
        for name, value in (("ACODE_MODEL", "scripted"), ("ACODE_MODEL_BASE_URL", url)):
            monkeypatch.setenv(name, value)
        yield Town(acode, url, ledger)


def test_a_person_approves_the_plan_answers_and_allows_for_as_long_as_it_runs(town: Town, terminal: Terminal) -> None:
    child = terminal("run", GOAL)
    child.timeout = LONG_S
    child.expect_exact("title: Greet")
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.sendline("a")
    child.expect_exact("The model asks: Whom shall I greet?")
    child.sendline("the world")
    child.expect_exact("The model wants to: Run: echo hello > greeting")
    child.sendline("always")
    child.expect_exact("All are greeted.")
    assert ended(child) == 0
    assert (town.workspace / "greeting").read_text() == "hello\nagain\n"


@pytest.mark.release
def test_what_was_allowed_for_a_session_is_asked_again_after_an_interruption(town: Town, terminal: Terminal) -> None:
    child = terminal("run", GOAL, "--approve-plan")
    child.timeout = LONG_S
    child.expect_exact("Whom shall I greet?")
    child.sendline("the world")
    child.expect_exact("The model wants to: Run: echo hello > greeting")
    os.kill(child.pid, 9)
    child.close(force=True)
    child = terminal("resume", "--last")
    child.timeout = LONG_S
    child.expect_exact("The model wants to: Run: echo hello > greeting")  # asked again, and not the question before it
    child.sendline("")
    child.expect_exact("The model wants to: Run: echo again >> greeting")
    child.sendline("y")
    assert ended(child) == 0
    assert (town.workspace / "greeting").read_text() == "again\n", "Enter was a no, for the first command alone"


def test_keys_that_were_pressed_before_the_plan_was_shown_do_not_approve_it(town: Town, terminal: Terminal) -> None:
    child = terminal("run", GOAL)
    child.timeout = LONG_S
    child.expect_exact("Plan the work")
    child.sendline("a")  # while the model is still at it
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.sendline("d")
    assert ended(child) == 12
    assert town.files() == {}


@pytest.mark.release
def test_the_plan_can_be_edited_and_a_broken_edit_is_explained(
    town: Town, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nif grep -q broken \"$1\"; then sed -i s/broken:/title:/ \"$1\"; else\n"
                      "sed -i -e s/Greet/Welcome/ -e '0,/title:/s//broken:/' \"$1\"; fi\n")  # fmt: skip
    editor.chmod(editor.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("EDITOR", str(editor))
    child = terminal("run", GOAL)
    child.timeout = LONG_S
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.sendline("e")
    child.expect_exact("title: Welcome")
    child.sendline("a")
    child.expect_exact("It cannot be used:")
    child.expect_exact("broken")
    child.sendline("e")
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.sendline("a")
    child.expect_exact("Welcomed.")
    assert ended(child) == 0


@pytest.mark.release
def test_a_denied_plan_ends_with_its_status_and_the_way_on(town: Town, terminal: Terminal) -> None:
    child = terminal("run", GOAL)
    child.timeout = LONG_S
    child.expect_exact("[A]pprove, [E]dit or [D]eny? [D] ")
    child.sendline("")
    child.expect_exact("the plan was not approved")
    child.expect_exact("To resume: acode resume")
    assert ended(child) == 12

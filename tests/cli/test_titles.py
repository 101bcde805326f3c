"""Titles of steps: shown in place of shell source, and no part of what an approval is bound to."""

from __future__ import annotations

import re

from acode.text.durations import shortened
from tests.cli.plans import save
from tests.driver import Acode
from tests.terminals import Terminal, ended

LONG = "printf '%s' " + "x" * 300 + " | tail -c 1 > last.txt"
PLAN = f"""\
title: Release
tasks:
  - id: ship
    steps:
      - write: {{path: a.txt, content: a}}
        title: Write the notes
      - approve: Upload it?
        id: gate
        title: Ask the owner
      - run: cat go.txt
        id: upload
        title: TITLE
      - run: {LONG}
        id: long
        idempotent: true
"""


def plan(title: str = "Upload the build") -> str:
    return PLAN.replace("TITLE", title)


def test_the_title_stands_wherever_the_command_would(acode: Acode) -> None:
    save(acode.workspace, plan())
    ran = acode("run", "plan.yml")
    assert "Task 1, Step 1: Write the notes" in ran.stderr
    acode("session", "approve", session(acode))
    told = acode("resume", "--last")
    assert told.exit_code == 1 and "Step 3: Upload the build" in told.stderr
    for command in (("status",), ("explain",), ("session", "show"), ("resume", "--last", "--dry-run")):
        shown = acode(*command).stdout
        assert "Upload the build" in shown, command
        assert "Run cat go.txt" not in shown, command
    (task,) = acode("session", "show", "--json").json["tasks"]
    assert [step["title"] for step in task["steps"]][:3] == ["Write the notes", "Ask the owner", "Upload the build"]


def session(acode: Acode) -> str:
    return str(acode("session", "list", "--json").json[0]["short_id"])


def test_a_gate_names_the_title_and_the_command_that_a_yes_allows(acode: Acode) -> None:
    save(acode.workspace, plan())
    (asked,) = (one for one in acode("run", "plan.yml", "--json").lines if one["event"] == "approval_request")
    assert asked["data"]["covers"][0] == "Upload the build: Run cat go.txt"


def test_a_long_command_is_shortened_in_its_middle(acode: Acode) -> None:
    (acode.workspace / "go.txt").write_text("go\n")
    save(acode.workspace, plan())
    acode("run", "plan.yml")
    acode("session", "approve", session(acode))
    told = acode("resume", "--last")
    assert told.exit_code == 0
    line = next(line for line in told.stderr.splitlines() if "Step 4:" in line)
    assert len(line) < 160
    assert re.search(r"Run printf '%s' x+…x+ \| tail -c 1 > last.txt", line)
    assert LONG not in acode("session", "show").stdout


def test_another_title_makes_no_approval_void_and_no_plan_a_new_one(acode: Acode) -> None:
    (acode.workspace / "go.txt").write_text("go\n")
    save(acode.workspace, plan("First words"), "one.yml")
    assert acode("run", "one.yml").exit_code == 10
    save(acode.workspace, plan("Other words"), "two.yml")
    told = acode("run", "two.yml", "--json")
    assert told.exit_code == 10 and session(acode) in told.json["error"]["hint"]


def test_a_title_is_one_line_without_control_characters(acode: Acode) -> None:
    save(acode.workspace, 'tasks:\n- id: a\n  steps:\n  - run: x\n    title: "a\\e[2J"\n  - run: x\n    title: [a]\n')
    told = acode("check", "plan.yml")
    assert told.exit_code == 2
    assert [line.split(": ")[0] for line in told.stdout.splitlines()] == ["plan.yml:5:12", "plan.yml:7:12"]


def test_a_question_about_an_unknown_outcome_names_the_step(acode: Acode, terminal: Terminal) -> None:
    steps = (
        "      - run: printf %sready now; echo; while [ ! -e go.txt ]; do sleep 0.05; done\n        title: Book it\n"
    )
    save(acode.workspace, f"title: t\ntasks:\n  - id: t\n    steps:\n{steps}")
    running = acode.process("run", "plan.yml")
    running.wait_for_line("nowready")
    running.kill_everything()
    person = terminal("resume", "--last")
    person.expect("Step t.1 was in progress, and its outcome is unknown")
    person.expect("Step: Book it")
    person.expect("Choice")
    person.sendline("s")
    assert ended(person) == 19


def test_shortening_keeps_both_ends_and_the_limit() -> None:
    for limit in range(1, 30):
        assert len(shortened("abcdefghij" * 5, limit)) <= limit
    assert shortened("short", 5) == "short"
    assert shortened("abcdefghij", 7) == "abcd…ij"

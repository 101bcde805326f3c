"""What people type by habit, by mistake or halfway: it leads where they meant to go, and nowhere else."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from acode import __version__
from acode.planfile import load_plan
from acode.text.durations import span
from acode.yamlfile import closest
from tests.cli.plans import GATE, save
from tests.driver import Acode
from tests.terminals import Terminal, ended

ONE_STEP = "tasks:\n  - id: t\n    steps:\n      - run: echo done >> done.txt\n        idempotent: true\n"


@pytest.mark.parametrize("words", [("ls",), ("list",), ("ps",), ("session", "ls")], ids=" ".join)
def test_a_habit_lists_the_sessions(acode: Acode, words: tuple[str, ...]) -> None:
    save(acode.workspace, ONE_STEP)
    acode("run", "plan.yml")
    assert acode(*words, "--json").json == acode("session", "list", "--json").json


@pytest.mark.parametrize("words", [("logs",), ("log",), ("history",), ("session", "logs")], ids=" ".join)
def test_a_habit_looks_into_a_session(acode: Acode, words: tuple[str, ...]) -> None:
    save(acode.workspace, ONE_STEP)
    acode("run", "plan.yml")
    assert acode(*words).exit_code == 0


def test_help_is_a_command_too(acode: Acode) -> None:
    assert acode("help").stdout == acode("--help").stdout
    assert acode("help", "run").stdout == acode("run", "--help").stdout
    assert acode("help", "session", "list").stdout == acode("session", "list", "--help").stdout
    assert acode("session", "help").stdout == acode("session", "--help").stdout
    assert acode("-V").stdout == acode("version").stdout == f"acode {__version__}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("cancel",), "session cancel"),
        (("approve",), "session approve"),
        (("rollback",), "session rollback"),
        (("resum",), "resume"),
        (("chekc",), "check"),
        (("start",), None),
        (("delete",), None),
        (("session", "clear"), None),
        (("session", "remove"), None),
        (("session", "delete"), None),
    ],
    ids=str,
)
def test_a_suggestion_leads_to_what_was_meant_or_there_is_none(
    acode: Acode, words: tuple[str, ...], meant: str | None
) -> None:
    told = acode(*words)
    assert told.exit_code == 2
    found = re.search(r"did you mean '([^']+)'", told.stderr)
    assert (found[1] if found else None) == meant


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("session", "gc", "--days", "7"), None),
        (("session", "list", "--since", "7d"), None),
        (("resume", "--id"), None),
        (("resume", "--resume"), None),
        (("resume", "--lst"), "--last"),
        (("resume", "--dryrun"), "--dry-run"),
        (("session", "gc", "--older", "7d"), "--older-than"),
        (("session", "list", "--workspaces"), "--all-workspaces"),
    ],
    ids=str,
)
def test_an_option_that_is_suggested_is_the_one_that_was_meant(
    acode: Acode, words: tuple[str, ...], meant: str | None
) -> None:
    told = acode(*words)
    assert told.exit_code == 2 and "no such option" in told.stderr
    found = re.search(r"did you mean '([^']+)'", told.stderr, re.IGNORECASE)
    assert (found[1] if found else None) == meant


def test_of_two_names_that_are_equally_like_none_is_suggested() -> None:
    assert closest("tasc", ["task", "tass"]) is None
    assert closest("max_attempts", ["attempts", "max_resume_attempts", "attempts_total_max"]) == "max_resume_attempts"
    assert closest("attemps", ["attempts", "max_resume_attempts"]) == "attempts"


# Plans.


def test_a_word_beside_a_plan_of_that_name_is_refused_with_the_right_hint(acode: Acode) -> None:
    save(acode.workspace, ONE_STEP, "deploy.yml")
    told = acode("run", "deploy")
    assert told.exit_code == 2 and "hint: For the plan: acode run deploy.yml" in told.stderr
    assert not (acode.workspace / ".agent").exists()


@pytest.mark.parametrize("answer", ["", "p"])
def test_on_a_terminal_it_is_asked_which_is_meant(terminal: Terminal, workspace: Path, answer: str) -> None:
    save(workspace, ONE_STEP, "deploy.yml")
    child = terminal("run", "deploy")
    child.expect_exact("Run the [P]lan deploy.yml, or a [T]ask for a model in the words “deploy”? [P]")
    child.sendline(answer)
    assert ended(child) == 0
    assert (workspace / "done.txt").read_text() == "done\n"


def test_a_plan_is_run_from_stdin_and_known_again(acode: Acode) -> None:
    assert acode("run", "-", stdin=ONE_STEP).exit_code == 0
    assert (acode.workspace / "done.txt").read_text() == "done\n"
    assert acode("run", "-", stdin=GATE).exit_code == 10
    again = acode("run", "-", stdin=GATE)
    assert again.exit_code == 10 and "acode run --new -" in again.stderr
    other = acode("run", "-", stdin=GATE.replace("shipped", "other"))
    assert "Approval" in other.stderr or "approve" in other.stderr
    assert len(acode("session", "list", "--json").json) == 3
    assert acode("resume", "--last", "--dry-run").exit_code == 0


def test_a_plan_from_stdin_is_read_by_a_real_process(acode: Acode) -> None:
    words = [sys.executable, "-m", "acode", "run", "-"]
    ran = subprocess.run(words, cwd=acode.workspace, input=ONE_STEP, text=True, check=False, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert (acode.workspace / "done.txt").read_text() == "done\n"


@pytest.mark.parametrize("words", [("run", "-", "--auto"), ("supervise", "-")], ids=" ".join)
def test_a_plan_from_stdin_is_not_supervised(acode: Acode, words: tuple[str, ...]) -> None:
    told = acode(*words, stdin=ONE_STEP)
    assert told.exit_code == 2 and "Save it as a file" in told.stderr


def test_a_plan_from_stdin_has_the_limits_and_the_errors_of_a_file(acode: Acode) -> None:
    assert "<stdin>:1:1: unknown key" in acode("run", "-", stdin="titel: x\n").stderr
    assert "is larger than" in acode("run", "-", stdin="#" * 300_000).stderr


def test_a_missing_plan_suggests_the_one_of_nearly_that_name(acode: Acode) -> None:
    save(acode.workspace, ONE_STEP, "release.yml")
    assert "did you mean release.yml?" in acode("run", "relaese.yml").stderr
    assert "did you mean" not in acode("run", "other.yml").stderr


def test_hints_name_the_plan_and_the_workspace(acode: Acode) -> None:
    assert str(acode.workspace) in acode("resume").stderr
    assert str(acode.workspace) in acode("status").stderr
    assert str(acode.workspace) in acode("session", "list").stderr
    path = save(acode.workspace, GATE, "ship it.yml")
    acode("run", "ship it.yml")
    assert "acode run --new 'ship it.yml'" in acode("run", "ship it.yml").stderr
    acode("session", "cancel", acode("session", "list", "--json").json[0]["short_id"])
    for words in (("resume",), ("resume", "--last"), ("explain",)):
        told = acode(*words)
        assert "PLAN.yml" not in told.stderr + told.stdout, words
    assert f"acode run --new '{path.resolve()}'" in acode("explain", "--json").json["next_action"]


# Durations and trust.


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("2H", 7_200), ("7d", 604_800), ("1w", 604_800)]
)
def test_a_duration_is_a_number_with_its_unit(text: str, seconds: int) -> None:
    found = span(text)
    assert found is not None and found.total_seconds() == seconds


def test_durations_are_taken_alike_by_every_option(acode: Acode) -> None:
    save(acode.workspace, ONE_STEP)
    acode("run", "plan.yml")
    for text, days in (("7", 7), ("7d", 7), ("12h", 0.5), ("2w", 14)):
        told = acode("session", "gc", "--older-than", text, "--dry-run", "--json")
        assert told.exit_code == 0 and told.json["older_than_days"] == days
        assert acode("session", "history", "--since", text if text != "7" else "7d").exit_code == 0
    for wrong in ("-1", "7x", "x", "40000", "1e3"):
        assert acode("session", "gc", "--older-than", wrong, "--dry-run").exit_code == 2, wrong


@pytest.mark.parametrize(("text", "seconds"), [("5m", 300), ("2h", 7_200), ("90", 90)])
def test_durations_are_taken_alike_by_plans_and_settings(acode: Acode, text: str, seconds: int) -> None:
    retry = f"retry: {{attempts: 2, backoff_seconds: {text if text != '2h' else '1h'}}}"
    plan = save(acode.workspace, ONE_STEP + f"        timeout: {text}\n        {retry}\n")
    assert acode("check", plan).exit_code == 0
    assert load_plan(plan, plan_bytes_max=10_000, timeout_s_default=600).plan.tasks[0].steps[0].timeout_s == seconds
    (acode.workspace / ".agent").mkdir()
    settings = f"steps: {{timeout_seconds: {text}}}\nresume: {{stale_after_days: 12h}}\n"
    save(acode.workspace / ".agent", settings, "config.yml")
    for given in ({}, {"ACODE_STEPS_TIMEOUT_SECONDS": text}):
        shown = acode("config", "show", "--json", env=given).json
        assert (shown["steps.timeout_seconds"], shown["resume.stale_after_days"]) == (seconds, 0.5)


def test_a_duration_that_is_too_long_is_refused_with_the_bounds(acode: Acode) -> None:
    told = acode("check", save(acode.workspace, ONE_STEP + "        timeout: 31d\n"))
    assert told.exit_code == 2
    assert 'expected a duration of more than 0 and at most 2,592,000 seconds, found the text "31d"' in told.stdout


def test_trust_takes_yes(acode: Acode) -> None:
    (acode.workspace / ".agent").mkdir()
    save(acode.workspace / ".agent", "notify: {command: 'true'}\n", "config.yml")
    assert acode("config", "trust", "--yes", "--json").json["trusted"] is True


def test_no_column_calls_every_session_paused(acode: Acode) -> None:
    save(acode.workspace, ONE_STEP)
    acode("run", "plan.yml")
    head = io.StringIO(acode("session", "list").stdout).readline()
    assert head.split() == ["ID", "STATE", "SINCE", "TASK"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("acode in", "plain,init"),
        ("acode che", "plain,check"),
        ("acode sch", "plain,schema"),
        ("acode schema c", "plain,config"),
    ],
)
def test_a_shell_completes_the_new_commands(acode: Acode, typed: str, offered: str) -> None:
    words = typed.split()
    asked = {"_ACODE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    ran = subprocess.run(
        [sys.executable, "-m", "acode"],
        cwd=acode.workspace,
        env={**os.environ, **asked},
        check=False,
        capture_output=True,
        text=True,
    )
    assert offered in ran.stdout.splitlines(), ran

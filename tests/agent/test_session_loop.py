"""Agent sessions from the task in words to their end, against a real server with a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.agent.town import GOAL, SERVER, Town, call, plan_turn, served, task_turns
from tests.driver import Acode

Begin = Callable[..., Town]
SIGNUP = "def sign_up(name, mail):\n    return name, mail\n"
CHECKED = "def sign_up(name, mail):\n    assert name\n    return name, mail\n"


@pytest.fixture
def begin(acode: Acode, tmp_path: Path) -> Iterator[Begin]:
    """A town whose model follows these turns."""
    with ExitStack() as stack:

        def make(*turns: dict[str, Any], models: tuple[str, ...] = ("scripted",), args: tuple[str, ...] = ()) -> Town:
            script = {"models": list(models), "turns": list(turns)}
            url, ledger = stack.enter_context(served(script, tmp_path / "model", *args))
            (acode.workspace / "signup.py").write_text(SIGNUP)
            return Town(acode, url, ledger)

        yield make


EDIT = call("edit_file", path="signup.py", old="    return", new="    assert name\n    return")
ONE_TASK = (
    plan_turn({"id": "checks"}),
    task_turns(
        "Checks",
        {"text": "Reading.", "calls": [call("read_file", path="signup.py")]},
        {"calls": [EDIT]},
        {"text": "Done."},
    ),
)


@pytest.mark.req("CLI-011c-11")
def test_a_task_in_words_is_planned_approved_and_done(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr
    assert (town.workspace / "signup.py").read_text() == CHECKED
    assert set(town.asked().values()) == {1}
    listed = town.acode("session", "list", "--all", "--json").json
    assert [row["state"] for row in listed] == ["COMPLETED"]


def test_the_plan_waits_for_a_person_and_the_answer_counts_for_exactly_this_plan(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    waiting = town.run()
    assert waiting.exit_code == 10
    assert "Execute the plan “The plan” with 1 task" in waiting.stderr
    assert (town.workspace / "signup.py").read_text() == SIGNUP
    status = town.status()
    assert status["state"] == "AWAITING_APPROVAL"
    assert town.resume().exit_code == 10, "nobody has answered yet: it is asked again"
    short = town.short
    assert town.acode("session", "approve", short).exit_code == 0
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert set(town.asked().values()) == {1}, "no question was put to the model twice"


def test_a_denied_plan_is_kept_and_asked_about_again(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    assert town.run().exit_code == 10
    short = town.short
    town.acode("session", "deny", short)
    assert town.resume().exit_code == 10
    assert (town.workspace / "signup.py").read_text() == SIGNUP
    town.acode("session", "approve", short)
    assert town.resume().exit_code == 0


def test_a_plan_that_breaks_the_rules_is_told_to_the_model(begin: Begin) -> None:
    wrong = {"title": "P", "tasks": [{"id": "plan", "title": "Plan", "needs": [], "steps": ["x"]}]}
    town = begin(
        {"says": "You plan work", "answers": 0, "json": wrong},
        {"says": "a task cannot have the id plan", "answers": 1, "json": ONE_TASK[0]["json"]},
        ONE_TASK[1],
    )
    assert town.run("--approve-plan").exit_code == 0


def test_a_model_that_cannot_plan_stops_the_session_with_its_last_mistake(begin: Begin) -> None:
    town = begin({"says": "You plan work", "text": "I would rather not."})
    ended = town.run("--approve-plan")
    assert ended.exit_code == 75
    assert "made no plan in 3 attempts" in ended.stderr and "no JSON object" in ended.stderr
    again = town.resume()
    assert again.exit_code == 75 and "made no plan in 6 attempts" in again.stderr, "a resume lets it try some more"
    assert set(town.asked().values()) == {1}


def test_the_same_task_twice_asks_whether_to_resume(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    assert town.run().exit_code == 10
    again = town.run()
    assert again.exit_code == 10 and "unfinished session" in again.stderr
    assert town.run("--new", "--approve-plan").exit_code == 0


# Tools and their policy.


def with_command(*turns: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return plan_turn({"id": "work"}), task_turns("Work", *turns)


def test_a_command_is_asked_about_and_the_grant_is_for_this_command(begin: Begin) -> None:
    town = begin(*with_command({"calls": [call("run_command", command="echo hello > out.txt")]}, {"text": "Done."}))
    waiting = town.run("--approve-plan")
    assert waiting.exit_code == 10 and "echo hello > out.txt" in waiting.stderr
    assert not (town.workspace / "out.txt").exists()
    short = town.short
    town.acode("session", "approve", short)
    assert town.resume().exit_code == 0
    assert (town.workspace / "out.txt").read_text() == "hello\n"


def test_a_refusal_is_told_to_the_model_and_the_session_goes_on(begin: Begin) -> None:
    town = begin(*with_command({"calls": [call("run_command", command="rm -rf everything")]}, {"text": "Then not."}))
    assert town.run("--approve-plan").exit_code == 10
    short = town.short
    town.acode("session", "deny", short)
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr


def test_the_settings_allow_and_deny_without_asking(begin: Begin) -> None:
    town = begin(
        *with_command(
            {"calls": [call("run_command", command="echo a >> log"), call("write_file", path="deploy/x", content="x")]},
            {"text": "Done."},
        )
    )
    town.configure("tools:\n  run_command: allow\n  rules: [{tool: write_file, match: 'deploy/*', answer: deny}]\n")
    ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr
    assert (town.workspace / "log").read_text() == "a\n"
    assert not (town.workspace / "deploy").exists()


def test_a_failing_command_is_an_answer_not_the_end(begin: Begin) -> None:
    town = begin(*with_command({"calls": [call("run_command", command="echo no; exit 3")]}, {"text": "It failed."}))
    town.configure("tools: {run_command: allow}\n")
    ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr


def test_nothing_outside_the_workspace_is_read_or_written(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the crown jewels")
    town = begin(
        *with_command(
            {"calls": [call("read_file", path="../secret.txt"), call("write_file", path="../w.txt", content="x")]},
            {"text": "Done."},
        )
    )
    assert town.run("--approve-plan").exit_code == 0
    assert not (tmp_path / "w.txt").exists()
    history = town.acode("session", "history", town.short, "--json").stdout
    assert "the crown jewels" not in history


def test_malformed_arguments_and_unknown_tools_are_told_to_the_model(begin: Begin) -> None:
    town = begin(
        *with_command(
            {"calls": [{"tool": "write_file", "arguments": '{"path": '}, call("fly_to_moon", speed=3)]},
            {"text": "I see."},
        )
    )
    ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr


def test_the_same_call_a_third_time_stops_the_session_and_a_person_may_let_it_go_on(begin: Begin) -> None:
    again = {"calls": [call("list_files")]}
    town = begin(*with_command(again, again, again, {"text": "Enough."}))
    ended = town.run("--approve-plan")
    assert ended.exit_code == 1 and "same call a third time: list_files" in ended.stderr
    assert town.resume().exit_code == 0


def test_a_question_of_the_model_waits_for_its_answer(begin: Begin) -> None:
    town = begin(*with_command({"calls": [call("ask_user", question="Which colour?")]}, {"text": "Thanks."}))
    waiting = town.run("--approve-plan")
    assert waiting.exit_code == 10 and "Which colour?" in waiting.stderr
    short = town.short
    town.acode("session", "approve", short, "--note", "blue")
    assert town.resume().exit_code == 0
    assert "blue" in town.ledger.read_text() or any("blue" in line for line in history_of(town, short))


def history_of(town: Town, short: str) -> list[str]:
    return town.acode("session", "history", short, "--json", "--limit", "1000").stdout.splitlines()


# Failures of the model.


@pytest.mark.parametrize(
    ("fault", "exit_code", "code"),
    [
        ({"status": 429, "headers": {"Retry-After": "37"}}, 75, "ACODE-MODEL-005"),
        ({"status": 503}, 75, "ACODE-MODEL-005"),
        ({"cut_after_bytes": 300}, 75, "ACODE-MODEL-008"),
        ({"malformed": True}, 75, "ACODE-MODEL-008"),
        ({"content_type": "text/html", "body": "<html>"}, 75, "ACODE-MODEL-008"),
    ],
    ids=["rate limit", "overload", "cut in mid-stream", "malformed", "no API"],
)
def test_a_model_that_fails_pauses_the_session_which_goes_on_where_it_was(
    begin: Begin, fault: dict[str, Any], exit_code: int, code: str
) -> None:
    town = begin(
        ONE_TASK[0],
        task_turns(
            "Checks",
            {"calls": [call("read_file", path="signup.py")]},
            {"calls": [EDIT], "fault": {**fault, "times": 1}},
            {"text": "Done."},
        ),
    )
    ended = town.run("--approve-plan")
    assert (ended.exit_code, f"[{code}]" in ended.stderr) == (exit_code, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert town.status()["state"] == "PAUSED"
    assert town.resume().exit_code == 0
    assert (town.workspace / "signup.py").read_text() == CHECKED
    assert sorted(town.asked().values()) == [1, 1, 1, 2], "only the request that failed was made again"


def test_an_automatic_resume_waits_as_long_as_the_server_asked(begin: Begin) -> None:
    town = begin({"says": "You plan work", "fault": {"status": 429, "headers": {"Retry-After": "4000"}, "times": 1}})
    assert town.run("--approve-plan").exit_code == 75
    decision = town.status()["decision"]
    assert decision["reason_code"] == "resume_blocked_cooldown"
    assert 3900 < decision["cooldown_seconds_remaining"] <= 4000


@pytest.mark.req("FR-011c-041")
def test_a_resume_finds_out_that_the_model_is_gone(acode: Acode, tmp_path: Path) -> None:
    with served({"models": ["scripted"], "turns": list(ONE_TASK)}, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        assert town.run().exit_code == 10
    again = town.resume()
    assert again.exit_code == 17 and "does not answer" in again.stderr
    report = town.acode("resume", "--dry-run", "--last", "--json", env=town.env).json
    assert [one["code"] for one in report["environment"]["errors"]] == ["ACODE-MODEL-002"]


def test_without_a_server_no_session_is_begun(acode: Acode) -> None:
    town = Town(acode, "http://127.0.0.1:9/v1", acode.workspace / "none")
    assert town.run("--approve-plan", "--auto").exit_code == 17
    ended = town.run("--approve-plan")
    assert ended.exit_code == 17 and "127.0.0.1:9" in ended.stderr and "[ACODE-MODEL-002]" in ended.stderr
    assert "hint: Start the model server" in ended.stderr and "Nothing was begun." in ended.stderr
    assert "To resume" not in ended.stderr
    assert acode("session", "list", "--all", "--json").json == []
    refused = town.run("--json").json
    assert refused["error"]["exit_code"] == 17


def test_a_model_that_the_server_does_not_have_begins_no_session(begin: Begin) -> None:
    town = begin(*ONE_TASK, models=("other",))
    ended = town.run("--approve-plan")
    assert ended.exit_code == 17 and "ACODE-MODEL-003" in ended.stderr and "other" in ended.stderr
    assert town.acode("session", "list", "--all", "--json").json == []


def test_a_wrong_key_names_the_variable_and_never_the_key(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGHT_KEY", "right-key-0123456789abcdef")
    town = begin(*ONE_TASK, args=("--api-key-env", "RIGHT_KEY"))
    wrong = "sk-wrong-0123456789abcdefghijklmn"
    ended = town.run("--approve-plan", env={"OPENAI_API_KEY": wrong})
    assert ended.exit_code == 3 and "OPENAI_API_KEY" in ended.stderr and wrong not in ended.stderr
    assert town.acode("session", "list", "--all", "--json").json == []
    right = {"OPENAI_API_KEY": "right-key-0123456789abcdef"}
    assert town.run(env=right).exit_code == 10
    assert town.resume(env={"OPENAI_API_KEY": wrong}).exit_code == 17, "a session that was begun is kept"
    database = b"".join(path.read_bytes() for path in (town.workspace / ".agent").glob("workspace.db*"))
    assert wrong.encode() not in database
    assert town.acode("session", "approve", town.short).exit_code == 0
    assert town.resume(env=right).exit_code == 0


def test_a_budget_ends_the_session_for_now_and_raising_it_goes_on(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    spent = town.run("--approve-plan", env={"ACODE_MODEL_BUDGET_TOKENS": "700"})
    assert spent.exit_code == 13 and "tokens" in spent.stderr
    assert town.resume(env={"ACODE_MODEL_BUDGET_TOKENS": "1000000"}).exit_code == 0
    assert set(town.asked().values()) == {1}


# What is restored.


@pytest.mark.req("FR-011c-012", "SCOPE-011c-02")
def test_the_model_configuration_is_restored_and_a_changed_one_is_refused(begin: Begin) -> None:
    town = begin(*ONE_TASK, models=("scripted", "bigger"))
    assert town.run().exit_code == 10
    town.acode("session", "approve", town.short)
    changed = town.resume(env={"ACODE_MODEL": "bigger"})
    assert changed.exit_code == 17 and "begun with scripted" in changed.stderr and "bigger" in changed.stderr
    unset = town.acode("resume", "--last")
    assert unset.exit_code == 0, f"nothing is set now, so the recorded one is used: {unset.stderr}"


@pytest.mark.req("FR-011c-011", "FR-011c-016")
def test_the_conversation_is_restored_exactly_and_stands_in_the_checkpoint(begin: Begin) -> None:
    turns = [{"text": f"Reading {n}.", "calls": [call("search", text=f"word{n}")]} for n in range(5)]
    stop = {"fault": {"status": 503, "times": 1}, "text": "Done."}
    town = begin(plan_turn({"id": "work"}), task_turns("Work", *turns, stop))
    assert town.run("--approve-plan").exit_code == 75
    shown = town.acode("session", "show", town.short, "--json").json
    assert shown["conversation"]["requests"] == 6
    assert shown["conversation"]["last"] == "work.ask-5"
    assert town.resume().exit_code == 0
    last = [entry for entry in town.requests() if entry["answers"] == 5]
    assert len(last) == 2 and len({entry["digest"] for entry in last}) == 1, "to the byte what was asked before"


def test_a_long_conversation_is_replaced_by_a_summary_once_and_restored_so(begin: Begin) -> None:
    look = [{"text": "x" * 3000, "calls": [call("search", text=f"word{n}")]} for n in range(3)]
    town = begin(
        plan_turn({"id": "work"}),
        {"says": "The record of a piece of work follows", "text": "Searched for word0 to word2: nothing."},
        {
            "says": ["Your task now: Work", "What you noted down"],
            "answers": 0,
            "text": "Done.",
            "fault": {"status": 503, "times": 1},
        },
        task_turns("Work", *look, {"text": "never asked"}),
    )
    town.configure("model: {context_tokens: 3000}\n")
    first = town.run("--approve-plan")
    assert first.exit_code == 75, first.stderr
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert sum("context_compacted" in line for line in history_of(town, town.short)) >= 1
    assert max(town.asked().values()) == 2, "only the request that failed was made again"


def test_a_conversation_that_the_model_refuses_as_too_long_is_shortened(begin: Begin) -> None:
    too_long = {"status": 400, "body": {"error": {"message": "too long", "code": "context_length_exceeded"}}}
    town = begin(
        plan_turn({"id": "work"}),
        {"says": "The record of a piece of work follows", "text": "Searched."},
        {"says": ["Your task now: Work", "What you noted down"], "answers": 0, "text": "Done."},
        task_turns("Work", {"calls": [call("search", text="a")]}, {"fault": too_long}),
    )
    ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr


def test_a_task_with_a_secret_in_it_is_refused_before_anything_is_written(begin: Begin) -> None:
    town = begin(*ONE_TASK)
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    ended = town.acode("run", f"use the token {secret}", env=town.env)
    assert ended.exit_code == 2 and secret not in ended.stderr
    assert not (town.workspace / ".agent" / "workspace.db").exists()


def test_settings_that_change_meanwhile_do_not_change_what_is_on_record(begin: Begin) -> None:
    ran = {"calls": [call("run_command", command="echo once >> log")]}
    town = begin(*with_command(ran, {"text": "Done.", "fault": {"status": 503, "times": 1}}))
    town.configure("tools: {run_command: allow}\n")
    assert town.run("--approve-plan").exit_code == 75
    town.configure("tools: {run_command: deny}\n")
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert (town.workspace / "log").read_text() == "once\n"


def test_a_conversation_that_stays_too_long_is_classified_as_a_context_reset(begin: Begin) -> None:
    too_long = {"status": 400, "body": {"error": {"message": "too long", "code": "context_length_exceeded"}}}
    town = begin(
        plan_turn({"id": "work"}),
        {"says": "The record of a piece of work follows", "text": "Searched."},
        {"says": ["Your task now: Work", "What you noted down"], "fault": {**too_long, "times": 1}, "text": "Done."},
        task_turns("Work", {"calls": [call("search", text="a")]}, {"fault": too_long}),
    )
    ended = town.run("--approve-plan")
    assert ended.exit_code == 1 and "[ACODE-MODEL-007]" in ended.stderr
    report = town.acode("resume", "--dry-run", "--last", "--json", env=town.env).json
    assert report["interruption_class"] == "context_reset"
    ended = town.resume()
    assert ended.exit_code == 0, (ended.stderr, town.requests())


def test_a_supervisor_goes_on_after_an_overload_and_an_advance_approval_outlives_it(begin: Begin) -> None:
    overloaded = {**ONE_TASK[0], "fault": {"status": 503, "times": 1}}
    town = begin(overloaded, ONE_TASK[1])
    settings = {"ACODE_RESUME_COOLDOWN_SECONDS_TOOL_FAILURE": "0"}
    ended = town.acode.process("run", GOAL, "--auto", "--approve-plan", env={**town.env, **settings}).finish(
        timeout_s=120
    )
    assert ended.exit_code == 0, ended.stderr
    assert (town.workspace / "signup.py").read_text() == CHECKED


def test_the_example_runs_offline_as_its_directory_says(acode: Acode, tmp_path: Path) -> None:
    example = SERVER.parent
    for name in ("signup.py", "script.json"):
        (acode.workspace / name).write_bytes((example / name).read_bytes())
    with served(json.loads((example / "script.json").read_text()), tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        town.configure("tools: {run_command: allow}\n")
        ended = town.run("--approve-plan")
    assert ended.exit_code == 0, ended.stderr
    assert "OK" in ended.stderr and (acode.workspace / "test_signup.py").exists()

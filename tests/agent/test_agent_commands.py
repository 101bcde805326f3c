"""An agent's session under the other commands: what they show is true, and what they do leaves it sound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acode.plan import Action, Continuation, Outcome, Settlement
from tests.agent.town import GOAL, Begin, Town, call, plan_turn, served, task_turns
from tests.driver import Acode
from tests.repositories import IDENTITY, git
from tests.tampering import Attack
from tests.variants import first_of

SCRIPT = {
    "models": ["scripted"],
    "turns": [
        plan_turn({"id": "first", "title": "Begin"}, {"id": "second", "title": "Finish", "needs": ["first"]}),
        task_turns(
            "Begin",
            {"calls": [call("write_file", path="a.txt", content="one\n")]},
            {"calls": [call("edit_file", path="a.txt", old="one", new="two")]},
            {"text": "Begun."},
        ),
        task_turns(
            "Finish",
            {"calls": [call("write_file", path="b.txt", content="b")]},
            {"text": "Finished.", "fault": {"status": 503, "times": 1}},
        ),
    ],
}


@pytest.fixture
def town(acode: Acode, tmp_path: Path) -> Iterator[Town]:
    """A session that was interrupted in the middle of its second task."""
    with served(SCRIPT, tmp_path / "model") as (url, ledger):
        town = Town(acode, url, ledger)
        assert town.run("--approve-plan").exit_code == 75
        yield town


def test_what_is_shown_of_it_names_tasks_and_not_the_steps_of_a_plan(town: Town) -> None:
    short = town.short
    explained = town.acode("explain", short, env=town.env).stdout
    assert "second: Finish (in the middle; continues where the log ends)" in explained
    assert "End the session" not in explained and "declared idempotent)" not in explained
    preview = town.acode("resume", "--dry-run", short, env=town.env).stdout
    assert "Skipping: 1 task (complete)" in preview and "Starting from: Task 2, Step 3 (second: Finish)" in preview
    assert "Last checkpoint: second.write_file-1-1" in preview
    report = town.acode("resume", "--dry-run", "--json", short, env=town.env).json
    assert report["skipped_tasks"] == ["first"]
    assert report["next_action"] == f"acode resume {short}"
    for command in (("session", "show"), ("status",), ("explain",)):
        assert "program" not in town.acode(*command, short, env=town.env).stdout


def test_steps_of_a_task_are_taken_back_and_done_again_in_a_conversation_that_fits(town: Town) -> None:
    short = town.short
    back = town.acode("session", "rollback", short, "--to", "first.ask-1", "--yes")
    assert back.exit_code == 0, back.stderr
    assert town.files() == {}
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}
    assert town.acode("session", "verify", short).exit_code == 0
    first = [entry["digest"] for entry in town.requests() if entry["answers"] == 0]
    assert len(first) == 4, "the plan and the first request of the first task were not asked for again"
    assert len(set(first)) == 3, "and what the second task is told is what it was told before"


@pytest.mark.release
def test_all_of_it_can_be_taken_back_and_is_planned_anew(town: Town) -> None:
    assert town.acode("session", "rollback", town.short, "--yes").exit_code == 0
    assert town.files() == {}
    assert town.resume().exit_code == 0
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}


LOOKING = [
    {"calls": [call("list_files", path="."), call("search", text="one"), call("read_file", path="c.txt")]},
    {"calls": [call("run_command", command="cat c.txt"), call("run_command", command="date > now")]},
    {"text": "Done.", "fault": {"status": 503, "times": 1}},
]


def ways(town: Town) -> dict[str, tuple[str, str]]:
    """What a rollback of all of it would do, step by step."""
    found = town.acode("session", "rollback", town.short, "--dry-run", "--json").json["steps"]
    return {one["step"]: (one["title"], one["way"]) for one in found}


def test_a_rollback_says_of_tools_that_only_look_that_there_is_nothing_to_take_back(begin: Begin) -> None:
    town = begin(*LOOKING)
    (town.workspace / "c.txt").write_text("one\n")
    town.configure("tools: {run_command: allow, read_only: [cat *]}")
    assert town.run("--approve-plan").exit_code == 75
    found = ways(town)
    assert found["work.list_files-1-1"] == ("List the files in .", "nothing")
    assert found["work.search-1-2"][1] == "nothing"
    assert found["work.read_file-1-3"] == ("Read c.txt", "nothing")
    assert found["work.run_command-2-1"] == ("Run cat c.txt", "nothing"), "declared to change nothing"
    assert found["work.run_command-2-2"] == ("Run date > now", "stays")
    assert found["plan"] == ("Task: Plan the work", "nothing"), "its steps are taken back one by one"
    shown = town.acode("session", "rollback", town.short, "--dry-run").stdout
    assert "work.read_file-1-3  Read c.txt  (nothing to undo)" in shown
    assert shown.count("its effects are not declared and stay") == 1


def test_a_commit_of_an_agent_is_not_silently_left_behind_by_a_rollback(begin: Begin) -> None:
    town = begin(
        {"calls": [call("write_file", path="a.txt", content="one\n")]},
        {"calls": [call("git_commit", message="One", paths=["a.txt"])]},
        {"calls": [call("git_commit", message="Two", paths=["a.txt"])]},
        {"text": "Done.", "fault": {"status": 503, "times": 1}},
    )
    git(town.workspace, "init", "-q")
    for name, value in IDENTITY.items():
        git(town.workspace, "config", name, value)
    town.configure("tools: {git_commit: allow}")
    assert town.run("--approve-plan").exit_code == 75
    refused = town.acode("session", "rollback", town.short, "--yes")
    assert refused.exit_code == 1
    assert "work.git_commit-2-1 cannot be rolled back" in refused.stderr
    assert "git_commit-3-1" not in refused.stderr, "nothing was left to commit, so it changed nothing"
    assert (town.workspace / "a.txt").read_text() == "one\n", "nothing is taken back where not all can be"
    back = town.acode("session", "rollback", town.short, "--to", "work.git_commit-2-1", "--yes")
    assert back.exit_code == 0, back.stderr
    assert town.resume().exit_code == 0


# Damaged, and repaired.


@pytest.mark.parametrize(
    ("kind", "step"),
    first_of(
        ("step_completed", "first.write_file-1-1"),
        ("step_completed", "first.ask-2"),
        ("step_completed", "first"),
        ("step_completed", "plan"),
        ("step_completed", "second.write_file-1-1"),
        ("step_settled", "second.ask-2"),
    ),
)
def test_a_repair_opens_the_steps_of_damaged_events_and_none_of_the_plans_words(
    town: Town, kind: str, step: str
) -> None:
    attack, short = Attack(town.workspace), town.short
    attack.edit(attack.seq_of(kind, step), '"step":"', '"attempt":2,"step":"')
    assert town.resume().exit_code == 20
    mended = town.acode("session", "repair", short, "--yes", "--json")
    assert mended.exit_code == 0, mended.stderr
    # What stands in the plan ("first.1") is words for the model: opened, nobody could ever settle it.
    assert set(mended.json["steps"]) <= {step, "plan", "first", "second"}
    status = town.status()
    assert (status["tasks_total"], status["steps_total"] > 9) == (2, True), "counted as before"
    if step == "first.write_file-1-1":  # it was edited since, so no hash can tell
        assert town.resume().exit_code == 19
        assert town.acode("session", "resolve", short, step, "--applied").exit_code == 0
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}
    assert town.acode("session", "verify", short).exit_code == 0


def test_a_call_whose_start_was_lost_goes_on_by_a_persons_word(town: Town) -> None:
    attack, short, step = Attack(town.workspace), town.short, "second.write_file-1-1"
    attack.edit(attack.seq_of("step_started", step), '"step":"', '"attempt":2,"step":"')
    assert town.acode("session", "repair", short, "--yes").exit_code == 0
    assert town.resume().exit_code == 19
    assert town.acode("session", "resolve", short, step, "--applied").exit_code == 0
    assert ways(town)[step][1] == "stays", "nobody knows any more what it did"
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}


def test_answers_that_no_longer_fit_what_the_model_is_told_are_taken_back(begin: Begin) -> None:
    town = begin(
        {"calls": [call("run_command", command="echo once >> log; echo said")]},
        {"calls": [call("write_file", path="b.txt", content="b")]},
        {"text": "Done.", "fault": {"status": 503, "times": 1}},
    )
    town.configure("tools: {run_command: allow}")
    assert town.run("--approve-plan").exit_code == 75
    attack, short, step = Attack(town.workspace), town.short, "work.run_command-1-1"
    attack.edit(attack.seq_of("step_started", step), '"step":"', '"attempt":2,"step":"')
    assert town.acode("session", "repair", short, "--yes").exit_code == 0
    assert town.acode("session", "resolve", short, step, "--applied").exit_code == 0
    stopped = town.resume()
    assert stopped.exit_code == 1 and f"acode session rollback {short} --to STEP" in stopped.stderr
    assert town.acode("session", "rollback", short, "--to", "work.ask-1", "--yes").exit_code == 0
    assert town.resume().exit_code == 0
    assert town.files() == {"b.txt": b"b", "log": b"once\nonce\n"}


def test_what_nobody_can_read_is_beyond_repair_and_the_way_out_is_an_agents(town: Town) -> None:
    attack = Attack(town.workspace)
    attack.set_body(attack.seq_of("step_completed", "first.ask-1"), "{")
    refused = town.acode("session", "repair", town.short, "--yes")
    assert refused.exit_code == 20
    assert "only its model knew" in refused.stderr and 'acode run --new "TASK"' in refused.stderr


# Keys, ends, and a supervisor.


def test_a_session_goes_on_after_its_signing_key_was_changed(town: Town) -> None:
    assert town.acode("key", "rotate").exit_code == 0
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert town.acode("session", "verify", town.short).exit_code == 0


@pytest.mark.parametrize(("command", "state"), [("cancel", "CANCELLED"), ("abandon", "FAILED")])
def test_a_session_that_was_given_up_stays_so_and_keeps_what_it_did(town: Town, command: str, state: str) -> None:
    short, asked = town.short, len(town.requests())
    given_up = town.acode("session", command, short)
    assert given_up.exit_code == 0, given_up.stderr
    assert town.status()["state"] == state
    assert town.acode("resume", short, env=town.env).exit_code == 15
    assert len(town.requests()) == asked, "no model was asked for it"
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}
    assert town.acode("session", "verify", short).exit_code == 0


@pytest.mark.release
@pytest.mark.req("BP-011c-14")
def test_a_supervisor_waits_for_an_overloaded_model_and_carries_the_session_to_its_end(town: Town) -> None:
    town.configure("resume: {cooldown_seconds: {tool_failure: 1}}")
    ended = town.acode.process("supervise", town.short, env=town.env).finish(timeout_s=120)
    assert ended.exit_code == 0, ended.stderr
    assert town.files() == {"a.txt": b"two\n", "b.txt": b"b"}
    assert max(town.asked().values()) == 2, "only what was not answered was asked again"


@pytest.mark.release
def test_a_checkpoint_can_be_made_between_two_steps_of_a_task(town: Town) -> None:
    made = town.acode("session", "checkpoint", town.short)
    assert made.exit_code == 0, made.stderr
    assert town.resume().exit_code == 0


@pytest.mark.release
def test_nobody_can_say_that_a_task_took_effect(town: Town) -> None:
    said = town.acode("session", "resolve", town.short, "second", "--applied")
    assert said.exit_code == 2 and f"acode resume {town.short}" in said.stderr
    assert town.resume().exit_code == 0


def test_a_finished_session_is_not_rolled_back_and_says_that_it_has_ended(town: Town) -> None:
    assert town.resume().exit_code == 0
    refused = town.acode("session", "rollback", town.short, "--yes")
    assert refused.exit_code == 15 and "another one" not in refused.stderr


def test_the_step_that_a_person_must_decide_about_is_named_and_not_the_task_around_it() -> None:
    def settlement(step: str, action: Action) -> Settlement:
        return Settlement(step=step, kind="run", outcome=Outcome.UNKNOWN, action=action, evidence="")

    found = Continuation(
        skipped_tasks=(),
        skipped_steps=(),
        in_flight=(settlement("first", Action.RETRY), settlement("first.run_command-1-1", Action.ASK)),
        pending=(),
    )
    assert found.in_progress is not None and found.in_progress.step == "first.run_command-1-1"


PAUSED_IN_A_COMMAND = "echo under way; while [ ! -e go.txt ]; do sleep 0.05; done"
DEAF = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); from acode.cli import main; sys.exit(main())"


@pytest.mark.release
def test_a_pause_is_obeyed_by_an_agent_that_ignores_signals(begin: Begin) -> None:
    waits = call("run_command", command=PAUSED_IN_A_COMMAND)
    town = begin({"calls": [waits]}, {"calls": [call("write_file", path="late.txt", content="")]}, {"text": "Done."})
    town.configure("tools: {run_command: allow, write_file: allow}")
    running = town.acode.process("run", GOAL, "--approve-plan", env=town.env, program=("-c", DEAF))
    running.wait_for_line("under way$")
    assert town.acode("session", "pause", town.short).exit_code == 0
    (town.workspace / "go.txt").write_text("go")
    assert running.finish().exit_code == 130
    assert town.status()["state"] == "PAUSED"
    assert "late.txt" not in town.files()


@pytest.mark.release
def test_a_supervisor_of_a_task_started_again_joins_the_session_of_its_orphaned_child(begin: Begin) -> None:
    town = begin({"calls": [call("run_command", command=PAUSED_IN_A_COMMAND)]}, {"text": "Done."})
    town.configure("tools: {run_command: allow}")
    words = ("run", GOAL, "--auto", "--approve-plan")
    first = town.acode.process(*words, env=town.env)
    first.wait_for_line("under way$")
    first.kill()
    (town.workspace / "go.txt").write_text("go")
    while town.status()["state"] != "COMPLETED":
        pass
    assert town.acode(*words, env=town.env).exit_code == 0
    assert len(town.acode("session", "list", "--all", "--json").json) == 1, "reported, and not begun again"
    assert not [path for path in (town.workspace / ".agent/locks").glob("supervised.*") if path.suffix != ".child"]

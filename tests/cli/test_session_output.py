"""acode session logs, watch, diff and history --after: read what steps did, also while another process runs them."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.cli.plans import save
from tests.driver import Acode
from tests.terminals import Terminal
from tests.terminals import ended as ended_with

# It prints, says that it is on its way, and waits for a file.
SLOW = """\
title: Slow work
tasks:
  - id: work
    steps:
      - write: {path: a.txt, content: "one\\ntwo\\n"}
        id: first
      - run: printf 'begin\\n\\033[31mred\\033[0m \\007bell\\n'; while [ ! -e ../go ]; do sleep 0.02; done; echo end
        id: slow
        idempotent: true
      - run: echo three >> a.txt; echo other
        id: third
        outputs: [a.txt]
"""


def only_session(acode: Acode) -> str:
    return str(acode("session", "list", "--json").json[0]["short_id"])


@pytest.fixture
def ended(acode: Acode, workspace: Path) -> str:
    (workspace.parent / "go").touch()
    assert acode("run", save(workspace, SLOW)).exit_code == 0
    return only_session(acode)


# Logs.


def test_what_finished_steps_printed_is_shown_without_what_steers_a_terminal(acode: Acode, ended: str) -> None:
    shown = acode("session", "logs", ended)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "==> work.slow <==",
        "begin",
        "red \\x07bell",
        "end",
        "==> work.third <==",
        "other",
    ]
    assert acode("session", "logs", ended, "work.slow", "--tail", "2").stdout == "red \\x07bell\nend\n"


def test_as_json_it_is_one_document(acode: Acode, ended: str) -> None:
    found = acode("session", "logs", ended, "--json").json
    assert [(one["step"], one["attempt"]) for one in found] == [("work.slow", 1), ("work.third", 1)]
    assert found[1]["lines"] == ["other"]


def test_each_attempt_is_told_apart_and_failures_too(acode: Acode, workspace: Path) -> None:
    plan = "tasks: [{id: t, steps: [{run: 'echo attempt $ACODE_ATTEMPT; exit 1'}]}]\n"
    assert acode("run", save(workspace, plan)).exit_code == 1
    session = only_session(acode)
    acode("resume", session)
    assert acode("session", "logs", session).stdout.splitlines() == [
        "==> t.1 <==",
        "attempt 1",
        "==> t.1 (attempt 2) <==",
        "attempt 2",
    ]


def test_a_step_that_there_is_not_is_refused_and_one_that_has_not_begun_is_told(acode: Acode, workspace: Path) -> None:
    plan = "tasks: [{id: t, steps: [{approve: ok?}, {run: echo x}]}]\n"
    acode("run", save(workspace, plan))
    session = only_session(acode)
    strange = acode("session", "logs", session, "t.9")
    assert strange.exit_code == 2 and "has no step t.9" in strange.stderr
    waiting = acode("session", "logs", session, "t.2")
    assert waiting.exit_code == 0 and waiting.stdout == "" and "has not begun" in waiting.stderr


def test_another_terminal_reads_a_running_step_until_it_ends(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    session = only_session(acode)
    assert acode("session", "logs", session, "--tail", "1").stdout.endswith("red \\x07bell\n")
    following = acode.process("session", "logs", session, "-f")
    of_step = acode.process("session", "logs", session, "work.slow", "--follow", "--json")
    following.wait_for_line("bell")
    of_step.wait_for_line("bell")
    (workspace.parent / "go").touch()
    assert running.finish().exit_code == 0
    shown = following.finish()
    assert shown.exit_code == 0 and shown.stdout.splitlines()[-3:] == ["end", "==> work.third <==", "other"]
    lines = of_step.finish().lines
    assert {line["event"] for line in lines} == {"step_output"} and {line["step"] for line in lines} == {"work.slow"}
    assert "".join(line["data"]["text"] for line in lines) == "begin\n\x1b[31mred\x1b[0m \x07bell\nend\n"


def test_a_command_that_outlived_its_acode_is_followed_to_its_own_end(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    session = only_session(acode)
    running.kill()
    following = acode.process("session", "logs", session, "-f")
    following.wait_for_line("bell")
    (workspace.parent / "go").touch()
    assert following.finish().stdout.splitlines()[-1] == "end"


def test_secrets_stay_out_of_what_is_shown(acode: Acode, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "correct-horse-battery-staple")
    plan = "tasks: [{id: t, steps: [{run: 'echo got $TOKEN', secret_env: [TOKEN]}]}]\n"
    acode("run", save(workspace, plan))
    shown = acode("session", "logs", only_session(acode)).stdout
    assert "got ***" in shown and "correct-horse" not in shown


def test_a_program_s_commands_have_logs_too(acode: Acode, workspace: Path) -> None:
    import acode as library

    with library.session("k", workspace=workspace) as session:
        session.run("echo from a program", name="say")
    assert acode("session", "logs", only_session(acode), "say").stdout == "from a program\n"


# Watch.


@pytest.mark.release
def test_the_watch_prints_the_lines_that_the_run_prints(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    watching = acode.process("session", "watch", "--json")
    watching.wait_for_line("bell")
    (workspace.parent / "go").touch()
    ran, seen = running.finish().lines, watching.finish().lines
    assert seen[0]["event"] == "session_start" and seen[0]["data"]["resumed"] is True
    assert seen[-1]["event"] == "session_end" and seen[-1]["data"]["state"] == "COMPLETED"
    assert (seen[-1]["data"]["exit_code"], seen[-1]["data"]["executed_steps"]) == (0, 2)
    facts = ("step_started", "step_completed", "task_completed")
    told = [(one["event"], one["seq"], one["step"], one["task"], one["data"]) for one in seen if one["event"] in facts]
    of_run = [(one["event"], one["seq"], one["step"], one["task"], one["data"]) for one in ran if one["event"] in facts]
    assert [one[0::2] for one in told] == [one[0::2] for one in of_run[-len(told) :]]
    text = "".join(one["data"]["text"] for one in seen if one["event"] == "step_output")
    assert text == "begin\n\x1b[31mred\x1b[0m \x07bell\nend\nother\n"


def test_the_watch_of_a_session_that_is_killed_ends_with_what_it_needs(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    session = only_session(acode)
    watching = acode.process("session", "watch", session)
    watching.wait_for_line("bell")
    running.kill_everything()
    seen = watching.finish()
    assert seen.exit_code == 0 and f"Session {session}: crashed. Next: acode resume {session}" in seen.stderr


def test_a_session_that_nobody_runs_is_told_at_once(acode: Acode, ended: str) -> None:
    seen = acode("session", "watch", ended, "--json").lines
    assert [one["event"] for one in seen] == ["session_start", "session_end"]


@pytest.mark.parametrize("step", ["approve: go on?", "run: exit 3", "{run: sleep 60, timeout: 0.2}"])
def test_the_watch_ends_with_the_reason_that_the_run_gave(acode: Acode, workspace: Path, step: str) -> None:
    ran = acode("run", save(workspace, f"title: t\ntasks:\n  - id: a\n    steps:\n      - {step}\n"), "--json")
    told, seen = ran.lines[-1]["data"], acode("session", "watch", only_session(acode), "--json").lines[-1]["data"]
    facts = ("state", "exit_code", "reason_code", "next_action")
    assert {name: seen[name] for name in facts} == {name: told[name] for name in facts}


def test_ctrl_c_ends_the_watching_and_not_the_session(acode: Acode, workspace: Path, terminal: Terminal) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    child = terminal("session", "watch")
    child.expect("Watching session")
    child.expect("begin")
    child.sendintr()
    child.expect_exact("^C")
    child.wait()
    assert child.exitstatus == 130
    (workspace.parent / "go").touch()
    assert running.finish().exit_code == 0


# Diff.


def test_the_changes_of_a_session_and_of_a_step_are_shown(acode: Acode, workspace: Path) -> None:
    (workspace.parent / "go").touch()
    (workspace / "a.txt").write_text("zero\n")
    plan = SLOW + "      - approve: OK?\n"
    acode("run", save(workspace, plan))
    session = only_session(acode)
    whole = acode("session", "diff", session).stdout.splitlines()
    assert whole[:2] == ["--- a.txt (before)", "+++ a.txt (after)"]
    assert whole[3:] == ["-zero", "+one", "+two", "+three"]
    assert acode("session", "diff", session, "work.third").stdout.splitlines()[3:] == [" one", " two", "+three"]
    (found,) = acode("session", "diff", session, "work.first", "--json").json["files"]
    assert (found["path"], found["change"], found["steps"], found["compared"]) == (
        "a.txt",
        "modified",
        ["work.first"],
        True,
    )
    assert acode("session", "diff", session, "work.9").exit_code == 2


def test_binary_and_large_files_are_named_only_and_control_characters_are_spelled_out(
    acode: Acode, workspace: Path
) -> None:
    plan = """\
tasks:
  - id: t
    steps:
      - run: printf 'a\\0b' > binary; head -c 2000000 /dev/zero > large; printf 'x\\033[2Jy\\n' > text
        outputs: [binary, large, text]
      - approve: OK?
"""
    acode("run", save(workspace, plan))
    shown = acode("session", "diff", only_session(acode)).stdout
    assert "binary: created; binary, 0 bytes before, 3 after" in shown
    assert "large: created; too large to compare" in shown
    assert "+x\\x1b[2Jy" in shown and "\x1b" not in shown


def test_behind_the_end_the_contents_before_are_not_known_any_more(acode: Acode, workspace: Path) -> None:
    (workspace / "a.txt").write_text("zero\n")
    acode("run", save(workspace, 'tasks: [{id: t, steps: [{write: {path: a.txt, content: "one\\n"}}]}]\n'))
    shown = acode("session", "diff", only_session(acode)).stdout
    assert "a.txt: modified; the contents before the change are not known any more" in shown


def test_secrets_in_changed_files_are_redacted(acode: Acode, workspace: Path) -> None:
    step = "{write: {path: .env, content: 'API_TOKEN=correct-horse-battery-staple'}}"
    plan = f"tasks: [{{id: t, steps: [{step}, {{approve: ok?}}]}}]"
    acode("run", save(workspace, plan))
    shown = acode("session", "diff", only_session(acode)).stdout
    assert "API_TOKEN=" in shown and "correct-horse" not in shown


# History.


def test_history_after_a_number_shows_the_events_behind_it(acode: Acode, ended: str) -> None:
    everything = acode("session", "history", ended, "--json").json
    assert acode("session", "history", ended, "--after", "5", "--json").json == everything[5:]
    assert acode("session", "history", ended, "--after", "5", "--limit", "2", "--json").json == everything[5:7]
    assert acode("session", "history", ended, "--limit", "2", "--json").json == everything[-2:]
    assert acode("session", "history", ended, "--after", "999", "--json").json == []


# Times.


def test_show_tells_when_each_step_ran(acode: Acode, ended: str) -> None:
    (task,) = acode("session", "show", ended, "--json").json["tasks"]
    for step in task["steps"]:
        assert step["started_at"] <= step["ended_at"] and step["duration_ms"] >= 0
    assert "completed, 20" in acode("session", "show", ended).stdout


def test_show_lists_the_steps_of_a_program_with_their_times(acode: Acode, workspace: Path) -> None:
    import acode as library

    with library.session("k", workspace=workspace) as session:
        session.step("fetch", str, 7)
        session.run("true", name="check")
    found = acode("session", "show", only_session(acode), "--json").json
    assert [(one["id"], one["kind"], one["status"]) for one in found["steps"]] == [
        ("fetch", "call", "completed"),
        ("check", "run", "completed"),
    ]
    assert all(one["started_at"] and one["duration_ms"] is not None for one in found["steps"])
    assert "✓ fetch" in acode("session", "show", only_session(acode)).stdout


# An outcome that nobody knows.


@pytest.fixture
def lost(acode: Acode, workspace: Path) -> str:
    """acode, the command and its keeper are killed in the middle of a step."""
    running = acode.process("run", save(workspace, SLOW.replace("        idempotent: true\n", "")), "--json")
    running.wait_for_line('"step_output"')
    running.kill_everything()
    return only_session(acode)


def test_the_last_lines_of_the_command_stand_beside_the_question(acode: Acode, lost: str, terminal: Terminal) -> None:
    refused = acode("resume", lost)
    assert refused.exit_code == 19
    assert "The last lines that it printed:\n│ begin\n│ red \\x07bell\n" in refused.stderr
    (flight,) = acode("explain", lost, "--json").json["in_flight"]
    assert flight["last_output"].startswith("begin\n")
    assert "│ begin" in acode("explain", lost).stdout
    child = terminal("resume", lost)
    child.expect("The last lines that it printed")
    child.expect("begin")
    child.expect("Choice")
    child.sendline("s")


def test_what_an_attempt_printed_before_it_was_cut_off_is_there_while_the_session_is(acode: Acode, lost: str) -> None:
    acode("session", "resolve", lost, "work.slow", "--not-applied")
    (acode.workspace.parent / "go").touch()
    plan = SLOW.replace("        idempotent: true\n", "") + "      - approve: OK?\n"
    assert acode("resume", lost, "--plan", save(acode.workspace, plan)).exit_code == 10
    shown = acode("session", "logs", lost, "work.slow", "--json").json
    assert [one["attempt"] for one in shown] == [1, 2] and shown[0]["lines"][0] == "begin"


def test_a_dead_session_is_shown_as_crashed(acode: Acode, workspace: Path) -> None:
    running = acode.process("run", save(workspace, SLOW), "--json")
    running.wait_for_line('"step_output"')
    assert acode("session", "list", "--json").json[0]["attention"] is None
    running.kill_everything()
    (row,) = acode("session", "list", "--json").json
    assert (row["state"], row["attention"]) == ("EXECUTING", "crashed")
    assert "crashed" in acode("session", "list").stdout and "EXECUTING" not in acode("session", "list").stdout
    asked = (acode("resume"), acode("run", "plan.yml"))  # nobody can be asked, so both name it
    assert all(one.exit_code == 10 and " - crashed - " in one.stderr for one in asked)


# A result that a person gives.

PROGRAM = """\
import acode, os, signal
def pay():
    os.kill(os.getpid(), signal.SIGKILL)
with acode.session("k") as session:
    print("paid", session.step("pay", pay))
"""


@pytest.fixture
def in_pay(acode: Acode, workspace: Path) -> str:
    (workspace / "program.py").write_text(PROGRAM)
    assert acode.process(program=("program.py",)).finish().exit_code == -signal.SIGKILL
    return only_session(acode)


def test_a_person_gives_a_program_s_step_its_result(acode: Acode, in_pay: str) -> None:
    done = acode("session", "resolve", in_pay, "pay", "--applied", "--result", '{"id": 7}')
    assert done.exit_code == 0 and "warning" not in done.stderr
    assert acode.process(program=("program.py",)).finish().stdout == "paid {'id': 7}\n"


def test_without_a_result_a_function_is_warned_about(acode: Acode, in_pay: str) -> None:
    done = acode("session", "resolve", in_pay, "pay", "--applied")
    assert done.exit_code == 0 and "--result JSON" in done.stderr
    assert acode.process(program=("program.py",)).finish().stdout == "paid None\n"


@pytest.mark.parametrize(
    "words", [("--applied", "--result", "{"), ("--retry", "--result", "1"), ("--not-applied", "--result", "1")]
)
def test_a_result_that_cannot_be_one_is_refused_and_nothing_is_recorded(
    acode: Acode, in_pay: str, words: tuple[str, ...]
) -> None:
    before = acode("session", "history", in_pay, "--json").json
    assert acode("session", "resolve", in_pay, "pay", *words).exit_code == 2
    assert acode("session", "history", in_pay, "--json").json == before


def test_a_plan_s_step_takes_no_result(acode: Acode, lost: str) -> None:
    ended = acode("session", "resolve", lost, "work.slow", "--applied", "--result", "1")
    assert ended.exit_code == 2 and "no program" in ended.stderr


MEASURED = """
title: Bell
tasks:
  - title: Ring
    steps:
      - run: echo ready
        id: first
      - run: until test -e go; do sleep 0.05; done; echo bell
        id: second
      - run: echo over
        id: third
"""


def test_the_watch_on_a_terminal_shows_how_far_it_is_and_what_is_likely_left(
    acode: Acode, workspace: Path, terminal: Terminal
) -> None:
    """The time that is left comes from an earlier run of the same plan; the first one knows of none."""
    plan, go = save(workspace, MEASURED), workspace / "go"
    go.touch()
    assert acode("run", plan).exit_code == 0
    go.unlink()
    running = acode.process("run", "--new", plan)
    running.wait_for_line("Step 2")
    child = terminal("session", "watch")
    child.expect("█+░+ 1/3, .* worked, about .* left")
    go.touch()
    child.expect("3/3")
    child.expect("COMPLETED")
    assert running.finish().exit_code == 0


@pytest.mark.release
def test_without_an_earlier_run_nothing_is_said_of_what_is_left(
    acode: Acode, workspace: Path, terminal: Terminal
) -> None:
    running = acode.process("run", save(workspace, MEASURED))
    running.wait_for_line("Step 2")
    child = terminal("session", "watch")
    child.expect("1/3, [^,]* worked")
    (workspace / "go").touch()
    child.expect("COMPLETED")
    assert "left" not in str(child.before)


def test_a_run_on_a_terminal_shows_the_same_and_one_in_a_pipe_does_not(
    acode: Acode, workspace: Path, terminal: Terminal
) -> None:
    plan, go = save(workspace, MEASURED), workspace / "go"
    go.touch()
    piped = acode("run", plan)
    assert piped.exit_code == 0 and "░" not in piped.stderr and "worked" not in piped.stderr
    go.unlink()
    child = terminal("run", "--new", "plan.yml")
    child.expect("Step 2.*█+░+ 1/3, .* worked, about .* left")
    go.touch()
    child.expect("Completed: session")
    assert ended_with(child) == 0


def test_a_terminal_without_room_for_both_shows_the_step(workspace: Path, terminal: Terminal) -> None:
    (workspace / "go").touch()
    save(workspace, MEASURED)
    child = terminal("run", "plan.yml", columns=40)
    child.expect("Completed: session")
    assert re.search(r"●[^\r\n]*Step 1", str(child.before)) and not re.search(r"●[^\r\n]*░", str(child.before))
    assert ended_with(child) == 0

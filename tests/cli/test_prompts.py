"""Questions on a real terminal: what is asked, what Enter means, and that Ctrl+C means stop."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest
from rich.cells import cell_len

from acode.cli.early_flags import Flags
from acode.cli.prompts import ask_for_text
from acode.cli.screen import Screen
from tests.cli.plans import GATE, THREE_TASKS, save, slow
from tests.driver import Acode
from tests.terminals import WAIT_S_MAX, Terminal, ended


@pytest.fixture
def paused(acode: Acode, workspace: Path) -> str:
    acode("run", save(workspace, THREE_TASKS))
    (workspace / "go.txt").write_text("go\n")
    return str(acode("session", "list", "--json").json[0]["short_id"])


@pytest.mark.req("CLI-011c-01", "OUT-011c-02")
def test_the_one_candidate_is_shown_and_enter_resumes_it(terminal: Terminal, paused: str) -> None:
    child = terminal("resume")
    child.expect_exact("Found 1 resumable session:\r\n")
    child.expect_exact(f'  {paused} - PAUSED - "Add input validation"\r\n')
    child.expect_exact("  Paused at: Task 2/3, Step 3/4\r\n")
    child.expect(r"  Paused: (just now|\d+ seconds ago)\r\n")
    child.expect_exact("Resume this session? [Y/n] ")
    child.sendline("")
    child.expect_exact(f"Resuming session {paused}...")
    child.expect_exact("Resume completed")
    assert ended(child) == 0


@pytest.mark.parametrize("answer", ["n", "\x03", "\x04"])
def test_anything_but_yes_resumes_nothing(terminal: Terminal, paused: str, acode: Acode, answer: str) -> None:
    before = acode("session", "history", "--json").json
    child = terminal("resume")
    child.expect_exact("[Y/n] ")
    if answer == "n":
        child.sendline("n")
    else:
        child.send(answer)
    status = ended(child)
    if answer == "\x04":  # Ctrl+D: the end of input is the default, as Enter is
        assert status == 0
    else:
        assert status == 130
        assert acode("session", "history", "--json").json == before


def test_of_several_the_number_picks_one(terminal: Terminal, paused: str, workspace: Path, acode: Acode) -> None:
    acode("run", save(workspace, GATE, "gate.yml"))
    child = terminal("resume")
    child.expect_exact("Found 2 resumable sessions:\r\n")
    child.expect(r"  1\. \w{8} - needs you: approve")
    child.expect_exact(f"  2. {paused} - PAUSED")
    child.expect_exact("[Y/n]")
    child.sendline("7")
    child.expect_exact("[Y/n]")
    child.sendline("2")
    child.expect_exact(f"Resuming session {paused}...")
    assert ended(child) == 0


@pytest.mark.req("CLI-011c-08", "OUT-011c-05")
def test_changed_files_can_be_viewed_and_then_accepted(terminal: Terminal, paused: str, workspace: Path) -> None:
    (workspace / "email.txt").write_text("mine\n")
    child = terminal("resume", paused)
    child.expect_exact("Changed files detected:")
    child.expect(r"- email\.txt \(modified \d+ s ago\)")
    child.expect_exact("The session was working on these files. Changes may conflict.")
    child.expect_exact("Options:\r\n  [C]ontinue anyway\r\n  [A]bort and start fresh\r\n  [V]iew changes\r\n")
    child.expect_exact("Choice: ")
    child.sendline("v")
    child.expect_exact("-email")
    child.expect_exact("+mine")
    child.expect_exact("Choice: ")
    child.sendline("c")
    child.expect_exact("Continuing with changed files...")
    assert ended(child) == 0
    assert (workspace / "email.txt").read_text() == "mine\n"


@pytest.mark.parametrize("answer", ["\r", "a\r\r", "\x03"])
def test_changed_files_are_not_accepted_by_accident(
    terminal: Terminal, paused: str, workspace: Path, acode: Acode, answer: str
) -> None:
    (workspace / "email.txt").write_text("mine\n")
    child = terminal("resume", paused)
    child.expect_exact("Choice: ")
    child.send(answer)
    child.expect_exact(f"To resume: acode resume {paused}")
    assert ended(child) == (130 if answer == "\x03" else 17)
    assert acode("status", "--json").json["state"] == "PAUSED"


def test_a_gate_says_what_a_yes_allows(terminal: Terminal, workspace: Path) -> None:
    save(workspace, GATE)
    child = terminal("run", "plan.yml")
    child.expect_exact("Approval needed at Task 1, Step 2 (ship.gate):")
    child.expect_exact("Deploy to production?")
    child.expect_exact("- Run echo shipped >> shipped.txt")
    child.expect_exact("Approve? [y/N] ")
    child.sendline("y")
    assert ended(child) == 0
    assert (workspace / "shipped.txt").exists()


@pytest.mark.parametrize(("answer", "status"), [("\r", 12), ("no\r", 12), ("\x03", 130), ("\x04", 130)])
def test_a_gate_opens_only_for_a_yes(
    terminal: Terminal, workspace: Path, acode: Acode, answer: str, status: int
) -> None:
    save(workspace, GATE)
    child = terminal("run", "plan.yml")
    child.expect_exact("Approve? [y/N] ")
    child.send(answer)
    child.expect_exact("To resume: acode resume ")
    assert ended(child) == status
    assert acode("status", "--json").json["state"] == "PAUSED"
    assert not (workspace / "shipped.txt").exists()


@pytest.mark.parametrize(("answer", "resumed"), [("", True), ("n", False)])
def test_an_unfinished_session_of_the_plan_is_resumed_by_default(
    terminal: Terminal, paused: str, acode: Acode, answer: str, resumed: bool
) -> None:
    child = terminal("run", "plan.yml")
    child.expect_exact("This plan has an unfinished session here:")
    child.expect_exact("[R]esume it, or start a [N]ew one? [R] ")
    child.sendline(answer)
    assert ended(child) == 0
    states = [row["state"] for row in acode("session", "list", "--json").json]
    assert sorted(states) == (["COMPLETED"] if resumed else ["COMPLETED", "PAUSED"])


def test_a_person_says_what_became_of_a_step(terminal: Terminal, workspace: Path, acode: Acode) -> None:
    running = acode.process("run", save(workspace, slow("timeout: 60")))
    running.wait_for_line("│ under way")
    running.kill_everything()
    child = terminal("resume", "--last")
    child.expect_exact("Step work.slow was in progress, and its outcome is unknown.")
    child.expect_exact("Choice [S]: ")
    child.sendline("")
    assert ended(child) == 19
    child = terminal("resume", "--last")
    child.expect_exact("Choice [S]: ")
    child.sendline("a")
    assert ended(child) == 0
    assert (workspace / "last.txt").exists()


def test_trust_is_asked_for_and_no_is_the_default(terminal: Terminal, workspace: Path, acode: Acode) -> None:
    (workspace / ".agent").mkdir(mode=0o700)
    (workspace / ".agent" / "config.yml").write_text("notify: {command: [touch, told]}\n")
    (workspace / "go.txt").write_text("go\n")
    save(workspace, THREE_TASKS)
    child = terminal("run", "plan.yml")
    child.expect_exact("notify.command")
    child.expect_exact("Do you trust this file as it is now? [y/N] ")
    child.sendline("")
    child.expect_exact("not in effect: notify.command")
    assert ended(child) == 0
    child = terminal("run", "plan.yml")
    child.expect_exact("[y/N] ")
    child.sendline("y")
    assert ended(child) == 0
    assert acode("config", "check", "--json").json["trusted"] is True


def test_no_input_never_asks(terminal: Terminal, paused: str) -> None:
    assert ended(terminal("resume", "--no-input")) == 10
    assert ended(terminal("--no-input", "resume")) == 10


def test_a_forced_resume_asks_for_its_reason(terminal: Terminal, paused: str, acode: Acode) -> None:
    child = terminal("resume", paused, "--force")
    child.expect_exact("Why is it forced?")
    child.sendline("I know")
    assert ended(child) == 0
    forced = [event for event in acode("session", "history", "--json").json if event["type"] == "forced"]
    assert forced[0]["data"]["reason"] == "I know"


def test_questions_stay_off_stdout(workspace: Path, paused: str) -> None:
    """stdin and stderr are the terminal, stdout is a file: the file holds JSON Lines and nothing else."""
    line = f"{sys.executable} -m acode resume --json > out.jsonl"
    child = pexpect.spawn("bash", ["-c", line], cwd=str(workspace), encoding="utf-8", timeout=WAIT_S_MAX)
    child.expect_exact("Resume this session? [Y/n]")
    child.sendline("y")
    assert ended(child) == 0
    first = (workspace / "out.jsonl").read_text().splitlines()[0]
    assert first.startswith('{"event":"session_start"')


def test_a_long_title_fits_a_narrow_terminal(terminal: Terminal, workspace: Path) -> None:
    save(workspace, f"tasks: [{{title: T, steps: [{{run: 'true {'x' * 200}', idempotent: true}}]}}]\n")
    child = terminal("run", "plan.yml", columns=60)
    assert ended(child) == 0
    drawn = [line for line in str(child.before).split("\r\n") if "Task 1, Step 1" in line]
    pieces = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", piece) for line in drawn for piece in line.split("\r")]
    assert max(map(len, pieces)) <= 60, pieces
    assert any("…" in line for line in drawn)


def test_ctrl_c_at_a_question_leaves_its_line(terminal: Terminal, workspace: Path, paused: str) -> None:
    child = terminal("run", "plan.yml")
    child.expect_exact("[N]ew one? [R]")
    child.sendintr()
    assert ended(child) == 130
    assert "\r\nerror: nothing was started" in str(child.before)


def test_ctrl_c_before_the_question_is_waited_for_leaves_its_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(Flags(), os.environ)
    right = screen.put

    def put(text: str) -> None:
        right(text)
        if text.endswith("? "):
            raise KeyboardInterrupt

    monkeypatch.setattr(screen, "put", put)
    with pytest.raises(KeyboardInterrupt):
        ask_for_text(screen, "Approve?")
    assert capsys.readouterr().err == "Approve? \n"


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_list_on_a_terminal_shortens_the_title_and_never_the_id(
    terminal: Terminal, workspace: Path, acode: Acode, columns: int
) -> None:
    title = "Migrate the customer database to the new schema 数据库 and restart all workers one by one, then tell us"
    save(workspace, f"title: {title}\ntasks: [{{title: T, steps: [{{run: exit 3}}]}}]\n")
    acode("run", "plan.yml")
    (row,) = acode("session", "list", "--json").json
    child = terminal("session", "list", columns=columns)
    assert ended(child) == 0
    head, line = str(child.before).rstrip().split("\r\n")
    assert head.split() == ["ID", "STATE", "SINCE", "TASK"]
    assert re.fullmatch(rf"{row['short_id']}  PAUSED  \d+s ago  Migrate the customer.*…", line), line
    assert cell_len(line) <= columns


def test_while_a_person_is_asked_other_tasks_go_on_and_tell_it_after_the_answer(
    terminal: Terminal, workspace: Path
) -> None:
    said = "run: echo one; touch ../said; while [ ! -e ../answered ]; do sleep 0.02; done; echo two"
    text = f"""\
title: Two
parallel: 2
tasks:
  - {{id: ask, steps: [{{run: "while [ ! -e ../said ]; do sleep 0.02; done"}}, {{approve: Ship?}}]}}
  - {{id: work, needs: [], steps: [{{{said.replace("run: ", 'run: "')}"}}]}}
  - {{id: more, needs: [ask], steps: [{{run: touch ../answered}}]}}
"""
    save(workspace, text)
    child = terminal("run", "plan.yml")
    child.expect_exact("Approve? [y/N] ")
    child.sendline("y")
    child.expect_exact("work │ two")
    assert "Task 3" in child.before, "its gate is passed while the other task works"
    assert ended(child) == 0

"""Tab, pressed in the real shells: they complete what acode knows, and nothing that fails disturbs the line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest

from tests.driver import Acode, Ended
from tests.variants import first_of

WAIT_S_MAX = 30
PROMPT = "READY> "
PLAN = """
title: Ship, carefully
tasks:
  - id: ship
    title: Ship
    steps:
      - {id: build, run: "true", idempotent: true}
      - {id: ask, approve: "go on?"}
      - {id: cut, run: "echo under way; sleep 60"}
"""
# What a shell reads at its start: a prompt to wait for, and nothing that a person's taste would change.
STARTUP = {
    "bash": (".bashrc", f"PS1='{PROMPT}'\nbind 'set enable-bracketed-paste off' 'set bell-style none'\n"),
    "zsh": (".zshrc", f"PS1='{PROMPT}'\nbindkey -e\nunset zle_bracketed_paste\nunsetopt prompt_sp\n"),
    "fish": (".config/fish/config.fish", f"set fish_greeting\nfunction fish_prompt; echo -n '{PROMPT}'; end\n"),
}
LINE_START, LINE_END = "\x01", "\x05"  # Ctrl+A and Ctrl+E

Complete = Callable[[str], str]


@pytest.fixture
def own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """acode as a program on the path, as an installation would leave it."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "acode").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m acode "$@"\n')
    (place / "acode").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return place


@pytest.fixture
def gated(acode: Acode, workspace: Path) -> str:
    """A session that waits at its gate, in a workspace with plans whose names are hard to type."""
    (workspace / "my plan.yml").write_text(PLAN)
    (workspace / "plans").mkdir()
    (workspace / "plans" / "night.yaml").write_text(PLAN)
    (workspace / "notes.txt").write_text("no plan\n")
    assert acode("run", "my plan.yml").exit_code == 10
    found: str = acode("session", "list", "--json").json[0]["short_id"]
    return found


@pytest.fixture
def start(own_path: Path, workspace: Path, home: Path, acode: Acode) -> Iterator[Callable[[str], Complete]]:
    started: list[pexpect.spawn[str]] = []

    def start_shell(shell: str) -> Complete:
        if shutil.which(shell) is None:
            pytest.skip(f"no {shell} on this machine")
        name, text = STARTUP[shell]
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
        assert acode("completion", shell, "--install").exit_code == 0
        child = pexpect.spawn(
            shell, ["-i"], cwd=str(workspace), env={**os.environ, "TERM": "xterm"}, encoding="utf-8", timeout=WAIT_S_MAX
        )
        child.setwinsize(40, 200)
        started.append(child)
        child.expect_exact(PROMPT)
        return lambda typed: completed(child, typed)

    yield start_shell
    for child in started:
        child.close(force=True)


def completed(child: pexpect.spawn[str], typed: str) -> str:
    """What stands in the line after a Tab: it is given to `echo` in place of being run."""
    child.send(f"{typed}\t")
    child.send(f"{LINE_START}echo '<' ")
    child.sendline(f"{LINE_END} '>'")
    child.expect(r"(?m)^.*?< (acode .*) >\r?\n")
    found = str(child.match.group(1)) if child.match else ""
    child.expect_exact(PROMPT)
    return re.sub(r"\s+", " ", found)


@pytest.mark.parametrize("shell", first_of(*STARTUP))
def test_tab_completes_commands_plans_sessions_steps_and_settings(
    shell: str, start: Callable[[str], Complete], gated: str
) -> None:
    tab = start(shell)
    assert tab("acode sess") == "acode session"
    assert tab("acode run my") == "acode run my plan.yml"
    assert tab("acode run pla") == "acode run plans/"
    assert tab("acode run plans/") == "acode run plans/night.yaml"
    assert tab("acode resume ") == f"acode resume {gated}"
    assert tab(f"acode session approve {gated} ") == f"acode session approve {gated} ship.ask"
    assert tab(f"acode session rollback {gated} --to ") == f"acode session rollback {gated} --to ship.build"
    assert tab(f"acode session logs {gated} ") == f"acode session logs {gated} ship.build"
    assert tab(f"acode resume {gated} --plan plans/") == f"acode resume {gated} --plan plans/night.yaml"
    assert tab("acode config show sync.u") == "acode config show sync.url"
    assert tab("acode resume --strat") == "acode resume --strategy"


@pytest.mark.parametrize("shell", first_of(*STARTUP))
def test_tab_leaves_the_line_alone_where_there_is_nothing_to_offer_or_everything_is_broken(
    shell: str, start: Callable[[str], Complete], gated: str, workspace: Path
) -> None:
    tab = start(shell)
    assert tab("acode nonsense x") == "acode nonsense x"
    assert tab("acode resume nobody") == "acode resume nobody"
    (workspace / ".agent" / "workspace.db").write_bytes(b"this is no database" * 99)
    (workspace / ".agent" / "config.yml").write_text("resume: {nonsense: 1}\n")
    assert tab("acode resume ") == "acode resume"
    assert tab("acode session approve x ") == "acode session approve x"


def asked(workspace: Path, line: str, cword: int, shell: str = "fish") -> Ended:
    """What a shell's script gets for an answer."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(cword) if shell != "fish" else line.rpartition(" ")[2]}
    done = subprocess.run(
        [sys.executable, "-m", "acode"],
        cwd=workspace,
        env={**os.environ, **words, "_ACODE_COMPLETE": f"{shell}_complete"},
        check=False,
        text=True,
        capture_output=True,
    )
    return Ended(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def test_a_step_that_was_cut_off_is_offered_where_its_outcome_is_told(
    acode: Acode, workspace: Path, gated: str
) -> None:
    acode("session", "approve", gated)
    running = acode.process("resume", gated, "--force", "--reason", "test")
    running.wait_for_line("│ under way")
    running.kill_everything()
    shown = asked(workspace, f"acode session resolve {gated} ", 4)
    assert shown.stdout.startswith("plain,ship.cut\t") and shown.stderr == ""


def test_sessions_are_described_by_their_state_and_title(workspace: Path, gated: str) -> None:
    assert asked(workspace, "acode status ", 2).stdout == f"plain,{gated}\tAWAITING_APPROVAL Ship, carefully\n"


def test_an_ended_session_is_offered_to_look_at_and_not_to_resume(acode: Acode, workspace: Path, gated: str) -> None:
    assert acode("session", "cancel", gated).exit_code == 0
    assert gated in asked(workspace, "acode session show ", 3).stdout
    assert asked(workspace, "acode resume ", 2).stdout == "\n"


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        *(("bash", line) for line in ("acode --help ", "acode --version ", "acode nonsense ", "acode resume 'a", "")),
        *((shell, "acode nonsense ") for shell in ("zsh", "fish", "powershell", "tcsh")),
    ],
)
def test_no_line_makes_it_complain_or_do_anything(workspace: Path, shell: str, line: str) -> None:
    ended = asked(workspace, line, len(line.split()), shell)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert "Usage" not in ended.stdout and "acode 0" not in ended.stdout
    assert not (workspace / ".agent").exists()


# Installing.


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_an_installation_adds_one_line_once_and_keeps_the_rest(acode: Acode, home: Path, shell: str) -> None:
    startup = home / STARTUP[shell][0]
    startup.write_text("alias ll='ls -l'")  # no line break at its end
    first = acode("completion", shell, "--install", "--json").json
    assert (first["startup_file"], first["added"]) == (str(startup), True)
    again = acode("completion", shell, "--install", "--json").json
    assert again == {**first, "added": False}
    before, line, rest = startup.read_text().split("\n")
    assert (before, rest) == ("alias ll='ls -l'", "") and first["script"] in line
    assert Path(first["script"]).read_text() == acode("completion", shell).stdout


def test_the_login_shell_is_meant_where_none_is_named(
    acode: Acode, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert acode("completion", "--install").exit_code == 0
    assert (home / ".config" / "fish" / "completions" / "acode.fish").exists()
    for name in ("/bin/tcsh", ""):
        monkeypatch.setenv("SHELL", name)
        ended = acode("completion", "--install")
        assert ended.exit_code == 2 and "acode completion bash --install" in ended.stderr


def test_a_home_that_cannot_be_written_is_an_error_that_names_the_place(acode: Acode, home: Path) -> None:
    (home / ".local").write_text("a file in the way\n")
    ended = acode("completion", "bash", "--install")
    assert ended.exit_code == 1 and str(home / ".local") in ended.stderr
    assert not (home / ".bashrc").exists()


# Settings.


def test_one_setting_or_one_section_can_be_shown(acode: Acode) -> None:
    assert list(acode("config", "show", "sync.url", "--json").json) == ["sync.url"]
    section = acode("config", "show", "sync", "--json").json
    assert len(section) > 1 and all(key.startswith("sync.") for key in section)
    ended = acode("config", "show", "syn")
    assert ended.exit_code == 2 and "there is no setting 'syn'" in ended.stderr

"""A pattern with a wildcard allows a command, and nothing that the command could be made to run or write elsewhere."""

from __future__ import annotations

import json

import pytest

from acode.agent.permission import decide, is_read_only
from acode.config.settings import ToolRule, Tools

PROGRAMS = ("git", "find", "env", "xargs", "sort", "rg", "fd", "tar", "sed", "ls", "nice", "python3")
RULES = tuple(ToolRule(tool="run_command", match=f"{program} *", answer="allow") for program in PROGRAMS)
ALLOWING = Tools(run_command="ask", rules=RULES)


def answer(command: str, settings: Tools = ALLOWING) -> str:
    return decide("run_command", json.dumps({"command": command}), settings)


@pytest.mark.parametrize(
    "command",
    [
        "git -c alias.x='!touch /tmp/evil' x",
        "git -calias.x=!evil x",
        "git  -c core.pager=evil log",
        "git --config-env=core.pager=EVIL log",
        "git --exec-path=/tmp/evil log",
        "git -C /etc log",
        "git --git-dir=/tmp/evil log",
        "git --work-tree /tmp log",
        "git log --output=/etc/cron.d/x",
        "git diff --outp=../x",
        "git log --ext-diff",
        "git grep -O evil x",
        "git grep --open-files-in-pager=evil x",
        "git rebase --exec evil HEAD~1",
        "git rebase -x evil HEAD~1",
        "git ls-remote --upload-pack=evil x",
        "git bisect run evil",
        "git submodule foreach evil",
        "git config alias.x !evil",
        "git x",
        "git difftool",
        "git {-c,alias.x=!evil} x",
        "git \\-c alias.x=!evil x",
        "git 'unclosed",
        "git log | sh",
        "git log > /etc/x",
        "git log $(evil)",
        "git log `evil`",
        "git log; evil",
        "git log && evil",
        "git log\nevil",
        "find . -exec evil +",
        "find . -delete",
        "find . -fprint /etc/x",
        "env evil",
        "env -S evil",
        "xargs evil",
        "nice evil",
        "sort -o /etc/x a",
        "sort --compress-program=evil a",
        "rg --pre evil x",
        "fd -x evil",
        "tar -cf a --checkpoint-action=exec=evil b",
        "tar xf a -C /",
        "sed -i s/a/b/ x",
        "ls -o /etc/x",
        "X=1 git log",
    ],
)
def test_an_option_that_runs_or_writes_elsewhere_is_not_covered_by_a_pattern(command: str) -> None:
    assert answer(command) == "ask"
    assert not is_read_only(command, Tools(read_only=tuple(f"{program} *" for program in PROGRAMS)))


@pytest.mark.parametrize(
    "command",
    ["git", "git status", "git log --oneline -5", "git diff HEAD~1 -- a.txt", "git show HEAD:a", "find . -name x.py",
     "rg -n pattern src", "sort -u a", "ls -la", "tar tf a.tar", "git commit -m 'a message'"],
)  # fmt: skip
def test_the_ordinary_use_of_a_program_is_covered(command: str) -> None:
    assert answer(command) == "allow"


def test_a_line_that_is_written_out_is_allowed_as_it_stands() -> None:
    line = "git -c core.pager=cat log"
    written_out = Tools(run_command="ask", rules=(ToolRule(tool="run_command", match=line, answer="allow"),))
    assert answer(line, written_out) == "allow"
    assert answer(f"{line} x", written_out) == "ask"


def test_what_denies_still_denies_what_a_pattern_does_not_cover() -> None:
    denying = Tools(run_command="allow", rules=(ToolRule(tool="run_command", match="git *", answer="deny"),))
    assert answer("git -c a=b x", denying) == "deny"


@pytest.mark.parametrize(
    "path",
    [".env", ".env.production", "config/.env", "prod.env", "id_rsa", ".ssh/config", "certs/server.key", "a.pem",
     "secrets.yml", "credentials.json", ".aws/config", ".npmrc", ".netrc", "x.tfvars", ".ENV", "keys/id_ed25519"],
)  # fmt: skip
def test_a_file_that_looks_like_a_secret_is_asked_for_by_default(path: str) -> None:
    call = json.dumps({"path": path})
    assert decide("read_file", call, Tools()) == "ask"
    allowed = Tools(rules=(ToolRule(tool="read_file", match=path, answer="allow"),))
    assert decide("read_file", call, allowed) == "allow"


@pytest.mark.parametrize(
    "path", ["README.md", "src/env.py", ".env.example", "keys.py", "secrets.py", "id_rsa.pub", "a.txt"]
)
def test_other_files_are_read_without_asking(path: str) -> None:
    assert decide("read_file", json.dumps({"path": path}), Tools()) == "allow"

"""The policy for tools: what is asked, allowed and denied, and that no pattern lets a second command through."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from acode.agent.permission import decide, is_read_only, may_be_shown, question
from acode.config.settings import TOOLS, ToolRule, Tools

COMPOUND = (
    "pytest; rm -rf .", "pytest && rm x", "pytest || rm x", "pytest | sh", "pytest & rm x", "pytest > a", "pytest < a",
    "pytest $(rm x)", "pytest `rm x`", "pytest $X", "pytest\nrm x", "pytest\rrm x", "pytest <(rm x)",
)  # fmt: skip


WRITING = (
    "git diff --output=x", "git log --output=x", "git diff --outp=x", "git stash", "lsof", "cat a > b",
    "find . -delete", "sort -o x", "sed -i s/a/b/ x", "tee x", "ls; rm x", " ls", "PAGER=x git diff",
)  # fmt: skip


def tools(*rules: tuple[str, str, Any], **answers: Any) -> Tools:
    return Tools(
        rules=tuple(ToolRule(tool=tool, match=match, answer=answer) for tool, match, answer in rules), **answers
    )


def answer(settings: Tools, tool: str, **arguments: Any) -> str:
    return decide(tool, json.dumps(arguments), settings)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "a"},
    "list_files": {},
    "search": {"text": "a"},
    "write_file": {"path": "a", "content": ""},
    "edit_file": {"path": "a", "old": "a", "new": "b"},
    "run_command": {"command": "make"},
    "git_commit": {"message": "m"},
    "ask_user": {"question": "?"},
}


def test_without_settings_commands_and_commits_are_asked_about_and_the_rest_is_allowed() -> None:
    found = {name: answer(Tools(), name, **ARGUMENTS[name]) for name in TOOLS}
    assert {name for name, said in found.items() if said == "ask"} == {"run_command", "git_commit"}
    assert {said for name, said in found.items() if name not in ("run_command", "git_commit")} == {"allow"}


@pytest.mark.parametrize("tool", ["run_command", "write_file", "edit_file", "git_commit"])
@pytest.mark.parametrize("said", ["ask", "allow", "deny"])
def test_the_answer_for_a_tool_holds_where_no_rule_matches(tool: str, said: str) -> None:
    settings = tools((tool, "something else", "deny"), **{tool: said})
    assert answer(settings, tool, **ARGUMENTS[tool]) == said


def test_the_first_rule_that_matches_decides() -> None:
    settings = tools(
        ("run_command", "git push *", "deny"), ("run_command", "git *", "allow"), ("run_command", "git status", "deny")
    )
    assert answer(settings, "run_command", command="git push --force") == "deny"
    assert answer(settings, "run_command", command="git status") == "allow"
    assert answer(settings, "run_command", command="git") == "allow"
    assert answer(settings, "run_command", command="gitk") == "ask"
    assert answer(settings, "write_file", path="git x", content="") == "allow"


@pytest.mark.parametrize("line", COMPOUND)
def test_no_pattern_allows_a_line_that_could_hide_a_second_command(line: str) -> None:
    assert answer(tools(("run_command", "*", "allow")), "run_command", command=line) == "ask"
    assert answer(tools(("run_command", "pytest*", "allow")), "run_command", command=line) == "ask"
    assert answer(tools(("run_command", "pytest*", "allow"), run_command="deny"), "run_command", command=line) == "deny"
    assert not is_read_only(line, Tools(read_only=("*", "pytest*")))


# A shell that only notes which commands it would start; it has no others, and looks for them nowhere.
NOTING = """
command_not_found_handle() { printf 'x' >> "$NOTES"; }
PATH=/nowhere
eval "$LINE"
"""


def begun_by(line: str, place: Path) -> tuple[int, list[str]]:
    """How many commands a shell starts for this line, and what it makes in its directory without any."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    notes = place.with_name("notes")
    notes.unlink(missing_ok=True)
    env = {"LINE": line, "NOTES": str(notes)}
    subprocess.run(
        ["bash", "-c", NOTING], cwd=place, env=env, check=False, capture_output=True, stdin=subprocess.DEVNULL
    )
    return len(notes.read_bytes()) if notes.exists() else 0, sorted(path.name for path in place.iterdir())


ALPHABETS = ("ab ;&|<>$`\n\r'\"\\()", "ab '\"\\\n", "ab -=.*?[]{}~!#")
LINES = st.one_of(*(st.text(alphabet=list(letters), min_size=1, max_size=20) for letters in ALPHABETS))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(line="a b")
@example(line="a;b")
@example(line="a\\\nb")
@given(line=LINES)
def test_a_line_that_a_pattern_allows_is_one_command_to_a_real_shell(line: str, tmp_path: Path) -> None:
    if answer(tools(("run_command", "*", "allow")), "run_command", command=line) == "allow":
        commands, made = begun_by(line, tmp_path / "work")
        assert commands <= 1 and made == [], "it starts a second command, or writes"


def test_the_shell_that_judges_the_lines_sees_second_commands_and_files(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    assert begun_by("a b", tmp_path / "work") == (1, [])
    for line in ("a; b", "a && b", "a | b", "a & b", "a $(b)", "a `b`", "a\nb", "a <(b)"):
        assert begun_by(line, tmp_path / "work") == (2, []), line
    assert begun_by("a > c", tmp_path / "work") == (1, ["c"])
    assert answer(tools(("run_command", "*", "allow")), "run_command", command="a b") == "allow"


def test_where_commands_are_allowed_a_rule_that_restricts_has_compound_lines_asked_about() -> None:
    restricted = tools(("run_command", "rm *", "deny"), run_command="allow")
    assert answer(restricted, "run_command", command="ls") == "allow"
    assert answer(restricted, "run_command", command="true; rm x") == "ask"
    assert answer(restricted, "run_command", command="rm x; true") == "deny"
    assert answer(restricted, "run_command", command="RM   -rf x") == "deny"
    assert answer(tools(run_command="allow"), "run_command", command="true; rm x") == "allow"


@pytest.mark.parametrize("path", ["deploy/a", "./deploy//a", "deploy/a/b", "Deploy/a", "deploy/a/"])
@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_path_that_may_not_be_written_may_not_be_edited_however_it_is_spelled(tool: str, path: str) -> None:
    for named in ("write_file", "edit_file"):
        settings = tools((named, "deploy/*", "deny"))
        assert answer(settings, tool, **{**ARGUMENTS[tool], "path": path}) == "deny"


def test_a_rule_that_allows_holds_for_its_tool_and_spelling_alone() -> None:
    settings = tools(("write_file", "docs/*", "allow"), write_file="ask", edit_file="ask")
    assert answer(settings, "write_file", path="docs/a", content="") == "allow"
    assert answer(settings, "write_file", path="Docs/a", content="") == "ask"
    assert answer(settings, "edit_file", path="docs/a", old="a", new="b") == "ask"


def test_patterns_know_stars_and_question_marks_and_nothing_else() -> None:
    settings = tools(("run_command", "pytest a[1].py ?", "allow"))
    assert answer(settings, "run_command", command="pytest a[1].py x") == "allow"
    assert answer(settings, "run_command", command="pytest a1.py x") == "ask"
    assert answer(settings, "run_command", command="pytest a[1].py xy") == "ask"


def test_arguments_that_nothing_is_done_with_need_no_permission() -> None:
    settings = tools(run_command="deny", write_file="deny")
    assert decide("run_command", "{", settings) == "allow"
    assert answer(settings, "write_file", path="../x", content="") == "allow"
    assert decide("no tool", "{}", settings) == "allow"


def test_the_usual_read_only_commands_have_no_way_to_write() -> None:
    for line in ("ls", "ls -la src", "cat a b", "git status --short", "git diff", "grep -rn x src", "pwd"):
        assert is_read_only(line, Tools()), line
    for line in WRITING:
        assert not is_read_only(line, Tools()), line


def test_a_file_that_is_asked_about_is_not_shown_by_other_tools() -> None:
    settings = tools(("read_file", "*.pem", "ask"))
    assert not may_be_shown("keys/a.pem", settings)
    assert not may_be_shown("keys/A.PEM", settings)
    assert may_be_shown("keys/a.pub", settings)


# Questions.


@pytest.mark.parametrize(
    ("tool", "arguments", "asked"),
    [
        ("run_command", {"command": "make -j2"}, "Run: make -j2"),
        ("run_command", {"command": "make", "timeout_s": 5}, "Run for at most 5 s: make"),
        ("run_command", {"command": "a\n\x1b[2Jrm"}, "Run: a\\x0a\\x1b[2Jrm"),
        ("write_file", {"path": "./a//b", "content": "grün"}, "Write a/b (5 bytes)?"),
        ("write_file", {"path": "a", "content": "x"}, "Write a (1 byte)?"),
        ("edit_file", {"path": "a", "old": "x\n", "new": ""}, "Edit a: replace “x\\x0a” (2 bytes) by “” (0 bytes)?"),
        ("git_commit", {"message": "Fix"}, "Commit all that was changed to git: Fix"),
        ("git_commit", {"message": "Fix", "paths": ["a", "b/"]}, "Commit a, b to git: Fix"),
    ],
)
def test_a_question_says_in_one_line_what_would_happen(tool: str, arguments: dict[str, Any], asked: str) -> None:
    assert question(tool, json.dumps(arguments), str) == asked


def test_a_command_is_never_shown_in_part() -> None:
    line = "echo " + "x" * 9_000 + " & rm -rf ."
    assert question("run_command", json.dumps({"command": line}), str).endswith(" & rm -rf .")


@given(tool=st.sampled_from([*TOOLS, "none"]), text=st.text(max_size=60))
def test_any_arguments_get_an_answer_and_a_question_in_one_line(tool: str, text: str) -> None:
    for arguments in (text, json.dumps({"path": text, "command": text, "message": text, "question": text})):
        assert decide(tool, arguments, Tools()) in ("ask", "allow", "deny")
        assert "\n" not in question(tool, arguments, str)

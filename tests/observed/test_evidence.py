"""What files, processes and git show now about a call that was in flight; what shows nothing stays unknown."""

from __future__ import annotations

import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.driver import Acode, wait_for_deaths
from tests.observed.test_inspect import only
from tests.transcripts import NAMING, Edit, Event, Prompt, Read, Run, Write, write_session


def call_of(acode: Acode, agent: str, project: Path, event: Event, *, at: datetime | None = None) -> Any:
    write_session(agent, Path.home(), project, [Prompt("go"), event], at=at)
    (call,) = only(acode, agent)["calls"]
    return call


LATER = datetime.now(UTC) + timedelta(hours=1)  # a call from after the file's last change


@pytest.mark.parametrize("agent", NAMING)
@pytest.mark.parametrize(
    ("found", "outcome", "words"),
    [
        (b"hello\n", "applied", "holds exactly the call's 6 bytes"),
        (None, "not_applied", "does not exist"),
        (b"hellO\n", "unknown", "holds other bytes than the call's (6, not 6)"),
        (b"", "unknown", "(0, not 6)"),
    ],
    ids=["same", "missing", "other", "empty"],
)
def test_a_write_is_judged_by_the_bytes_of_the_file(  # noqa: PLR0917
    agent: str, found: bytes | None, outcome: str, words: str, acode: Acode, home: Path, project: Path
) -> None:
    if found is not None:
        (project / "note.txt").write_bytes(found)
    call = call_of(acode, agent, project, Write("c1", "note.txt", "hello\n"))
    assert (call["outcome"], [path.endswith("note.txt") for path in call["paths"]]) == (outcome, [True])
    assert words in call["evidence"][0]["text"]


def test_a_file_that_is_older_than_the_call_shows_that_the_call_did_nothing(
    acode: Acode, home: Path, project: Path
) -> None:
    (project / "note.txt").write_text("before\n")
    call = call_of(acode, "claude", project, Write("c1", "note.txt", "hello\n"), at=LATER)
    assert (call["outcome"], call["evidence"][0]["outcome"]) == ("not_applied", "not_applied")


@pytest.mark.parametrize("agent", NAMING)
@pytest.mark.parametrize(
    ("found", "outcome"),
    [("a\nnew line\nz\n", "applied"), ("a\nold line\nz\n", "not_applied"), ("neither\n", "unknown")],
)
def test_an_edit_is_judged_by_the_texts_in_the_file(  # noqa: PLR0917
    agent: str, found: str, outcome: str, acode: Acode, home: Path, project: Path
) -> None:
    (project / "a.txt").write_text(found)
    assert call_of(acode, agent, project, Edit("c1", "a.txt", "old line", "new line"))["outcome"] == outcome


@pytest.mark.parametrize(
    ("old", "new", "found", "outcome"),
    [
        ("one", "one\ntwo", "one\ntwo\n", "applied"),
        ("one", "one\ntwo", "one\n", "not_applied"),
        ("one\ntwo", "one", "one\ntwo\n", "not_applied"),
        ("one\ntwo", "one", "one\n", "unknown"),  # the shorter text was there before, too
        ("one", "", "rest\n", "unknown"),
        ("one", "two", "one two\n", "unknown"),
    ],
)
def test_an_edit_whose_texts_contain_each_other_is_never_taken_for_made(  # noqa: PLR0917
    old: str, new: str, found: str, outcome: str, acode: Acode, home: Path, project: Path
) -> None:
    (project / "a.txt").write_text(found)
    assert call_of(acode, "claude", project, Edit("c1", "a.txt", old, new))["outcome"] == outcome


@pytest.mark.parametrize("agent", NAMING)
def test_a_call_that_only_reads_has_nothing_to_be_settled(agent: str, acode: Acode, home: Path, project: Path) -> None:
    write_session(agent, home, project, [Prompt("go"), Read("c1", "a.txt")])
    session = only(acode, agent)
    assert (session["calls"][0]["outcome"], session["check_first"]) == ("no_effect", [])


def test_a_tool_that_nobody_knows_is_never_taken_for_one_without_effect(
    acode: Acode, home: Path, project: Path
) -> None:
    path = write_session("claude", home, project, [Prompt("go"), Run("c1", "x")])
    path.write_text(path.read_text().replace('"Bash"', '"mcp__bank__transfer"'))
    (call,) = only(acode)["calls"]
    assert (call["tool"], call["outcome"], call["commands"]) == ("mcp__bank__transfer", "unknown", [])


def test_a_path_that_is_no_file_is_neither_opened_nor_waited_for(acode: Acode, home: Path, project: Path) -> None:
    os.mkfifo(project / "fifo")
    for path in ("fifo", "/dev/zero", "/dev/tty", "/proc/self/mem", ".", "\0", "a" * 5000):
        call = call_of(acode, "claude", project, Write("c1", path, "hello\n"))
        assert call["outcome"] == "unknown", path


def test_a_patch_of_several_files_is_partial_when_only_some_were_written(
    acode: Acode, home: Path, project: Path
) -> None:
    path = write_session("codex", home, project, [Prompt("go"), Write("c1", "a.txt", "one\n")])
    more = "+one\\n*** Add File: b.txt\\n+two\\n*** Delete File: gone.txt\\n*** End"
    path.write_text(path.read_text().replace("+one\\n*** End", more))
    (project / "a.txt").write_text("one\n")
    (call,) = only(acode)["calls"]
    assert call["paths"] == ["a.txt", "b.txt", "gone.txt"]
    assert [one["outcome"] for one in call["evidence"]] == ["applied", "not_applied", "applied"]
    assert call["outcome"] == "partial"


def test_arguments_that_are_too_large_to_compare_are_said_to_be(acode: Acode, home: Path, project: Path) -> None:
    call = call_of(acode, "claude", project, Write("c1", "a.txt", "x" * 1_100_000))
    assert (call["outcome"], call["paths"]) == ("unknown", [])
    assert "too many to be compared" in call["evidence"][0]["text"]


def test_git_names_the_files_that_changed_since_the_call_began(acode: Acode, home: Path, project: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    for name, age_s in (("old.txt", 3600), ("new.txt", 0)):
        (project / name).write_text(name)
        then = datetime.now(UTC).timestamp() - age_s
        os.utime(project / name, (then, then))
    call = call_of(acode, "claude", project, Run("c1", "make"))
    assert [(one["kind"], one["text"]) for one in call["evidence"]] == [
        ("git", "changed since the call began, says git: new.txt")
    ]
    assert call["outcome"] == "unknown"  # who changed it is not known


@pytest.mark.parametrize("agent", NAMING)
def test_a_command_that_outlived_its_agent_is_found_by_its_words(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    command = "sleep 300.25; echo outlived"
    started = datetime.now(UTC)
    with subprocess.Popen(["sh", "-c", command], cwd=project, start_new_session=True) as running:
        try:
            at = started - timedelta(seconds=1)  # the call is the story's second event, a second after its first
            write_session(agent, home, project, [Prompt("go"), Run("c1", command)], at=at)
            session = only(acode, agent)
            (call,) = session["calls"]
            assert call["outcome"] == "running"
            assert running.pid in [one["pid"] for one in call["evidence"]]
            assert str(running.pid) in session["check_first"][0]
        finally:
            children = psutil.Process(running.pid).children()
            os.killpg(running.pid, signal.SIGKILL)
            wait_for_deaths(children)
    assert only(acode, agent)["calls"][0]["outcome"] == "unknown"


@pytest.mark.parametrize(("prefix", "outcome"), [("", "unknown"), ("cd / && ", "running")])
def test_the_same_command_in_another_directory_is_not_this_one_unless_it_went_there(
    prefix: str, outcome: str, acode: Acode, project: Path, tmp_path: Path
) -> None:
    command = f"{prefix}sleep 300.125; echo elsewhere"
    at = datetime.now(UTC) - timedelta(seconds=1)
    with subprocess.Popen(["sh", "-c", command], cwd=tmp_path, start_new_session=True) as running:
        try:
            assert call_of(acode, "claude", project, Run("c1", command), at=at)["outcome"] == outcome
        finally:
            os.killpg(running.pid, signal.SIGKILL)


def test_a_process_that_began_long_before_the_call_is_not_the_command(acode: Acode, home: Path, project: Path) -> None:
    command = "sleep 300.5; echo earlier"
    with subprocess.Popen(["sh", "-c", command], cwd=project, start_new_session=True) as running:
        try:
            call = call_of(acode, "claude", project, Run("c1", command), at=LATER)
            assert call["outcome"] == "unknown"
        finally:
            os.killpg(running.pid, signal.SIGKILL)


def test_for_gemini_whatever_began_in_the_directory_since_the_last_message_is_named(
    acode: Acode, home: Path, project: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    at = datetime.now(UTC) - timedelta(seconds=1)
    write_session("gemini", home, project, [Prompt("go"), Run("c1", "whatever")], at=at)
    (project / "ledger").write_text("x\n")
    with subprocess.Popen(["sleep", "300"], cwd=project, start_new_session=True) as running:
        try:
            session = only(acode)
        finally:
            running.kill()
    assert [one["kind"] for one in session["evidence"]] == ["process", "git"]
    assert session["evidence"][0]["pid"] == running.pid
    assert "ledger" in session["evidence"][1]["text"]

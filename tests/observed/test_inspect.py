"""acode inspect: which sessions of other agents are dead, what was in flight, what to type next. It changes nothing."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acode.observed.inspect import SHOWN_MAX
from tests.driver import Acode
from tests.transcripts import (
    AGENTS,
    DIED,
    FINISHED,
    NAMING,
    RESUMED,
    SESSION,
    Answer,
    Prompt,
    Result,
    Run,
    Write,
    session_id,
    write_session,
)

RESUMES = {
    "claude": ["claude", "--resume", SESSION],
    "codex": ["codex", "resume", SESSION],
    "gemini": ["gemini", "--resume", SESSION],
    "qwen": ["qwen", "--resume", SESSION],
    "opencode": ["opencode", "--session", session_id("opencode")],
    "cline": ["cline", "--tui", "--id", session_id("cline")],
}


def inspected(acode: Acode, *arguments: str | Path) -> dict[str, Any]:
    ended = acode("inspect", *arguments, "--json")
    assert ended.exit_code == 0, ended.stderr
    found = ended.json
    assert isinstance(found, dict)
    return found


def only(acode: Acode, *arguments: str | Path) -> dict[str, Any]:
    (session,) = inspected(acode, *arguments)["sessions"]
    assert isinstance(session, dict)
    return session


def picture(root: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory, down to the times: what only reads leaves it as it is."""
    found: dict[str, tuple[Any, ...]] = {}
    for place, _, names in os.walk(root):
        for path in (Path(place), *(Path(place) / name for name in names)):
            about = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
            found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, content)
    return found


# The story of each agent.


@pytest.mark.parametrize("agent", NAMING)
def test_a_dead_session_names_its_call_in_flight_and_the_way_to_resume_it(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    write_session(agent, home, project, DIED)
    session = only(acode)
    assert (session["agent"], session["session_id"], session["ending"]) == (agent, session_id(agent), "in_flight")
    assert (session["directory"], session["prompt"]) == (str(project), "do the job")
    (call,) = session["calls"]
    assert (call["call_id"], call["commands"]) == ("c2", ["sh -c 'echo x >> ledger'"])
    assert (call["outcome"], call["abandoned"]) == ("unknown", False)
    assert session["resume"]["command"] == RESUMES[agent]
    assert session["resume"]["line"] == f"cd {shlex.quote(str(project))} && {shlex.join(RESUMES[agent])}"
    assert session["state"] in ("dead", "no_process_found")


def test_gemini_is_said_not_to_name_the_call_in_flight(acode: Acode, home: Path, project: Path) -> None:
    write_session("gemini", home, project, DIED)
    session = only(acode)
    assert (session["ending"], session["calls"]) == ("unnamed_call", [])
    assert session["directory"] == str(project)
    assert any("cannot name a call in flight" in note for note in session["notes"])
    assert any("written nowhere" in check for check in session["check_first"])
    assert session["resume"]["command"] == RESUMES["gemini"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_finished_session_is_shown_only_when_all_are_asked_for(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    write_session(agent, home, project, FINISHED)
    told = inspected(acode)
    assert (told["sessions"], told["looked_at"], told["finished"]) == ([], 1, 1)
    session = only(acode, "--all")
    assert (session["ending"], session["calls"], session["resume"]) == ("finished", [], None)


@pytest.mark.parametrize("agent", [name for name in NAMING if name != "opencode"])
def test_a_call_that_a_resumed_session_has_given_up_is_not_in_flight(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    write_session(agent, home, project, RESUMED)
    session = only(acode, "--all")
    assert session["ending"] == "finished"
    if agent != "cline":
        assert [(call["call_id"], call["abandoned"]) for call in session["calls"]] == [("c2", True)]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("story", [DIED[:1], DIED[:3]], ids=["no answer", "no word after a result"])
def test_a_turn_without_an_end_is_shown_although_no_call_was_in_flight(
    agent: str, story: tuple[Any, ...], acode: Acode, home: Path, project: Path
) -> None:
    write_session(agent, home, project, story)
    session = only(acode)
    assert (session["ending"], session["calls"]) == ("unfinished", [])


@pytest.mark.parametrize("agent", AGENTS)
def test_looking_changes_nothing_in_the_agents_directory_and_in_the_project(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    write_session(agent, home, project, DIED)
    (project / "ledger").write_text("x\n")
    before = picture(home), picture(project)
    assert inspected(acode, "--all")["sessions"]
    assert acode("inspect").exit_code == 0
    assert (picture(home), picture(project)) == before


# What may be asked for.


def test_each_agent_can_be_asked_for_by_its_name(acode: Acode, home: Path, project: Path) -> None:
    for agent in AGENTS:
        write_session(agent, home, project, DIED)
    assert {one["agent"] for one in inspected(acode)["sessions"]} == set(AGENTS)
    assert [[one["agent"] for one in inspected(acode, name)["sessions"]] for name in AGENTS] == [[a] for a in AGENTS]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_transcript_and_a_configuration_directory_can_be_asked_for_by_their_path(
    agent: str, acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    path = write_session(agent, elsewhere, project, DIED)
    assert inspected(acode)["sessions"] == []
    config = elsewhere / {"opencode": ".local/share/opencode"}.get(agent, f".{agent}")
    for target in (path, config):
        session = only(acode, target)
        assert session["agent"] == agent
        (variable,) = session["resume"]["environment"].items()
        assert str(elsewhere) in variable[1]
        assert session["resume"]["line"].count(f"{variable[0]}={shlex.quote(variable[1])} ") == 1


def test_a_project_is_asked_for_by_its_directory_and_shows_only_its_own_sessions(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "project-other"
    other.mkdir()
    for agent in AGENTS:
        write_session(agent, home, project, DIED)
    assert {one["agent"] for one in inspected(acode, project)["sessions"]} == set(AGENTS)
    assert inspected(acode, other)["sessions"] == []
    assert len(inspected(acode, tmp_path)["sessions"]) == len(AGENTS)


@pytest.mark.parametrize(
    ("variable", "agent", "below"),
    [
        ("CLAUDE_CONFIG_DIR", "claude", ".claude"),
        ("CODEX_HOME", "codex", ".codex"),
        ("GEMINI_CLI_HOME", "gemini", ""),
        ("QWEN_HOME", "qwen", ".qwen"),
        ("XDG_DATA_HOME", "opencode", ".local/share"),
        ("CLINE_DIR", "cline", ".cline"),
        ("CLINE_DATA_DIR", "cline", ".cline/data"),
    ],
)
def test_the_variables_that_move_an_agents_directory_are_obeyed(  # noqa: PLR0917
    variable: str, agent: str, below: str, acode: Acode, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(agent, tmp_path / "moved", project, DIED)
    monkeypatch.setenv(variable, str(tmp_path / "moved" / below))
    session = only(acode, agent)
    assert (session["agent"], session["resume"]["environment"]) == (agent, {})


def test_a_copy_of_a_transcript_is_read_but_no_command_is_given_that_cannot_find_it(
    acode: Acode, home: Path, project: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(write_session("claude", home, project, DIED).read_bytes())
    session = only(acode, copy)
    assert (session["ending"], session["resume"]) == ("in_flight", None)
    assert any("cannot resume it from there" in check for check in session["check_first"])
    assert "no command can be given; its transcript lies elsewhere" in acode("inspect", str(copy)).stdout


def test_a_directory_without_sessions_is_named(acode: Acode, project: Path) -> None:
    assert f"No session of another agent was found for {project}." in acode("inspect", str(project)).stderr


def test_a_machine_without_agents_is_told_so_in_a_sentence(acode: Acode) -> None:
    ended = acode("inspect")
    assert (ended.exit_code, ended.stdout) == (0, "")
    assert "No session of another agent was found" in ended.stderr
    assert inspected(acode)["sessions"] == []


def test_neither_an_agent_nor_a_path_is_wrong_usage(acode: Acode) -> None:
    ended = acode("inspect", "clod", "--json")
    assert (ended.exit_code, ended.json["error"]["code"]) == (2, "ACODE-CLI-001")
    assert "claude" in ended.json["error"]["hint"]


def test_a_file_that_is_no_transcript_is_a_named_error(acode: Acode, tmp_path: Path) -> None:
    for name, content in (("a.txt", b"hello"), ("b.json", b"{}"), ("c", b""), ("d.jsonl", b'{"a":1}\n' * 9)):
        (tmp_path / name).write_bytes(content)
        ended = acode("inspect", tmp_path / name, "--json")
        assert (ended.exit_code, ended.json["error"]["code"]) == (1, "ACODE-OBSERVED-001"), name
    os.mkfifo(tmp_path / "fifo")
    assert acode("inspect", tmp_path / "fifo").exit_code == 1


def test_agents_and_files_are_completed_and_help_names_what_may_be_asked_for(acode: Acode) -> None:
    for shell, words, number in (("bash", "acode inspect c", "2"), ("bash", "acode inspect claude", "2")):
        env = {"_ACODE_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": number}
        ended = acode.process(env=env).finish()
        assert "plain,claude" in ended.stdout
        assert "file," in ended.stdout
        assert "gemini" not in ended.stdout
    told = acode("inspect", "--help")
    assert told.exit_code == 0
    assert all(agent in told.stdout for agent in AGENTS)
    assert "--all" in told.stdout


# Limits.


def test_the_newest_interrupted_sessions_come_first_and_the_rest_is_counted(
    acode: Acode, home: Path, project: Path
) -> None:
    first = write_session("claude", home, project, DIED)
    lines, now = first.read_text(), datetime.now(UTC).timestamp()
    first.unlink()
    for number in range(SHOWN_MAX + 5):
        path = first.with_name(f"{number:08}.jsonl")
        path.write_text(lines.replace(SESSION, f"{number:08}"))
        os.utime(path, (now - number * 60, now - number * 60))
    told = inspected(acode)
    assert [one["session_id"] for one in told["sessions"]] == [f"{number:08}" for number in range(SHOWN_MAX)]
    assert told["not_looked_at"] == 5
    assert len(inspected(acode, "--all")["sessions"]) == SHOWN_MAX + 5
    assert "5 older transcripts not looked at" in acode("inspect").stderr


# What people see.


def test_people_read_state_call_evidence_and_the_next_command(acode: Acode, home: Path, project: Path) -> None:
    (project / "note.txt").write_text("hello\n")
    at = datetime.now(UTC) - timedelta(hours=2, seconds=1)
    path = write_session("claude", home, project, DIED[:2], at=at)
    os.utime(path, (at.timestamp(), at.timestamp()))
    lines = acode("inspect").stdout.splitlines()
    assert lines == [
        f"Claude Code {SESSION}  no process found, call in flight, 2 hours ago",
        "  Process: no process of Claude Code shows this session",
        f"  Directory: {project}",
        "  Prompt: do the job",
        "  In flight: Write, 2 hours ago",
        f"    write {project}/note.txt (6 bytes)",
        f"    · {project}/note.txt holds exactly the call's 6 bytes",
        "    → it took effect",
        "  Check first: Write in your next prompt that the call took effect: Claude Code cannot inform its model.",
        f"  To resume: cd {project} && claude --resume {SESSION}",
    ]


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202etxt.exe\u2066\x9b31m\u2028\0"
SECRET = "ghp_" + "a1B2" * 9


def test_foreign_text_neither_steers_the_terminal_nor_shows_a_secret(acode: Acode, home: Path, project: Path) -> None:
    story = [Prompt(f"{HOSTILE} use {SECRET}"), Run("c1\x1b[1m", f"curl -H 'Authorization: Bearer {SECRET}' {HOSTILE}")]
    for agent in AGENTS:
        write_session(agent, home, project, story)
    shown, told = acode("inspect"), acode("inspect", "--json")
    assert len(told.json["sessions"]) == len(AGENTS)
    for text in (shown.stdout, shown.stderr, told.stdout):
        assert SECRET not in text
        assert not [char for char in text if char != "\n" and not char.isprintable()]
    assert SECRET not in json.dumps(told.json)


def test_a_hostile_id_or_directory_gets_no_command_to_type(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, DIED)
    text = path.read_text()
    for wrong in ("$(reboot)", "--dangerously-skip-permissions", "a b", "../../x", "a\\nb"):
        path.write_text(text.replace(SESSION, wrong))
        assert only(acode)["resume"] is None, wrong
    path.write_text(text.replace(str(project), "/tmp/a\\u001b[2J"))
    assert only(acode)["resume"] is None
    path.write_text(text.replace(str(project), "/tmp/a; reboot #'"))
    assert only(acode)["resume"]["line"].startswith("cd '/tmp/a; reboot #'\"'\"'' && ")


# Damage.


@pytest.mark.parametrize("agent", [name for name in AGENTS if name not in ("opencode", "cline")])
def test_a_transcript_cut_at_any_byte_is_read_up_to_there(agent: str, acode: Acode, home: Path, project: Path) -> None:
    path = write_session(agent, home, project, FINISHED)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last + 10, len(whole) - 5):
        path.write_bytes(whole[:cut])
        session = only(acode, path)
        assert any("torn after" in note for note in session["notes"]), cut
        assert session["ending"] == "unfinished", cut
    for cut in range(0, len(whole), 193):
        path.write_bytes(whole[:cut])
        assert acode("inspect", "--all", "--json").exit_code == 0


def test_a_torn_document_of_cline_is_not_understood_and_no_error(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("cline", home, project, DIED)
    path.write_bytes(path.read_bytes()[:-300])
    told = inspected(acode)
    assert (told["sessions"], told["not_understood"]) == ([], 1)
    assert any("torn" in note for note in only(acode, "--all")["notes"])


@pytest.mark.parametrize("agent", [name for name in AGENTS if name not in ("opencode", "cline")])
def test_lines_of_a_version_that_nobody_knows_are_not_taken_for_a_finished_session(
    agent: str, acode: Acode, home: Path, project: Path
) -> None:
    path = write_session(agent, home, project, DIED)
    head = path.read_bytes().split(b"\n")[0]
    path.write_bytes(head.replace(b'"user"', b'"human"') + b'\n{"sessionId":"x","v":9,"kind":"turn","body":[1]}\n' * 20)
    told = inspected(acode)
    assert (told["sessions"], told["finished"], told["not_understood"]) == ([], 0, 1)
    assert any("is a message that acode knows" in note for note in only(acode, "--all")["notes"])


def test_a_database_of_another_version_is_a_problem_that_is_told(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("opencode", home, project, DIED)
    for content in (b"", b"SQLite format 3\0" + b"\xff" * 5000, path.read_bytes()[:2000]):
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(content)
        told = inspected(acode)
        assert told["sessions"] == []
        assert [problem["path"] for problem in told["problems"]] == [str(path)]
        assert "cannot be read as opencode's database" in acode("inspect").stderr


def test_what_is_no_file_is_named_and_never_opened(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, FINISHED)
    os.mkfifo(path.with_name("fifo.jsonl"))
    path.with_name("device.jsonl").symlink_to("/dev/zero")
    path.with_name("link.jsonl").symlink_to(path)
    path.with_name("directory.jsonl").mkdir()
    (path.parent.parent / "linked").symlink_to(path.parent)
    (home / ".claude" / "sessions").mkdir()
    os.mkfifo(home / ".claude" / "sessions" / "1.json")
    told = inspected(acode, "--all")
    assert len(told["sessions"]) == 1
    kinds = {Path(problem["path"]).name: problem["message"] for problem in told["problems"]}
    assert set(kinds) == {"fifo.jsonl", "device.jsonl", "link.jsonl", "directory.jsonl"}
    assert "a FIFO" in kinds["fifo.jsonl"]


def test_deep_and_odd_json_is_skipped_and_counted(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, DIED)
    odd = [b"[" * 100_000, b'{"type":"user","message":' + b"[" * 50_000, b"null", b"\xff\xfe", b'{"type":1}', b"1e999"]
    odd += [b'{"type":"assistant","sessionId":"\\ud800","message":{"content":[{"type":"tool_use","id":7}]}}', b'"x"']
    path.write_bytes(path.read_bytes() + b"\n".join(odd) + b"\n")
    session = only(acode)
    assert "c2" in [call["call_id"] for call in session["calls"]]
    assert any("are not JSON" in note for note in session["notes"])


def test_a_thousand_calls_without_a_result_are_bounded_and_counted(acode: Acode, home: Path, project: Path) -> None:
    story = [Prompt("go"), *(Write(f"c{number}", "a", "x") for number in range(1000))]
    write_session("claude", home, project, story)
    session = only(acode)
    assert (len(session["calls"]), session["calls_left_out"]) == (64, 936)
    assert session["calls"][-1]["call_id"] == "c999"


def test_the_result_of_a_late_call_is_found_among_many(acode: Acode, home: Path, project: Path) -> None:
    many = [event for number in range(500) for event in (Run(f"c{number}", "true"), Result(f"c{number}"))]
    write_session("claude", home, project, [Prompt("go"), Run("early", "make"), *many, Result("early"), Answer("ok")])
    assert only(acode, "--all")["ending"] == "finished"

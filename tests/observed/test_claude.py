"""What is Claude Code's own: helpers with transcripts of their own, interruptions, lines that no person wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.driver import Acode
from tests.observed.test_inspect import only
from tests.transcripts import DIED, Prompt, Result, Run, claude_lines, write_session


def append(path: Path, **line: Any) -> None:
    with path.open("a") as file:
        file.write(
            json.dumps({"type": "user", "isSidechain": False, "timestamp": "2026-11-16T17:00:00Z", **line}) + "\n"
        )


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def test_the_call_of_a_helper_is_found_in_the_helpers_own_transcript(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, [Prompt("go"), Run("c1", "x")])
    path.write_text(path.read_text().replace('"Bash"', '"Task"'))
    at = datetime.now(UTC) - timedelta(minutes=1)
    story = [(at, Prompt("help")), (at, Run("h1", "true")), (at, Result("h1")), (at, Run("h2", "make deploy"))]
    helper = path.with_suffix("") / "subagents" / "agent-a7.jsonl"
    helper.parent.mkdir(parents=True)
    helper.write_text("".join(json.dumps(line) + "\n" for line in claude_lines(project, story, isSidechain=True)))
    calls = [(call["tool"], call["subagent"], call["commands"]) for call in only(acode)["calls"]]
    assert calls == [("Task", None, []), ("Bash", "a7", ["make deploy"])]


def test_a_turn_that_the_user_interrupted_has_ended(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, DIED[:3])
    append(path, message=said("[Request interrupted by user]"))
    assert only(acode, "--all")["ending"] == "finished"


def test_what_a_slash_command_printed_is_no_prompt(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, DIED)
    append(path, message=said("<local-command-stdout>bye</local-command-stdout>"))
    append(path, message=said("a note of the client"), isMeta=True)
    session = only(acode)
    assert (session["ending"], session["prompt"]) == ("in_flight", "do the job")
    append(path, message=said("something else"))
    session = only(acode)
    assert (session["ending"], session["prompt"]) == ("unfinished", "something else")
    assert [call["abandoned"] for call in session["calls"]] == [True]


def test_a_result_that_comes_after_a_prompt_still_ends_its_call(acode: Acode, home: Path, project: Path) -> None:
    path = write_session("claude", home, project, DIED)
    append(path, message=said("meanwhile"))
    append(path, message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": ""}]})
    assert only(acode)["calls"] == []

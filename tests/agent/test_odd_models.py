"""What models and people do that nobody asked for: broken text, odd names, secrets cut in two, settings that change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from acode.agent import prompts, tool_schemas
from acode.agent.conversation import signature
from acode.agent.messages import Ask, Call, Message
from acode.agent.permission import question
from tests.agent.town import GOAL, Begin, Town, call
from tests.driver import Acode

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
OVERLOADED = {"fault": {"status": 503, "times": 1}}


def raw_bytes(town: Town) -> bytes:
    """All that acode keeps in the workspace, but for what it keeps apart because it is secret."""
    files = [path for path in (town.workspace / ".agent").rglob("*") if path.is_file() and "blobs" not in path.parts]
    return b"".join(path.read_bytes() for path in files)


# What is on record does not depend on the day.


def test_nobody_is_asked_about_a_call_that_was_made_when_it_was_allowed(begin: Begin) -> None:
    town = begin({"calls": [call("run_command", command="echo once >> log")]}, {"text": "Done.", **OVERLOADED})
    town.configure("tools: {run_command: allow}\n")
    assert town.run("--approve-plan").exit_code == 75
    town.configure("tools: {run_command: ask}\n")
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert (town.workspace / "log").read_text() == "once\n"


def test_an_approval_is_for_one_call_and_the_next_is_asked_about_again(begin: Begin) -> None:
    commands = [{"calls": [call("run_command", command=f"echo {word} >> log")]} for word in ("one", "two")]
    town = begin(*commands, {"text": "Done."})
    assert town.run("--approve-plan").exit_code == 10
    town.acode("session", "approve", town.short)
    waiting = town.resume()
    assert waiting.exit_code == 10 and "echo two >> log" in waiting.stderr
    assert (town.workspace / "log").read_text() == "one\n"


@pytest.mark.release
def test_a_module_in_the_workspace_is_not_loaded_by_a_resume(begin: Begin) -> None:
    town = begin({"calls": [call("run_command", command="true")]}, {"text": "Done."})
    for name in ("openai", "pydantic_ai"):
        (town.workspace / f"{name}.py").write_text("import os\nos.mkdir('loaded')\n")
    # Not in this process, which has loaded the real ones; and -P, because -m alone looks into the directory itself.
    how = {"program": ("-P", "-m", "acode"), "env": {**town.env, "PYTHONPATH": os.pathsep.join(map(str, sources()))}}
    assert town.acode.process("run", GOAL, "--approve-plan", **how).finish(timeout_s=120).exit_code == 10
    town.acode("session", "approve", town.short)
    ended = town.acode.process("resume", "--last", **how).finish(timeout_s=120)
    assert ended.exit_code == 0, ended.stderr
    assert not (town.workspace / "loaded").exists()


def sources() -> list[Path]:
    import acode

    return [Path(acode.__file__).parents[1]]


def test_a_session_keeps_the_words_it_was_begun_with_whatever_acode_says_later(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    town = begin({"text": "Done.", **OVERLOADED})
    assert town.run("--approve-plan").exit_code == 75
    for name in ("PLAN", "WORK", "COMPACT"):
        monkeypatch.setattr(prompts, name, "Other words.")
    monkeypatch.setitem(tool_schemas.KINDS, "a_new_tool", tool_schemas.KINDS["read_file"])
    assert town.acode("session", "rollback", town.short, "--yes").exit_code == 0  # so that all is asked for again
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert sorted(town.asked().values()) == [2, 2], "to the byte what was asked before"


# Text that is none.


def test_broken_text_and_odd_names_from_a_model_are_answered_and_the_session_goes_on(begin: Begin) -> None:
    asked_calls = [
        call("read_file", path="a\ud800b"),
        call("read_file", path="a\x00b"),
        {"tool": "write_file", "arguments": "[" * 20_000},
        {"tool": "we ird/ünï", "arguments": "{}"},
        {"tool": "read_file", "arguments": '{"path": "x", "n": ' + "9" * 5_000 + "}"},
    ]
    town = begin({"text": "half \ud800 of a character, \x00", "calls": asked_calls}, {"text": "Done.", **OVERLOADED})
    assert town.run("--approve-plan").exit_code == 75
    ended = town.resume()
    assert ended.exit_code == 0, ended.stderr
    assert sorted(town.asked().values()) == [1, 1, 2], "only what failed was asked again, in the same words"


@pytest.mark.parametrize("goal", ["a\udc80b", "\u200b", "x" * 100_001], ids=["no text", "nothing to see", "too long"])
def test_a_task_that_is_no_text_is_refused_before_anything_is_written(acode: Acode, goal: str) -> None:
    ended = acode("run", goal)
    assert ended.exit_code == 2 and "task" in ended.stderr
    assert not (acode.workspace / ".agent" / "workspace.db").exists()


def test_arguments_that_are_nested_without_end_are_compared_as_text() -> None:
    assert signature(Call(id="1", tool="t", arguments="[" * 100_000)) == "t " + "[" * 100_000


def test_every_call_goes_over_the_wire_with_an_id_of_its_own_and_a_name_that_servers_take() -> None:
    from acode.agent.model_messages import messages_of

    model_calls = tuple(Call(id="call_0", tool=tool, arguments="{}") for tool in ("read_file", "no such/tool", ""))
    answers = tuple(
        Message(role="tool", text=str(n), call_id="call_0", tool=one.tool) for n, one in enumerate(model_calls)
    )
    asked = Message(role="user", text="go")
    _, said, answered = messages_of(
        Ask(instructions="", messages=(asked, Message(role="assistant", calls=model_calls), *answers))
    )
    ids = [part.tool_call_id for part in said.parts]  # type: ignore[union-attr]
    assert len(set(ids)) == 3
    assert [part.tool_call_id for part in answered.parts] == ids  # type: ignore[union-attr]
    assert [part.tool_name for part in said.parts] == ["read_file", "no-such-tool", "tool"]  # type: ignore[union-attr]


def test_a_character_that_arrives_in_two_halves_is_put_together() -> None:
    from acode.agent.model_messages import written

    assert written("\ud83d\ude00 and \ud83d") == "😀 and \ufffd"


# Secrets.


def test_a_secret_that_is_cut_by_shortening_is_taken_out_before() -> None:
    padded = "x" * 40 + " " + TOKEN
    for arguments in ({"path": "a", "old": padded, "new": "y"}, {"path": "a", "old": "y", "new": padded}):
        asked = question("edit_file", json.dumps(arguments), masked)
        assert TOKEN[:15] not in asked and "***" in asked


def masked(text: str) -> str:
    return text.replace(TOKEN, "***")


def test_a_secret_at_the_edge_of_what_is_shown_is_in_no_byte_of_the_log(begin: Begin) -> None:
    town = begin({"calls": [call("read_file", path="env")]}, {"text": "Done."})
    for at in (130, 140, 150):  # the cut goes through it
        (town.workspace / "env").write_text("y" * at + " " + TOKEN + "\n")
        assert town.run("--approve-plan", "--new").exit_code == 0
    assert TOKEN[:12].encode() not in raw_bytes(town)

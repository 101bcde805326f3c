"""The tools: what a model is told, live and from the record; nothing is looked at or done twice, nothing outside."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from acode.agent.messages import Call
from acode.agent.tool_schemas import CONTENT_BYTES_MAX, KINDS
from acode.agent.tools import TOOLS, refuse, use
from acode.agent.tools.command import SHOWN_HEAD_BYTES, SHOWN_TAIL_BYTES
from acode.agent.tools.read import FILE_BYTES_MAX, SHOWN_BYTES_MAX, shown_bytes_max
from acode.agent.tools.search import LISTED_FILES_MAX, MATCHES_MAX
from acode.config.settings import TOOLS as TOOLS_OF_THE_SETTINGS
from acode.errors import ChangedFiles, InputRequired, NonDeterminism, StepFailed
from acode.events import types as ev
from acode.events.definition import Write
from tests.agent.desk import Desk, Replying, call, one, repository, told
from tests.repositories import git, log


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "place")


# Every tool, live and from the record.

CALLS = (
    call("read_file", path="a.txt"),
    call("list_files"),
    call("search", text="tw"),
    call("write_file", path="new/b.txt", content="written\n"),
    call("edit_file", path="a.txt", old="two", new="three"),
    call("run_command", command="echo ran >> ../ledger; echo out; exit 3"),
    call("run_command", command="echo ran >> ../ledger; sleep 9", timeout_s=0.2),
    call("git_commit", message="One", paths=["a.txt"]),
    call("git_commit", message="Two", paths=["a.txt"]),
    call("ask_user", question="Which colour?"),
    call("read_file", path="absent.txt"),
    call("write_file", path="../outside.txt", content="x"),
    call("read_file", wrong=1),
    Call(id="x", tool="edit_file", arguments="{"),
    Call(id="x", tool="destroy", arguments="{}"),
)


def test_every_tool_tells_the_same_from_the_record_whatever_the_world_has_become(tmp_path: Path) -> None:
    person = Replying("green")
    desk = Desk(tmp_path / "place", answers=person)
    repository(desk)
    desk.put("a.txt", "one\ntwo\n")
    live = desk.use(*CALLS)
    assert [answer.error for answer in live] == [False] * 5 + [True, True] + [False] * 3 + [True] * 5
    assert [answer.malformed for answer in live] == [False] * 12 + [True] * 3
    assert live[5].text == "out\n[exit status 3]"
    head = git(desk.workspace, "rev-parse", "HEAD").strip()
    assert live[7].text == f"Committed as {head}."
    desk.put("a.txt", "something else\n")
    (desk.workspace / "new" / "b.txt").unlink()
    git(desk.workspace, "update-ref", "-d", "HEAD")
    later = desk.use(*[Call(id="another", tool=one.tool, arguments=one.arguments) for one in CALLS])
    assert later == live
    assert (desk.place / "ledger").read_text() == "ran\nran\n"
    assert person.questions == ["Which colour?"]
    assert (desk.workspace / "a.txt").read_text() == "something else\n"
    assert not (desk.workspace / "new" / "b.txt").exists()
    assert log(desk.workspace) == []


def test_a_call_is_known_by_its_tool_and_arguments_not_by_their_spelling_or_the_providers_id(desk: Desk) -> None:
    desk.put("a.txt", "text")
    written = '{"path": "a.txt", "offset_lines": 1}'
    respelled = '{ "offset_lines":1, "limit_lines":null, "path":"\\u0061.txt" }'
    first = desk.use(Call(id="1", tool="read_file", arguments=written))
    assert desk.use(Call(id="2", tool="read_file", arguments=respelled)) == first
    for other in (call("read_file", path="b.txt"), call("list_files", path="a.txt")):
        with desk.life() as context, pytest.raises(NonDeterminism):
            use(context, "read_file-1", other)


def test_a_refusal_is_on_record_whatever_is_allowed_later(desk: Desk) -> None:
    wanted = call("write_file", path="a.txt", content="x")
    with desk.life() as context:
        refused = refuse(context, "w", wanted, "the settings do not allow it")
    with desk.life() as context:
        assert use(context, "w", wanted) == refused
    assert refused.error and refused.text == "Refused: the settings do not allow it."
    assert not (desk.workspace / "a.txt").exists()
    with desk.life() as context:
        done = use(context, "w2", wanted)
    with desk.life() as context:
        assert refuse(context, "w2", wanted, "changed my mind") == done


def test_the_tools_are_those_that_the_settings_know_and_their_schemas_are_plain_objects() -> None:
    assert tuple(TOOLS) == tuple(KINDS) == TOOLS_OF_THE_SETTINGS
    for name, tool in TOOLS.items():
        assert tool.schema.name == name and tool.schema.description
        schema = tool.schema.parameters
        assert schema["type"] == "object" and schema["additionalProperties"] is False
        assert "$ref" not in json.dumps(schema)
        assert set(schema.get("required", ())) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("read_file", "", "missing required field `path`"),
        ("read_file", "[]", "no JSON object"),
        ("read_file", '{"path": "a"', "no JSON"),
        ("read_file", '{"path": 1}', "Expected `str`, got `int`"),
        ("read_file", '{"path": "a", "offset_lines": 0}', ">= 1"),
        ("read_file", '{"path": "a", "offset_lines": "1"}', "Expected `int`, got `str`"),
        ("read_file", '{"path": "a", "lines": 1}', "unknown field `lines`"),
        ("read_file", '{"path": "\\ud800"}', "no JSON"),
        ("read_file", '{"path": ' * 5_000, "no JSON"),
        ("read_file", "\udcff", "no JSON"),
        ("run_command", '{"command": "x", "timeout_s": 0}', "> 0"),
        ("run_command", json.dumps({"command": "x" * 10_001}), "length <= 10000"),
        ("search", '{"text": "(", "regex": true}', "cannot be used"),
        ("nothing", "{}", "There is no tool 'nothing'"),
    ],
)
def test_what_cannot_be_understood_is_said_to_the_model_and_recorded(
    desk: Desk, tool: str, arguments: str, said: str
) -> None:
    (answer,) = desk.use(Call(id="1", tool=tool, arguments=arguments))
    assert answer.error and answer.malformed
    assert said in answer.text
    assert desk.use(Call(id="1", tool=tool, arguments=arguments)) == [answer]


# Reading.


def test_a_file_is_shown_whole_or_by_lines_with_the_way_to_the_rest(desk: Desk) -> None:
    text = "".join(f"line {n}\n" for n in range(1, 11)) + "the end"
    desk.put("a.txt", text)
    assert told(desk, "read_file", path="a.txt") == text
    assert told(desk, "read_file", path="./a.txt", offset_lines=3, limit_lines=2) == (
        "line 3\nline 4\n[lines 3 to 4 of 11; continue with offset_lines=5]"
    )
    assert told(desk, "read_file", path="a.txt", offset_lines=11) == "the end\n[lines 11 to 11 of 11]"
    assert one(desk, "read_file", path="a.txt", offset_lines=12).text == "a.txt has only 11 lines."
    desk.put("empty", "")
    assert told(desk, "read_file", path="empty") == "[empty is empty]"


def test_what_is_shown_of_a_file_has_a_limit_and_paging_reaches_all_of_it(desk: Desk) -> None:
    with desk.life() as context:
        limit = shown_bytes_max(context)
    text = "".join(f"{n:05} {'x' * 90}\n" for n in range(1_000))
    desk.put("long.txt", text)
    seen, offset = "", 1
    for _ in range(9):
        shown = told(desk, "read_file", path="long.txt", offset_lines=offset)
        assert len(shown.encode()) <= limit + 100
        body, _, note = shown.rpartition("[lines ")
        seen += body
        if "offset_lines=" not in note:
            break
        offset = int(note.partition("offset_lines=")[2].rstrip("]"))
    assert seen == text
    desk.put("wide.txt", "ä" * limit)
    wide = told(desk, "read_file", path="wide.txt")
    assert len(wide.encode()) <= limit + 200
    assert wide.endswith(f"[line 1 of 1: only the first {limit:,} of its {2 * limit:,} bytes]")


@pytest.mark.parametrize(("tokens", "limit"), [(1_024, 4_096), (32_768, 16_384), (1_000_000, SHOWN_BYTES_MAX)])
def test_a_model_that_takes_in_less_is_shown_less(tmp_path: Path, tokens: int, limit: int) -> None:
    with Desk(tmp_path / "place", env={"ACODE_MODEL_CONTEXT_TOKENS": str(tokens)}).life() as context:
        assert shown_bytes_max(context) == limit


def test_what_is_no_text_is_named_for_what_it_is(desk: Desk) -> None:
    desk.put("a.bin", b"\0\1\2")
    desk.put("latin.txt", "gr\xfcn".encode("latin-1"))
    desk.put("big.txt", b"x" * (FILE_BYTES_MAX + 1))
    (desk.workspace / "sub").mkdir()
    os.mkfifo(desk.workspace / "pipe")
    answers = [one(desk, "read_file", path=path) for path in ("a.bin", "latin.txt", "big.txt", "sub", "pipe", "none")]
    assert all(answer.error for answer in answers)
    assert [answer.text for answer in answers][:2] == [
        "a.bin is a binary file of 3 bytes.",
        "latin.txt is a binary file of 4 bytes.",
    ]
    assert "over the limit" in answers[2].text and "search" in answers[2].text
    assert [answer.text for answer in answers][3:] == [
        "sub is a directory, not a file.",
        "pipe is a FIFO, not a file.",
        "none does not exist.",
    ]


def test_a_resume_notices_that_a_file_was_changed_that_the_model_has_read_or_found(desk: Desk) -> None:
    for name in ("read.txt", "found.txt", "other.txt"):
        desk.put(name, f"the {name}\n")
    calls = (call("read_file", path="read.txt"), call("search", text="the found"))
    desk.use(*calls)
    for name, noticed in (("read.txt", True), ("found.txt", True), ("other.txt", False)):
        before = (desk.workspace / name).read_bytes()
        desk.put(name, "changed\n")
        if noticed:
            with pytest.raises(ChangedFiles), desk.life(changed_files="abort"):
                pass
        else:
            with desk.life(changed_files="abort"):
                pass
        desk.put(name, before)


# Finding.


def test_a_list_leaves_out_what_git_ignores_and_what_is_gits_and_acodes_own(desk: Desk) -> None:
    workspace = repository(desk)
    (workspace / ".git" / "info" / "exclude").write_text("secret.txt\n")
    desk.put(".gitignore", "*.o\nbuild/\n/top.txt\n")
    desk.put("sub/.gitignore", "!keep.o\n!\nlocal.txt\n")
    for name in ("a.py", "a.o", "top.txt", "secret.txt", "build/x", "sub/keep.o", "sub/b.o", "sub/local.txt"):
        desk.put(name, "x")
    for name in ("sub/top.txt", "sub/deep/c.py", "sub/.agent/config.yml", "sub/.git/config"):
        desk.put(name, "x")
    (workspace / "link").symlink_to("/etc")
    listed = told(desk, "list_files").splitlines()
    assert listed == [
        ".gitignore", "a.py", "link (a symbolic link)", "sub/.gitignore", "sub/deep/c.py", "sub/keep.o", "sub/top.txt",
        "[6 ignored by git]",
    ]  # fmt: skip
    assert told(desk, "list_files", path="sub/deep") == "sub/deep/c.py"
    assert told(desk, "list_files", path="a.py") == "a.py"
    assert told(desk, "list_files", pattern="*.py").splitlines()[:2] == ["a.py", "sub/deep/c.py"]
    assert told(desk, "list_files", path="sub", pattern="deep/**").splitlines()[0] == "sub/deep/c.py"
    assert told(desk, "list_files", pattern="*.nothing") == "[6 ignored by git]"
    assert one(desk, "list_files", path="none").text == "none does not exist."
    assert "symbolic link" in one(desk, "list_files", path="link/ssh").text


def test_a_list_has_a_limit_and_says_so(desk: Desk) -> None:
    for n in range(LISTED_FILES_MAX + 5):
        desk.put(f"d/{n:05}", "")
    listed = told(desk, "list_files").splitlines()
    assert len(listed) == LISTED_FILES_MAX + 1
    assert listed[-1] == "[1,000 shown, there are more: name a path or a pattern]"


def test_a_search_finds_lines_by_text_and_by_expression(desk: Desk) -> None:
    desk.put("a.py", "def first():\n    return 1\n")
    desk.put("sub/b.py", "def second():\n    return FIRST\n")
    desk.put("c.txt", "def third\n")
    desk.put("bin.py", b"def\0")
    (desk.workspace / "out.py").symlink_to(desk.workspace.parent / "ledger")
    found = told(desk, "search", text="def", pattern="*.py")
    assert found.splitlines() == [
        "a.py:1: def first():", "sub/b.py:1: def second():", "[1 binary or large files not searched]",
    ]  # fmt: skip
    assert told(desk, "search", text=r"f\w+t\b", regex=True, path="a.py") == "a.py:1: def first():"
    assert told(desk, "search", text="FIRST", ignore_case=True, path="sub") == "sub/b.py:2:     return FIRST"
    assert told(desk, "search", text="FI.ST$", regex=True, ignore_case=True, path="sub") == (
        "sub/b.py:2:     return FIRST"
    )
    assert told(desk, "search", text="nowhere", path="c.txt") == "[nothing found]"


def test_a_search_ends_soon_whatever_is_searched_for(desk: Desk) -> None:
    desk.put("a.txt", "a" * 50_000 + "!\n" + "match\n" * 500)
    began = time.monotonic()
    assert "[nothing found]" in told(desk, "search", text="(a+)+(b|a)*$x", regex=True)
    assert time.monotonic() - began < 10
    found = told(desk, "search", text="match").splitlines()
    assert len(found) == MATCHES_MAX + 1
    assert found[-1] == f"[the first {MATCHES_MAX} matches; there may be more]"
    long = told(desk, "search", text="!").splitlines()[0]
    assert len(long) < 400


def test_what_may_not_be_read_is_not_found_either(desk: Desk) -> None:
    desk.put(".agent/config.yml", 'tools: {rules: [{tool: read_file, match: "keys/*", answer: deny}]}\n')
    desk.put("keys/a.pem", "the secret\n")
    desk.put("a.txt", "no secret\n")
    assert told(desk, "search", text="secret").splitlines() == [
        "a.txt:1: no secret",
        "[1 files may not be read without asking]",
    ]


# Changing.


def test_a_file_is_written_with_its_directories_and_keeps_its_mode(desk: Desk) -> None:
    assert told(desk, "write_file", path="a/b/c.sh", content="grün\n") == "Wrote a/b/c.sh: 6 bytes."
    file = desk.workspace / "a" / "b" / "c.sh"
    file.chmod(0o750)
    told(desk, "write_file", path="a/b/c.sh", content="echo\n")
    assert told(desk, "edit_file", path="a/b/c.sh", old="echo", new="exit") == "Edited a/b/c.sh: 5 bytes."
    assert file.read_text() == "exit\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


def test_what_is_written_has_a_limit(desk: Desk) -> None:
    refused = one(desk, "write_file", path="a.txt", content="x" * (CONTENT_BYTES_MAX + 1))
    assert refused.error and "over the limit of 1,048,576" in refused.text
    assert not (desk.workspace / "a.txt").exists()
    assert told(desk, "write_file", path="a.txt", content="\x01" * CONTENT_BYTES_MAX).startswith(
        "Wrote a.txt: 1,048,576"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"old": "none", "new": "x"}, "old does not occur in it"),
        ({"old": "a", "new": "a"}, "old and new are the same"),
        ({"old": "a", "new": "x"}, "old occurs 2 times"),
        ({"old": "a\nb", "new": "x"}, "its lines end with \\r\\n"),
    ],
)
def test_an_edit_that_is_not_exact_changes_nothing(desk: Desk, arguments: dict[str, str], said: str) -> None:
    file = desk.put("f.txt", "a\r\nb\r\na\r\n")
    answer = one(desk, "edit_file", path="f.txt", **arguments)
    assert answer.error and said in answer.text
    assert file.read_bytes() == b"a\r\nb\r\na\r\n"


def test_an_edit_replaces_one_occurrence_or_all(desk: Desk) -> None:
    file = desk.put("f.txt", "a\r\nb\r\na\r\n")
    told(desk, "edit_file", path="f.txt", old="b\r\n", new="")
    told(desk, "edit_file", path="f.txt", old="a", new="c", all=True)
    assert file.read_bytes() == b"c\r\nc\r\n"
    assert one(desk, "edit_file", path="absent", old="a", new="b").text == "absent does not exist."
    desk.put("bin", b"a\0")
    assert "binary" in one(desk, "edit_file", path="bin", old="a", new="b").text


def test_a_file_that_changes_before_it_is_replaced_is_left_alone(desk: Desk) -> None:
    file = desk.put("f.txt", "theirs\n")
    with desk.life() as context:
        begun = context.steps.offer("edit", [])
        completed = context.steps.execute(begun, Write(path="f.txt", content="ours\n"), expected_sha256="0" * 64)
        assert context.steps.result(completed)["message"] == "the file was changed by somebody else in the meantime"
    assert file.read_text() == "theirs\n"


# Acting.


def test_a_commands_output_is_shown_from_both_ends(desk: Desk) -> None:
    text = told(desk, "run_command", command="echo begin; yes | head -c 200000; echo; echo end")
    assert text.startswith("begin\ny\n") and text.endswith("end\n[exit status 0]")
    assert "bytes left out]" in text
    assert len(text) < SHOWN_HEAD_BYTES + SHOWN_TAIL_BYTES + 100
    assert told(desk, "run_command", command="true") == "[exit status 0]"


def test_a_command_that_crashes_by_itself_is_told_and_nobody_seems_to_have_stopped_it(desk: Desk) -> None:
    wanted = call("run_command", command="echo ran >> ../ledger; kill -SEGV $$")
    (answer,) = desk.use(wanted)
    assert answer.error and answer.text.endswith("was killed by SIGSEGV]")
    assert desk.use(wanted) == [answer]
    assert (desk.place / "ledger").read_text() == "ran\n"


def test_a_command_whose_end_nobody_noted_is_an_error_and_stays_open(desk: Desk) -> None:
    wanted = call("run_command", command="kill -9 $PPID")
    with pytest.raises(StepFailed, match="its keeper ended before it could note how the command ended"):
        desk.use(wanted)
    assert [event for event in desk.events() if isinstance(event, ev.StepSettled)] == []


def test_only_what_the_settings_call_read_only_may_be_repeated(desk: Desk) -> None:
    lines = ("ls", "ls -l", "ls; rm x", "ls > x", "lsof", "touch x")
    desk.use(*[call("run_command", command=line) for line in lines])
    started = [event for event in desk.events() if isinstance(event, ev.StepStarted)]
    assert [event.idempotent for event in started] == [True, True, False, False, False, False]


def test_a_commit_takes_what_was_changed_and_says_so_when_there_is_nothing(desk: Desk) -> None:
    nowhere = one(desk, "git_commit", message="m")
    assert nowhere.error and "no working tree" in nowhere.text
    workspace = repository(desk)
    told(desk, "write_file", path="a.txt", content="a\n")
    told(desk, "git_commit", message="First")
    assert log(workspace) == ["First"]
    assert told(desk, "git_commit", message="Second") == "No commit was made: nothing to commit"
    outside = one(desk, "git_commit", message="m", paths=["../x"])
    assert outside.error and "leaves the workspace" in outside.text


def test_a_secret_in_a_call_or_an_answer_does_not_stand_in_the_log(desk: Desk) -> None:
    repository(desk)
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    desk.put("keys.txt", f"token={token}\n")
    calls = (
        call("read_file", path="keys.txt"),
        call("write_file", path="b.txt", content=token),
        call("run_command", command=f"echo {token}"),
        call("git_commit", message=f"Use {token}", paths=["b.txt"]),
    )
    live = desk.use(*calls)
    assert live[0].text == f"token={token}\n"
    assert desk.use(*calls) == live
    rows = (desk.workspace / ".agent" / "workspace.db").read_bytes()
    wal = desk.workspace / ".agent" / "workspace.db-wal"
    assert token.encode() not in rows + (wal.read_bytes() if wal.exists() else b"")


def test_a_question_that_nobody_answers_is_asked_again_by_the_next_run(tmp_path: Path) -> None:
    person = Replying()
    desk = Desk(tmp_path / "place", answers=person)
    asked = call("ask_user", question="Which colour?")
    for _ in range(2):
        with pytest.raises(InputRequired), desk.life() as context:
            use(context, "ask", asked)
    person.answers.append("blue")
    with desk.life() as context:
        assert use(context, "ask", asked).text == "blue"
    assert person.questions == ["Which colour?"] * 3


@pytest.mark.parametrize(
    "wanted",
    [
        call("read_file", path="a.txt"),
        call("search", text="one"),
        call("list_files"),
        call("edit_file", path="a.txt", old="one", new="two"),
    ],
    ids=lambda wanted: wanted.tool,
)
def test_a_limit_of_the_machine_ends_the_run_and_is_no_answer_for_the_model(desk: Desk, wanted: Call) -> None:
    import resource

    desk.put("a.txt", "one\n")
    with desk.life() as context:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                use(context, f"{wanted.tool}-1", wanted)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    (answer,) = desk.use(wanted)
    assert not answer.error

"""`acode mcp` as a process of its own, driven by the real client of the mcp package over its pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra: mcp")

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import ElicitRequestParams, ElicitResult, Implementation

from tests.library.programs import Place
from tests.variants import first_of

Talk = Callable[[Client], Awaitable[Any]]


def talk(place: Place, work: Talk, *, mode: str = "legacy", name: str = "tester", **client: Any) -> Any:
    """One life of the server: connected, asked by `work`, and left."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "acode", "mcp"], env=place.env(SERVER="1"), cwd=place.workspace
    )

    async def main() -> Any:
        with anyio.fail_after(60):
            info = Implementation(name=name, version="1")
            async with Client(server, mode=mode, client_info=info, **client) as connected:
                return await work(connected)

    return anyio.run(main)


def call(place: Place, tool: str, arguments: dict[str, Any] | None = None, **how: Any) -> tuple[str, bool]:
    async def work(client: Client) -> tuple[str, bool]:
        return await use(client, tool, **(arguments or {}))

    return talk(place, work, **how)


async def use(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    result = await client.call_tool(tool, arguments)
    return "\n".join(part.text for part in result.content), bool(result.is_error)


def ledger(place: Place, what: str) -> str:
    return f"echo {what} >> {place.ledger}; echo done {what}"


def server_pid(place: Place) -> int:
    """The server of this test, by the ledger in its environment; a process that it has just forked looks the same, and
    has another parent."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mine = f"LEDGER={place.ledger}".encode() in (entry / "environ").read_bytes().split(b"\0")
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if mine and parent == os.getpid() and words[1:4] == [b"-m", b"acode", b"mcp"]:
            found.append(int(entry.name))
    (server,) = found
    return server


def kill_in_the_middle(place: Place, key: str, command: str, begun: Path, **how: Any) -> None:
    """The call is made; once its command has begun, the server is killed."""

    async def work(client: Client) -> None:
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await use(client, "run", key=key, command=command)

            group.start_soon(ask)
            while not begun.exists():
                await anyio.sleep(0.01)
            os.kill(server_pid(place), signal.SIGKILL)
            group.cancel_scope.cancel()

    talk(place, work, **how)


def test_each_tool_does_its_work_and_the_log_tells_of_it(place: Place) -> None:
    subprocess.run(["git", "init", "-q"], cwd=place.workspace, check=True)
    (place.path / ".gitconfig").write_text("[user]\nname = t\nemail = t@example.org\n")
    (place.workspace / "make.sql").write_text("create table t (n integer); insert into t values (1);")

    async def work(client: Client) -> dict[str, tuple[str, bool]]:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"run", "write", "sql", "commit", "approve", "status", "explain"}
        return {
            "none": await use(client, "status"),
            "run": await use(client, "run", key="a", command=ledger(place, "one")),
            "failing": await use(client, "run", key="b", command="echo no; exit 3"),
            "write": await use(client, "write", key="c", path="notes.txt", content="hello\n"),
            "sql": await use(client, "sql", key="d", file="make.sql", database="data.db"),
            "commit": await use(client, "commit", key="e", message="notes", paths=["notes.txt"]),
            "status": await use(client, "status"),
            "explain": await use(client, "explain"),
        }

    found = talk(place, work)
    assert found["none"] == ("No call is on record yet.", False)
    assert found["run"] == ("done one\n[exit status 0]", False)
    assert found["failing"] == ("no\n[exit status 3]", True)
    assert found["write"] == ("Wrote notes.txt.", False)
    assert found["sql"] == ("Applied make.sql.", False)
    assert found["commit"][0].startswith("Committed as ") and not found["commit"][1]
    assert "Steps done: 5" in found["status"][0] and "mcp tester" in found["status"][0]
    assert '"session_id"' in found["explain"][0]
    assert (place.workspace / "notes.txt").read_text() == "hello\n"
    with contextlib.closing(sqlite3.connect(place.workspace / "data.db")) as database:
        assert database.execute("select n from t").fetchall() == [(1,)]
    (row,) = place.json("session", "list")
    assert row["state"] == "PAUSED"
    assert place.acode("session", "verify", row["short_id"]).returncode == 0


def test_a_key_happens_once_in_every_life_of_the_server_and_another_key_is_a_new_step(place: Place) -> None:
    command, failing = ledger(place, "x"), f"echo failed >> {place.ledger}; exit 3"

    async def first(client: Client) -> list[tuple[str, bool]]:
        return [
            await use(client, "run", key="a", command=command),
            await use(client, "run", key="a", command=command),
            await use(client, "run", key="b", command=command),
            await use(client, "run", key="c", command=failing),
        ]

    once, again, other, failed = talk(place, first)
    assert once == other == ("done x\n[exit status 0]", False)
    assert again[0].startswith(once[0]) and "nothing was done again" in again[0]
    assert failed == ("[exit status 3]", True)
    (place.workspace / "f.txt").write_text("an edit of the agent's own tools, between two calls")

    async def second(client: Client) -> list[tuple[str, bool]]:
        return [
            await use(client, "run", key="a", command=command),
            await use(client, "run", key="c", command=failing),
            await use(client, "run", key="a", command=ledger(place, "y")),
            await use(client, "write", key="a", path="f", content="x"),
        ]

    *same, reworded, another_tool = talk(place, second)
    assert same[0] == again
    assert same[1][1] and same[1][0].startswith("[exit status 3]")
    for text, error in (reworded, another_tool):
        assert error and "other arguments" in text and "another key" in text
    assert place.effects() == ["x", "x", "failed"]


@pytest.mark.release
def test_clients_have_sessions_of_their_own_and_one_that_was_ended_begins_anew(place: Place) -> None:
    for name in ("one", "two"):
        assert not call(place, "run", {"key": "a", "command": ledger(place, name)}, name=name)[1]
    one = next(row for row in place.json("session", "list") if "one" in row["title"])
    assert place.acode("session", "cancel", one["short_id"]).returncode in (0, 15)
    assert not call(place, "run", {"key": "a", "command": ledger(place, "one")}, name="one")[1]
    assert place.effects() == ["one", "two", "one"]


@pytest.mark.release
def test_files_changed_between_calls_by_other_tools_stop_nothing(place: Place) -> None:
    async def work(client: Client) -> tuple[str, bool]:
        await use(client, "write", key="a", path="f.txt", content="one")
        (place.workspace / "f.txt").write_text("the agent's own edit")
        return await use(client, "run", key="b", command="cat f.txt")

    assert talk(place, work) == ("the agent's own edit\n[exit status 0]", False)


def test_calls_at_the_same_time_run_beside_each_other_and_one_key_runs_once(place: Place) -> None:
    """Each command waits for the other's file, so that they must overlap."""
    meet = "touch {0}; for i in $(seq 2400); do test -e {1} && exit 0; sleep 0.05; done; exit 9"

    async def work(client: Client) -> list[tuple[str, bool]]:
        found: list[tuple[str, bool]] = []

        async def ask(key: str, command: str) -> None:
            found.append(await use(client, "run", key=key, command=command))

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "a", meet.format("a", "b"))
            group.start_soon(ask, "b", f"echo b >> {place.ledger}; " + meet.format("b", "a"))
            group.start_soon(ask, "b", f"echo b >> {place.ledger}; " + meet.format("b", "a"))
        return found

    found = talk(place, work)
    assert [error for _, error in found] == [False] * 3
    assert place.effects() == ["b"]


@pytest.mark.release
def test_killed_in_the_middle_the_keepers_evidence_decides_and_nothing_is_repeated(place: Place) -> None:
    begun, go = place.workspace / "begun", place.workspace / "go"
    command = f"echo x >> {place.ledger}; touch begun; until test -e go; do sleep 0.05; done; echo ended"
    kill_in_the_middle(place, "a", command, begun)
    go.touch()
    text, error = call(place, "run", {"key": "a", "command": command})
    assert not error and text.startswith("ended\n[exit status 0]")
    assert place.effects() == ["x"]


@pytest.mark.release
def test_a_command_that_failed_while_the_server_was_dead_is_told_and_not_repeated(place: Place) -> None:
    begun, go = place.workspace / "begun", place.workspace / "go"
    command = f"echo x >> {place.ledger}; touch begun; until test -e go; do sleep 0.05; done; echo bad; exit 4"
    kill_in_the_middle(place, "a", command, begun)
    go.touch()

    async def work(client: Client) -> None:
        for _ in range(2):
            text, error = await use(client, "run", key="a", command=command)
            assert error and "exit status 4" in text and "nothing was done again" in text
        assert not (await use(client, "run", key="b", command="true"))[1], "other calls go on"

    talk(place, work)
    assert place.effects() == ["x"]


def test_a_session_whose_attempts_are_used_up_says_what_a_person_can_type(place: Place) -> None:
    """There is no program that could be run again."""
    from acode.errors import Escalated
    from acode.integrations.mcp_server.tool_calls import refused, world_of

    error = Escalated("3 of 3 attempts", hint="acode.session('k', force='the reason')", session_id="01a1" * 8)
    text = refused(world_of(place.workspace), error).text
    assert "3 of 3 attempts (ACODE-RESUME-008)" in text and "acode session cancel 01a101a1" in text
    assert "acode.session(" not in text


def test_status_names_the_next_call_and_no_program(place: Place) -> None:
    """There is no program that could be run again: the client makes the call again, or another one."""
    begun, go = place.workspace / "begun", place.workspace / "go"
    command = "touch begun; until test -e go; do sleep 0.05; done"
    kill_in_the_middle(place, "a", command, begun)
    text, _ = call(place, "status")
    assert "Next: make the call a again, with the same key and arguments" in text, text
    go.touch()
    assert not call(place, "run", {"key": "a", "command": command})[1]
    text, _ = call(place, "status")
    assert "Next: make the next call" in text, text


def test_status_of_a_session_that_has_ended_is_an_answer(place: Place) -> None:
    assert not call(place, "run", {"key": "a", "command": "true"})[1]
    assert place.acode("session", "cancel", place.json("session", "list", "--all")[0]["session_id"]).returncode == 0
    for tool in ("status", "explain"):
        text, error = call(place, tool)
        assert not error and "CANCELLED" in text, text


def test_an_unknown_outcome_is_told_with_the_command_and_never_repeated(place: Place) -> None:
    """Keeper and command are killed too: nobody is left who could know how it ended."""
    begun = place.workspace / "begun"
    command = f"echo x >> {place.ledger}; touch begun; sleep 60 & wait"
    kill_in_the_middle(place, "a", command, begun)
    while found := keepers_and_commands(place):  # one may be started while the list is made
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    (row,) = place.json("session", "list")

    async def work(client: Client) -> tuple[str, bool]:
        for _ in range(2):
            text, error = await use(client, "run", key="a", command=command)
            assert error and "outcome is unknown" in text
            assert f"acode session resolve {row['short_id']} a" in text
        assert "unknown" in (await use(client, "run", key="b", command="true"))[0], "nothing passes it"
        assert "In flight: a" in (await use(client, "status"))[0]
        assert place.effects() == ["x"]
        assert place.acode("session", "resolve", row["short_id"], "a", "--applied").returncode == 0
        return await use(client, "run", key="a", command=command)

    text, error = talk(place, work)
    assert not error and "A person said" in text
    assert place.effects() == ["x"]


def keepers_and_commands(place: Place) -> list[int]:
    """Everything that this test has started and that still runs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"LEDGER={place.ledger}".encode() in environment:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("mode", first_of("legacy", "auto"))
def test_an_approval_is_asked_in_the_client_once(place: Place, mode: str) -> None:
    """The protocol before and after 2026-07-28 asks in two different ways."""
    answers = {
        "Yes?": ElicitResult(action="accept", content={"approve": True}),
        "No?": ElicitResult(action="accept", content={"approve": False}),
        "Declined?": ElicitResult(action="decline"),
    }
    asked: list[str] = []

    async def answer(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return answers[params.message]

    async def work(client: Client) -> list[tuple[str, bool]]:
        return [
            await use(client, "approve", key=f"gate-{number}", question=question)
            for _ in range(2)
            for number, question in enumerate(answers)
        ]

    found = talk(place, work, mode=mode, elicitation_callback=answer)
    assert asked == list(answers)
    assert [(text.splitlines()[0], error) for text, error in found] == 2 * [
        ("Approved.", False),
        ("Denied. Do not do it.", True),
        ("Denied. Do not do it.", True),
    ]


@pytest.mark.release
def test_without_elicitation_the_session_waits_and_nothing_passes_the_question(place: Place) -> None:
    async def work(client: Client) -> None:
        text, error = await use(client, "approve", key="g", question="Deploy?")
        (row,) = place.json("session", "list")
        assert error and f"acode session approve {row['short_id']}" in text
        assert row["state"] == "AWAITING_APPROVAL"
        text, error = await use(client, "run", key="a", command=ledger(place, "x"))
        assert error and "waits for an answer to g: Deploy?" in text
        assert place.acode("session", "approve", row["short_id"]).returncode == 0
        assert (await use(client, "approve", key="g", question="Deploy?"))[0].startswith("Approved.")
        assert not (await use(client, "run", key="a", command=ledger(place, "x")))[1]

    talk(place, work)
    assert place.effects() == ["x"]


HOSTILE = [
    ("write", {"key": "k", "path": "../outside", "content": "x"}),
    ("write", {"key": "k", "path": "/tmp/acode-outside", "content": "x"}),
    ("write", {"key": "k", "path": ".agent/workspace.db", "content": "x"}),
    ("write", {"key": "k", "path": "link/f", "content": "x"}),
    ("write", {"key": "k", "path": "a\x00b", "content": "x"}),
    ("run", {"key": "k", "command": "true", "cwd": "../.."}),
    ("run", {"key": "../k", "command": "true"}),
    ("run", {"key": "", "command": "true"}),
    ("run", {"key": "k" * 81, "command": "true"}),
    ("run", {"key": "k.l#2", "command": "true"}),
    ("run", {"key": "k", "command": ""}),
    ("run", {"key": "k", "command": "true\x00"}),
    ("run", {"key": "k", "command": "true", "timeout_s": -1}),
    ("run", {"key": "k", "command": ["true"]}),
    ("run", {"command": "true"}),
    ("sql", {"key": "k", "file": "make.sql", "database": "../data.db"}),
    ("sql", {"key": "k", "file": "make.sql", "database": "postgres://u:p4ssw0rd@host/db"}),
    ("sql", {"key": "k", "file": "make.sql"}),
    ("sql", {"key": "k", "file": "../make.sql", "database": "data.db"}),
    ("commit", {"key": "k", "message": "m", "paths": ["../.."]}),
    ("commit", {"key": "k", "message": "m", "paths": [":/"]}),
    ("approve", {"key": "k", "question": "Deploy\u202e?"}),
    ("write", {"key": "k", "path": ".git/hooks/post-commit", "content": "x"}),
    ("nothing", {}),
]


def test_hostile_arguments_are_refused_and_the_server_goes_on(place: Place) -> None:
    (place.workspace / "link").symlink_to(place.path)
    (place.workspace / "make.sql").write_text("create table t (n integer);")
    before = {one.name for one in place.path.iterdir()}

    async def work(client: Client) -> None:
        for tool, arguments in HOSTILE:
            text, error = await use(client, tool, **arguments)
            assert error and "Traceback" not in text and "p4ssw0rd" not in text, (tool, arguments, text)
        assert not (await use(client, "run", key="fine", command="true"))[1]

    talk(place, work)
    assert not Path("/tmp/acode-outside").exists()
    assert {one.name for one in place.path.iterdir()} - before <= {"state"}


@pytest.mark.release
def test_a_call_with_an_argument_that_is_not_known_does_nothing(place: Place) -> None:
    """A commit of `path` instead of `paths` would commit everything, a command would run in another directory."""
    subprocess.run(["git", "init", "-q"], cwd=place.workspace, check=True)

    async def work(client: Client) -> list[tuple[str, bool]]:
        assert all(tool.input_schema["additionalProperties"] is False for tool in (await client.list_tools()).tools)
        return [
            await use(client, "commit", key="a", message="notes", path=["notes.txt"]),
            await use(client, "run", key="b", command=ledger(place, "run"), directory="sub"),
            await use(client, "approve", key="c", question="Go on?", answer=True),
            await use(client, "status", verbose=True),
            await use(client, "run", key="b", command=ledger(place, "corrected")),
        ]

    *refused, done = talk(place, work)
    for (text, error), name in zip(refused, ("path", "directory", "answer", "verbose"), strict=True):
        assert error and name in text and "not permitted" in text, text
    assert done == ("done corrected\n[exit status 0]", False)
    assert place.effects() == ["corrected"]


def test_output_is_redacted_and_bounded(place: Place) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3

    async def work(client: Client) -> list[str]:
        command = f"echo token={secret}; seq 100000"
        calls = [("run", {"key": "a", "command": command}), ("explain", {}), ("status", {})]
        return [(await use(client, tool, **arguments))[0] for tool, arguments in calls]

    answers = talk(place, work)
    assert secret not in "".join(answers)
    assert len(answers[0]) < 20_000 and "\n100000\n" in answers[0] and "bytes left out" in answers[0]


def test_a_terminal_is_told_that_agents_start_this(place: Place) -> None:
    pexpect = pytest.importorskip("pexpect")
    child = pexpect.spawn(
        sys.executable, ["-m", "acode", "mcp"], cwd=str(place.workspace), env=place.env(), timeout=120, encoding="utf-8"
    )
    child.expect("claude mcp add acode")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2


def test_without_the_extra_it_says_what_to_install(place: Place) -> None:
    (place.path / "hidden").mkdir()
    (place.path / "hidden" / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'mcp' else find(name, package)\n"
    )
    env = place.env()
    env["PYTHONPATH"] = os.pathsep.join([str(place.path / "hidden"), env["PYTHONPATH"]])
    ended = subprocess.run(
        [sys.executable, "-m", "acode", "mcp"],
        cwd=place.workspace, env=env, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 2 and 'pip install "acode-cli[mcp]"' in ended.stderr

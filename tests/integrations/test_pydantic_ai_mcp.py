"""Tools of a real MCP server, which a Pydantic AI agent reaches over a pipe: each call is a step like any other."""

from __future__ import annotations

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra: pydantic-ai")
pytest.importorskip("fastmcp", reason="needs pydantic-ai-slim[mcp]")

from tests.library.programs import Place, killed

SERVER = """
import os, signal, sys
from mcp.server import MCPServer

server = MCPServer("post")

def note(*words):
    with open(os.environ["LEDGER"], "a") as file:
        file.write(" ".join(words) + "\\n")

@server.tool()
def send(to: str) -> str:
    note("send", to)
    if os.environ.get("DIE") == f"after {to}":
        os.kill(os.getppid(), signal.SIGKILL)
    return f"sent to {to}"

note("server")
server.run("stdio")
"""
AGENT = f"""
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import FunctionModel
from acode.integrations.pydantic_ai import AcodeDurability

Path("server.py").write_text({SERVER!r})
pipe = StdioTransport(sys.executable, ["server.py"], env=dict(os.environ))

def respond(messages, info):
    number = sum(message.kind == "response" for message in messages)
    note("model", number)
    if number < 2:
        return ModelResponse([ToolCallPart("send", {{"to": "ab"[number]}})])
    answers = [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    return ModelResponse([TextPart(f"{{[tool.name for tool in info.function_tools]}} {{answers}}")])

agent = Agent(
    FunctionModel(respond), name="post", toolsets=[MCPToolset(pipe, id="post")], capabilities=[AcodeDurability()]
)
with acode.session("k"):
    tell(output=agent.run_sync("go").output)
"""
OUTPUT = "['send'] ['sent to a', 'sent to b']"
CALL = "post-run1.call-2-1-send"


def done(place: Place) -> list[str]:
    return [line for line in place.effects() if line != "server"]


@pytest.mark.release
def test_the_tools_of_a_server_are_called_once_and_a_finished_run_starts_no_server(place: Place) -> None:
    ended = place.run(AGENT)
    assert ended.status == 0, ended.errors
    assert ended.told == [{"output": OUTPUT}]
    assert done(place) == ["model 0", "send a", "model 1", "send b", "model 2"]
    before = place.effects()
    assert place.run(AGENT).told == [{"output": OUTPUT}]
    assert place.effects() == before, "all of it is on record, the list of tools too"


@pytest.mark.release
def test_killed_behind_the_servers_work_a_person_says_what_became_of_the_call(place: Place) -> None:
    assert killed(place.run(AGENT, DIE="after b"))
    refused = place.run(AGENT)
    assert refused.status == 1 and "OutcomeUnknown" in refused.errors and CALL in refused.errors
    (row,) = place.json("session", "list")
    assert place.acode("session", "resolve", row["short_id"], CALL, "--applied").returncode == 0
    ended = place.run(AGENT)
    assert ended.status == 0, ended.errors
    assert ended.told == [{"output": OUTPUT.replace("'sent to b'", "None")}], "nobody knows what it answered"
    assert sorted(done(place)) == ["model 0", "model 1", "model 2", "send a", "send b"], "nothing was repeated"

"""`acode mcp` in the real clients: killed in the middle of a durable call and resumed, the effect is there once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.client import NAMES, client_of
from tests.agents.trial import FIRST_PROMPT, Killing, Trial, kill_in_call, resume, trial
from tests.agents.wanted_calls import WantedCall

pytestmark = pytest.mark.agents

KEY, WAIT = "deploy-1", "WaitForMcpServers"


def connect(one: Trial) -> None:
    """The server in the agent's own configuration, as the guide says; and the permission to use its tool."""
    variables = {**one.variables, "PYTHONPATH": ":".join(sys.path)}
    command, arguments = sys.executable, ["-m", "acode", "mcp"]
    server: dict[str, Any] = {"command": command, "args": arguments, "env": variables}
    home = one.place.home
    match one.name:
        case "claude":
            add(home / ".claude" / ".claude.json", {"mcpServers": {"acode": {"type": "stdio", **server}}})
            add(home / ".claude" / "settings.json", {"permissions": {"allow": ["mcp__acode__run"]}})
            one.variables["MCP_CONNECTION_NONBLOCKING"] = "0"
        case "codex":
            lines = [f'command = "{command}"', f"args = {json.dumps(arguments)}", "required = true"]
            lines += ["tool_timeout_sec = 300", "startup_timeout_sec = 120", "[mcp_servers.acode.env]"]
            lines += [f"{name} = {json.dumps(value)}" for name, value in variables.items()]
            with (home / ".codex" / "config.toml").open("a") as file:
                file.write("\n".join(["", "[mcp_servers.acode]", *lines, ""]))
        case "gemini":
            add(home / ".gemini" / "settings.json", {"mcpServers": {"acode": {**server, "trust": True}}})
        case "opencode":
            local = {"type": "local", "command": [command, *arguments], "environment": variables, "timeout": 120_000}
            add(home / ".config" / "opencode" / "opencode.json", {"mcp": {"acode": local}})


def add(path: Path, more: dict[str, Any]) -> None:
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **more}))


def durable_call(one: Trial, call: WantedCall) -> tuple[str, dict[str, Any] | str]:
    """The tool `run` by the name that the client gives it."""
    offered = one.server.requests[-1].tools
    names = [name for name in offered if "acode" in name and name.endswith("run")]
    if not names and WAIT in offered:  # Claude Code gives a server a few seconds, then the model may wait for it
        return WAIT, {}
    assert names, f"{one.name} does not offer it: {offered}"
    return names[0], {"key": KEY, "command": call.text}


@pytest.mark.parametrize("name", NAMES)
def test_a_durable_call_that_is_cut_off_happens_once(name: str, tmp_path: Path) -> None:
    with trial(name, client_of(name), tmp_path / "trial") as one:
        connect(one)
        one.server.arguments = lambda call: durable_call(one, call)
        assert kill_in_call(one, Killing(kind="command", since="effect", after_s=0.1, held=True))
        resume(one)
        assert one.effects() == 1
        (row,) = json.loads(one.acode("session", "list", "--json").stdout)
        history = json.loads(one.acode("session", "history", row["session_id"], "--json").stdout)
        assert [event["step"] for event in history if event["type"] == "step_completed"] == [KEY]
        results = [said.text for said in one.server.requests[-1].conversation if said.kind == "result"]
        assert any("exit status 0" in text for text in results), results


@pytest.mark.parametrize("name", NAMES)
def test_an_undisturbed_client_gets_the_answer(name: str, tmp_path: Path) -> None:
    client = client_of(name)
    with trial(name, client, tmp_path / "trial") as one:
        connect(one)
        one.server.arguments = lambda call: durable_call(one, call)
        assert one.run(client.start(FIRST_PROMPT)) == 0, one.log()
        results = [said.text for said in one.server.requests[-1].conversation if said.kind == "result"]
        assert len([text for text in results if "deployed" in text]) == 1, results
        assert one.effects() == 1

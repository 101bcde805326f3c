"""Hooks and front grant nothing and forbid nothing: the user's own rules decide as they do without acode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents.client import NAMES, Place, client_of
from tests.agents.trial import FIRST_PROMPT, install_acode, trial
from tests.agents.wanted_calls import Model, WantedCall

pytestmark = pytest.mark.agents

# A command, the path that shows whether it ran, and whether that path is there before.
COMMANDS = {
    "touch made-by-touch": ("made-by-touch", False),  # allowed
    "mkdir made-by-mkdir": ("made-by-mkdir", False),  # allowed
    "rm victim": ("victim", True),  # denied
    "ln other made-by-ln": ("made-by-ln", False),  # ask, and nobody is there to be asked
    "install other made-by-install": ("made-by-install", False),  # no rule
    "mkdir made-with-rm && rm second-victim": ("second-victim", True),  # allowed and denied
}
FILES = ("victim", "second-victim", "other")

CODEX_RULES = """prefix_rule(pattern=["touch"], decision="allow")
prefix_rule(pattern=["mkdir"], decision="allow")
prefix_rule(pattern=["rm"], decision="forbidden")
prefix_rule(pattern=["ln"], decision="prompt")
"""


def add_rules(name: str, place: Place) -> list[str]:
    """Write the rules in the agent's own form; the words that start it under them."""
    if name == "claude":
        rules = {"allow": ["Bash(touch:*)", "Bash(mkdir:*)"], "deny": ["Bash(rm:*)"], "ask": ["Bash(ln:*)"]}
        place.write(".claude/settings.json", {"permissions": rules})
        return ["--model", "scripted", "--output-format", "stream-json", "--verbose", "-p", FIRST_PROMPT]
    if name == "codex":
        place.write(".codex/rules/default.rules", CODEX_RULES)
        return client_of(name).start(FIRST_PROMPT)
    if name == "gemini":
        path = place.home / ".gemini/settings.json"
        tools = {"allowed": ["run_shell_command(touch)", "run_shell_command(mkdir)"]}
        tools["exclude"] = ["run_shell_command(rm)"]
        place.write(".gemini/settings.json", {**json.loads(path.read_text()), "tools": tools})
        return ["-m", "gemini-2.5-pro", "-o", "json", "-p", FIRST_PROMPT]
    path = place.home / ".config/opencode/opencode.json"
    bash = {"*": "ask", "touch *": "allow", "mkdir *": "allow", "rm *": "deny", "ln *": "ask"}
    place.write(".config/opencode/opencode.json", {**json.loads(path.read_text()), "permission": {"bash": bash}})
    return client_of(name).start(FIRST_PROMPT)


@pytest.mark.parametrize("name", NAMES)
def test_the_permission_table_is_the_same_with_and_without_acode(name: str, tmp_path: Path) -> None:
    without = table(name, tmp_path / "without", acode=False)
    assert table(name, tmp_path / "with", acode=True) == without
    assert without["touch made-by-touch"] and without["mkdir made-by-mkdir"]
    assert not without["rm victim"] and not without["mkdir made-with-rm && rm second-victim"]


def table(name: str, directory: Path, *, acode: bool) -> dict[str, bool]:
    """Which of the commands ran."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        words = add_rules(name, one.place)
        if acode:
            install_acode(one)
        for file in FILES:
            (one.place.workspace / file).touch()
        one.server.model = Model(calls=tuple(WantedCall(kind="command", text=text) for text in COMMANDS), trusting=True)
        one.run(words)
        asked = [request.wanted.text for request in one.server.requests if request.wanted is not None]
        assert set(asked) == set(COMMANDS), one.log()
        return {
            text: (one.place.workspace / path).exists() is not was_there for text, (path, was_there) in COMMANDS.items()
        }

"""Hooks and front grant nothing and forbid nothing: the user's own rules decide as they do without acode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.client import NAMES, Place, client_of
from tests.agents.trial import FIRST_PROMPT, NEXT_PROMPT, Trial, install_acode, trial
from tests.agents.wanted_calls import Model, WantedCall

pytestmark = pytest.mark.agents

# A command, the path that shows whether it ran, and whether that path is there before.
COMMANDS = {
    "touch made-by-touch": ("made-by-touch", False),
    "mkdir made-by-mkdir": ("made-by-mkdir", False),
    "rm victim": ("victim", True),
    "ln other made-by-ln": ("made-by-ln", False),
    "install other made-by-install": ("made-by-install", False),
    "mkdir made-with-rm && rm second-victim": ("second-victim", True),  # two programs, two rules
}
FILES = ("victim", "second-victim", "other")
DECISIONS = ("allow", "deny", "ask", "none")  # ask: and nobody is there to be asked
FIRST_RULES = {"touch": "allow", "mkdir": "allow", "rm": "deny", "ln": "ask", "install": "none"}


def rules_shifted(shift: int) -> dict[str, str]:
    """Each program under another decision: after four shifts every command has met every one of them."""
    return {name: DECISIONS[(DECISIONS.index(rule) + shift) % 4] for name, rule in FIRST_RULES.items()}


def add_rules(name: str, place: Place, rules: dict[str, str]) -> list[str]:
    """Write the rules in the agent's own form; the words that start it under them."""
    given = {decision: [one for one, rule in rules.items() if rule == decision] for decision in DECISIONS}
    if name == "claude":
        lists = {rule: [f"Bash({one}:*)" for one in given[rule]] for rule in ("allow", "deny", "ask")}
        place.write(".claude/settings.json", {"permissions": lists})
        return ["--model", "scripted", "--output-format", "stream-json", "--verbose", "-p", FIRST_PROMPT]
    if name == "codex":
        words = {"allow": "allow", "deny": "forbidden", "ask": "prompt"}
        lines = [f'prefix_rule(pattern=["{one}"], decision="{words[rule]}")' for one, rule in named(rules)]
        place.write(".codex/rules/default.rules", "\n".join(lines) + "\n")
        return client_of(name).start(FIRST_PROMPT)
    if name == "gemini":
        words = {"allow": "allow", "deny": "deny", "ask": "ask_user"}
        lines = [
            f'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "{one}"\npriority = 100\n'
            f'decision = "{words[rule]}"'
            for one, rule in named(rules)
        ]
        place.write(".gemini/policies/rules.toml", "\n".join(lines) + "\n")
        return ["-m", "gemini-2.5-pro", "-o", "json", "-p", FIRST_PROMPT]
    path = place.home / ".config/opencode/opencode.json"
    bash = {"*": "ask", **{f"{one} *": rule for one, rule in named(rules)}}
    place.write(".config/opencode/opencode.json", {**json.loads(path.read_text()), "permission": {"bash": bash}})
    return client_of(name).start(FIRST_PROMPT)


def named(rules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Those that are written down."""
    return ((name, rule) for name, rule in rules.items() if rule != "none")


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_the_permission_table_is_the_same_with_and_without_acode(name: str, shift: int, tmp_path: Path) -> None:
    rules = rules_shifted(shift)
    without = table(name, tmp_path / "without", rules, acode=False)
    assert table(name, tmp_path / "with", rules, acode=True) == without
    for text, ran in without.items():
        decisions = {rules[part.split()[0]] for part in text.split(" && ")}
        if "deny" in decisions or decisions == {"allow"}:
            assert ran is (decisions == {"allow"}), (text, decisions)


def ask_for_all(one: Trial, words: list[str]) -> None:
    def not_asked() -> set[str]:
        return set(COMMANDS) - {request.wanted.text for request in one.server.requests if request.wanted is not None}

    one.run(words)
    while one.name == "opencode" and (left := not_asked()):  # it ends where it would have to ask somebody
        one.run(one.client.resume(NEXT_PROMPT))
        assert not_asked() < left, one.log()
    assert not not_asked(), one.log()


def table(name: str, directory: Path, rules: dict[str, str], *, acode: bool) -> dict[str, bool]:
    """Which of the commands ran."""
    client = client_of(name)
    with trial(name, client, directory) as one:
        words = add_rules(name, one.place, rules)
        if acode:
            install_acode(one)
        for file in FILES:
            (one.place.workspace / file).touch()
        one.server.model = Model(calls=tuple(WantedCall(kind="command", text=text) for text in COMMANDS), trusting=True)
        ask_for_all(one, words)
        return {
            text: (one.place.workspace / path).exists() is not was_there for text, (path, was_there) in COMMANDS.items()
        }

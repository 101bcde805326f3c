"""A hint that names a command names one that exists, with options that it has: a person types it as it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from acode.cli.app import root
from acode.hints import Action, Subject
from tests.test_words import texts_of, unbroken
from tests.unit.test_hints import ACTIONS

SOURCE = Path(__file__).resolve().parents[2] / "src" / "acode"
GROUPS = ("session", "config", "key", "sync")
NAMED = re.compile(
    rf"(?:: |\b)acode ((?:{'|'.join(GROUPS)}) [a-z]+|[a-z]+)((?: (?:--?[a-z][\w-]*|[A-Z]{{2,}}|…|[\w.]*\d[\w.]*))*)"
)
MADE_OF_WORDS = ("Command", "BeginAgain")
MODULES_MIN = 100  # that name a command
ROOT = root()
CONTEXT = click.Context(ROOT)


def find(words: list[str]) -> click.Command | None:
    found = ROOT.get_command(CONTEXT, words[0])
    if isinstance(found, click.Group) and len(words) > 1:
        return found.get_command(CONTEXT, words[1])
    return found


def actions_of(source: str) -> list[tuple[int, str]]:
    """The commands of the actions that hints are made of, as they are typed."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    made = [(node.lineno, getattr(node.func, "attr", getattr(node.func, "id", "")), node.args[0]) for node in calls]
    return [
        (line, f"acode {words.value}")
        for line, name, words in made
        if name in MADE_OF_WORDS and isinstance(words, ast.Constant)
    ]


def may_name_a_command(source: str) -> bool:
    """Most modules need not be parsed."""
    without_imports = re.sub(r"\b(?:from|import) acode\b", "", unbroken(source))
    return NAMED.search(without_imports) is not None or any(f"{name}(" in source for name in MADE_OF_WORDS)


def wrong_in(texts: Iterable[tuple[int, str]]) -> list[str]:
    wrong = []
    for line, text in texts:
        flat = " ".join(text.split())
        for named in NAMED.finditer(flat):
            words = named[1].split()
            ends = flat[named.end() : named.end() + 1] in ("", ".", ";", ",", ")")
            if words[0] not in ROOT.list_commands(CONTEXT) and not (named[0].startswith(": ") and ends):
                continue  # a sentence about acode
            command = find(words)
            if command is None:
                wrong.append(f"{line}: there is no acode {named[1]}")
                continue
            known = {option for one in (*command.params, *ROOT.params) for option in (*one.opts, *one.secondary_opts)}
            options = [word for word in named[2].split() if word.startswith("-")]
            wrong += [f"{line}: acode {named[1]} has no {option}" for option in options if option not in known]
    return wrong


def test_every_command_that_a_text_of_the_source_names_exists() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    modules = {path: source for path, source in sources.items() if may_name_a_command(source)}
    assert len(modules) > MODULES_MIN
    found = {path: [*texts_of(source), *actions_of(source)] for path, source in modules.items()}
    wrong = {str(path.relative_to(SOURCE)): wrong_in(texts) for path, texts in found.items()}
    assert {name: some for name, some in wrong.items() if some} == {}


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_every_command_that_an_action_renders_exists(action: Action) -> None:
    typed = action.as_command(Subject("0a1b2c3d")).replace("-C /elsewhere ", "").replace("|", " ")
    assert wrong_in([(1, typed)]) == []


@pytest.mark.parametrize(
    "hint", ["Look: acode session mend ID", "Then: acode resume ID --nosuch", "See: acode nosuch", "acode key mend"]
)
def test_a_command_that_does_not_exist_is_found(hint: str) -> None:
    source = f"hint = {hint!r}\n"
    assert len(wrong_in(texts_of(source))) == 1


@pytest.mark.parametrize("words", ["session mend SESSION", "resume SESSION --nosuch"])
def test_an_action_whose_command_does_not_exist_is_found(words: str) -> None:
    assert len(wrong_in(actions_of(f"hint = Hint('Look: {{}}', hints.Command({words!r}))\n"))) == 1

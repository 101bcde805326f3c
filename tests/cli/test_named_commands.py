"""A hint that names a command names one that exists, with options that it has: a person types it as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from acode.cli.app import root
from tests.test_words import texts_of

SOURCE = Path(__file__).resolve().parents[2] / "src" / "acode"
GROUPS = ("session", "config", "key", "sync")
NAMED = re.compile(
    rf"(?:: |\b)acode ((?:{'|'.join(GROUPS)}) [a-z]+|[a-z]+)((?: (?:--?[a-z][\w-]*|[A-Z]{{2,}}|…|[\w.]*\d[\w.]*))*)"
)
ROOT = root()
CONTEXT = click.Context(ROOT)


def find(words: list[str]) -> click.Command | None:
    found = ROOT.get_command(CONTEXT, words[0])
    if isinstance(found, click.Group) and len(words) > 1:
        return found.get_command(CONTEXT, words[1])
    return found


def wrong_in(source: str) -> list[str]:
    wrong = []
    for line, text in texts_of(source):
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
    modules = {path: wrong_in(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    assert {str(path.relative_to(SOURCE)): wrong for path, wrong in modules.items() if wrong} == {}


@pytest.mark.parametrize(
    "hint", ["Look: acode session mend ID", "Then: acode resume ID --nosuch", "See: acode nosuch", "acode key mend"]
)
def test_a_command_that_does_not_exist_is_found(hint: str) -> None:
    assert len(wrong_in(f"hint = {hint!r}\n")) == 1

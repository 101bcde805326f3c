"""A newcomer's questions: each has a page that answers it, found from the start page in at most two clicks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCREEN_LINES = 60  # of a window that fills an ordinary screen
LINK = re.compile(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)")

# The question, the page, and the words on that page without which it would not be answered.
QUESTIONS = [
    ("What happens if the machine goes down in this step?", "guide/plans.md", ["acode check", "asked"]),
    ("How do I fix a plan and continue?", "guide/plans.md", ["--plan", "finished"]),
    ("What did the step print?", "guide/when-it-stops.md", ["session logs"]),
    ("It says the outcome is unknown. What now?", "guide/when-it-stops.md", ["session resolve"]),
    ("Who resumes it at night?", "guide/recipes.md", ["supervise", "systemd"]),
    ("How do I protect my coding agent?", "guide/observed-agents.md", ["acode hook install"]),
    ("Can a second machine continue?", "guide/shared-history.md", ["resume --remote"]),
    ("Can I use it without plan files?", "guide/library.md", ["acode.session"]),
    ("How do I know that nobody changed the log?", "reference/keys.md", ["session verify"]),
    ("Why not Temporal, DBOS or make?", "compared.md", ["Temporal", "DBOS", "make"]),
]


def links(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


def within_two_clicks() -> set[Path]:
    first = links(DOCS / "index.md")
    return first.union(*(links(page) for page in first if page.is_file()))


@pytest.mark.parametrize(("question", "page", "words"), QUESTIONS, ids=[one[0] for one in QUESTIONS])
def test_a_newcomers_question_is_answered_two_clicks_from_the_start(question: str, page: str, words: list[str]) -> None:
    assert question in (DOCS / "index.md").read_text(encoding="utf-8")
    assert (DOCS / page).resolve() in within_two_clicks()
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [one for one in words if one not in text] == []


def test_the_readme_takes_two_screens_and_leads_from_one_agent_to_many_machines() -> None:
    lines = (DOCS.parent / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 2 * SCREEN_LINES
    order = ("acode hook install", "kill.svg", "acode run release.yml", "acode.session(", "acode submit")
    first = [next(at for at, line in enumerate(lines) if words in line) for words in order]
    assert first == sorted(first)


def test_every_picture_that_a_page_shows_is_there_and_small() -> None:
    shown = [
        (page, (page.parent / target).resolve())
        for page in DOCS.rglob("*.md")
        for target in re.findall(r"!\[[^\]]*\]\(([^)#]+)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert any(picture.name.startswith("page-") for _, picture in shown)
    assert [str(picture) for _, picture in shown if not picture.is_file() or picture.stat().st_size > 200_000] == []

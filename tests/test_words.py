"""The words of the documentation: one term per concept, as the glossary has them.

Only prose is read: code blocks, inline code and links hold texts of the program, which stay as the program prints them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"

# What is not written, and the term of the glossary that stands for it.
BANNED = {
    r"go on|goes on|going on|went on|gone on": "continue, resume",
    r"(carry|carries|carried|carrying)( \w+){0,3} on": "resume",
    r"mend|mends|mended|mending": "repair",
    r"(put|puts|putting)( \w+){0,3} back": "restore",
    r"(take|takes|taking|took|taken)( \w+){0,3} back": "roll back",
    r"what (became|becomes) of": "the outcome of",
    r"(do|does|did) not fit|fits? not": "mismatch; name both sides",
    r"some chance in it": "jitter",
    r"time-out|time-outs": "timeout",
    r"for ever": "forever",
    r"whoever|whomever|that which": "name the person or the process",
    r"behaviours?|colours?|neighbours?|favours?|honours?": "American spelling",
    r"(recogni|organi|reali|normali)s(e|es|ed|ing)": "American spelling",
}
PHRASES = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): term for phrase, term in BANNED.items()}


def pages() -> list[Path]:
    """Every page that people write. Records of past runs keep their words; generated pages have those of the source."""
    written = [path for path in sorted(DOCS.rglob("*.md")) if path.parent != DOCS / "proof"]
    return [ROOT / "CONTRIBUTING.md", *(path for path in written if not is_generated(path))]


def is_generated(page: Path) -> bool:
    return re.search(r"^This \w+ is made from the ", page.read_text(encoding="utf-8"), re.MULTILINE) is not None


def prose(text: str) -> str:
    """The text without code and link targets; lines stay where they are, so that a finding has its line."""

    def blank(code: re.Match[str]) -> str:
        return "\n" * code[0].count("\n")

    text = re.sub(r"^```.*?^```", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<=\])\([^)]*\)", "", re.sub(r"`[^`]*`", lambda code: "`" + blank(code), text))


def findings(text: str) -> Iterator[tuple[int, str]]:
    """The line of each banned phrase, with the phrase and its term; a phrase may be broken over two lines."""
    flat = prose(text).replace("\n", "\x00")
    for phrase, term in PHRASES.items():
        for found in phrase.finditer(flat.replace("\x00", " ")):
            yield flat.count("\x00", 0, found.start()) + 1, f"“{found[0]}” (rather: {term})"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_terms_of_the_glossary(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page == GLOSSARY:  # its last column lists the words that are not used
        text = re.sub(r"\|[^|\n]*\|$", "|", text, flags=re.MULTILINE)
    assert [f"{page.relative_to(ROOT)}:{line}: {what}" for line, what in sorted(findings(text))] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "The session goes on.",
        "Carry the session on elsewhere.",
        "Mend the cause.",
        "The file is put\nback.",
        "Steps are taken back.",
        "Say what became of it.",
        "The code does not fit.",
        "Waits with some chance in it.",
        "A time-out stops it.",
        "Once and for ever.",
        "Whoever asks is told.",
        "It recognises the colour.",
    ],
)
def test_a_banned_phrase_in_prose_is_found(sentence: str) -> None:
    assert [line for line, _ in findings(f"# A page\n\n{sentence}\n")][:1] == [3]


def test_texts_of_the_program_are_not_prose() -> None:
    assert list(findings("Type `carry on`.\n\n```console\n$ acode\nerror: it goes on\n```\n\n[x](go on)\n")) == []


def test_every_page_is_read_but_records_and_generated_ones() -> None:
    left_out = {path.relative_to(DOCS).as_posix() for path in set(DOCS.rglob("*.md")) - set(pages())}
    generated = {"reference/errors.md", "reference/library.md", "reference/integrations.md"}
    assert {name for name in left_out if not name.startswith("proof/")} == generated

"""The words of the documentation and of the source: one term per concept, as the glossary has them.

Only the prose of a page is read: code blocks, inline code and links hold texts of the program. Every docstring, comment
and string literal of a module is read: messages, hints and help texts are literals.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"

# Phrases that are not written, and the term of the glossary that stands for each.
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
# Texts that stay as version 0.1 had them: those for a model, because a resumed conversation is compared with its record
# by their bytes, and a part of a file name, by which a rollback finds the leftovers of an earlier one.
FIXED = re.compile(
    r"^put back$|\bGo on(?=\.| from where it ended\.)|for you, whoever\s+wrote them|too long to go on\s+with"
    r"|needed to\s+go on:"
)
ANY = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
BREAKS = re.compile(r"[\s#\"']+(?:[rbfu]{1,2}[\"']+)?")
PHRASES = {re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE): term for phrase, term in BANNED.items()}


def pages() -> list[Path]:
    """Every page that people write. Records of past runs keep their words; generated pages have those of the source."""
    written = [path for path in sorted(DOCS.rglob("*.md")) if path.parent != DOCS / "proof"]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(path for path in written if not is_generated(path))]


def is_generated(page: Path) -> bool:
    return re.search(r"^This \w+ is made from the ", page.read_text(encoding="utf-8"), re.MULTILINE) is not None


def modules() -> list[Path]:
    places = (ROOT / "src", ROOT / "benchmarks", ROOT / "examples")
    return [ROOT / "dev.py", *(path for place in places for path in sorted(place.rglob("*.py")))]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Each docstring, string literal and block of comments, with its line. The fields of an f-string are left out."""
    nodes = list(ast.walk(ast.parse(source)))
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield node.lineno, "".join(str(part) for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
    yield from comments_of(source)


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Comments, those on consecutive lines as one text: a phrase may be broken over two lines."""
    first = last = 0
    block: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield first, "\n".join(block)
            block = []
        first = token.start[0] if not block else first
        last = token.start[0]
        block.append(token.string.lstrip("# "))
    if block:
        yield first, "\n".join(block)


def unbroken(source: str) -> str:
    """The source in one line, without what stands between two parts of a text: quotes, prefixes, comment signs."""
    return BREAKS.sub(" ", source)


def module_findings(source: str) -> Iterator[tuple[int, str]]:
    if not ANY.search(unbroken(source)):  # most modules need not be parsed
        return
    for line, text in texts_of(source):
        if " " in text.strip():  # others are names
            yield from ((line + within - 1, what) for within, what in findings(FIXED.sub("", text)))


def prose(text: str) -> str:
    """The text without code and link targets; lines stay where they are, so that a finding has its line."""

    def blank(code: re.Match[str]) -> str:
        return "\n" * code[0].count("\n")

    text = re.sub(r"^```.*?^```", blank, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<=\])\([^)]*\)", "", re.sub(r"`[^`]*`", lambda code: "`" + blank(code), text))


def findings(text: str) -> Iterator[tuple[int, str]]:
    """The line of each banned phrase, with the phrase and its term; a phrase may be broken over two lines."""
    if not ANY.search(" ".join(text.split())):
        return
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


def test_every_module_uses_the_terms_of_the_glossary() -> None:
    found = [
        (module, *one) for module in modules() for one in sorted(module_findings(module.read_text(encoding="utf-8")))
    ]
    assert [f"{module.relative_to(ROOT)}:{line}: {what}" for module, line, what in found] == []


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""It works.\n\nThe run is carried\non.\n"""\n', 3),
        ("x = 1\n\n\nx = 2  # the run goes on\n", 4),
        ("x = 1\n\n# The run goes\n# on.\n", 3),
        ('x = 1\nhint(\n    f"the run {x} goes "\n    f"on"\n)\n', 3),
    ],
    ids=["docstring", "comment", "comment over two lines", "message over two literals"],
)
def test_a_banned_phrase_in_a_module_is_found(source: str, line: int) -> None:
    assert [found for found, _ in module_findings(source)] == [line]


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

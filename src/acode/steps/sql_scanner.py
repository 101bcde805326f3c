"""Scan a SQL file: where its statements begin, and which of them cannot be part of one transaction.

A small scanner that knows comments, strings, quoted names and dollar quotes, so that a VACUUM inside a string is text
and a COMMIT after a strange one is a COMMIT. Pure; it never changes the text, and it refuses only statements that would
break "applied exactly once". The database judges everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

Dialect = Literal["sqlite", "postgres"]

WORDS_MAX = 64  # of one statement: what decides stands near its beginning

_NAME = r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*"
_STRING = r"'[^']*(?:''[^']*)*(?:'|\Z)"
_QUOTED = r'"[^"]*(?:""[^"]*)*(?:"|\Z)'
_COMMON = rf"(?P<blank>\s+|--[^\n]*)|(?P<comment>/\*)|(?P<quoted>{_STRING}|{_QUOTED}"
_TOKENS: dict[Dialect, re.Pattern[str]] = {
    "sqlite": re.compile(
        rf"{_COMMON}|`[^`]*(?:``[^`]*)*(?:`|\Z)|\[[^\]]*(?:\]|\Z))|(?P<word>{_NAME})|(?P<mark>.)", re.DOTALL
    ),
    "postgres": re.compile(
        rf"{_COMMON}|[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\Z))"
        r"|(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)?\$)"
        rf"|(?P<word>{_NAME})|(?P<mark>.)",
        re.DOTALL,
    ),
}


class Token(NamedTuple):
    kind: Literal["word", "quoted", "mark"]
    text: str  # a word in capitals, a mark as it stands, nothing for what is quoted
    start: int
    end: int


class Statement(NamedTuple):
    words: tuple[str, ...]
    first_mark: str | None  # what it begins with, if that is no word
    backslash: int | None  # where one stands outside of strings: psql's own commands
    start: int
    end: int


class Refusal(NamedTuple):
    line: int
    what: str
    hint: str


def tokens(text: str, dialect: Dialect) -> Iterator[Token]:
    """Everything that is neither blank nor a comment."""
    scan, at = _TOKENS[dialect].match, 0
    while found := scan(text, at):
        kind, at = found.lastgroup, found.end()
        match kind:
            case "comment":
                at = _end_of_comment(text, at, nested=dialect == "postgres")
            case "dollar":
                closing = text.find(found.group(), at)
                at = len(text) if closing < 0 else closing + len(found.group())
                yield Token("quoted", "", found.start(), at)
            case "word":
                yield Token("word", found.group().upper(), found.start(), at)
            case "quoted":
                yield Token("quoted", "", found.start(), at)
            case "mark":
                yield Token("mark", found.group(), found.start(), at)
            case _:
                pass


def _end_of_comment(text: str, at: int, *, nested: bool) -> int:
    depth = 1
    for found in re.compile(r"/\*|\*/").finditer(text, at):
        if found.group() == "*/":
            depth -= 1
        elif nested:
            depth += 1
        if depth == 0:
            return found.end()
    return len(text)


class _Inside:
    """Whether a semicolon ends the statement, or only one inside of it."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._parentheses = 0
        self._blocks = 0
        self._before: tuple[str, ...] = ("", "")

    def ends(self, token: Token, words: list[str]) -> bool:
        before, self._before = self._before, (self._before[1], token.text)
        if token.text == ";" and token.kind == "mark":
            if self._dialect == "sqlite":
                return not _makes_trigger(words) or before == (";", "END")
            return self._parentheses <= 0 and self._blocks == 0
        if self._dialect == "postgres":
            self._follow(token, words)
        return False

    def _follow(self, token: Token, words: list[str]) -> None:
        if token.kind == "mark":
            self._parentheses += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.kind == "word" and _makes_routine(words):
            # The body of a routine written as BEGIN ATOMIC … END; a CASE in it has an END of its own.
            if token.text == "BEGIN" or (token.text == "CASE" and self._blocks):
                self._blocks += 1
            elif token.text == "END" and self._blocks:
                self._blocks -= 1


def _makes_trigger(words: list[str]) -> bool:
    return words[:1] == ["CREATE"] and "TRIGGER" in words[1:3]


def _makes_routine(words: list[str]) -> bool:
    return words[:1] == ["CREATE"] and not {"FUNCTION", "PROCEDURE"}.isdisjoint(words[1:4])


def statements(text: str, dialect: Dialect) -> Iterator[Statement]:
    """The statements in their order; empty ones are left out."""
    words: list[str] = []
    inside, start, first_mark, backslash = _Inside(dialect), None, None, None
    end = 0
    for token in tokens(text, dialect):
        if inside.ends(token, words):
            if start is not None:
                yield Statement(tuple(words), first_mark, backslash, start, token.end)
            words, inside, start, first_mark, backslash = [], _Inside(dialect), None, None, None
            continue
        if start is None and token.text == ";":
            continue
        if start is None:
            start, first_mark = token.start, token.text if token.kind == "mark" else None
        if token.text == "\\" and backslash is None:
            backslash = token.start
        if token.kind == "word" and len(words) < WORDS_MAX:
            words.append(token.text)
        end = token.end
    if start is not None:
        yield Statement(tuple(words), first_mark, backslash, start, end)


def line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


# Statements that cannot be part of one transaction.

_OWN_TRANSACTION = "The whole file is one transaction already, ended by acode together with its own record: remove it."
_ALONE = "Take it out of the file and run it as a command, for example: `run: {example}` with `idempotent: true`."
_CONCURRENTLY = (
    "Leave CONCURRENTLY out, or run it as a command: `run: psql …` with a `probe` that looks whether it is there."
)

# The pragmas that work inside a transaction and are undone with it, or only look. Others are silently ignored there
# (foreign_keys), refused (synchronous) or not undone (journal_mode).
PRAGMAS_ALLOWED = frozenset(
    {
        "APPLICATION_ID",
        "CASE_SENSITIVE_LIKE",
        "DEFER_FOREIGN_KEYS",
        "FOREIGN_KEY_CHECK",
        "FOREIGN_KEY_LIST",
        "INDEX_INFO",
        "INDEX_LIST",
        "INDEX_XINFO",
        "INTEGRITY_CHECK",
        "LEGACY_ALTER_TABLE",
        "QUICK_CHECK",
        "RECURSIVE_TRIGGERS",
        "TABLE_INFO",
        "TABLE_LIST",
        "TABLE_XINFO",
        "USER_VERSION",
    }
)
_TRANSACTION = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"})


def refusal(text: str, dialect: Dialect) -> Refusal | None:
    """The first statement that would break the promise, with the line it stands in; None: all may run."""
    for statement in statements(text, dialect):
        found = _judge_sqlite(statement) if dialect == "sqlite" else _judge_postgres(statement)
        if found is not None:
            return Refusal(line_of(text, statement.start), *found)
    return None


def _judge_transaction(words: tuple[str, ...]) -> tuple[str, str] | None:
    if words and (words[0] in _TRANSACTION or words[:2] in (("START", "TRANSACTION"), ("PREPARE", "TRANSACTION"))):
        named = 2 if words[0] in ("START", "PREPARE") else 1
        return " ".join(words[:named]), _OWN_TRANSACTION
    return None


def _judge_sqlite(statement: Statement) -> tuple[str, str] | None:
    words = statement.words
    if statement.first_mark == ".":
        return "a command of the sqlite3 shell", "Only SQL can be applied: remove the line that begins with a dot."
    match words[:1]:
        case ("VACUUM",):
            return "VACUUM", _ALONE.format(example="sqlite3 app.db VACUUM")
        case ("ATTACH" | "DETACH",):
            return words[0], "A transaction over two files is not atomic: use one sql step for each database."
        case ("PRAGMA",):
            return _judge_pragma(words)
    return _judge_transaction(words)


def _judge_pragma(words: tuple[str, ...]) -> tuple[str, str] | None:
    named = words[2:3] if words[1:2] and words[1] in ("MAIN", "TEMP") else words[1:2]
    if not named or named[0] in PRAGMAS_ALLOWED:
        return None
    hint = (
        "It does nothing inside a transaction. To check foreign keys only at the end: PRAGMA defer_foreign_keys=ON."
        if named[0] == "FOREIGN_KEYS"
        else "It does not work inside a transaction, or is not undone with it: run it as a command beforehand."
    )
    return f"PRAGMA {named[0].lower()}", hint


def _judge_postgres(statement: Statement) -> tuple[str, str] | None:
    words = statement.words
    if statement.backslash is not None:
        return "a command of psql (\\)", "Only SQL can be applied: run files with psql commands as `run: psql -f …`."
    if words[:1] == ("COPY",) and ("STDIN" in words or "STDOUT" in words):
        return "COPY from or to the client", "There is no client to talk to: use INSERT, or `run: psql -f …`."
    if "CONCURRENTLY" in words and _is_concurrent(words):
        return f"{words[0]} … CONCURRENTLY", _CONCURRENTLY
    match words[:2]:
        case ("VACUUM", *_):
            return "VACUUM", _ALONE.format(example="psql -c VACUUM")
        case ("CREATE" | "DROP", "DATABASE" | "TABLESPACE" | "SUBSCRIPTION") | ("ALTER", "SYSTEM" | "SUBSCRIPTION"):
            return " ".join(words[:2]), _ALONE.format(example="psql -c …")
        case ("ALTER", "DATABASE") if "TABLESPACE" in words[2:]:
            return "ALTER DATABASE … SET TABLESPACE", _ALONE.format(example="psql -c …")
        case ("REINDEX", *_) if not {"DATABASE", "SYSTEM"}.isdisjoint(words[1:]):
            return "REINDEX of a whole database", _ALONE.format(example="reindexdb")
        case ("DISCARD", "ALL"):
            return "DISCARD ALL", "It would discard the transaction itself: remove it."
    return _judge_transaction(words)


def _is_concurrent(words: tuple[str, ...]) -> bool:
    """A view may be refreshed concurrently inside a transaction; an index or a partition may not."""
    match words[0]:
        case "CREATE" | "DROP":
            return "INDEX" in words[1:3]
        case "ALTER":
            return "DETACH" in words
        case other:
            return other == "REINDEX"

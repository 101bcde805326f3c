"""list_files and search: which files there are, and where in them something stands."""

from __future__ import annotations

import stat
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from acode.agent.context import Context
from acode.agent.permission import may_be_shown
from acode.agent.tool_schemas import ListFiles, Search
from acode.agent.tools.interface import Answer, looked, raise_if_of_the_machine, refused, root_of, text_in, why
from acode.agent.tools.tree import ENTRIES_MAX, Names, Walk
from acode.disk.own_files import describe_kind
from acode.errors import AcodeError, UnsafePath
from acode.events import types as ev
from acode.library.declarations import Begun
from acode.workspace import read_file, visible

LISTED_FILES_MAX = 1_000
LISTED_BYTES_MAX = 32_768
MATCHES_MAX = 200
FOUND_BYTES_MAX = 32_768
LINE_CHARACTERS_MAX = 300
SEARCHED_FILE_BYTES_MAX = 4 * 1_048_576
SEARCHED_BYTES_MAX = 256 * 1_048_576
REGEX_MEMORY_BYTES_MAX = 16 * 1_048_576


# list_files.


def list_files(context: Context, begun: Begun, asked: ListFiles) -> Answer:
    walk = Walk(root_of(context), asked.path)
    try:
        names = Names(asked.pattern, asked.path)
        listed, room, more = list[str](), LISTED_BYTES_MAX, False
        for entry in walk.files():
            if not names(entry.path):
                continue
            kind = "" if stat.S_ISREG(entry.mode) else f" ({describe_kind(entry.mode)})"
            line = visible(entry.path) + kind
            room -= len(line.encode()) + 1
            if len(listed) >= LISTED_FILES_MAX or room < 0:
                more = True
                break
            listed.append(line)
    except (UnsafePath, OSError) as error:
        return refused(context, begun, why(error, asked.path))
    except ValueError as error:
        return looked(context, begun, bad_pattern(asked.pattern, error))
    notes = [f"{len(listed):,} shown, there are more: name a path or a pattern"] if more else []
    text = "\n".join([*listed, *in_brackets([*notes, *left_out(walk)])])
    return looked(context, begun, Answer(text=text or "[no files]"))


def bad_pattern(pattern: str, error: Exception) -> Answer:
    return Answer(text=f"The pattern {pattern!r} cannot be used: {error}.", error=True, malformed=True)


def left_out(walk: Walk) -> list[str]:
    notes = [f"{walk.ignored:,} ignored by git"] if walk.ignored else []
    notes += [f"{len(walk.unreadable):,} directories cannot be read"] if walk.unreadable else []
    return notes if walk.complete else [*notes, f"only the first {ENTRIES_MAX:,} entries were looked at"]


def in_brackets(notes: list[str]) -> list[str]:
    return [f"[{'; '.join(notes)}]"] if notes else []


# search.


class Results:
    """The matches, up to the limits."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown_bytes = 0
        self.files: list[ev.FileState] = []
        self.read_bytes = 0
        self.withheld = 0  # files that may not be read without asking
        self.not_text = 0  # binary, or too large

    @property
    def full(self) -> bool:
        return len(self.lines) >= MATCHES_MAX or self.shown_bytes >= FOUND_BYTES_MAX

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.shown_bytes += len(line.encode()) + 1

    def notes(self) -> list[str]:
        notes = [f"the first {len(self.lines)} matches; there may be more"] if self.full else []
        notes += [f"stopped after {SEARCHED_BYTES_MAX:,} bytes"] if self.read_bytes > SEARCHED_BYTES_MAX else []
        notes += [f"{self.withheld:,} files may not be read without asking"] if self.withheld else []
        return notes + ([f"{self.not_text:,} binary or large files not searched"] if self.not_text else [])


class Wanted(NamedTuple):
    holds: Callable[[str], bool]
    names: Names


def search(context: Context, begun: Begun, asked: Search) -> Answer:
    try:
        wanted = Wanted(test_of(asked), Names(asked.pattern, asked.path))
    except ValueError as error:
        return looked(context, begun, bad_pattern(asked.text if asked.regex else asked.pattern, error))
    walk, results = Walk(root_of(context), asked.path), Results()
    tools = context.world.config.settings.tools
    try:
        for entry in walk.files():
            if not stat.S_ISREG(entry.mode) or not wanted.names(entry.path):
                continue
            if may_be_shown(entry.path, tools):
                search_file(context, entry.path, wanted.holds, results)
            else:
                results.withheld += 1
            if results.full or results.read_bytes > SEARCHED_BYTES_MAX:
                break
    except (UnsafePath, OSError) as error:
        return refused(context, begun, why(error, asked.path))
    found = results.lines or ["[nothing found]"]
    text = "\n".join([*found, *in_brackets([*results.notes(), *left_out(walk)])])
    return looked(context, begun, Answer(text=text), *results.files)


def search_file(context: Context, path: str, holds: Callable[[str], bool], results: Results) -> None:
    try:
        data, state = read_file(root_of(context), path, SEARCHED_FILE_BYTES_MAX)
    except (AcodeError, OSError) as error:
        raise_if_of_the_machine(error)
        results.not_text += 1
        return
    results.read_bytes += len(data)
    text = text_in(data)
    if text is None:
        results.not_text += 1
        return
    before = len(results.lines)
    for number, line in enumerate(text.split("\n"), start=1):
        if holds(line):
            results.add(f"{visible(path)}:{number}: {line.rstrip()[:LINE_CHARACTERS_MAX]}")
            if results.full:
                break
    if len(results.lines) > before:
        results.files.append(state)


def test_of(asked: Search) -> Callable[[str], bool]:
    """Whether a line is one of those; ValueError where the regular expression is none."""
    if asked.regex:
        return partial(_found_by, compiled(asked.text, ignore_case=asked.ignore_case))
    if asked.ignore_case:
        needle = asked.text.casefold()
        return lambda line: needle in line.casefold()
    return lambda line: asked.text in line


def _found_by(regex: Callable[[str], object], line: str) -> bool:
    return regex(line) is not None


def compiled(pattern: str, *, ignore_case: bool) -> Callable[[str], object]:
    """A regular expression that takes linear time: an expression of a model may be meant to take forever."""
    try:
        import re2
    except ImportError:
        raise ValueError(
            'regular expressions need the extra re2 (pip install "acode-cli[re2]"); search for plain text'
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGEX_MEMORY_BYTES_MAX
    options.case_sensitive = not ignore_case
    try:
        found: Callable[[str], object] = re2.compile(pattern, options).search
    except re2.error as error:
        said = error.args[0] if error.args else error
        raise ValueError(said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)) from None
    return found

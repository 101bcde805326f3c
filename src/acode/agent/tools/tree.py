"""The files of the workspace in one order, less what git ignores and what belongs to git and to acode.

Links are named and never followed. How much is looked at has a limit: a workspace may be anything.
"""

from __future__ import annotations

import stat
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from pathspec import GitIgnoreSpec

from acode.agent.tools.interface import raise_if_of_the_machine
from acode.disk.path_names import below, parent_of
from acode.errors import AcodeError, UnsafePath
from acode.workspace import Root, look, read_file
from acode.workspace.files import TEMP_PREFIX
from acode.workspacepath import OWN_DIRECTORY

ENTRIES_MAX = 100_000
IGNORE_BYTES_MAX = 262_144
NOT_SHOWN = (".git", OWN_DIRECTORY)

Rules = tuple[tuple[str, GitIgnoreSpec], ...]  # the directory that a set of ignore rules stands in, outermost first


class Entry(NamedTuple):
    path: str
    mode: int


class Walk:
    """One look through a part of the workspace; what was left out is counted."""

    def __init__(self, root: Root, start: str) -> None:
        self.root = root
        self.start = start
        self.entries = 0
        self.cut = False  # a directory had more entries than are looked at
        self.ignored = 0
        self.unreadable: list[str] = []

    @property
    def complete(self) -> bool:
        return not self.cut and self.entries < ENTRIES_MAX

    def files(self) -> Iterator[Entry]:
        """Everything but directories, sorted by path; UnsafePath or OSError where the start cannot be looked at."""
        found = look(self.root, self.start) if self.start != "." else None
        if self.start != "." and found is None:
            raise FileNotFoundError(self.start)
        if found is not None and not stat.S_ISDIR(found.st_mode):
            yield Entry(self.start, found.st_mode)
            return
        outermost = (*self._rules_above(), *self._rules_in(self.start))
        waiting = [(child, outermost) for child in reversed(self._children(self.start))]
        while waiting and self.entries < ENTRIES_MAX:
            entry, rules = waiting.pop()
            self.entries += 1
            is_directory = stat.S_ISDIR(entry.mode)
            if ignored(entry.path, is_directory, rules):
                self.ignored += 1
            elif not is_directory:
                yield entry
            else:
                waiting += self._inside(entry.path, rules)

    def _inside(self, directory: str, rules: Rules) -> list[tuple[Entry, Rules]]:
        try:
            children = self._children(directory)
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            return []  # gone, or swapped for something else, since its name was read
        except OSError as error:
            raise_if_of_the_machine(error)
            self.unreadable.append(directory)
            return []
        own = (*rules, *self._rules_in(directory))
        return [(child, own) for child in reversed(children)]

    def _children(self, directory: str) -> list[Entry]:
        found: list[Entry] = []
        with self.root.directory(directory) as opened:
            names = opened.names()
            self.cut = self.cut or len(names) > ENTRIES_MAX
            for name in names[:ENTRIES_MAX]:
                if name.casefold() in NOT_SHOWN or name.startswith(TEMP_PREFIX):
                    continue
                there = opened.stat(name)
                if there is not None:
                    found.append(Entry(below(directory, name), there.st_mode))
        return found

    def _rules_above(self) -> Rules:
        """The ignore rules that hold for the start: the repository's own, and those of the directories above it."""
        rules = self._read(".git/info/exclude", ".")
        if self.start == ".":
            return rules
        names = self.start.split("/")
        for depth in range(len(names)):
            rules += self._rules_in("/".join(names[:depth]) or ".")
        return rules

    def _rules_in(self, directory: str) -> Rules:
        return self._read(below(directory, ".gitignore"), directory)

    def _read(self, path: str, directory: str) -> Rules:
        try:
            data, _ = read_file(self.root, path, IGNORE_BYTES_MAX)
        except (AcodeError, OSError) as error:
            raise_if_of_the_machine(error)
            return ()  # none, or none that can be read: then nothing is ignored by it
        return ((directory, rules_in(data.decode("utf-8", "replace").splitlines())),)


def spec_of(lines: list[str]) -> GitIgnoreSpec:
    """Patterns as git understands them; ValueError where one of them is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a strange pattern may mean to another Python is no concern of the user's
        try:
            return GitIgnoreSpec.from_lines(lines)
        except ValueError:
            raise
        except Exception as error:  # of whichever engine for regular expressions pathspec has found
            raise ValueError(str(error)) from error


def rules_in(lines: list[str]) -> GitIgnoreSpec:
    """Like git, without the lines that are no pattern."""
    try:
        return spec_of(lines)
    except ValueError:
        return spec_of([line for line in lines if _is_pattern(line)])


def _is_pattern(line: str) -> bool:
    try:
        spec_of([line])
    except ValueError:
        return False
    return True


def ignored(path: str, is_directory: bool, rules: Rules) -> bool:
    """The result of the last matching rule among the innermost rules that match the path."""
    verdict = False
    for directory, spec in rules:
        inside = path if directory == "." else path[len(directory) + 1 :]
        said = spec.check_file(f"{inside}/" if is_directory else inside).include
        verdict = verdict if said is None else said
    return verdict


class Names:
    """Which files are asked for: all, or those whose path below the start fits a pattern like those of .gitignore."""

    def __init__(self, pattern: str, start: str) -> None:
        self._spec = spec_of([pattern]) if pattern else None
        self._start = start

    def __call__(self, path: str) -> bool:
        if self._spec is None:
            return True
        if path == self._start:  # the start is a file
            return self._spec.match_file(path.removeprefix(f"{parent_of(path)}/"))
        return self._spec.match_file(path if self._start == "." else path[len(self._start) + 1 :])

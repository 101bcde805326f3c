"""Find the files at the paths that a step declares as its outputs.

A pattern is a glob from the workspace's root: `build/**`, `*.o` for the top level, `**/*.o` for all levels; a
directory's name stands for all that is in it, and `!` takes paths out again. Ignore rules do not count: a .env that is
matched is an output. Repositories inside the workspace are plain files. Never matched are acode's own directory, the
workspace's own .git (a rollback must not undo a person's commits), and files being written by acode.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from acode.disk.open_beneath import Root
from acode.disk.path_names import below, is_acodes_own, parent_of
from acode.errors import UnsafePath
from acode.workspace.files import TEMP_PREFIX

_GLOB = frozenset("*?[\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The paths in order. Incomplete: there were more than the limit, or a directory could not be read."""

    paths: tuple[str, ...]
    complete: bool
    unreadable: tuple[str, ...] = ()


def matching_paths(
    root: Root, patterns: Sequence[str], *, paths_max: int | None = None, empty: bool = False
) -> Listing:
    """Every path that the patterns match now, and the directories above it; at most so many, where that is enough.

    `empty`: also the empty directories in which a match could come to stand. Recorded before a step, they distinguish
    its new directories from those that existed and were empty.
    """
    matches = Patterns(patterns)
    found: set[str] = set()
    unreadable: list[str] = []
    waiting = ["."]
    while waiting:
        directory = waiting.pop()
        try:
            entries = list(_entries(root, directory))
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            continue  # gone, or swapped for something else, since its name was read
        except OSError:
            unreadable.append(directory)
            continue
        if empty and not entries and directory != ".":
            _add_with_parents(found, directory)
        for rel, is_directory in entries:
            if matches(rel, is_directory):
                _add_with_parents(found, rel)
            if is_directory and matches.may_lie_in(rel):
                waiting.append(rel)
        if paths_max is not None and len(found) > paths_max:
            break
    complete = (paths_max is None or len(found) <= paths_max) and not unreadable
    return Listing(paths=tuple(sorted(found)[:paths_max]), complete=complete, unreadable=tuple(unreadable))


def outputs_in(patterns: Sequence[str]) -> list[str]:
    """The directories of the outputs, as far as the patterns spell them out: each of these, or the nearest above it."""
    return [".", *Patterns(patterns).literal_directories()] if patterns else []


class Patterns:
    """Declared outputs as one test."""

    def __init__(self, patterns: Iterable[str]) -> None:
        from pathspec import PathSpec  # takes longer to import than most commands take to run

        anchored = [_anchored(pattern) for pattern in patterns]
        self._spec = PathSpec.from_lines("gitignore", anchored)
        self._prefixes = [_literal_prefix(pattern) for pattern in anchored if not pattern.startswith("!")]

    def __call__(self, rel: str, is_directory: bool = False) -> bool:
        if is_acodes_own(rel) or rel.split("/", 1)[0].casefold() == ".git":
            return False
        return self._spec.match_file(f"{rel}/" if is_directory else rel)

    def may_lie_in(self, directory: str) -> bool:
        """Whether it is worth looking into the directory."""
        if is_acodes_own(directory) or directory.casefold() == ".git":
            return False
        names = tuple(directory.split("/"))
        return any(names[: len(prefix)] == prefix[: len(names)] for prefix in self._prefixes)

    def literal_directories(self) -> Iterator[str]:
        """The directories that the patterns name in so many words; where one is missing, a step may make it."""
        for prefix in self._prefixes:
            for length in range(1, len(prefix) + 1):
                yield "/".join(prefix[:length])


def _anchored(pattern: str) -> str:
    negated, plain = (pattern[:1] == "!", pattern.removeprefix("!"))
    plain = plain.removeprefix("./")
    return ("!" if negated else "") + (plain if plain.startswith(("/", "**/")) else f"/{plain}")


def _literal_prefix(anchored: str) -> tuple[str, ...]:
    names: list[str] = []
    for name in anchored.strip("/").split("/"):
        if _GLOB & set(name):
            break
        names.append(name)
    return tuple(names)


def _entries(root: Root, rel: str) -> Iterator[tuple[str, bool]]:
    with root.directory(rel) as directory:
        for name in directory.names():
            if name.startswith(TEMP_PREFIX):
                continue
            found = directory.stat(name)
            if found is not None:
                yield below(rel, name), stat.S_ISDIR(found.st_mode)


def _add_with_parents(found: set[str], rel: str) -> None:
    while rel != "." and rel not in found:
        found.add(rel)
        rel = parent_of(rel)

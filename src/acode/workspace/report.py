"""The report about changed files, for a person's decision: a recommendation, and the difference itself.

Text from files is shown with its control characters spelled out, so it can neither steer the terminal nor hide.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

import msgspec

from acode.disk.open_beneath import Root
from acode.disk.own_files import describe_kind
from acode.disk.path_names import visible
from acode.workspace.files import CHUNK_BYTES, look, open_regular
from acode.workspace.manifest import ChangedFile

DIFF_FILE_BYTES_MAX = 1_048_576
DIFF_COMPARED_LINES_MAX = 2_000
DIFF_LINES_MAX = 500
DIFF_LINE_CHARACTERS_MAX = 400


class SuspiciousFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    patterns: tuple[str, ...]


class IntegrityReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the files that the session read or wrote."""

    total_files: int
    changed_files: tuple[ChangedFile, ...]
    suspicious_files: tuple[SuspiciousFile, ...]
    recommendation: str


def integrity_report(total_files: int, changes: Sequence[ChangedFile]) -> IntegrityReport:
    suspicious = tuple(
        SuspiciousFile(path=change.path, patterns=change.suspicious) for change in changes if change.suspicious
    )
    return IntegrityReport(
        total_files=total_files,
        changed_files=tuple(changes),
        suspicious_files=suspicious,
        recommendation=_recommendation(len(changes), suspicious),
    )


def _recommendation(changes: int, suspicious: tuple[SuspiciousFile, ...]) -> str:
    if suspicious:
        first = suspicious[0]
        return (
            f"Do not continue before you have read {_files(len(suspicious))} with suspicious content, "
            f"first {visible(first.path)} ({', '.join(first.patterns)})."
        )
    if changes:
        return f"Look at {_files(changes)} that changed; continue only if the changes are yours."
    return "Nothing changed; continue."


def _files(count: int) -> str:
    return "the file" if count == 1 else f"the {count:,} files"


def diff(root: Root, rel: str, old: bytes) -> str:
    """The difference between the bytes that the session knows and the file as it is, for a person to read."""
    found = look(root, rel)
    if found is None:
        return difference(rel, old, b"", before="recorded", after="deleted")
    if not stat.S_ISREG(found.st_mode):
        return f"{visible(rel)}: {describe_kind(found.st_mode)} stands there now\n"
    with root.at(rel) as (directory, name), open_regular(directory, name) as (descriptor, found):
        if max(found.st_size, len(old)) > DIFF_FILE_BYTES_MAX:
            return f"{visible(rel)}: too large to compare, {len(old):,} bytes before, {found.st_size:,} now\n"
        return difference(rel, old, _read(descriptor, DIFF_FILE_BYTES_MAX), before="recorded", after="now")


def _read(descriptor: int, bytes_max: int) -> bytes:
    data = b""
    while len(data) < bytes_max and (chunk := os.read(descriptor, min(CHUNK_BYTES, bytes_max - len(data)))):
        data += chunk
    return data


def difference(rel: str, old: bytes, new: bytes, *, before: str, after: str) -> str:
    """A unified diff of two contents of a file; `before` and `after` say of which moments."""
    if b"\0" in old or b"\0" in new:
        return f"{visible(rel)}: binary, {len(old):,} bytes before, {len(new):,} {after}\n"
    name = visible(rel)
    lines = _unified(_lines(old), _lines(new), f"{name} ({before})", f"{name} ({after})")
    return "".join(f"{line}\n" for line in _bounded(lines))


def _lines(data: bytes) -> list[str]:
    """Only a line feed ends a line; the missing one at the end, like a carriage return, is part of the difference."""
    lines = [visible(line).replace("\\x09", "\t") for line in data.decode("utf-8", "replace").split("\n")]
    if lines[-1] == "":
        lines.pop()
    elif lines:
        lines[-1] += "  (no line feed at the end)"
    return lines


def _unified(old: list[str], new: list[str], old_name: str, new_name: str) -> Iterable[str]:
    shorter = min(len(old), len(new))
    same = next((number for number in range(shorter) if old[number] != new[number]), shorter)
    rest_old, rest_new = old[same:], new[same:]
    if max(len(rest_old), len(rest_new)) <= DIFF_COMPARED_LINES_MAX:
        import difflib

        return difflib.unified_diff(old, new, old_name, new_name, lineterm="")
    # The exact comparison takes the product of the lengths: for long files all that follows counts as replaced.
    header = [f"--- {old_name}", f"+++ {new_name}", f"@@ from line {same + 1} @@"]
    half = DIFF_LINES_MAX // 2
    return [*header, *(f"-{line}" for line in rest_old[:half]), *(f"+{line}" for line in rest_new)]


def _bounded(lines: Iterable[str]) -> Iterable[str]:
    for number, line in enumerate(lines):
        if number == DIFF_LINES_MAX:
            yield f"… cut after {DIFF_LINES_MAX} lines"
            return
        yield line if len(line) <= DIFF_LINE_CHARACTERS_MAX else f"{line[:DIFF_LINE_CHARACTERS_MAX]}…"

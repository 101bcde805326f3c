"""What an installation changed in an agent's files, so that it can be taken out again byte for byte.

Only the bytes that were replaced are recorded, never a copy of the file: an agent's settings may hold a key. The record
is written before the first change, so that a crash leaves a file as it was or one that the record knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from acode.disk.private_files import write_private
from acode.errors import AgentSettingsUnusable
from acode.observed.setup.config_file import Scope

FILE_BYTES_MAX = 16 * 1024 * 1024


class Splice(msgspec.Struct, frozen=True, kw_only=True):
    """At this character, these were replaced by those."""

    at: int
    removed: str
    inserted: str


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    existed: bool
    made_directories: tuple[str, ...] = ()  # the innermost first
    after: str  # digest of the text with acode's settings
    splices: tuple[Splice, ...]
    replaced: str | None = None  # the user's own value that has no place in the file meanwhile


class InstallRecord(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    agent: str
    scope: Scope
    project: str = ""  # empty for the user
    files: tuple[ChangedFile, ...]

    def of(self, path: Path) -> ChangedFile | None:
        return next((one for one in self.files if one.path == str(path)), None)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def splice(before: str, after: str) -> Splice:
    """The one stretch in which two texts differ."""
    start, shorter = 0, min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return Splice(at=start, removed=before[start : len(before) - end], inserted=after[start : len(after) - end])


def take_out(text: str, changed: ChangedFile) -> str:
    """The text as it was; only for one with the recorded digest."""
    for one in reversed(changed.splices):
        end = one.at + len(one.inserted)
        assert text[one.at : end] == one.inserted
        text = text[: one.at] + one.removed + text[end:]
    return text


# Where records are kept.


def record_path(directory: Path, agent: str, scope: Scope, project: Path) -> Path:
    place = "user" if scope == "user" else hashlib.sha256(str(project).encode()).hexdigest()[:16]
    return directory / "installed" / f"{agent}-{place}.json"


def load(path: Path) -> InstallRecord | None:
    """None where there is none; a damaged one is like none, and settings are found by their looks. A disk that fails
    now is an error: by looks alone a value of the user's own would not come back."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=InstallRecord)
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return None
    except OSError as error:
        raise AgentSettingsUnusable(f"{path} cannot be read: {error.strerror}") from error


def save(path: Path, record: InstallRecord) -> None:
    write_private(path, msgspec.json.encode(record))


def all_records(directory: Path) -> Iterator[InstallRecord]:
    for path in _places(directory):
        found = load(path)
        if found is not None:
            yield found


def any_installed(directory: Path) -> bool:
    """A damaged record counts: the agent that it was made for may still be told to use acode's programs."""
    return bool(_places(directory))


def _places(directory: Path) -> list[Path]:
    return sorted((directory / "installed").glob("*.json"))

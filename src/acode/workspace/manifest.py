"""Which of the files that a session read or wrote are no longer what it left.

A stat proves that a file is unchanged where it can; only the rest is hashed. Nothing here changes a file, and nothing
is left out: running out of time is an error, not a shorter list.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from acode.disk.open_beneath import Directory, Root
from acode.disk.own_files import describe_kind
from acode.disk.path_names import parts_of, visible
from acode.errors import EnvironmentInvalid, UnsafePath
from acode.events.types import FileState
from acode.workspace.files import same_stat, state_at
from acode.workspace.suspicious_text import PatternSearch

_DEADLINE_EVERY_FILES = 256


class ChangedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that somebody else changed; `suspicious` is a hint for the person who looks at it.

    Equal hashes: only what kind of thing it is, or whether it can be executed, changed. `found_hash` None with a file
    that was not deleted: it cannot be read, or has no bytes.
    """

    path: str
    change: Literal["modified", "deleted", "created"]
    modified_at: str | None
    expected_hash: str | None
    found_hash: str | None
    suspicious: tuple[str, ...] = ()
    session_id: str | None = None  # another session of this workspace changed it, by the step named next
    step: str | None = None


def changed(
    root: Root, manifest: Mapping[str, FileState], *, deadline: Callable[[], bool] = lambda: False
) -> tuple[ChangedFile, ...]:
    """The files that changed since they were recorded, in order; `deadline` answers whether the time is over."""
    found: list[ChangedFile] = []
    search = PatternSearch()

    def each_chunk(chunk: bytes) -> None:
        search.feed(chunk)
        if deadline():
            raise _out_of_time(len(manifest))

    for recorded, now in _differing_stats(root, manifest, deadline, each_chunk):
        patterns = search.take()
        change = _change(recorded, now, patterns)
        if change is not None:
            found.append(change)
    return tuple(sorted(found, key=lambda change: change.path))


def restat(root: Root, manifest: Mapping[str, FileState]) -> tuple[FileState, ...]:
    """The entries to record again after a step, because the file or only its stat changed.

    The step touched the content only where `sha256` or `mode` differ from the manifest's. An entry that was too fresh
    to be proved by its stat comes back as soon as the stat proves it, so it is hashed once more and not every time.
    """
    differing = _differing_stats(root, manifest, lambda: False, lambda chunk: None)
    return tuple(
        now
        for recorded, now in differing
        if msgspec.structs.replace(now, ctime_ns=recorded.ctime_ns) != recorded or now.ctime_ns
    )


def _differing_stats(
    root: Root,
    manifest: Mapping[str, FileState],
    deadline: Callable[[], bool],
    each_chunk: Callable[[bytes], object],
) -> Iterator[tuple[FileState, FileState]]:
    """The entries that their stat does not prove, each with the present file.

    One directory is opened for all its files: that is quick, and none of them is reached through a link.
    """
    checked = 0
    for parent, entries in _by_directory(manifest).items():
        directory = _directory(root, parent)
        try:
            for name, recorded in entries:
                checked += 1
                if checked % _DEADLINE_EVERY_FILES == 0 and deadline():
                    raise _out_of_time(len(manifest), checked)
                now = _now(directory, name, recorded, each_chunk)
                if now is not None:
                    yield recorded, now
        finally:
            if directory is not None:
                directory.close()


def _by_directory(manifest: Mapping[str, FileState]) -> dict[str, list[tuple[str, FileState]]]:
    grouped: dict[str, list[tuple[str, FileState]]] = {}
    for path, recorded in tuple(manifest.items()):  # at once: another step in flight may add to it meanwhile
        parent, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            parts_of(path)  # says what is wrong with it; the directory is checked when it is opened
        grouped.setdefault(parent or ".", []).append((name, recorded))
    return grouped


def _directory(root: Root, rel: str) -> Directory | None:
    try:
        return root.directory(rel)
    except (FileNotFoundError, NotADirectoryError, UnsafePath):
        return None  # the files that were in it are gone: what a link points to are others
    except OSError as error:
        raise EnvironmentInvalid(f"the directory {visible(rel)} cannot be read: {error.strerror}", path=rel) from error


def _now(
    directory: Directory | None, name: str, recorded: FileState, each_chunk: Callable[[bytes], object]
) -> FileState | None:
    """The present file; None: the stat proves that it is the recorded one."""
    found = None if directory is None else directory.stat(name)
    if directory is None or found is None:
        return None if recorded.sha256 is None else FileState(path=recorded.path)
    if recorded.sha256 is not None and same_stat(recorded, found):
        return None
    try:
        return state_at(directory, name, recorded.path, each_chunk=each_chunk)
    except (OSError, UnsafePath):
        # It cannot be read, or turned into something else just now. It exists, and its content is not known.
        return FileState(path=recorded.path, sha256="", mode=found.st_mode, mtime_ns=found.st_mtime_ns)


def _change(recorded: FileState, now: FileState, patterns: tuple[str, ...]) -> ChangedFile | None:
    hints = (*patterns, *_hints(recorded, now))
    if recorded.sha256 == now.sha256 and not _hints(recorded, now):
        return None
    change: Literal["modified", "deleted", "created"] = "modified"
    if now.sha256 is None:
        change = "deleted"
    elif recorded.sha256 is None:
        change = "created"
    return ChangedFile(
        path=recorded.path,
        change=change,
        modified_at=_describe(now.mtime_ns) if now.mtime_ns else None,
        expected_hash=recorded.sha256,
        found_hash=now.sha256 or None,
        suspicious=hints,
    )


def _hints(recorded: FileState, now: FileState) -> tuple[str, ...]:
    """Changes that the hash does not show: another kind of file, or an executable one."""
    if now.sha256 is None:
        return ()
    if stat.S_IFMT(now.mode):
        if recorded.sha256 is not None and stat.S_IFMT(recorded.mode) == stat.S_IFMT(now.mode):
            return ()
        return (describe_kind(now.mode) if not stat.S_ISREG(now.mode) else "unreadable",)
    if recorded.sha256 and not stat.S_IFMT(recorded.mode) and (now.mode & 0o111) and not (recorded.mode & 0o111):
        return ("made executable",)
    return ()


def _describe(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).replace(microsecond=time_ns % 1_000_000_000 // 1000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _out_of_time(total: int, checked: int | None = None) -> EnvironmentInvalid:
    so_far = "" if checked is None else f" after {checked:,} of {total:,} files"
    return EnvironmentInvalid(
        f"the check of the workspace ran out of time{so_far}",
        hint="Raise resume.validation_timeout_seconds in .agent/config.yml, or resume with --skip-validation.",
        checked=checked,
        total=total,
    )

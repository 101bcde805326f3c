"""Evidence about a call that was in flight: files, processes, git. Nothing is run or changed.

Each look is one function of (call, effect, session, scene), in the tuple `LOOKS`: another source of evidence is another
function there. A look that finds nothing is no evidence; the outcome of a call is `unknown` without evidence.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from acode.disk.own_files import describe_kind
from acode.observed.processes import Processes, Running
from acode.observed.session import (
    CallInFlight,
    Command,
    Delete,
    Edit,
    Effect,
    Evidence,
    ObservedSession,
    Other,
    Outcome,
    Reads,
    Write,
)
from acode.workspace import git_state

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
NAMED_FILES_MAX: Final = 10
NAMED_PROCESSES_MAX: Final = 5
STATUS_ENTRIES_MAX: Final = 20_000
WORDS_CHARS_MAX: Final = 120
FINE_SECONDS: Final = 0.02  # by which the kernel's clock for files may be behind
COARSE_SECONDS: Final = 2.0
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


@dataclass(slots=True)
class Scene:
    """The world as it is looked at once: all processes, and what git says of each directory."""

    processes: Processes = field(default_factory=Processes)
    git_changes: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def changes(self, directory: str) -> tuple[str, ...] | None:
        """The files that git finds changed or new; None where there is no repository, or git does not answer."""
        if directory not in self.git_changes:
            self.git_changes[directory] = _git_changes(directory)
        return self.git_changes[directory]


def evidence_of(call: CallInFlight, session: ObservedSession, scene: Scene) -> tuple[Evidence, ...]:
    return tuple(found for effect in call.effects for look in LOOKS for found in look(call, effect, session, scene))


def outcome_of(found: Iterable[Evidence]) -> Outcome:
    """The outcome by all evidence together. Evidence that shows no outcome (git's list of files) does not count."""
    said = {one.outcome for one in found if one.kind != "git"}
    if "running" in said:
        return "running"
    if not said or "unknown" in said:
        return "unknown"
    if len(said - {"no_effect"}) > 1 or "partial" in said:
        return "partial"
    return next(iter(said - {"no_effect"}), "no_effect")


def traces_since(session: ObservedSession, scene: Scene) -> tuple[Evidence, ...]:
    """For an agent that names no call in flight: whatever began or changed since its last message."""
    since = session.last_message_at
    if since is None or not session.directory:
        return ()
    begun = scene.processes.begun_in(session.directory, since)
    found = [_running(one, "began after the last message in this directory") for one in begun]
    return (*found[:NAMED_PROCESSES_MAX], *_changed(session.directory, since, scene, "the last message"))


# The looks.


def look_at_arguments(
    call: CallInFlight, effect: Effect, _session: ObservedSession, _scene: Scene
) -> Iterator[Evidence]:
    if isinstance(effect, Reads):
        yield Evidence(
            kind="arguments", outcome="no_effect", text=f"{call.tool} only reads: repeating it changes nothing"
        )
    elif isinstance(effect, Other) and effect.reason:
        yield Evidence(kind="arguments", outcome="unknown", text=effect.reason)


def look_at_file(call: CallInFlight, effect: Effect, session: ObservedSession, _scene: Scene) -> Iterator[Evidence]:
    if isinstance(effect, Write | Edit | Delete):
        path = os.path.join(session.directory, effect.path)
        if not os.path.isabs(path):
            yield _of_file("unknown", f"{effect.path}: the transcript does not say where it lies")
            return
        try:
            yield _judge(path, effect, call.at)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            yield _of_file("unknown", f"{effect.path} cannot be read: {reason}")


def look_at_processes(call: CallInFlight, effect: Effect, session: ObservedSession, scene: Scene) -> Iterator[Evidence]:
    if isinstance(effect, Command):
        where = os.path.join(session.directory, effect.directory) if effect.directory else session.directory
        for one in scene.processes.like(effect.text, call.at, where)[:NAMED_PROCESSES_MAX]:
            yield _running(one, "looks like this command")


def look_at_git(call: CallInFlight, effect: Effect, session: ObservedSession, scene: Scene) -> Iterator[Evidence]:
    if isinstance(effect, Command | Other) and session.directory and call.at is not None:
        yield from _changed(session.directory, call.at, scene, "the call began")


LOOKS: Final = (look_at_arguments, look_at_file, look_at_processes, look_at_git)


# Files.


def _of_file(outcome: Outcome, text: str) -> Evidence:
    return Evidence(kind="file", outcome=outcome, text=text)


def _judge(path: str, effect: Write | Edit | Delete, at: datetime | None) -> Evidence:
    name = effect.path
    try:
        found = os.stat(path)  # a link is followed, as the agent would have; what it leads to must be a file
    except (FileNotFoundError, NotADirectoryError):
        gone: Outcome = "applied" if isinstance(effect, Delete) else "not_applied"
        return _of_file(gone, f"{name} does not exist")
    if not stat.S_ISREG(found.st_mode):
        return _of_file("unknown", f"{name} is {describe_kind(found.st_mode)}, not a file")
    if isinstance(effect, Delete):
        return _of_file("not_applied", f"{name} still exists")
    if isinstance(effect, Write):
        return _judge_write(path, found, effect, at)
    return _judge_edit(path, found, effect, at)


def _judge_write(path: str, found: os.stat_result, effect: Write, at: datetime | None) -> Evidence:
    wanted = effect.content.encode("utf-8", "surrogatepass")
    if found.st_size == len(wanted) and _content(path, len(wanted)) == wanted:
        return _of_file("applied", f"{effect.path} holds exactly the call's {len(wanted):,} bytes")
    words = f"{effect.path} holds other bytes than the call's ({found.st_size:,}, not {len(wanted):,})"
    if _is_older(found, at):
        return _of_file("not_applied", f"{words} and is unchanged since before the call")
    return _of_file("unknown", f"{words}; it was changed {_when(found)}")


def _judge_edit(path: str, found: os.stat_result, effect: Edit, at: datetime | None) -> Evidence:
    if found.st_size > FILE_BYTES_MAX:
        words = f"{effect.path} has {found.st_size:,} bytes, too many to be compared"
        return _of_file("unknown", words)
    content = _content(path, found.st_size)
    said = {_judge_replacement(content, old, new) for old, new in effect.replacements}
    if said == {"applied"}:
        return _of_file("applied", f"{effect.path} holds the new text and not the old one")
    if said == {"not_applied"}:
        return _of_file("not_applied", f"{effect.path} still holds the old text and not the new one")
    if said == {"applied", "not_applied"}:
        return _of_file("partial", f"{effect.path} holds some of the new texts, not all")
    if _is_older(found, at):
        return _of_file("not_applied", f"{effect.path} is unchanged since before the call")
    words = f"{effect.path} does not show whether the edit was made; it was changed {_when(found)}"
    return _of_file("unknown", words)


def _judge_replacement(content: bytes, old: str, new: str) -> Outcome:
    """One text may contain the other: then the longer one decides."""
    before, after = old.encode("utf-8", "surrogatepass"), new.encode("utf-8", "surrogatepass")
    has_old, has_new = before in content, after in content
    if before in after:
        return "applied" if has_new else "not_applied" if has_old else "unknown"
    if after in before:  # a text was taken out; nothing but its absence can show that
        return "not_applied" if has_old else "unknown"
    if has_old is has_new:
        return "unknown"
    return "applied" if has_new else "not_applied"


def _content(path: str, size: int) -> bytes:
    """That many bytes of a regular file; never waits."""
    descriptor = os.open(path, _OPEN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is no regular file")
        pieces = []
        while size > 0 and (piece := os.read(descriptor, min(size, 1024 * 1024))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _is_older(found: os.stat_result, at: datetime | None) -> bool:
    """Changed before the call by both times: a process that sets one time back cannot set the change time back."""
    return at is not None and max(found.st_mtime, found.st_ctime) < at.timestamp() - 1.0


def _when(found: os.stat_result) -> str:
    return f"{datetime.fromtimestamp(found.st_mtime, UTC):%Y-%m-%d %H:%M:%SZ}"


# Processes and git.


def _running(one: Running, why: str) -> Evidence:
    words = one.line if len(one.line) <= WORDS_CHARS_MAX else one.line[: WORDS_CHARS_MAX - 1] + "…"
    text = f"pid {one.pid} still runs since {one.started_at:%Y-%m-%d %H:%M:%SZ} and {why}: {words or one.name}"
    return Evidence(kind="process", outcome="running", text=text, pid=one.pid)


def _changed(directory: str, since: datetime, scene: Scene, words: str) -> Iterator[Evidence]:
    changes = scene.changes(directory)
    if changes is None:
        return
    newer = [name for name in changes if _is_newer(os.path.join(directory, name), since)]
    if not newer:
        yield Evidence(kind="git", outcome="unknown", text=f"no file has changed since {words}, says git")
        return
    shown = ", ".join(newer[:NAMED_FILES_MAX])
    more = f" and {len(newer) - NAMED_FILES_MAX:,} more" if len(newer) > NAMED_FILES_MAX else ""
    yield Evidence(kind="git", outcome="unknown", text=f"changed since {words}, says git: {shown}{more}")


def _is_newer(path: str, since: datetime) -> bool:
    try:
        changed_ns = os.lstat(path).st_mtime_ns
        coarse = changed_ns % 1_000_000_000 == 0  # some file systems keep whole seconds
        return changed_ns / 1e9 >= since.timestamp() - (COARSE_SECONDS if coarse else FINE_SECONDS)
    except (OSError, ValueError):
        return True  # a file that is gone has no time; that git finds it missing is all there is


def _git_changes(directory: str) -> tuple[str, ...] | None:
    try:
        if not Path(directory).is_dir():
            return None
        found = git_state.look_at_files(Path(directory), "status", "--porcelain=v1", "-z", "--no-renames", "--", ".")
        top = git_state.look(Path(directory), "rev-parse", "--show-prefix")
    except (OSError, ValueError):
        return None
    if found is None or top is None or found[0] != 0 or top[0] != 0:
        return None
    prefix = top[1].decode("utf-8", "surrogateescape").rstrip("\n")
    names = [os.fsdecode(entry[3:]) for entry in found[1].split(b"\0")[:STATUS_ENTRIES_MAX] if len(entry) > 3]
    return tuple(os.path.relpath(name, prefix) if prefix else name for name in names)

"""What a kill would leave: while a program is stopped, the directory it works in is the state after a kill -9 there.

One traced run gives the states of all its stops, each distinct one once. A database's -shm file is copied with the
rest, but two states that differ only in it are one: SQLite makes it anew when nobody has the database open.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.crash.harness.ptracer import Ended, Stop, Work, trace
from tests.memory import memory

REBUILT_SUFFIX = "-shm"
SYNCING = frozenset({"fsync", "fdatasync", "sync", "syncfs"})
WRITING = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fallocate"})
LOOKS_MAX = 1_000
CLOCK_STANDS_NS = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, a directory (no content) or a symbolic link (its target)."""

    kind: Literal["file", "directory", "link"]
    mode: int
    content: bytes = b""
    modified_ns: int | None = None
    code: bytes = field(init=False, compare=False, repr=False)  # equal where kind, mode and content are

    def __post_init__(self) -> None:
        head = f"{self.kind}\0{self.mode:o}\0".encode()
        object.__setattr__(self, "code", hashlib.blake2b(head + self.content, digest_size=16).digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A directory's whole content by relative path."""

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, root: Path) -> Snapshot:
        return cls(entries=dict(_entries(os.fspath(root), "", _file)))

    @property
    def digest(self) -> bytes:
        """Equal for states that a later start cannot tell apart."""
        total = hashlib.blake2b(digest_size=16)
        for path in sorted(self.entries):
            if not path.endswith(REBUILT_SUFFIX):
                total.update(os.fsencode(path) + b"\0" + self.entries[path].code)
        return total.digest()

    def put(self, root: Path) -> None:
        """Make the directory this and nothing else; the directory itself stays, as somebody may stand in it."""
        _empty(root)
        for path in sorted(self.entries):
            _put(root / path, self.entries[path])
        for path in sorted(self.entries, reverse=True):  # last, or a closed directory could not be filled
            entry = self.entries[path]
            if entry.kind == "directory":
                os.chmod(root / path, entry.mode)

    def bytes_of(self, path: str) -> bytes | None:
        entry = self.entries.get(path)
        return None if entry is None else entry.content


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A file as it was read, and what the file system said of it then."""

    about: tuple[int, ...]
    entry: Entry


class Looks:
    """One look after the other at a directory; a file that has not changed since the last one is not read again.

    A file system marks a change with a clock that stands still for some milliseconds, so a file that was changed just
    before it was read may change once more and look the same: such a file is read again.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real_root = os.path.realpath(root)
        self._known: dict[str, Known] = {}

    def snapshot(self) -> Snapshot:
        return Snapshot(entries=dict(_entries(os.fspath(self.root), "", self._file)))

    def after(self, stop: Stop, before: Snapshot) -> Snapshot:
        """Only the program changes something here: where its call wrote to one file, the rest is as it was before."""
        if stop.name not in WRITING:
            return self.snapshot()
        written = stop.path()
        path = os.path.relpath(written, self._real_root)
        if path.startswith("../"):
            return before  # somewhere else, or to somebody
        known = before.entries.get(path)
        if known is None or known.kind != "file" or not os.path.exists(written):
            return self.snapshot()
        about = os.stat(written)
        return (
            Snapshot(entries={**before.entries, path: _file(written, about)})
            if about.st_nlink == 1
            else self.snapshot()
        )

    def at_rest(self) -> Snapshot:
        """Others write here: two looks that agree have seen one moment, and not a mixture of several."""
        before = None
        for _ in range(LOOKS_MAX):
            try:
                now = self.snapshot()
            except FileNotFoundError:  # gone between its name and its content
                continue
            if before is not None and now.digest == before.digest:
                return now
            before = now
        raise AssertionError(f"{self.root} did not come to rest in {LOOKS_MAX} looks")

    def _file(self, path: str, about: os.stat_result) -> Entry:
        now_ns = time.time_ns()
        facts = (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        known = self._known.get(path)
        if known is not None and known.about == facts:
            return known.entry
        entry = _file(path, about)
        if not path.endswith(REBUILT_SUFFIX) and now_ns - about.st_ctime_ns > CLOCK_STANDS_NS:
            self._known[path] = Known(about=facts, entry=entry)  # a -shm file is changed in memory, without a mark
        return entry


class Laid:
    """A directory in which one state after the other is laid; what is known to lie there already is not written again.

    Files that begin with `rewritten` are always laid anew, because reading them may change them.
    """

    def __init__(self, root: Path, rewritten: str) -> None:
        self.root = root
        self._rewritten = rewritten
        self._known: dict[str, Entry] | None = None

    def lay(self, wanted: Mapping[str, Entry]) -> None:
        if self._known is None:
            Snapshot(entries=wanted).put(self.root)
        else:
            self._change(self._known, wanted)
        self._known = dict(wanted)

    def forget(self) -> None:
        """Somebody worked here: nothing is known any more."""
        self._known = None

    def _change(self, known: dict[str, Entry], wanted: Mapping[str, Entry]) -> None:
        for stray in self.root.glob(f"{self._rewritten}*"):
            stray.unlink()
        same = {path for path, entry in wanted.items() if path in known and known[path].code == entry.code}
        for path in sorted(known.keys() - same, reverse=True):
            if not path.startswith(self._rewritten):
                _take_away(self.root / path, known[path])
        for path in sorted(wanted.keys()):
            if path not in same or path.startswith(self._rewritten):
                _put(self.root / path, wanted[path])
                if wanted[path].kind == "directory":
                    os.chmod(self.root / path, wanted[path].mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One distinct state, the first stop that showed it, and what had been heard of the program by then."""

    stop: Stop
    disk: Snapshot
    heard: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """The distinct states of one run."""

    stops: int
    ended: Ended
    distinct: list[State]


def states_of(
    work: Work,
    root: Path,
    *,
    heard: Path | None = None,
    lively: bool = False,
    everything: bool = False,
    alone: bool = False,
    ends_with: tuple[int, ...] = (0,),
) -> States:
    """Run the work once, undisturbed, and keep every state of the directory that a kill could leave.

    `lively`: processes that the work started change the directory too, while it stands still. `everything`: they are
    stopped at their own calls, so that what a kill of them all leaves is seen wherever they stand, and not by chance.
    """
    seen: dict[bytes, State] = {}
    looks = Looks(root)
    last: Snapshot | None = None

    def keep(stop: Stop) -> None:
        nonlocal last
        if seen and (stop.phase == "entry" or (stop.name in SYNCING and (everything or not lively))):
            return  # nothing of its own can have changed since the stop before; what others did is seen at the next one
        words = heard.read_bytes() if heard is not None and heard.exists() else b""
        last = snapshot = looks.at_rest() if lively else looks.after(stop, last) if last else looks.snapshot()
        key = snapshot.digest + len(words).to_bytes(8, "big")
        if key not in seen:
            seen[key] = State(stop=stop, disk=snapshot, heard=words)

    ended = trace(work, on_stop=keep, everything=everything, alone=alone)
    if ended.exit_code not in ends_with:
        raise AssertionError(f"the undisturbed run ended with {ended.exit_code}:\n{ended.error}")
    return States(stops=ended.stops, ended=ended, distinct=list(seen.values()))


def at_rest(root: Path) -> Snapshot:
    return Looks(root).at_rest()


@contextlib.contextmanager
def fast_directory() -> Iterator[Path]:
    """A directory in memory where there is one."""
    place = Path(tempfile.mkdtemp(prefix="acode-crash-", dir=memory()))
    try:
        yield place
    finally:
        _remove(place)


def _entries(directory: str, prefix: str, read: Callable[[str, os.stat_result], Entry]) -> Iterator[tuple[str, Entry]]:
    with os.scandir(directory) as found:
        for item in found:
            path = prefix + item.name
            about = item.stat(follow_symlinks=False)
            mode = stat.S_IMODE(about.st_mode)
            if item.is_symlink():
                yield path, Entry(kind="link", mode=mode, content=os.fsencode(os.readlink(item.path)))
            elif item.is_dir(follow_symlinks=False):
                yield path, Entry(kind="directory", mode=mode)
                yield from _entries(item.path, f"{path}/", read)
            elif stat.S_ISREG(about.st_mode):
                yield path, read(item.path, about)


def _file(path: str, about: os.stat_result) -> Entry:
    content = Path(path).read_bytes()
    return Entry(kind="file", mode=stat.S_IMODE(about.st_mode), content=content, modified_ns=about.st_mtime_ns)


def _put(path: Path, entry: Entry) -> None:
    if entry.kind == "directory":
        path.mkdir()
    elif entry.kind == "link":
        path.symlink_to(os.fsdecode(entry.content))
    else:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(entry.content)
            os.fchmod(file.fileno(), entry.mode)
        if entry.modified_ns is not None:
            os.utime(path, ns=(entry.modified_ns, entry.modified_ns))


def _take_away(path: Path, entry: Entry) -> None:
    if entry.kind == "directory":
        path.rmdir()
    else:
        path.unlink()


def _empty(root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink()


def _remove(directory: Path) -> None:
    """A closed directory is opened first, or only root could empty it."""
    for place, _, _ in os.walk(directory):
        os.chmod(place, 0o700)
    shutil.rmtree(directory)

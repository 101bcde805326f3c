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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.crash.harness.ptracer import Ended, Stop, Work, trace

REBUILT_SUFFIX = "-shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file, a directory (no content) or a symbolic link (its target)."""

    kind: Literal["file", "directory", "link"]
    mode: int
    content: bytes = b""
    modified_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A directory's whole content by relative path."""

    entries: Mapping[str, Entry]

    @classmethod
    def of(cls, root: Path) -> Snapshot:
        return cls(entries=dict(_entries(os.fspath(root), "")))

    @property
    def digest(self) -> bytes:
        """Equal for states that a later start cannot tell apart."""
        total = hashlib.blake2b(digest_size=16)
        for path in sorted(self.entries):
            entry = self.entries[path]
            if not path.endswith(REBUILT_SUFFIX):
                head = f"{path}\0{entry.kind}\0{entry.mode:o}\0{len(entry.content)}\0"
                total.update(head.encode("utf-8", "surrogateescape") + entry.content)
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
class States:
    """The distinct states of one run, each with the first stop that showed it."""

    stops: int
    ended: Ended
    distinct: list[tuple[Stop, Snapshot]]


def states_of(work: Work, root: Path) -> States:
    """Run the work once, undisturbed, and keep every state of the directory that a kill could leave."""
    seen: dict[bytes, tuple[Stop, Snapshot]] = {}

    def keep(stop: Stop) -> None:
        snapshot = Snapshot.of(root)
        seen.setdefault(snapshot.digest, (stop, snapshot))

    ended = trace(work, on_stop=keep)
    if ended.exit_code:
        raise AssertionError(f"the undisturbed run ended with {ended.exit_code}:\n{ended.error}")
    return States(stops=ended.stops, ended=ended, distinct=list(seen.values()))


@contextlib.contextmanager
def fast_directory() -> Iterator[Path]:
    """A directory in memory where there is one: sweeps write thousands of small states, and no test pulls the plug."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(prefix="acode-crash-", dir=memory))
    try:
        yield place
    finally:
        _remove(place)


def _entries(directory: str, prefix: str) -> Iterator[tuple[str, Entry]]:
    with os.scandir(directory) as found:
        for item in found:
            path = prefix + item.name
            about = item.stat(follow_symlinks=False)
            mode, modified_ns = stat.S_IMODE(about.st_mode), about.st_mtime_ns
            if item.is_symlink():
                yield path, Entry(kind="link", mode=mode, content=os.fsencode(os.readlink(item.path)))
            elif item.is_dir(follow_symlinks=False):
                yield path, Entry(kind="directory", mode=mode)
                yield from _entries(item.path, f"{path}/")
            elif stat.S_ISREG(about.st_mode):
                content = Path(item.path).read_bytes()
                yield path, Entry(kind="file", mode=mode, content=content, modified_ns=modified_ns)


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

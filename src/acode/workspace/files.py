"""One file of the workspace: read it, hash it, replace it whole.

The hashed bytes are the used bytes: both go through one descriptor. A file is replaced by a rename, so a crash leaves
the old bytes or the new ones, never a mixture. Links are never followed, and nothing but a regular file is ever read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType

from acode.disk.fsync import FULL_SYNC, hand_over, sync_file, write_all
from acode.disk.open_beneath import Directory, Root
from acode.disk.own_files import describe_kind
from acode.disk.path_names import below, bytes_of, parent_of, parts_of, visible
from acode.disk.write_errors import refusing_write_errors
from acode.errors import BlobDamaged, FileModified, FileTooLarge, NotWritable, UnsafePath
from acode.events.types import FileState

CHUNK_BYTES = 1_048_576
TEMP_PREFIX = ".acode-tmp-"

# File systems stamp changes with the kernel's tick (up to 10 ms), or with whole seconds, in pairs on FAT.
FRESH_NS = 20_000_000
FRESH_COARSE_NS = 2_000_000_000

_MODE_NEW_FILE = 0o644  # less the umask


def look(root: Root, rel: str) -> os.stat_result | None:
    """The file at the path by a single stat, links not followed; None: there is none."""
    try:
        with root.at(rel) as (directory, name):
            return directory.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_file(root: Root, rel: str, bytes_max: int, *, expected_sha256: str | None = None) -> tuple[bytes, FileState]:
    """The file's bytes and their status; with `expected_sha256`, only if they are the validated ones. OSError where it
    cannot be opened: the caller knows what that means.
    """
    with root.at(rel) as (directory, name), open_regular(directory, name) as (descriptor, before):
        if before.st_size > bytes_max:
            raise _too_large(rel, before.st_size, bytes_max)
        pieces: list[bytes] = []
        room = bytes_max + 1
        while room and (piece := os.read(descriptor, min(CHUNK_BYTES, room, max(before.st_size + 1, 4096)))):
            pieces.append(piece)
            room -= len(piece)
        if not room:
            raise _too_large(rel, bytes_max + 1, bytes_max)
        data = b"".join(pieces)
        sha256 = hashlib.sha256(data).hexdigest()
        state = _state_of_open(rel, descriptor, before, sha256)
    if expected_sha256 is not None and sha256 != expected_sha256:
        raise FileModified(
            f"{visible(rel)} is not the file that was validated: expected {expected_sha256}, found {sha256}",
            hint="Somebody changed it in the meantime. Look at it, then resume again.",
            path=rel,
            expected=expected_sha256,
            found=sha256,
        )
    return data, state


def hash_file(root: Root, rel: str) -> FileState:
    """The file at the path, with the hash of its content; an absent file is a state, not an error."""
    try:
        with root.at(rel) as (directory, name):
            return state_at(directory, name, rel)
    except (FileNotFoundError, NotADirectoryError):
        return FileState(path=rel)


def state_at(
    directory: Directory, name: str, rel: str, *, each_chunk: Callable[[bytes], object] | None = None
) -> FileState:
    """`hash_file` in a directory that is open already; `each_chunk` sees the bytes that were hashed."""
    found = directory.stat(name)
    if found is None:
        return FileState(path=rel)
    if stat.S_ISLNK(found.st_mode):
        return _state(rel, found, hash_of_link(directory.readlink(name)))
    if not stat.S_ISREG(found.st_mode):
        return _state(rel, found, "")
    with open_regular(directory, name) as (descriptor, before):
        size = before.st_size
        chunk = os.read(descriptor, size + 1 if size < CHUNK_BYTES else CHUNK_BYTES)
        digest = hashlib.sha256(chunk)
        if each_chunk is not None:
            each_chunk(chunk)
        # file read in one call needs no second read: the stat after it shows its end
        if len(chunk) != size or not size:
            for chunk in chunks_of(descriptor, size):
                digest.update(chunk)
                if each_chunk is not None:
                    each_chunk(chunk)
        return _state_of_open(rel, descriptor, before, digest.hexdigest())


def hash_of_link(target: str) -> str:
    """It differs from the hash of a file that holds the same text."""
    return hashlib.sha256(b"symbolic link\0" + bytes_of(target)).hexdigest()


class open_regular:  # noqa: N801 - it is used as the function it reads like
    """A regular file, open for reading; anything else is refused without waiting for it.

    A class and no generator, because every read of a plan goes through here and is no longer than a disk's sync.
    """

    __slots__ = ("_descriptor", "_directory", "_name")

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name

    def __enter__(self) -> tuple[int, os.stat_result]:
        directory, name = self._directory, self._name
        try:
            self._descriptor = directory.open(name, os.O_RDONLY)
        except OSError:
            # A socket, or a device without a driver, cannot even be opened: it is named for what it is.
            there = directory.stat(name)
            if there is not None and not stat.S_ISREG(there.st_mode):
                raise _not_a_file(below(directory.rel, name), there.st_mode) from None
            raise
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise _not_a_file(below(directory.rel, name), found.st_mode)
        except BaseException:
            os.close(self._descriptor)
            raise
        return self._descriptor, found

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)


def chunks_of(descriptor: int, size: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, min(CHUNK_BYTES, max(size + 1, 4096))):
        yield chunk


def same_stat(recorded: FileState, found: os.stat_result) -> bool:
    """Whether the stat alone proves that the recorded file still stands there.

    A process that sets the modification time back cannot set the change time back, so both count.
    """
    return (
        recorded.ctime_ns != 0
        and recorded.ctime_ns == found.st_ctime_ns
        and recorded.mtime_ns == found.st_mtime_ns
        and recorded.size == found.st_size
        and recorded.inode == found.st_ino
        and recorded.mode == _mode(found)
    )


def provable_ctime(ctime_ns: int, now_ns: int) -> int:
    """The change time, or 0 if a change made right after this moment could still get the same one."""
    fresh_ns = FRESH_NS if ctime_ns % 1_000_000_000 else FRESH_COARSE_NS
    return ctime_ns if now_ns - ctime_ns >= fresh_ns else 0


def _mode(found: os.stat_result) -> int:
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else found.st_mode


def _state(rel: str, found: os.stat_result, sha256: str, *, steady: bool = True) -> FileState:
    return FileState(
        path=rel,
        sha256=sha256,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        mode=_mode(found),
        inode=found.st_ino,
        ctime_ns=provable_ctime(found.st_ctime_ns, time.time_ns()) if steady else 0,
    )


def _state_of_open(rel: str, descriptor: int, before: os.stat_result, sha256: str) -> FileState:
    after = os.fstat(descriptor)
    # Changed while it was read: the hash is that of the bytes that were read, but no stat stands for it.
    steady = (after.st_size, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    return _state(rel, after, sha256, steady=steady)


def _too_large(rel: str, size: int, bytes_max: int) -> FileTooLarge:
    return FileTooLarge(f"{visible(rel)} has {size:,} bytes or more, over the limit of {bytes_max:,}", path=rel)


def _not_a_file(rel: str, mode: int) -> UnsafePath:
    return UnsafePath(f"{visible(rel)} is {describe_kind(mode)}, not a file", path=rel)


# Writing.


def sync_paths(root: Root, paths: Iterable[str]) -> None:
    """Sync the files that others have written at these paths, bytes and names, so that they survive a power cut.

    Each file is handed to the drive, and the drive empties its cache once, behind the last: that is what takes long.
    """
    directories = {"."}
    for rel in paths:
        directories.add(parent_of(rel))
        with refusing_write_errors(f"{visible(rel)} cannot be brought to the disk"), suppress(FileNotFoundError):
            found = look(root, rel)
            if found is not None and stat.S_ISREG(found.st_mode):
                _hand_over(root, rel)
    with refusing_write_errors("what a command has left cannot be brought to the disk"):
        for rel in sorted(directories):
            with suppress(FileNotFoundError), root.directory(rel) as directory:
                directory.sync()
        if FULL_SYNC is not None:
            descriptor = root.open_beneath(".", os.O_RDONLY)
            try:
                sync_file(descriptor)
            finally:
                os.close(descriptor)


def _hand_over(root: Root, rel: str) -> None:
    descriptor = root.open_beneath(
        rel, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY
    )  # there only writers sync
    try:
        hand_over(descriptor)
    finally:
        os.close(descriptor)


def temp_name(rel: str, token: str) -> str:
    """Where the new bytes stand before they replace the file: beside it, named after the step's idempotency key.

    Settlement computes the same name after a crash, so that it can take the leftover away.
    """
    name = parts_of(rel)[-1]
    digest = hashlib.sha256(f"{token}\0".encode() + bytes_of(name)).hexdigest()
    return below(parent_of(rel), f"{TEMP_PREFIX}{digest[:24]}")


def remove_temp(root: Root, rel: str, token: str) -> bool:
    """Take away what a killed writer left; whether there was something."""
    try:
        with (
            root.at(temp_name(rel, token)) as (directory, name),
            refusing_write_errors(f"{visible(rel)}: its leftover"),
        ):
            if directory.stat(name) is None:
                return False
            directory.unlink(name)
            directory.sync()
            return True
    except (FileNotFoundError, NotADirectoryError):
        return False


def write_atomic(root: Root, rel: str, data: bytes, mode: int | None, temp_token: str) -> FileState:
    """Replace the file, or make it and the directories above it; durable when this returns.

    `mode` None keeps the mode of the file that stood there. A file with several hard links loses this one: the other
    names keep the old bytes, because writing through would change files that no step declared.
    """
    with refusing_write_errors(f"{visible(rel)} cannot be written"):
        root.make_directories(parent_of(rel))
        with root.at(rel) as (directory, name):
            found = directory.stat(name)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise _not_a_file(rel, found.st_mode)
            kept = mode if mode is not None or found is None else stat.S_IMODE(found.st_mode)
            temp = parts_of(temp_name(rel, temp_token))[-1]
            return replace_file(directory, name, (data,), kept, temp)


def replace_file(
    directory: Directory,
    name: str,
    chunks: Iterable[bytes],
    mode: int | None,
    temp: str,
    *,
    expected_sha256: str | None = None,
    mtime_ns: int = 0,
) -> FileState:
    """Write beside, sync, rename over, sync the directory. Bytes with another hash than expected replace nothing."""
    rel = below(directory.rel, name)
    descriptor = _create_temp(directory, temp, _MODE_NEW_FILE if mode is None else 0o600)
    try:
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
            write_all(descriptor, chunk)
        if expected_sha256 is not None and digest.hexdigest() != expected_sha256:
            raise BlobDamaged(f"the stored bytes of {visible(rel)} are not those that were recorded", path=rel)
        if mode is not None:
            _set_mode_of_open(directory, temp, descriptor, mode)
        if mtime_ns:
            directory.set_mtime(temp, mtime_ns)
        sync_file(descriptor)
        if sys.platform == "win32":
            os.close(descriptor)  # Windows renames no file that is open
            descriptor = -1
        _rename_over(directory, temp, name, rel)
        directory.sync()
        found = os.fstat(descriptor) if descriptor >= 0 else directory.stat(name)
        assert found is not None
        return _state(rel, found, digest.hexdigest())
    except BaseException:
        with suppress(OSError):
            directory.unlink(temp)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _create_temp(directory: Directory, temp: str, mode: int) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return directory.open(temp, flags, mode)
    except FileExistsError:
        # The leftover of a killed attempt with the same key: this attempt is its successor.
        directory.unlink(temp)
        return directory.open(temp, flags, mode)


def _set_mode_of_open(directory: Directory, name: str, descriptor: int, mode: int) -> None:
    if sys.platform == "win32":
        directory.set_mode(name, mode)
    else:
        os.fchmod(descriptor, mode)


def _rename_over(directory: Directory, temp: str, name: str, rel: str) -> None:
    try:
        directory.rename(temp, name)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
            raise NotWritable(f"{visible(rel)} cannot be written: a directory stands there", path=rel) from error
        raise

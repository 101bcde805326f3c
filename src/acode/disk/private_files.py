"""Files that only this user can read, written whole or not at all: keys, anchors, trust, requests, notes, bundles.

The bytes stand beside the file until they are complete and synced, under a name that nobody can guess: two writers
never share one, in whatever container they are. A crash leaves the old file or the new one, and at worst a file beside,
which the next writer of a file that is to last removes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from acode.disk.fsync import sync_directory, sync_file, write_all
from acode.disk.leftovers import create_temporary, forget_leftovers
from acode.disk.open_directory import OpenDirectory, descriptor_of
from acode.disk.write_errors import NO_ROOM
from acode.errors import DiskFull, NotWritable


def make_private_directory(path: Path) -> None:
    """The directory and those above it, durably, where they are missing; OSError where it cannot be made.

    Without the sync a power cut takes the new directory away, and with it the key that everything is signed with.
    """
    try:
        path.mkdir(mode=0o700)
    except FileNotFoundError:
        make_private_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        if not path.exists():
            raise
        return
    with contextlib.suppress(PermissionError):  # one may write into a directory that one may not read
        sync_directory(path.parent)


def put_private(path: Path, chunks: Iterable[bytes], *, exclusive: bool = False, durable: bool = True) -> None:
    """0600, whole or not at all, through no link; OSError where it cannot be. `exclusive`: the first writer wins."""
    beside, descriptor = _new_beside(path, durable=durable)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:  # open until it is in its place: nobody takes it away
            for chunk in chunks:
                write_all(descriptor, chunk)
            if durable:
                sync_file(descriptor)
            if sys.platform == "win32":
                file.close()  # Windows renames no file that is open
            if exclusive:
                _place_once(beside, path)
            else:
                os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    if durable:
        sync_directory(path.parent)


def _new_beside(path: Path, *, durable: bool) -> tuple[Path, int]:
    """A new file that is its writer's while it is open. What killed writers left, keys perhaps, is removed before;
    not where the file need not last: that lies in a directory which goes with its session."""
    parent = os.fspath(path.parent)
    try:
        directory = OpenDirectory(parent, descriptor_of(parent))
    except PermissionError:  # one may write into a directory that one may not read
        directory = OpenDirectory(parent, None)
    with directory:
        if durable:
            with contextlib.suppress(OSError):
                forget_leftovers(directory)
        name, descriptor = create_temporary(directory, path.name, 0o600)
    return path.with_name(name), descriptor


def _place_once(beside: Path, path: Path) -> None:
    """An existing file stays, because two processes on their first start must agree on one key."""
    try:
        if sys.platform == "win32":
            os.rename(beside, path)  # refuses to replace there, and knows no links everywhere
        else:
            os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink(missing_ok=True)


def private_directory(path: Path) -> None:
    """The directory, or a refusal with the next command to type."""
    try:
        make_private_directory(path)
    except OSError as error:
        raise NotWritable(
            f"the state directory {path} cannot be made: {error.strerror}",
            hint="Set ACODE_HOME to a place you can write.",
        ) from error


def write_private(path: Path, data: bytes, *, exclusive: bool = False, durable: bool = True) -> None:
    """`put_private` into a directory that is made if need be, or a refusal with the next command to type."""
    private_directory(path.parent)
    try:
        put_private(path, (data,), exclusive=exclusive, durable=durable)
    except OSError as error:
        refusal = DiskFull if error.errno in NO_ROOM else NotWritable
        raise refusal(f"{path} cannot be written: {error.strerror}") from error

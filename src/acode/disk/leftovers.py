"""Distinguish temporary files from leftovers by the kernel's locks: a living writer holds a lock on its own file.

A pid in the name would not do: in another container it is another process's, and a file in use would be removed, or an
abandoned one kept.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from typing import Final

from acode.disk.file_lock import try_lock
from acode.disk.open_directory import OpenDirectory
from acode.errors import UnsafePath

TEMPORARY_END: Final = ".acode-tmp"
LEFTOVER_ENTRIES_MAX: Final = 10_000
TRIES_MAX: Final = 8
_TEMPORARY: Final = re.compile(r"\..+\.[0-9a-f]{1,16}\.acode-tmp")  # also those of 0.1, which end in a pid


def create_temporary(directory: OpenDirectory, name: str, mode: int) -> tuple[str, int]:
    """Create the file that will replace `name`; returns its name and a descriptor. It is the writer's while that is
    open.
    """
    for _ in range(TRIES_MAX):
        temporary = f".{name}.{os.urandom(8).hex()}{TEMPORARY_END}"
        descriptor = directory.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        if _is_held(descriptor):
            return temporary, descriptor
        os.close(descriptor)  # somebody took it for a leftover before it was locked
    raise FileExistsError(f"{name}: {TRIES_MAX} new files beside it were taken away")


def _is_held(descriptor: int) -> bool:
    try:
        locked = try_lock(descriptor)
    except OSError:
        return True  # a file system without locks, on which nobody forgets anything either
    return locked and (sys.platform == "win32" or os.fstat(descriptor).st_nlink > 0)


def forget_leftovers(directory: OpenDirectory) -> None:
    """Remove what killed writers left. A file whose lock cannot be had is left alone, whatever the reason."""
    for name in directory.names(LEFTOVER_ENTRIES_MAX):
        if _TEMPORARY.fullmatch(name):
            with suppress(OSError, UnsafePath):
                _forget(directory, name)


def _forget(directory: OpenDirectory, name: str) -> None:
    if sys.platform == "win32":
        directory.unlink(name)  # refused while a writer has it open
        return
    descriptor = directory.open(name, os.O_RDONLY)
    try:
        if try_lock(descriptor):
            directory.unlink(name)
    finally:
        os.close(descriptor)

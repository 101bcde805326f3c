"""Replace a file of the user, whole or not at all: the settings of other programs, start-up files, scripts.

A link is followed, because people keep such files elsewhere and link to them; mode and owner stay. A crash leaves the
old file or the new one, and at worst a file beside.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from acode.disk.fsync import sync_directory, sync_file, write_all

NEW_FILE_MODE = 0o666  # less the umask: what any program gives a file that it makes


def replace_file(path: Path, data: bytes) -> None:
    """OSError where it cannot be written; the directory must be there."""
    target = Path(os.path.realpath(path))
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    beside = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(beside, flags, NEW_FILE_MODE if mode is None else 0o600)
    try:
        try:
            write_all(descriptor, data)
            if mode is not None:
                os.chmod(beside, mode)
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    sync_directory(target.parent)

"""From a file to bytes to text, with a cap before anything is parsed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from acode.errors import AcodeError
from acode.yamlfile.node import Mark, Source


def read_bytes(path: Path, source: Source, *, bytes_max: int, setting: str | None = None) -> bytes:
    """The whole file, if it is one and is not over the cap; `setting` names what raises the cap.

    Opened without blocking, because a planted FIFO would hang the caller; read through one descriptor, so that what was
    checked is what was read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            raw = _read_regular(descriptor, bytes_max)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise source.problem(f"cannot be read: {_reason(error)}", hint="Check the path.") from error
    if raw is None:
        raise source.problem("is not a regular file", hint="Check the path.")
    if len(raw) > bytes_max:
        raise too_large(source, bytes_max=bytes_max, setting=setting)
    return raw


def _read_regular(descriptor: int, bytes_max: int) -> bytes | None:
    """At most one byte more than the cap; None if it is no regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return None
    with open(descriptor, "rb", closefd=False) as file:
        return file.read(bytes_max + 1)


def too_large(source: Source, *, bytes_max: int, setting: str | None) -> AcodeError:
    hint = f"Make it smaller, or raise {setting}." if setting else "Make it smaller."
    return source.problem(f"is larger than {bytes_max:,} bytes", hint=hint)


def _reason(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def decode_text(raw: bytes, source: Source) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        line_start = before.rfind(b"\n") + 1
        at = Mark(before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1)
        raise source.problem("is not UTF-8 text", at=at, hint="Save it as UTF-8.") from error

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
    except (OSError, ValueError) as error:
        raise source.problem(f"cannot be read: {_reason(error)}", hint="Check the path.") from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise source.problem("is not a regular file")
        try:
            raw = file.read(bytes_max + 1)
        except OSError as error:
            raise source.problem(f"cannot be read: {_reason(error)}") from error
    if len(raw) > bytes_max:
        raise too_large(source, bytes_max=bytes_max, setting=setting)
    return raw


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

"""Unreadable parts of a foreign run: they are not absent, and a resume must not decide from the rest.

Showing a run continues without the part that the machine refuses, and reports it; showing decides nothing. Resuming the
run ends with the machine's own reason before anything is written: a log with one missing file may contradict the whole.
The format itself handles a file of another shape than it wants (a link, a torn line).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from acode.errors import MachineRefused
from acode.hints import Hint, Resume

NAMED_MAX = 5
# The kernel has looked, and there is no such file; or what bears the name is none that could be read.
_NOT_THERE = frozenset(
    getattr(errno, name)
    for name in ("ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EINVAL", "EISDIR", "ENXIO")
    if hasattr(errno, name)
)


def machine_refused(error: BaseException) -> bool:
    """Whether the machine refused a file: the file may exist, and hold anything."""
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError | NotADirectoryError):
        return False
    return error.errno not in _NOT_THERE


def reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def unread(run_id: str, files: Sequence[str]) -> MachineRefused:
    """The refusal to continue a run, with the files that were refused and why."""
    more = f", and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
    return MachineRefused(
        f"the run {run_id} is not continued from a part of its record: {'; '.join(files[:NAMED_MAX])}{more}",
        hint=Hint("Repair the disk or the file's permissions, then: {}", Resume(), of=run_id),
        unread=list(files[:NAMED_MAX]),
    )


@contextmanager
def needed(what: str) -> Iterator[None]:
    """A read that a decision rests on: a file that the machine refuses ends the command, by name."""
    try:
        yield
    except OSError as error:
        if machine_refused(error):
            raise MachineRefused(f"{what} cannot be read: {reason(error)}") from error
        raise

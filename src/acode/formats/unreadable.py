"""What cannot be read of a foreign run is not absent: whoever carries it on must not decide from the rest.

Looking at a run goes on without the part that the machine refuses, and says so; nothing is decided by a look. Carrying
it on ends with the machine's own reason before anything is written: a log of which one file is missing may say the
opposite of the whole. What has another shape than the format wants (a link, a torn line) is the format's own affair.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from acode.errors import MachineRefused

NAMED_MAX = 5
# The kernel has looked, and there is no such file; or what bears the name is none that could be read.
_NOT_THERE = frozenset(
    getattr(errno, name)
    for name in ("ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG", "EINVAL", "EISDIR", "ENXIO")
    if hasattr(errno, name)
)


def machine_refused(error: BaseException) -> bool:
    """Whether the machine kept a file back: it may well be there, and hold anything."""
    if not isinstance(error, OSError) or isinstance(error, FileNotFoundError | NotADirectoryError):
        return False
    return error.errno not in _NOT_THERE


def reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def unread(run_id: str, files: Sequence[str]) -> MachineRefused:
    """The refusal to carry a run on, with the files that were kept back and why."""
    more = f", and {len(files) - NAMED_MAX} more" if len(files) > NAMED_MAX else ""
    return MachineRefused(
        f"the run {run_id} is not carried on from a part of its record: {'; '.join(files[:NAMED_MAX])}{more}",
        hint=f"Mend the disk or the file's permissions, then: acode resume {run_id}",
        unread=list(files[:NAMED_MAX]),
    )


@contextmanager
def needed(what: str) -> Iterator[None]:
    """What is read here decides something: a file that the machine refuses ends the command, by name."""
    try:
        yield
    except OSError as error:
        if machine_refused(error):
            raise MachineRefused(f"{what} cannot be read: {reason(error)}") from error
        raise

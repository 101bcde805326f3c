"""Make one system call fail: the nth of its name on files below a directory, once or from then on.

The kernel does not do the call, and the program gets the error, as from a sick or full disk. A fault that was never met
is an error of the test. The calls are the program's own, or those of the processes that it starts to work for it: what
a person's command does with an error is its own affair.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from tests.crash.harness import syscalls
from tests.crash.harness.ptracer import Ended, NeverReached, Stop, Wanted, Work, trace

SHORT = 0  # not an error: the call does half of what was asked

E = errno
LOOK_ERRORS = (E.EMFILE, E.EACCES, E.EINTR, E.EIO)
OPEN_ERRORS = (*LOOK_ERRORS, E.ENOSPC, E.EROFS, E.EDQUOT)
WRITE_ERRORS = (E.ENOSPC, E.EDQUOT, E.EIO, E.EINTR, SHORT)
NAME_ERRORS = (E.EIO, E.ENOSPC, E.EACCES, E.EROFS, E.EDQUOT)
PLAUSIBLE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(syscalls.OPENING, OPEN_ERRORS),
    **dict.fromkeys(("write", "pwrite64"), WRITE_ERRORS),
    **dict.fromkeys(("writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"), (E.ENOSPC, E.EIO)),
    **dict.fromkeys(("fsync", "fdatasync", "syncfs"), (E.EIO, E.ENOSPC, E.EDQUOT, E.EINTR)),
    **dict.fromkeys(("ftruncate", "truncate", "fallocate"), (E.EIO, E.ENOSPC, E.EINTR)),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"), NAME_ERRORS),
    **dict.fromkeys(("mkdir", "mkdirat"), NAME_ERRORS),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), (E.EIO, E.EACCES, E.EROFS)),
    **dict.fromkeys(("fchmod", "fchmodat", "fchmodat2", "chmod"), (E.EPERM, E.EIO, E.EROFS)),
    **dict.fromkeys(("read", "pread64", "fstat", "getdents64"), (E.EIO,)),
    "newfstatat": (E.EIO, E.EACCES),
    "flock": (E.ENOLCK, E.EINTR),
}


HELPERS = (b"/keeper.py\0", b"/keeper_server.py\0", b"git\0")  # in the command line of who works for acode


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The nth call of this name (from 0) ends with this error; from then on all of them, if `forever`.

    `helpers`: of the calls that the processes make which it starts, instead of its own.
    """

    call: str
    nth: int
    error: int
    forever: bool = False
    helpers: bool = False

    def __str__(self) -> str:
        what = "SHORT" if self.error == SHORT else errno.errorcode[self.error]
        whose = " of a helper" if self.helpers else ""
        return f"{self.call}#{self.nth}{whose} {what}{' for ever' if self.forever else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """How the run took it. `hits` counts the calls that were made to fail."""

    fault: Fault
    ended: Ended
    hits: int


def possible_faults(
    work: Work, below: Path, *, ends_with: tuple[int, ...] = (0,), helpers: bool = False, alone: bool = False
) -> list[Fault]:
    """Every plausible error of every call of an undisturbed run on these files, once and for ever."""
    found: list[Fault] = []
    counts: Counter[str] = Counter()

    def note(stop: Stop) -> None:
        if stop.phase == "exit":
            return
        only_looks = stop.name in syscalls.OPENING and not stop.open_flags() & syscalls.CHANGING_FLAGS
        for error in LOOK_ERRORS if only_looks else PLAUSIBLE[stop.name]:
            fault = Fault(call=stop.name, nth=counts[stop.name], error=error, helpers=helpers)
            found.append(fault)
            if error not in (SHORT, errno.EINTR):  # those two pass by themselves
                found.append(replace(fault, forever=True))
        counts[stop.name] += 1

    ended = trace(
        work,
        on_stop=note,
        wanted=_calls_on(below, helpers=helpers),
        everything=helpers,
        alone=alone,
        calls=PLAUSIBLE,
    )
    if ended.exit_code not in ends_with:
        raise AssertionError(f"the undisturbed run ended with {ended.exit_code}:\n{ended.error}")
    return found


def failing(work: Work, fault: Fault, below: Path, *, alone: bool = False) -> Failed:
    """Run the work with this fault."""
    injector = _Injector(fault)
    calls_on = _calls_on(below, helpers=fault.helpers)
    ended = trace(
        work,
        on_stop=injector,
        wanted=lambda stop: stop.name == fault.call and calls_on(stop),
        everything=fault.helpers,
        alone=alone,
        calls={fault.call},
    )
    if injector.hits == 0:
        raise NeverReached(f"{fault}: the run made only {injector.seen} such calls\n{ended.error}")
    return Failed(fault=fault, ended=ended, hits=injector.hits)


class _Injector:
    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.hits = 0
        self.failing_threads: set[int] = set()

    def __call__(self, stop: Stop) -> None:
        if stop.phase == "exit":
            if stop.thread in self.failing_threads:
                self.failing_threads.remove(stop.thread)
                stop.answer(-self.fault.error)
            return
        if self.seen == self.fault.nth or (self.fault.forever and self.seen > self.fault.nth):
            self.hits += 1
            if self.fault.error == SHORT:
                stop.replace_argument(2, max(1, stop.args[2] // 2))
            else:
                stop.skip()
                self.failing_threads.add(stop.thread)
        self.seen += 1


def _calls_on(below: Path, *, helpers: bool) -> Wanted:
    root = os.path.realpath(below)

    def wanted(stop: Stop) -> bool:
        if stop.name not in PLAUSIBLE:
            return False
        path = stop.path()
        inside = path == root or path.startswith(f"{root}/")
        return inside and (not helpers or _is_helper(stop.process))

    return wanted


def _is_helper(process: int) -> bool:
    """Of our own test runner the traced program is a fork, with another command line."""
    line = Path(f"/proc/{process}/cmdline").read_bytes()
    return any(part in line for part in HELPERS)

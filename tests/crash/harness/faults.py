"""Make one system call fail: the nth of its name on files below a directory, once or from then on.

The kernel does not do the call, and the program gets the error, as from a sick or full disk. A fault that was never met
is an error of the test.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.crash.harness.ptracer import Ended, NeverReached, Stop, Wanted, Work, stops_of, trace

SHORT = 0  # not an error: the call does half of what was asked

WRITE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EINTR, SHORT)
SYNC_ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR)
NAME_ERRORS = (errno.EIO, errno.ENOSPC, errno.EACCES)
PLAUSIBLE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("open", "creat", "openat", "openat2"), (errno.EMFILE, errno.ENOSPC, errno.EACCES, errno.EINTR)),
    **dict.fromkeys(("write", "pwrite64"), WRITE_ERRORS),
    **dict.fromkeys(("writev", "pwritev", "pwritev2", "sendfile", "copy_file_range"), (errno.ENOSPC, errno.EIO)),
    **dict.fromkeys(("fsync", "fdatasync", "syncfs"), SYNC_ERRORS),
    **dict.fromkeys(("ftruncate", "truncate", "fallocate"), (errno.EIO, errno.ENOSPC, errno.EINTR)),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"), NAME_ERRORS),
    **dict.fromkeys(("mkdir", "mkdirat"), NAME_ERRORS),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), (errno.EIO, errno.EACCES)),
    **dict.fromkeys(("fchmod", "fchmodat", "chmod"), (errno.EPERM, errno.EIO)),
    **dict.fromkeys(("read", "pread64"), (errno.EIO,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The nth call of this name (from 0) ends with this error; from then on all of them, if `forever`."""

    call: str
    nth: int
    error: int
    forever: bool = False

    def __str__(self) -> str:
        what = "SHORT" if self.error == SHORT else errno.errorcode[self.error]
        return f"{self.call}#{self.nth} {what}{' for ever' if self.forever else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """How the run took it. `hits` counts the calls that were made to fail."""

    fault: Fault
    ended: Ended
    hits: int


def possible_faults(work: Work, below: Path) -> Iterator[Fault]:
    """Every plausible error of every call of an undisturbed run on these files."""
    seen = stops_of(work, wanted=_calls_on(below))
    counts = Counter(stop.name for stop in seen if stop.phase == "entry")
    for call, count in sorted(counts.items()):
        for nth in range(count):
            for error in PLAUSIBLE[call]:
                yield Fault(call=call, nth=nth, error=error)
                if error not in (SHORT, errno.EINTR):  # those two pass by themselves
                    yield Fault(call=call, nth=nth, error=error, forever=True)


def failing(work: Work, fault: Fault, below: Path) -> Failed:
    """Run the work with this fault."""
    injector = _Injector(fault)
    calls_on = _calls_on(below)
    ended = trace(work, on_stop=injector, wanted=lambda stop: stop.name == fault.call and calls_on(stop))
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


def _calls_on(below: Path) -> Wanted:
    root = os.path.realpath(below)

    def wanted(stop: Stop) -> bool:
        return stop.name in PLAUSIBLE and (stop.path() == root or stop.path().startswith(f"{root}/"))

    return wanted

"""Run a function in a child of its own and stop it at its system calls: to look, to kill, to change an answer.

The child is forked, so that a run costs milliseconds. All its threads are followed; processes that it starts are not,
and live on when it is killed, as they would without us. With `everything` they are followed too, stopped at their own
calls and killed with it, as a machine that goes down would do. Work that is `alone` starts no process: then, as with
`everything`, the kernel itself passes over the calls at which nothing is wanted. A kill that was asked for and never
happened is an error: a sweep that kills nothing proves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tests.crash.harness import syscalls
from tests.crash.harness.kernel import (
    BEGINNINGS,
    CONT,
    EXITKILL,
    GET_SYSCALL_INFO,
    SECCOMP_EVENT,
    SETOPTIONS,
    SYSCALL,
    SYSCALL_STOP,
    TRACECLONE,
    TRACEEXEC,
    TRACEFORK,
    TRACEME,
    TRACESECCOMP,
    TRACESYSGOOD,
    TRACEVFORK,
    TRAP,
    begun_by,
    ptrace,
    set_register,
    set_registers,
    stop_at,
)

Phase = Literal["entry", "exit"]

WALL = 0x40000000
REFUSED, RAISED = 97, 70
ERROR_BYTES_MAX = 32_000
PATH_BYTES_MAX = 4096
LOOK_EVERY_S = 0.0002
AT_ENTRY, AT_FILTER = 1, 3  # what the kernel says of a stop


class PtraceImpossible(RuntimeError):
    """This machine does not let a process trace its own child."""


class NeverReached(AssertionError):
    """The run ended before the stop that was asked for."""


@dataclass(slots=True, kw_only=True)
class Stop:
    """The program stands before (entry) or after (exit) a system call; only while it does can its memory be read."""

    number: int
    phase: Phase
    name: str
    args: tuple[int, ...]
    process: int
    thread: int
    result: int | None = None

    @property
    def boundary(self) -> tuple[str, Phase]:
        return self.name, self.phase

    def text(self, address: int) -> str:
        """The string at this address."""
        found = b""
        with open(f"/proc/{self.process}/mem", "rb", buffering=0) as memory:
            while b"\0" not in found and len(found) < PATH_BYTES_MAX:
                memory.seek(address + len(found))
                # Never across a page's end, behind which nothing may be mapped.
                found += memory.read(4096 - (address + len(found)) % 4096)
        return os.fsdecode(found.split(b"\0")[0])

    def word(self, address: int) -> int:
        """The 64-bit number at this address."""
        with open(f"/proc/{self.process}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            number: int = struct.unpack("=q", memory.read(8))[0]
        return number

    def open_flags(self) -> int:
        match self.name:
            case "creat":
                return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
            case "openat2":
                return self.word(self.args[2])
            case _:
                return self.args[syscalls.OPEN_FLAGS[self.name]]

    def starts_a_process(self) -> bool:
        match self.name:
            case "clone":
                return not self.args[0] & syscalls.CLONE_THREAD
            case "clone3":
                return not self.word(self.args[0]) & syscalls.CLONE_THREAD
            case _:
                return self.name in syscalls.PROCESSES

    def descriptor_path(self, descriptor: int) -> str:
        """What the descriptor stands for, or nothing if it is closed."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{self.process}/fd/{descriptor}")
        return ""

    def path(self) -> str:
        """The file this call is about, absolute, links in its directory resolved; empty if it is about none."""
        if self.name in syscalls.DESCRIPTORS:
            return self.descriptor_path(_signed32(self.args[syscalls.DESCRIPTORS[self.name]]))
        return self._named(syscalls.PATHS.get(self.name))

    def new_path(self) -> str:
        return self._named(syscalls.NEW_PATHS.get(self.name))

    def _named(self, place: tuple[int | None, int] | None) -> str:
        if place is None:
            return ""
        directory, argument = place
        name = self.text(self.args[argument])
        if not name.startswith("/"):
            descriptor = syscalls.AT_FDCWD if directory is None else _signed32(self.args[directory])
            here = (
                f"/proc/{self.process}/cwd"
                if descriptor == syscalls.AT_FDCWD
                else f"/proc/{self.process}/fd/{descriptor}"
            )
            name = os.path.join(os.readlink(here), name)
        parent, last = os.path.split(name.rstrip("/"))
        return os.path.normpath(os.path.join(os.path.realpath(parent), last))

    # Changing what the program sees.

    def skip(self) -> None:
        """At the entry: the kernel does not do this call."""
        assert self.phase == "entry"
        if syscalls.MACHINE == "aarch64":
            set_registers(self.thread, struct.pack("=i", -1), kind=0x404)
        else:
            set_register(self.thread, 15, -1)

    def answer(self, result: int) -> None:
        """At the exit: this is what the program gets."""
        assert self.phase == "exit"
        set_register(self.thread, 0 if syscalls.MACHINE == "aarch64" else 10, result)

    def replace_argument(self, index: int, value: int) -> None:
        """At the entry, for the first three arguments."""
        assert self.phase == "entry"
        set_register(self.thread, index if syscalls.MACHINE == "aarch64" else (14, 13, 12)[index], value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a traced run ended, and how many stops it had."""

    stops: int
    status: int
    killed_at: Stop | None = None
    error: str = ""

    @property
    def exit_code(self) -> int:
        """Negative for a signal, as subprocess has it; what the function returned, if it returned a number."""
        return os.waitstatus_to_exitcode(self.status)


Wanted = Callable[[Stop], bool]
OnStop = Callable[[Stop], None]
Work = Callable[[], object]


def changes_something(stop: Stop) -> bool:
    """Does the call change what is left after a kill? Reading, locking and waiting do not."""
    if stop.name in syscalls.OPENING:
        return bool(stop.open_flags() & syscalls.CHANGING_FLAGS)
    return stop.name in syscalls.CHANGING


def trace(
    work: Work,
    *,
    on_stop: OnStop | None = None,
    kill_at: int | None = None,
    wanted: Wanted = changes_something,
    everything: bool = False,
    alone: bool = False,
    calls: Collection[str] | None = None,
) -> Ended:
    """Run the work to its end, or to the stop with this number, where it is killed with all its threads.

    `everything`: the stops of the processes that it starts count too, and these are killed where it is, or ends.
    `alone`: it starts none, or this is an error. `calls`: the names of all that may be wanted.
    """
    filtered = (alone or everything) and (calls is not None or wanted is changes_something)
    child, errors = _start(_stopped_only_at(calls, work) if filtered else work, everything=everything)
    run = _Run(
        child=child,
        wanted=wanted,
        on_stop=on_stop,
        kill_at=kill_at,
        everything=everything,
        alone=alone,
        filtered=filtered,
    )
    try:
        status = run.follow()
    finally:
        run.end()
        with os.fdopen(errors, "rb") as pipe:
            error = pipe.read().decode(errors="replace") if run.over else ""
    return Ended(stops=run.stops, status=status, killed_at=run.killed_at, error=error)


def stops_of(work: Work, *, wanted: Wanted = changes_something) -> list[Stop]:
    """Every stop of an undisturbed run, which must succeed."""
    found: list[Stop] = []
    ended = trace(work, on_stop=found.append, wanted=wanted)
    if ended.exit_code:
        raise AssertionError(f"the undisturbed run ended with {ended.exit_code}:\n{ended.error}")
    return found


def killed(
    work: Work, at: int, *, wanted: Wanted = changes_something, everything: bool = False, alone: bool = False
) -> Ended:
    """Run the work and kill it at this stop; it must get there and must die of it."""
    ended = trace(work, kill_at=at, wanted=wanted, everything=everything, alone=alone)
    if ended.killed_at is None or ended.exit_code != -signal.SIGKILL:
        raise NeverReached(
            f"stop {at} was not reached: the run had {ended.stops} stops, status {ended.exit_code}\n{ended.error}"
        )
    return ended


def every_kill(fresh: Work, work: Work, *, wanted: Wanted = changes_something) -> Iterator[Ended]:
    """One run for each stop of the undisturbed one, killed there; `fresh` prepares the ground before each."""
    fresh()
    for number in range(len(stops_of(work, wanted=wanted))):
        fresh()
        yield killed(work, number, wanted=wanted)


@functools.cache
def why_impossible() -> str | None:
    """Why nothing can be traced here; None if it can."""
    if sys.platform != "linux" or not syscalls.NUMBERS:
        return f"the harness does not know the system calls of {sys.platform} on {syscalls.MACHINE}"
    try:
        seen = [stop.name for stop in stops_of(lambda: os.mkdir("/proc/none"), wanted=changes_something)]
    except PtraceImpossible as error:
        return str(error)
    except AssertionError:
        return None  # the work fails, as it should; that it was followed so far is what counts
    return None if seen else "system calls are not reported"


# The machinery.


@dataclass(slots=True, kw_only=True)
class _Run:
    child: int
    wanted: Wanted
    on_stop: OnStop | None
    kill_at: int | None
    everything: bool = False
    alone: bool = False
    filtered: bool = False  # by the kernel: a call of which nothing is wanted makes no stop
    stops: int = 0
    killed_at: Stop | None = None
    over: bool = False
    finished: bool = False
    threads: dict[int, Stop | None] = field(default_factory=dict)
    coming: set[int] = field(default_factory=set)  # begun, and not yet at their first stop

    def follow(self) -> int:
        self.threads[self.child] = None
        self._go_on(self.child)
        while True:
            thread, status = self._next()
            if _has_ended(status):
                self.threads.pop(thread, None)
                if thread == self.child:
                    self.over = True
                    return status
            else:
                self._stopped(thread, os.WSTOPSIG(status), event=status >> 16)

    def _next(self) -> tuple[int, int]:
        """Whoever of ours stops or ends next; never any child, since pytest has others, whose ends belong to others."""
        if not self.everything:
            return os.waitpid(-self.child, WALL)
        while True:  # they may be in process groups of their own, so that each must be asked
            for one in (*self.threads, *self.coming):
                try:
                    thread, status = os.waitpid(one, WALL | os.WNOHANG)
                except ChildProcessError:  # a thread that vanished when another of its process called exec
                    self.threads.pop(one, None)
                    continue
                if thread:
                    self.coming.discard(thread)
                    return thread, status
            time.sleep(LOOK_EVERY_S)

    def end(self) -> None:
        """Whatever happened to us (a time-out, Ctrl+C), no traced process is left behind."""
        if not self.over:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.child, signal.SIGKILL)
                while os.waitpid(-self.child, WALL)[0] != self.child:
                    pass
        for other in {*self.threads, *self.coming} - {self.child} if self.everything else ():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(other, signal.SIGKILL)
                while not _has_ended(os.waitpid(other, WALL)[1]):
                    pass

    def _stopped(self, thread: int, number: int, *, event: int) -> None:
        if event in BEGINNINGS and self.everything:
            begun = begun_by(thread)
            if begun not in self.threads:
                self.coming.add(begun)
        if number == SYSCALL_STOP or (event == SECCOMP_EVENT and not self.finished):
            if self._at_system_call(thread):
                self._go_on(thread)
        elif thread not in self.threads:
            self.threads[thread] = None  # a new thread's first stop
            self._go_on(thread)
        elif number == signal.SIGSTOP and thread == self.child:
            self.finished = True  # the work is done; what follows is ours
            self._go_on(thread)
        else:
            # A stop of ptrace's own is no signal that the program should get.
            self._go_on(thread, 0 if event or number == TRAP else number)

    def _go_on(self, thread: int, number: int = 0) -> None:
        to_the_next = not self.finished and (not self.filtered or self.threads.get(thread) is not None)
        ptrace(SYSCALL if to_the_next else CONT, thread, None, number)

    def _at_system_call(self, thread: int) -> bool:
        """False if the program was killed here."""
        stop = self._look(thread)
        if stop is None:
            return True
        if stop.number == self.kill_at:
            self.killed_at = stop
            for one in (self.child, *(self.threads if self.everything else ())):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            return False
        if self.on_stop is not None:
            self.on_stop(stop)
        self.stops += 1
        return True

    def _look(self, thread: int) -> Stop | None:
        info = ctypes.create_string_buffer(88)
        if ptrace(GET_SYSCALL_INFO, thread, 88, ctypes.addressof(info)) <= 0:
            return None
        if info.raw[0] in (AT_ENTRY, AT_FILTER):
            number, *args = struct.unpack_from("=7Q", info.raw, 24)
            stop = self._entry(thread, number, tuple(args))
            self.threads[thread] = stop
            return stop
        entry, self.threads[thread] = self.threads.get(thread), None
        if entry is None:
            return None
        (result,) = struct.unpack_from("=q", info.raw, 24)
        return Stop(
            number=self.stops,
            phase="exit",
            name=entry.name,
            args=entry.args,
            process=entry.process,
            thread=thread,
            result=result,
        )

    def _entry(self, thread: int, number: int, args: tuple[int, ...]) -> Stop | None:
        name = syscalls.NAMES.get(number)
        if name is None or (name == "kill" and args[:2] == (self.child, signal.SIGSTOP)):
            return None
        process = thread if self.everything else self.child
        stop = Stop(number=self.stops, phase="entry", name=name, args=args, process=process, thread=thread)
        if self.alone and stop.starts_a_process():
            raise AssertionError("it is said to be alone, and starts a process")
        return stop if self.wanted(stop) else None


def _stopped_only_at(calls: Collection[str] | None, work: Work) -> Work:
    """The same, stopped by the kernel at these calls only, or where `changes_something` may be true."""
    numbers = syscalls.NUMBERS
    flags: dict[int, tuple[int, int]] = {}
    if calls is None:
        calls = syscalls.CHANGING | {"creat", "openat2"}
        flags = {
            numbers[name]: (at, syscalls.CHANGING_FLAGS) for name, at in syscalls.OPEN_FLAGS.items() if name in numbers
        }
    # What starts a process is looked at, so that work that is not alone is noticed.
    chosen = sorted(numbers[name] for name in {*calls, *syscalls.PROCESSES} if name in numbers)

    def stopped() -> object:
        stop_at(syscalls.MACHINE, chosen, flags)
        return work()

    return stopped


def _start(work: Work, *, everything: bool) -> tuple[int, int]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # xdist's worker has a second thread, which only reads its pipe: nothing the child needs is held by it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        _be_traced(work, writing)
    os.close(writing)
    _, status = os.waitpid(child, WALL)
    if not os.WIFSTOPPED(status):
        os.close(reading)
        raise PtraceImpossible(
            "the kernel refuses ptrace (a container's seccomp profile, or kernel.yama.ptrace_scope=3)"
        )
    also = TRACEFORK | TRACEVFORK | TRACEEXEC if everything else 0
    ptrace(SETOPTIONS, child, None, TRACESYSGOOD | TRACESECCOMP | TRACECLONE | EXITKILL | also)
    return child, reading


def _be_traced(work: Work, errors: int) -> None:
    """The child's whole life. It ends with _exit: nothing of pytest's may run a second time."""
    status, error = RAISED, ""
    os.setpgid(0, 0)
    if ptrace(TRACEME, 0) != 0:
        os._exit(REFUSED)
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        result = work()
        status = result & 0xFF if isinstance(result, int) else 0
    except SystemExit as end:
        status = end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        error = traceback.format_exc()
    os.kill(os.getpid(), signal.SIGSTOP)
    os.write(errors, error.encode(errors="replace")[-ERROR_BYTES_MAX:])
    os._exit(status)


def _has_ended(status: int) -> bool:
    return os.WIFEXITED(status) or os.WIFSIGNALED(status)


def _signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value

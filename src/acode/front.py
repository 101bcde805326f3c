"""The front: a tiny program between an agent and the shell of one of its commands, the keeper's second form.

It runs the user's own shell on the agent's own line, in the same process group and session, so that permissions,
cancels and behavior are those without acode. It notes that the command began and how it ended, relays and keeps the
output where that goes to a pipe, lives on when the agent dies, and ends exactly as the command ended. Where it can note
nothing, the command runs all the same. It starts with every command: nothing that costs may be imported here.

    front DOORS prefix LINE             Claude Code: one argument, a line for the shell
    front DOORS shell SHELL ARGUMENTS   the others: the arguments of the shell
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time

from acode.command_notes import (
    claim,
    digest,
    how_it_ended,
    pid_namespace,
    process_started,
    process_stat,
    take_room,
    write_end,
    write_note,
)
from acode.disk.file_lock import try_lock
from acode.disk.fsync import write_all
from acode.disk.own_files import open_own

TYPE_CHECKING = False  # importing it from typing would cost more than all the rest
if TYPE_CHECKING:
    import signal as signals
    from collections.abc import Iterator
    from typing import Any, NoReturn
else:
    import _signal as signals

ANCESTORS_MAX = 12
OPEN_CALLS_MAX = 200  # of one agent; more are those of calls that were never run
WRAPPED_BYTES_MAX = 4_096  # what an agent puts around a command; a longer line is compared as a whole only
READ_BYTES = 65_536
HEAD_BYTES = 524_288  # of the output that is kept: so many from its beginning
TAIL_BYTES = 65_536  # and so many from its end
ALIVE_TRIES = 20
READS_AFTER_END = 8  # a pipe holds no more; a process that still prints then is relayed in the background
IGNORED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
AFTER_PYTHON = ("SIGPIPE", "SIGXFSZ")  # ignored by every Python, and by no shell that an agent starts


def main(argv: list[str]) -> None:
    doors, form, *given = argv
    line, command = as_prefix(given[0]) if form == "prefix" else as_shell(given)
    place = None
    if command is not None:
        try:
            place = find_place(doors, command)
        except (OSError, ValueError):  # what cannot be noted runs all the same
            place = None
    if place is None:
        os.execv(line[0], line)
    try:
        began = begin(line, *place)
    except OSError:  # it was claimed and never marked as begun, so that nobody takes it for one that never ran
        os.execv(line[0], line)
    watch_to_its_end(began)


# What the agent asked for: the arguments of the shell, and the command as the hook was told it.


def as_prefix(line: str) -> tuple[list[str], str | None]:
    """Claude Code's hooks and servers come through the same setting; they are no commands of its model."""
    command = evaluated(line)
    own = os.environ.get("ACODE_SHELL_PREFIX")  # the user's, which stood where the front stands now
    text = f"{own} {quoted(line)}" if own else line
    shell = "/bin/sh" if command is None else shell_of(line)
    return [shell, "-c", text], command


def as_shell(given: list[str]) -> tuple[list[str], str | None]:
    shell, *arguments = given
    at = next((n for n, one in enumerate(arguments) if one[:1] == "-" and one[:2] != "--" and "c" in one), None)
    command = arguments[at + 1] if at is not None and at + 1 < len(arguments) else None
    return [shell, *arguments], command


def evaluated(line: str) -> str | None:
    """The command in `source SNAPSHOT && eval 'COMMAND' < /dev/null && pwd -P >| FILE`; None for any other line."""
    head, found, rest = line.partition("eval ")
    if not found or (head and not head.endswith("&& ")) or "pwd -P >|" not in rest:
        return None
    return first_word(rest)


def first_word(text: str) -> str:
    """The first word of a line, without its quotes."""
    found, quote, at = [], "", 0
    while at < len(text) and (quote or not text[at].isspace()):
        char = text[at]
        at += 1
        if char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        elif char == "\\" and quote != "'" and (not quote or text[at : at + 1] in '$`"\\\n') and at < len(text):
            found.append(text[at])
            at += 1
        else:
            found.append(char)
    return "".join(found)


def shell_of(line: str) -> str:
    """The user's own shell; the snapshot that the line reads names the one that it was made for."""
    own = os.environ.get("SHELL", "")
    named = next((name for name in ("zsh", "bash") if f"snapshot-{name}-" in line), "")
    if os.path.isabs(own) and os.path.basename(own) in ([named] if named else ["bash", "zsh"]):
        return own
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    wanted = [os.path.join(place, name) for name in ([named] if named else ["bash"]) for place in places]
    return next((one for one in (*wanted, "/bin/bash") if os.access(one, os.X_OK)), "/bin/sh")


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\"'\"'") + "'"


# The call that this command belongs to: the hook has made a place for its notes, and said where.


def find_place(doors: str, command: str) -> tuple[str, int] | None:
    """The place of its notes, and the claim to it; one of its own where no hook has recorded the call."""
    for directory in open_calls(doors):
        for name in sorted(os.listdir(directory))[:OPEN_CALLS_MAX]:
            place, *wanted = read_text(os.path.join(directory, name)).split("\n")
            if any(is_meant(command, one) for one in wanted if one):
                claimed = claim_place(place)
                if claimed is not None:
                    return place, claimed
    return lone_place(doors, command)


def open_calls(doors: str) -> Iterator[str]:
    """The calls of the agent that started this process. In a namespace of its own nobody sees its ancestors: there any
    agent may be the one, and the command decides."""
    namespace, seen = pid_namespace(), False
    for pid in ancestors():
        directory = os.path.join(doors, "open", f"{pid}-{process_started(pid) or 0:.0f}")
        if os.path.isdir(directory):
            seen = True
            yield directory
    if not seen and read_text(os.path.join(doors, "namespace")) not in ("", namespace):
        agents = os.path.join(doors, "open")
        yield from (os.path.join(agents, name) for name in sorted(os.listdir(agents)))


def ancestors() -> Iterator[int]:
    pid = os.getppid()
    for _ in range(ANCESTORS_MAX):
        if pid <= 1:
            return
        yield pid
        fields = process_stat(pid)
        if len(fields) < 2:
            return
        pid = int(fields[1])


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""


def is_meant(line: str, wanted: str) -> bool:
    """Whether the line is the wanted command, given by its length and digest, or an agent's wrapping around it."""
    length, _, expected = wanted.partition(" ")
    bare = line.replace(" < /dev/null", "", 1)  # which Claude Code puts behind the first part of a pipeline
    for text in {line, line.strip(), bare.strip()}:
        if digest(text.encode("utf-8", "surrogateescape")) == expected:
            return True
    data, size = line.encode("utf-8", "surrogateescape"), int(length)
    if b"__code=$?" not in data or not 0 < size < len(data) <= size + WRAPPED_BYTES_MAX:
        return False
    return any(digest(data[at : at + size]) == expected for at in range(len(data) - size + 1))


def claim_place(place: str) -> int | None:
    try:
        return claim(place)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None


def lone_place(doors: str, command: str) -> tuple[str, int] | None:
    """No hook has recorded it: its end is noted all the same, for a later settlement. It may hold a secret."""
    agents = os.path.join(doors, "lone")
    if not os.path.isdir(agents):
        return None
    parent = os.getppid()
    directory = os.path.join(agents, f"{parent}-{process_started(parent) or 0:.0f}")
    place = os.path.join(directory, f"{time.time_ns()}-{os.getpid()}")
    os.makedirs(place, 0o700)
    above = "\n".join(f"{pid}-{process_started(pid) or 0:.0f}" for pid in ancestors())
    for name, text in (("alive", ""), ("ancestors", above), ("directory", os.getcwd()), ("command", command)):
        fd = open_own(os.path.join(place, name), os.O_WRONLY | os.O_CREAT)
        write_all(fd, text.encode("utf-8", "surrogateescape"))
        os.close(fd)
    claimed = claim(place)
    return (place, claimed) if claimed is not None else None


# The command.


class Began:
    """A command that runs, and what this process holds for it."""

    def __init__(self, child: int, place: str, pipes: Pipes, held: tuple[int, ...], at: float) -> None:
        self.child, self.place, self.pipes, self.held, self.at = child, place, pipes, held, at


def begin(line: list[str], place: str, claimed: int) -> Began:
    """Start the shell in this group and session. An error here comes before the command's first instruction."""
    at = time.time()
    alive = hold_alive(place)
    take_room(place)
    watched = [getattr(signals, name) for name in IGNORED]
    outside: dict[int, Any] = {number: signals.getsignal(number) for number in watched}
    pipes = Pipes()
    mark: dict[str, Any] = {"keeper": os.getpid(), "since": at, "front": True, **where(), "output": pipes.file}
    signals.pthread_sigmask(signals.SIG_BLOCK, watched)
    try:
        child = os.fork()
    except OSError:
        signals.pthread_sigmask(signals.SIG_UNBLOCK, watched)
        raise
    if child == 0:
        become(line, place, pipes, mark, outside)
    for number in watched:
        signals.signal(number, signals.SIG_IGN)
    signals.pthread_sigmask(signals.SIG_UNBLOCK, watched)
    return Began(child, place, pipes, (alive, claimed), at)


def watch_to_its_end(began: Began) -> NoReturn:
    """Relay, wait, note the end, end alike. Whatever fails here must neither end nor repeat the command."""
    pipes = began.pipes
    try:
        code = wait(began)
    except OSError:
        code = os.waitstatus_to_exitcode(os.waitpid(began.child, 0)[1])
    try:
        end = {"ended": time.time(), **how_it_ended(code), "began": began.at, "stopped": None, "sha256": ""}
        write_end(began.place, {**end, "bytes": pipes.total, "kept": pipes.kept})
    except OSError:
        pass  # how it ended goes to the agent all the same
    end_alike(code)


def hold_alive(place: str) -> int:
    """The lock that shows that somebody watches; a reader takes it for an instant, and releases it."""
    fd = open_own(os.path.join(place, "alive"), os.O_RDWR | os.O_CREAT)
    for _ in range(ALIVE_TRIES):
        if try_lock(fd):
            break
        time.sleep(0.01)
    return fd


def where() -> dict[str, str]:
    return {"boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(), "pid_namespace": pid_namespace()}


def become(line: list[str], place: str, pipes: Pipes, mark: dict[str, Any], outside: dict[int, Any]) -> NoReturn:
    """In the new process: note its own pid before its first instruction, then be the shell."""
    code = 126
    try:
        pipes.enter()
        try:
            pid = os.getpid()
            write_note(place, "started", {**mark, "command": pid, "command_started": process_started(pid)})
        except OSError:
            pass
        for number, handler in outside.items():
            signals.signal(number, signals.SIG_IGN if handler == signals.SIG_IGN else signals.SIG_DFL)
        for name in AFTER_PYTHON:
            signals.signal(getattr(signals, name), signals.SIG_DFL)
        signals.pthread_sigmask(signals.SIG_UNBLOCK, list(outside))
        os.execv(line[0], line)
    except FileNotFoundError:
        code = 127
    except OSError:
        pass
    finally:
        os._exit(code)


class Pipes:
    """Where the output goes: to what the agent gave, unless that is a pipe, which ends with the agent.

    Then it goes through here, is kept, and is passed on for as long as anybody takes it.
    """

    def __init__(self) -> None:
        self.to: dict[int, int] = {}  # our end of a new pipe, and the agent's descriptor behind it
        self.ends: dict[int, int] = {}  # the agent's descriptor, and the command's end of the new pipe
        self.gone: set[int] = set()
        self.file = ""
        self.total = self.kept = 0
        self.tail = b""
        self.kept_in = -1
        found = {number: os.fstat(number) for number in (1, 2) if is_open(number)}
        for number, one in found.items():
            if stat.S_ISREG(one.st_mode) and not self.file:
                self.file = read_link(f"/proc/self/fd/{number}")
            if not (stat.S_ISFIFO(one.st_mode) or stat.S_ISSOCK(one.st_mode)):
                continue
            same = number == 2 and 1 in self.ends and os.path.samestat(found[1], one)
            if same:  # one pipe for both, or what they print would change its order
                self.ends[2] = self.ends[1]
                continue
            ours, theirs = os.pipe()
            self.to[ours], self.ends[number] = number, theirs

    def enter(self) -> None:
        for number, end in self.ends.items():
            os.dup2(end, number)

    def close_ends(self) -> None:
        for end in set(self.ends.values()):
            os.close(end)

    def keep_in(self, place: str) -> None:
        try:
            self.kept_in = open_own(os.path.join(place, "output.raw"), os.O_WRONLY | os.O_CREAT)
        except OSError:
            self.kept_in = -1

    def take(self, ours: int, chunk: bytes) -> None:
        """Keep it, and pass it on; the pipe's end is the end of what is relayed."""
        self.total += len(chunk)
        head = chunk[: max(0, HEAD_BYTES - self.kept)] if self.kept_in >= 0 else b""
        try:
            write_all(self.kept_in, head)
            self.kept += len(head)
        except OSError:  # a full disk takes no more, and must not end the command that prints
            self.kept_in = -1
        self.tail = (self.tail + chunk[len(head) :])[-TAIL_BYTES:]
        number = self.to[ours]
        left = memoryview(chunk)
        while left and number not in self.gone:
            try:
                left = left[os.write(number, left) :]
            except BlockingIOError:
                select.select([], [number], [])
            except OSError:  # nobody reads any more: the command continues
                self.gone.add(number)

    def close_tail(self, place: str) -> None:
        try:
            if self.tail:
                fd = open_own(os.path.join(place, "output.tail.raw"), os.O_WRONLY | os.O_CREAT)
                write_all(fd, self.tail)
                os.close(fd)
        except OSError:
            self.tail = b""


def wait(began: Began) -> int:
    """Until the command has ended; what it left behind in the background is relayed by a process of its own."""
    child, pipes = began.child, began.pipes
    if not pipes.to:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    pipes.close_ends()
    pipes.keep_in(began.place)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signals.signal(signals.SIGCHLD, lambda number, frame: None)
    signals.set_wakeup_fd(wake)
    code: int | None = None
    while code is None:
        relay(pipes, [*pipes.to, woken], None)
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    for _ in range(READS_AFTER_END):
        if not pipes.to or not relay(pipes, list(pipes.to), 0):
            break
    signals.set_wakeup_fd(-1)
    if pipes.to:  # somebody whom it started still has the other end
        relay_in_background(pipes, (woken, wake, *began.held))
    pipes.close_tail(began.place)
    return code


def relay(pipes: Pipes, sources: list[int], seconds: float | None) -> bool:
    """Pass on what is there; False where nothing came."""
    ready = select.select(sources, [], [], seconds)[0]
    for ours in ready:
        if ours not in pipes.to:
            os.read(ours, 4_096)
            continue
        chunk = os.read(ours, READ_BYTES)
        if chunk:
            pipes.take(ours, chunk)
        else:
            os.close(ours)
            del pipes.to[ours]
    return bool(ready)


def relay_in_background(pipes: Pipes, held: tuple[int, ...]) -> None:
    """As long as anybody prints. The locks are given back with the end of the command, not with that of the relay."""
    if os.fork():
        return
    try:
        for fd in held:
            os.close(fd)
        while pipes.to:
            relay(pipes, list(pipes.to), None)
    finally:
        os._exit(0)


def end_alike(code: int) -> NoReturn:
    """Exactly as the command ended, also by a signal."""
    if code < 0:
        number = -code
        if number not in (signals.SIGKILL, signals.SIGSTOP):
            signals.signal(number, signals.SIG_DFL)
        os.kill(os.getpid(), number)
        signals.pthread_sigmask(signals.SIG_UNBLOCK, [number])
        time.sleep(1)
    os._exit(code if code >= 0 else 128 - code)


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def read_link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


if __name__ == "__main__":
    main(sys.argv[1:])

"""The program behind `acode hook`: it reads the payload, has it handled within its own deadline, prints and ends.

An agent starts it twice for every call of a tool. So it loads next to nothing and asks a resident, which has the engine
loaded; the first hook of an agent handles its payload itself and leaves the resident behind, which ends with the agent.
Without a resident, or with one that dies in the middle, everything is handled here: it saves time and decides nothing.

A hook that is too slow or crashes lets the tool run: the deadline is well under the agent's, and whatever fails before
a tool ends with status 2, which blocks.
"""

from __future__ import annotations

import os
import sys

from acode.command_notes import digest, pid_namespace
from acode.disk.fsync import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Handled = tuple[int, bytes, bytes, Callable[[], None] | None]

DEADLINE_S = 20.0
CONNECT_S = 2.0
PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
BLOCKED = 2
SAID = b"."


def main(doors: str) -> NoReturn:
    """Started as a program by its own script, without the packages of this Python on its path."""
    try:
        data = read_all(0, PAYLOAD_BYTES_MAX + 1)
        answered = ask_resident(doors, data)
        if answered is not None:
            os._exit(answered)
        import site

        site.main()
        status = answer(*handled(doors, data, dict(os.environ), os.getppid()))
    except BaseException as error:
        say(b"", refusal(error))
        os._exit(BLOCKED)
    leave_resident(doors)
    os._exit(status)


def run(doors: str, parent: int) -> int:
    """The same from the command line, which has everything loaded; its exit status."""
    try:
        return answer(*handled(doors, read_all(0, PAYLOAD_BYTES_MAX + 1), dict(os.environ), parent))
    except BaseException as error:
        say(b"", refusal(error))
        return BLOCKED


def handled(doors: str, data: bytes, env: dict[str, str], parent: int) -> Handled:
    """The exit status, what is printed, and what records that it was."""
    _set_deadline()
    from acode.observed.doors import at
    from acode.observed.hook import handle
    from acode.observed.hook_answer import printed

    event, answer = handle(data, env, at(doors), parent)
    out = printed(event, answer)
    stdout, stderr = (text.encode("utf-8", "backslashreplace") for text in (out.stdout, out.stderr))
    return out.status, stdout, stderr, answer.once_said


def refusal(error: BaseException) -> bytes:
    text = f"acode could not record this call, so it was not run: {type(error).__name__}: {error}\n"
    return text.encode("utf-8", "backslashreplace")


def answer(status: int, out: bytes, err: bytes, once_said: Callable[[], None] | None) -> int:
    """Print first, then record that it was printed: killed in between, the next hook says it once more."""
    if say(out, err) and once_said is not None:
        record_said(once_said)
    return status


def say(out: bytes, err: bytes) -> bool:
    """False: nobody listens any more."""
    taken = True
    for number, text in ((1, out), (2, err)):
        try:
            write_all(number, text)
        except OSError:
            taken = False
    return taken


def record_said(once_said: Callable[[], None]) -> None:
    """Where it fails, the same is said once more."""
    try:
        once_said()
    except BaseException:
        return


def read_all(descriptor: int, bytes_max: int) -> bytes:
    pieces, left = [], bytes_max
    while left > 0 and (piece := os.read(descriptor, min(left, 1024 * 1024))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _set_deadline() -> None:
    import signal

    def too_late(number: int, frame: object) -> NoReturn:
        raise TimeoutError(f"it took longer than {DEADLINE_S:g} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)


# The resident: asked here, served in `observed.resident`.


def resident_name() -> str:
    """One for each installation and pid namespace: elsewhere the same pid is another process."""
    return "resident-" + digest(f"{pid_namespace()} {os.path.abspath(__file__)} {sys.version}".encode())[:16]


def ask_resident(doors: str, data: bytes) -> int | None:
    """Print its answer; the exit status, or None where there is no resident, or it died before it gave a whole one."""
    connection = _connected(doors)
    if connection is None:
        return None
    try:
        env = b"\0".join(name + b"=" + value for name, value in os.environb.items())
        head = b"%d %d %d\n" % (os.getppid(), len(env), len(data))
        connection.settimeout(DEADLINE_S)
        connection.sendall(head + env + data)
        found = read_answer(connection)
        if found is None:
            return None
        status, out, err, waits = found
        if say(out, err) and waits:
            confirm(connection)
        return status
    except OSError:
        return None
    finally:
        connection.close()


def read_answer(connection: Any) -> tuple[int, bytes, bytes, bool] | None:
    """The exit status, what is to be printed, and whether it waits to hear that it was; None: not whole."""
    text = b""
    while piece := connection.recv(65_536):
        text += piece
        first, _, body = text.partition(b"\n")
        numbers = first.split()
        if len(numbers) != 4 or not all(one.isdigit() for one in numbers):
            continue
        status, out, err, waits = map(int, numbers)
        if len(body) == out + err and b"\n" in text:
            return status, body[:out], body[out:], bool(waits)
    return None


def confirm(connection: Any) -> None:
    """It was printed. The agent continues when this process ends: by then that must be on record."""
    try:
        connection.sendall(SAID)
        connection.recv(1)  # the end, when it has been recorded
    except OSError:
        return


def socket_name(directory: int) -> str:
    """By the open directory: the kernel takes no more than a hundred characters for the name of a socket."""
    return f"/proc/self/fd/{directory}/{resident_name()}"


def _connected(doors: str) -> Any:
    try:
        import _socket
    except ImportError:
        return None
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        directory = os.open(doors, os.O_RDONLY | os.O_DIRECTORY)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(socket_name(directory))
        finally:
            os.close(directory)
    except OSError:
        connection.close()
        return None
    return connection


def leave_resident(doors: str) -> None:
    """The hook has been answered: a process of its own serves the next ones, with all that was loaded for this one."""
    try:
        from acode.observed.resident import Hook, serve_from_hook

        serve_from_hook(doors, os.getppid(), Hook(handled, record_said, refusal, socket_name))
    except BaseException:
        return

"""The notes of one command: that somebody took it, that it began, how it ended.

The keeper and the front write them alike, so that one reader settles both. A note stands there whole or not at all. The
front starts with every command of an agent: nothing that costs may be imported here.
"""

from __future__ import annotations

import os
import sys

from acode.disk.file_lock import try_lock
from acode.disk.fsync import sync_directory, sync_file, write_all
from acode.disk.own_files import open_own

TYPE_CHECKING = False  # importing it from typing would cost more than all the rest
if TYPE_CHECKING:
    import signal as signals
    from collections.abc import Mapping

    Value = str | int | float | bool | None
else:
    import _signal as signals  # without the enumerations of `signal`, which cost as much as a start of Python

CLAIM = "claimed"
NOTE_BYTES = 1_024
ESCAPED_BELOW = 0x20


def claim(directory: str) -> int | None:
    """Once per attempt: the file that says so, locked.

    A directory in its place: the attempt was settled as never begun, and must not begin any more. So an acode that was
    suspended before it started its command cannot start it when it wakes up much later.
    """
    try:
        # To read only: a command that held it for writing would keep its disk from being made read-only.
        fd = os.open(os.path.join(directory, CLAIM), os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    if sys.platform != "win32":
        try:  # noqa: SIM105 - contextlib costs a command's front a tenth of its time
            try_lock(fd)
        except OSError:  # it is more evidence; the command can do without
            pass
    return fd


def write_note(directory: str, name: str, value: Mapping[str, Value], *, durable: bool = False) -> None:
    """Whole or not at all."""
    temp, place = os.path.join(directory, f"{name}.new"), os.path.join(directory, name)
    _put(temp, encode(value), durable=durable)
    os.replace(temp, place)
    if durable:
        # The directory of this attempt is new: without its own name above it, all in it is lost to a power cut.
        for changed in (os.path.dirname(directory), directory):
            sync_directory(changed)


def write_end(directory: str, value: Mapping[str, Value]) -> None:
    """How it ended, into the room that was taken for it; the last note of a command, and the one that must last."""
    try:
        inode = {"inode": os.stat(os.path.join(directory, "status.new")).st_ino}
    except FileNotFoundError:
        inode = {}
    write_note(directory, "status", {**value, **inode}, durable=True)


def take_room(directory: str, name: str = "status") -> None:
    """For the last note while there is room: a disk that the command fills must not swallow how it ended."""
    _put(os.path.join(directory, f"{name}.new"), b"", durable=False)


def _put(path: str, note: bytes, *, durable: bool) -> None:
    """Over whatever stands there, with blanks up to the room that is taken for every note."""
    fd = open_own(path, os.O_WRONLY | os.O_CREAT)
    try:
        write_all(fd, note.ljust(NOTE_BYTES))
        if durable:
            sync_file(fd)
    finally:
        os.close(fd)


def how_it_ended(code: int) -> dict[str, Value]:
    """An exit status, or the name of the signal whose number is given negative."""
    return {"exit": code} if code >= 0 else {"exit": None, "signal": signal_name(-code)}


def signal_name(number: int) -> str:
    names = (name for name in dir(signals) if name.startswith("SIG") and not name.startswith("SIG_"))
    known = next((name for name in names if getattr(signals, name) == number), None)
    return known or f"signal {number}"  # a real-time signal has no name


# Processes.


def process_started(pid: int) -> float | None:
    """When the process began, in the unit of the lock's owner check; the pid alone may be somebody else's tomorrow."""
    fields = process_stat(pid) if sys.platform == "linux" else []
    # Dead and not yet fetched by its parent: in a container without an init that may last forever.
    return float(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else None


def process_stat(pid: int) -> list[str]:
    """What Linux says of a process, from its state on; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []  # any other error says nothing about the process, and must not make it dead


def pid_namespace() -> str:
    """The same for all processes that know each other by pid: those of a container have one of their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def digest(data: bytes) -> str:
    """SHA-256, without the module that knows all the others too."""
    try:
        from _sha2 import sha256  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            from hashlib import sha256
    return str(sha256(data).hexdigest())


# JSON of one level: the module for it would take longer to load than the front takes.


def encode(value: Mapping[str, Value]) -> bytes:
    return ("{" + ",".join(f"{_text(key)}:{_value(one)}" for key, one in value.items()) + "}").encode("ascii")


def _value(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    whole = value.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate would make the note unreadable
    return '"' + "".join(char if _is_plain(char) else _escaped(char) for char in whole) + '"'


def _is_plain(char: str) -> bool:
    return char.isascii() and char not in '"\\\x7f' and ord(char) >= ESCAPED_BELOW


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

"""One process per session: a kernel lock while it lives, and a generation that only grows.

The kernel frees the lock the moment its holder dies, so the file's existence means nothing and it is never deleted: two
processes that delete and create it would both hold one. Breaking a lock raises the generation in the database, and
every append checks it: an owner that slept through the breaking is refused when it wakes up. The file's content is for
people; no decision rests on it except the name that is shown.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from acode import command_notes, forked
from acode.disk import file_lock
from acode.disk.own_files import SAFE_FLAGS, read_own
from acode.disk.private_files import write_private
from acode.errors import (
    LockForeignOwner,
    LockForeignProcess,
    LockPermissions,
    LockUnsafe,
    NotWritable,
    SessionLocked,
)
from acode.events.types import Owner
from acode.hints import Command, Hint, Resume, Subject

HEARTBEAT_S = 5.0
OWNER_BYTES_MAX = 4096
WAIT_STEP_S = 0.2
GLANCE_S = 0.02
GLANCES_S_MAX = 1.0
BRIEF_S_MAX = 5.0
_WINDOWS_MACHINE = r"SOFTWARE\Microsoft\Cryptography"


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process that holds, or last held, a lock; written into the file for people and for the patience of others."""

    pid: int
    started: float
    boot_id: str
    host: str
    user: str
    command: str
    since: datetime
    pid_namespace: str = ""  # where the pid means something; empty in records of 0.1 and where there is only one
    brief: bool = False  # it records an answer and is gone: worth a moment's wait
    released: bool = False  # it lives and holds the lock no more: a lock on the file is somebody else's


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A lock as somebody else finds it."""

    held: bool
    holder: Holder | None
    touched_at: datetime | None


class Lock:
    """A held lock; `release` or the end of the process gives it back."""

    def __init__(self, path: Path, fd: int, holder: Holder, found_ns: int) -> None:
        self.path = path
        self.holder = holder
        self._fd = fd
        self._found_ns = found_ns
        self._request = os.fspath(_request_path(path))
        self._stop = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="acode-lock", daemon=True)
        self._pulse.start()
        forked.own(self, Lock._disown)

    def _disown(self) -> None:
        """In a forked child only the copy of the descriptor is closed: with it open, the child would hold the lock when
        its parent is dead; unlocking it, or restoring its sign of life, would take it from the living parent.
        """
        os.close(self._fd)
        self._fd = -1

    def asked_to_pause(self) -> bool:
        """Whether somebody has asked this holder to pause. A request to one that held the lock before is none."""
        if not os.access(self._request, os.F_OK):  # asked at every step: one call to the system, and no more
            return False
        try:
            asked = msgspec.json.decode(read_own(_request_path(self.path)), type=Holder)
        except (OSError, ValueError, RecursionError):  # none, or something that acode did not make
            return False
        if asked != self.holder:
            return False
        self._forget_requests()
        return True

    def _forget_requests(self) -> None:
        with contextlib.suppress(OSError):
            _request_path(self.path).unlink(missing_ok=True)

    def _beat(self) -> None:
        """A sign of life every few seconds: it dates a crash that leaves no event. Unsynced, so it costs nothing."""
        while not self._stop.wait(HEARTBEAT_S):
            self._touch(time.time_ns())

    def _touch(self, at_ns: int) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._fd if os.utime in os.supports_fd else self.path, ns=(at_ns, at_ns))

    def release(self) -> None:
        """Release the lock in order, which is no crash: the sign of life that was found is restored.

        It dates the crash of the previous holder. Without this a refused attempt, which holds the lock while
        it looks, would move the crash to its own time and start the cool-down again.
        """
        if self._fd < 0:
            return
        self._stop.set()
        self._pulse.join()  # or its last beat could hit a file that got this descriptor's number meanwhile
        # Or a page that gave an answer, and looks at the lock from time to time, would be taken for its holder.
        _note_released(self._fd, self.holder)
        self._touch(self._found_ns)
        self._forget_requests()  # whom it was meant for, this one or an earlier one, works on the session no more
        forked.give_back(self)
        fd, self._fd = self._fd, -1
        file_lock.unlock(fd)
        os.close(fd)


def lock_path(locks: Path, session_id: str, generation: int) -> Path:
    return locks / f"{session_id}.{generation}"


def acquire(
    locks: Path,
    session_id: str,
    generation: Callable[[], int],
    *,
    wait_s: float = 0.0,
    brief: bool = False,
    now: Callable[[], datetime],
) -> tuple[Lock, int]:
    """The lock of the session's present generation, or a refusal that names the owner.

    The generation is read again after the kernel granted the lock: between the two somebody may have broken it. A
    `look` takes the lock for a moment too, so a lock whose owner is dead or has released it is tried for a moment, and
    one that is held `brief`ly, to record an answer, a little longer, before it is refused.
    """
    began = time.monotonic()
    while True:
        wanted = generation()
        path = lock_path(locks, session_id, wanted)
        fd = _open_private(path)
        try:
            granted = _granted(path, fd)
            if granted and generation() == wanted:
                holder, found_ns = myself(now(), brief=brief), _last_touched_ns(fd)
                _write_holder(fd, holder)
                return Lock(path, fd, holder, found_ns), wanted
            holder_found = None if granted else _read_holder(fd)
            holding = None if granted else file_lock.holder_pid(fd)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        if granted:
            continue
        left_s = began + max(wait_s, _patience_s(holder_found, holding)) - time.monotonic()
        if left_s <= 0:
            raise _refusal(session_id, path, holder_found, now(), stranger_of(holder_found, holding))
        time.sleep(min(left_s, WAIT_STEP_S if wait_s else GLANCE_S))


def _patience_s(found: Holder | None, holding: int | None) -> float:
    """How long a lock that another process has is worth trying for: not at all if its living owner works with it."""
    if found is None or found.released or holding not in (None, found.pid) or not alive(found):
        return GLANCES_S_MAX
    return BRIEF_S_MAX if found.brief else 0.0


def ask_to_pause(locks: Path, session_id: str, generation: int, holder: Holder) -> None:
    """Leave a request that the holder finds at its next boundary, whatever signals it ignores.

    It names its addressee, so that no later holder of the same generation obeys it.
    """
    # Not synced: a power cut that takes the request away also ends the process that it is meant for.
    request = _request_path(lock_path(locks, session_id, generation))
    write_private(request, msgspec.json.encode(holder), durable=False)


def _request_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.pause")


def look(locks: Path, session_id: str, generation: int) -> Seen:
    """The holder, without taking the lock and without creating anything."""
    path = lock_path(locks, session_id, generation)
    try:
        fd = _open_checked(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)  # a disk may be read-only
    except FileNotFoundError:
        return Seen(held=False, holder=None, touched_at=None)
    try:
        touched = datetime.fromtimestamp(os.fstat(fd).st_mtime, UTC)
        held = not _granted(path, fd, shared=True)  # two that look at the same time must not see each other
        if not held:
            file_lock.unlock(fd)
        return Seen(held=held, holder=_read_holder(fd), touched_at=touched)
    finally:
        os.close(fd)


def hint_to_wait(subject: Subject) -> Hint:
    return Hint(
        "Wait for it ({}), look for other acode processes, or, if the owner hangs, break the lock: {}",
        Resume(wait=True),
        Command("session unlock SESSION --force"),
        of=subject,
    )


def _refusal(
    session_id: str, path: Path, holder: Holder | None, now: datetime, stranger: str | None
) -> SessionLocked | LockForeignProcess:
    short = session_id[-8:]
    hint = hint_to_wait(Subject(short))
    details = msgspec.to_builtins(holder)
    if stranger is not None:
        return LockForeignProcess(
            f"the lock of session {short} is held by a process that is not acode: {stranger}", hint=hint, owner=details
        )
    if holder is None:
        return SessionLocked(f"Session {short} is locked by another process", hint=hint)
    minutes = max(0, int((now - holder.since).total_seconds() // 60))
    return SessionLocked(
        f"Session {short} is locked by another process: pid {holder.pid} of {holder.user} on {holder.host},"
        f" for {minutes} min ({holder.command})",
        hint=hint,
        owner=details,
        path=os.fspath(path),
    )


# Identifying processes.


def myself(now: datetime, *, brief: bool = False) -> Holder:
    return Holder(
        pid=os.getpid(),
        started=process_started(os.getpid()) or 0.0,
        boot_id=boot_id(),
        host=host_name(),
        user=user_name(),
        command=command_name(sys.argv),
        since=now,
        pid_namespace=pid_namespace(),
        brief=brief,
    )


def command_name(argv: list[str]) -> str:
    """The command's name and its subcommand: the arguments after them may be a person's text, and hold a secret."""
    words = [Path(argv[0]).name or "python"]
    for word in argv[1:3]:
        if not (word.isascii() and word.isalpha() and word.islower() and len(word) <= 16):
            break
        words.append(word)
    return " ".join(words)[:200]


def owner() -> Owner:
    return Owner(pid=os.getpid(), host=host_name(), user=user_name(), boot_id=boot_id())


def host_name() -> str:
    """Without the network module where the kernel answers: loading that takes milliseconds."""
    if sys.platform != "win32":
        return os.uname().nodename
    import socket

    return socket.gethostname()


def user_name() -> str:
    try:
        import getpass

        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


@cache
def boot_id() -> str:
    """The same until the machine starts again; distinguishes a crash of the process from one of the machine."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    if sys.platform == "darwin" and (session := _kernel_text("kern.bootsessionuuid")):
        return session
    import psutil

    return f"boot-{int(psutil.boot_time())}"


def _kernel_text(name: str) -> str:
    """The value that macOS has under this name. Its boot time would not do: that moves when the clock is set."""
    import ctypes

    text, size = ctypes.create_string_buffer(128), ctypes.c_size_t(128)
    answer = ctypes.CDLL(None).sysctlbyname(name.encode(), text, ctypes.byref(size), None, 0)
    return text.value.decode("ascii", "replace") if answer == 0 else ""


class Recorded(Protocol):
    """A process that was written down, with where its pid means something."""

    @property
    def boot_id(self) -> str: ...
    @property
    def pid_namespace(self) -> str: ...


class RecordedProcess(Recorded, Protocol):
    """A process that differs from a later one with the same pid."""

    @property
    def pid(self) -> int: ...
    @property
    def started(self) -> float: ...


def is_judged_here(recorded: Recorded) -> bool:
    """Whether its pid means the same here: elsewhere it is another process's, and shows nothing."""
    return recorded.boot_id == boot_id() and not is_in_another_container(recorded)


def is_in_another_container(recorded: Recorded) -> bool:
    """Started since this boot, where pids count from one again: whether it lives, its pid does not show here."""
    return recorded.boot_id == boot_id() and recorded.pid_namespace not in ("", pid_namespace())


def pid_namespace() -> str:
    return command_notes.pid_namespace()


@cache
def machine_id() -> str:
    """The same until the system is installed again; empty where the system has none, as in many containers."""
    if sys.platform == "win32":
        import winreg

        with contextlib.suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _WINDOWS_MACHINE) as key:
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
        return ""
    if sys.platform == "darwin":
        import ctypes

        found, no_wait = (ctypes.c_ubyte * 16)(), (ctypes.c_long * 2)(0, 0)
        answer = ctypes.CDLL(None).gethostuuid(found, no_wait)
        return bytes(found).hex() if answer == 0 else ""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            return file.read(100).strip()
    return ""


def process_started(pid: int) -> float | None:
    """When a process began, or None if there is none; together with the pid it reveals a reused pid, most of the
    time.
    """
    if sys.platform == "linux":
        return command_notes.process_started(pid)
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def alive(holder: RecordedProcess) -> bool:
    """Whether the very process is seen to live: same boot, same namespace, same pid, same start.

    False says nothing of a process in another container: that it holds its lock does.
    """
    return is_judged_here(holder) and process_started(holder.pid) == holder.started


def stranger_of(holder: Holder | None, holding: int | None) -> str | None:
    """The process that holds the lock, if it is none of acode's: an acode writes its name into the file at once.

    holding: the pid that the kernel names. A child that a dead owner forked holds the lock under its parent's pid. On
    a full disk an acode leaves no name; so where there is none, whatever runs on Python may be one.
    """
    if holder is not None and (holder.host != host_name() or not is_judged_here(holder)):
        return None  # pids of another machine or container say nothing here
    if holding is not None and holder is None:
        found = describe(holding)
        return found if found is not None and "python" not in found and "acode" not in found else None
    if holding is not None and holder is not None and holding != holder.pid:
        return describe(holding)
    if holder is None or alive(holder) or process_started(holder.pid) is None:
        return None
    return describe(holder.pid)  # its pid is another process's now


def describe(pid: int) -> str | None:
    import psutil

    try:
        return f"pid {pid}, {psutil.Process(pid).name()}"
    except psutil.Error:
        return None


# The file.


def _open_private(path: Path) -> int:
    try:
        return _open_checked(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError as error:
        raise NotWritable(f"the directory {path.parent} is gone") from error


def _open_checked(path: Path, flags: int) -> int:
    """Opened without following a link, and checked through the descriptor: what is checked is what is locked."""
    try:
        fd = os.open(path, flags | SAFE_FLAGS, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise LockUnsafe(
                f"the lock file {path} is a link: refused", hint="Remove it and look who made it."
            ) from error
        raise NotWritable(f"the lock file {path} cannot be opened: {error.strerror}") from error
    try:
        _check(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise LockUnsafe(f"the lock file {path} is no regular file")
    if sys.platform == "win32":
        return  # Windows protects the file by its access list
    if status.st_nlink > 1:  # what acode notes in it would be written into a file elsewhere
        raise LockUnsafe(f"the lock file {path} is a hard link: refused", hint="Remove it and look who made it.")
    if status.st_uid != os.geteuid():
        raise LockForeignOwner(
            f"the lock file {path} is owned by user {status.st_uid}, you are {os.geteuid()}",
            hint="This session belongs to another user: let them resume it.",
            owner=status.st_uid,
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode != 0o600:
        raise LockPermissions(
            f"the lock file {path} has incorrect permissions: expected 600, got {mode:o}",
            hint=f"If nobody tampered with it: chmod 600 {path}",
            expected="600",
            found=f"{mode:o}",
        )


def _last_touched_ns(fd: int) -> int:
    """The last sign of life of the previous holder; a file without an owner's name in it was made just now."""
    status = os.fstat(fd)
    return status.st_mtime_ns if status.st_size else 0


def _write_holder(fd: int, holder: Holder) -> None:
    """For people only, so a full disk keeps nobody from the lock."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, msgspec.json.encode(holder))


def _note_released(fd: int, holder: Holder) -> None:
    """In one write, which is longer than the record that it replaces: a crash leaves one or the other."""
    with contextlib.suppress(OSError):
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, msgspec.json.encode(msgspec.structs.replace(holder, released=True)))


def _read_holder(fd: int) -> Holder | None:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError):
        os.lseek(fd, 0, os.SEEK_SET)
        return msgspec.json.decode(os.read(fd, OWNER_BYTES_MAX), type=Holder)
    return None


def _granted(path: Path, fd: int, *, shared: bool = False) -> bool:
    """False only where somebody holds it: a file system without locks must not look like an owner to be waited for."""
    try:
        return file_lock.try_lock(fd, shared=shared)
    except OSError as error:
        raise NotWritable(
            f"the lock file {path} cannot be locked: {error.strerror}",
            hint="Nobody holds it: the machine or its file system gives no lock. Keep the workspace where files can be"
            " locked.",
        ) from error

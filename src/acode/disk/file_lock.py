"""The kernel's lock on an open file: one holder at a time, freed the moment the last process with it open is gone.

It is requested and never waited for inside the kernel, where no request to stop would be noticed. The caller decides
the meaning of a lock and the name in its file. A lock file is never deleted: a process that opens the name again would
hold another one.
"""

from __future__ import annotations

import errno
import os
import sys
import time

# Beyond any text in the file, because the locks of Windows are mandatory: others may read who holds it.
_WINDOWS_BYTE = 0x7FFFFFFE

if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:
        """Take the lock; False where another process has it. A lock that the machine cannot give is an OSError."""
        os.lseek(descriptor, _WINDOWS_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EDEADLK):
                raise
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def unlock(descriptor: int) -> None:
        os.lseek(descriptor, _WINDOWS_BYTE, os.SEEK_SET)
        try:  # noqa: SIM105 - contextlib costs a command's front a tenth of its time
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        except OSError:
            pass
else:
    import fcntl

    def try_lock(descriptor: int, *, shared: bool = False) -> bool:
        """Take the lock; False where another process has it. A lock that the machine cannot give is an OSError.

        shared: only to look whether it is held; others that look at the same time do not count.
        """
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        try:  # noqa: SIM105 - contextlib costs a command's front a tenth of its time
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            pass


def lock_within(descriptor: int, *, wait_s: float, every_s: float) -> bool:
    """Take the lock as soon as its holder gives it back; False if that takes longer than `wait_s`."""
    until = time.monotonic() + wait_s
    while not try_lock(descriptor):
        if time.monotonic() >= until:
            return False
        time.sleep(every_s)
    return True


def holder_pid(descriptor: int) -> int | None:
    """The process that holds the lock on this file, from the kernel; None where it is unknown, or not in our
    namespace.
    """
    if sys.platform != "linux":
        return None
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            for fields in map(str.split, file):
                if fields[1:2] == ["FLOCK"] and fields[5:6] == [device]:
                    return int(fields[4]) if int(fields[4]) > 0 else None
    except (OSError, ValueError):
        pass
    return None

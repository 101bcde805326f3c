"""System calls by name, on the two machines the harness knows, and which of them change what outlives a process."""

from __future__ import annotations

import os
import platform

_X86_64 = {
    "write": 1, "open": 2, "pwrite64": 18, "writev": 20, "sendfile": 40, "sendto": 44, "recvfrom": 45, "sendmsg": 46,
    "recvmsg": 47, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "fsync": 74, "fdatasync": 75,
    "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87,
    "symlink": 88, "chmod": 90, "fchmod": 91, "sync": 162, "tkill": 200, "tgkill": 234, "openat": 257, "mkdirat": 258,
    "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266, "fchmodat": 268, "fallocate": 285,
    "pwritev": 296, "syncfs": 306, "sendmmsg": 307, "renameat2": 316, "execveat": 322, "copy_file_range": 326,
    "pwritev2": 328, "clone3": 435, "openat2": 437, "fchmodat2": 452, "read": 0, "pread64": 17, "fstat": 5,
    "flock": 73, "getdents64": 217, "newfstatat": 262,
}  # fmt: skip
_AARCH64 = {
    "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46,
    "fallocate": 47, "fchmod": 52, "fchmodat": 53, "openat": 56, "read": 63, "write": 64, "writev": 66, "pread64": 67,
    "pwrite64": 68, "pwritev": 70, "sendfile": 71, "sync": 81, "fsync": 82, "fdatasync": 83, "kill": 129, "tkill": 130,
    "tgkill": 131, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "clone": 220, "execve": 221,
    "syncfs": 267, "sendmmsg": 269, "renameat2": 276, "execveat": 281, "copy_file_range": 285, "pwritev2": 287,
    "clone3": 435, "openat2": 437, "fchmodat2": 452, "flock": 32, "getdents64": 61, "newfstatat": 79, "fstat": 80,
}  # fmt: skip

MACHINE = platform.machine()
NUMBERS: dict[str, int] = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(MACHINE, {})
NAMES: dict[int, str] = {number: name for name, number in NUMBERS.items()}

AT_FDCWD = -100
OPENING = frozenset({"open", "creat", "openat", "openat2"})
# What is received is not among them: behind it, a server is known to have done what it was asked.
READING = frozenset({"read", "pread64", "fstat", "newfstatat", "getdents64", "flock"})
CHANGING = frozenset(_X86_64) - OPENING - READING
CHANGING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Where the flags of a call that opens stand; those of openat2 lie in memory.
OPEN_FLAGS = {"open": 1, "openat": 2}
PROCESSES = frozenset({"fork", "vfork", "clone", "clone3"})
CLONE_THREAD = 0x10000

# Where a call's path stands among its arguments: (directory descriptor or None, path).
PATHS: dict[str, tuple[int | None, int]] = {
    "open": (None, 0), "creat": (None, 0), "openat": (0, 1), "openat2": (0, 1), "truncate": (None, 0),
    "rename": (None, 0), "renameat": (0, 1), "renameat2": (0, 1), "mkdir": (None, 0), "mkdirat": (0, 1),
    "rmdir": (None, 0), "link": (None, 0), "linkat": (0, 1), "unlink": (None, 0), "unlinkat": (0, 1),
    "symlink": (None, 1), "symlinkat": (1, 2), "chmod": (None, 0), "fchmodat": (0, 1), "fchmodat2": (0, 1),
    "newfstatat": (0, 1),
}  # fmt: skip
# The new name of those that have two.
NEW_PATHS: dict[str, tuple[int | None, int]] = {
    "rename": (None, 1), "renameat": (2, 3), "renameat2": (2, 3), "link": (None, 1), "linkat": (2, 3),
}  # fmt: skip
# Where the descriptor of the changed file stands.
DESCRIPTORS: dict[str, int] = {
    "write": 0, "pwrite64": 0, "writev": 0, "pwritev": 0, "pwritev2": 0, "sendfile": 0, "copy_file_range": 2,
    "fsync": 0, "fdatasync": 0, "ftruncate": 0, "fallocate": 0, "fchmod": 0, "syncfs": 0, "read": 0, "pread64": 0,
    "fstat": 0, "flock": 0, "getdents64": 0,
}  # fmt: skip

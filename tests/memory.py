"""Where tests keep their files: in memory, where there is room for that.

Thousands of small files are made, synced and removed; nobody waits for a disk then, and no file system looks for free
places. No test pulls the plug: what a disk may lose then is told by a model of it, see `tests/crash/harness/power.py`.
"""

from __future__ import annotations

import os
import sys

MEMORY, MEMORY_BYTES_MIN = "/dev/shm", 4 * 1024**3


def memory() -> str | None:
    """A directory in memory with a short path; None where there is none, or where it is small."""
    if sys.platform == "linux" and os.access(MEMORY, os.W_OK):
        about = os.statvfs(MEMORY)
        if about.f_bavail * about.f_frsize >= MEMORY_BYTES_MIN and not about.f_flag & os.ST_NOEXEC:
            return MEMORY
    return None

"""A file system of one MiB, mounted for a process of its own: full disks and read-only ones as they really are."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

FAILED, CANNOT_MOUNT = 1, 77
NEW_MOUNTS, PRIVATE_FROM_HERE_ON = 0x20000, 0x40000 | 0x4000


def on_a_small_disk(place: Path, work: Callable[[Path], None]) -> None:
    """With a file system of one MiB at `place`, in a process with mounts of its own: none is ever left behind."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    place.mkdir()
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = CANNOT_MOUNT if not mounted(place) else FAILED
            if code == FAILED:
                work(place)
                code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == CANNOT_MOUNT:
        pytest.skip("no file system can be mounted here")
    assert code == 0, "see the traceback on stderr"


def mounted(place: Path) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_MOUNTS) or libc.mount(b"none", b"/", None, PRIVATE_FROM_HERE_ON, None):
        return False
    return bool(libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, b"size=1m,mode=700") == 0)


def remount(place: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(place)], check=True)

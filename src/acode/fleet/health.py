"""Signs of life of a worker for those that watch it: systemd by its socket, others by a file that is touched.

They follow the confirmed renewals: a worker that cannot reach the server is not healthy, although its process lives.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path


class Health:
    """`alive` in the worker's root has the time of the last confirmed renewal."""

    def __init__(self, root: Path, env: Mapping[str, str]) -> None:
        self._file = root / "alive"
        self._address = env.get("NOTIFY_SOCKET", "")
        self._is_ready = False

    def renewed(self) -> None:
        self._file.touch()
        self._tell("WATCHDOG=1" if self._is_ready else "READY=1")
        self._is_ready = True

    def ends(self) -> None:
        self._tell("STOPPING=1")

    def _tell(self, word: str) -> None:
        if not self._address or sys.platform == "win32":
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(word.encode(), os.fsencode(address))

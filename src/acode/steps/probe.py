"""Run a probe: a short command whose exit status says whether a step took effect.

It changes nothing by contract, so it has no keeper: the caller that stops waiting for it ends it, with all its
children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping


def ask(command: str, *, cwd: str, env: Mapping[str, str], timeout_s: float) -> int:
    """Its exit status; subprocess.TimeoutExpired where it took longer, OSError where it could not be started."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command] if sys.platform != "win32" else ["cmd", "/c", command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=sys.platform != "win32",
    )
    try:
        return process.wait(timeout=timeout_s)
    except BaseException:  # also a person's Ctrl+C: the shell alone would leave what it started behind
        _end_all(process)
        raise


def _end_all(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):  # not reaped yet, so that the number is still that of the group
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()

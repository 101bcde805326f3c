"""Run a probe: a short command whose exit status says whether a step took effect.

It changes nothing by contract, so it has no keeper: the caller that stops waiting for it ends it, with all its
children.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from acode.child_process import HeldSignals, end_group


def ask(command: str, *, cwd: str, env: Mapping[str, str], timeout_s: float) -> int:
    """Its exit status; subprocess.TimeoutExpired where it took longer, OSError where it could not be started."""
    process = None
    try:
        with HeldSignals():
            process = subprocess.Popen(
                ["/bin/sh", "-c", command] if sys.platform != "win32" else ["cmd", "/c", command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=sys.platform != "win32",
            )
        return process.wait(timeout=timeout_s)
    except BaseException:  # also a person's Ctrl+C: the shell alone would leave what it started behind
        if process is not None:
            end_group(process)
        raise

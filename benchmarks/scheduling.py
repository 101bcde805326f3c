"""Measuring on a machine on which others work too.

A program that waits for the disk a thousand times a second is hurt most by other people's load: each time it wakes up
it stands behind a process that computes. `ACODE_BENCH_FIRST=1` gives everything that is measured, servers included, a
real-time priority, so that it runs as if the machine were its own. It treats all contenders alike, is inherited by
whatever they start, and is said in the results.
"""

from __future__ import annotations

import os
import sys


def come_first() -> str:
    """Do what ACODE_BENCH_FIRST asks for, and say how this process is scheduled now."""
    if not os.environ.get("ACODE_BENCH_FIRST"):
        return "ordinary"
    if not sys.platform.startswith("linux"):
        return "ordinary: this system has no such priority"
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return "ordinary: only root may come first"
    return "real-time, round robin"

"""How often a contender syncs for a step, counted by strace in a run that is not timed.

Calls of the process that runs the steps and of its server count, between the first step and the last. Where there is no
strace, nothing is counted, and nothing is claimed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.contenders import Contender, process, set_up
from benchmarks.peers.servers import NotHere, Running
from tests.postgres import Server

SYNCS = ("fsync", "fdatasync", "sync_file_range", "msync")
STRACE = ["strace", "-f", "-qq", "-ttt", "-e", f"trace={','.join(SYNCS)}"]
TRACED_STEPS = 200
TRACE_SETTLE_S_MAX = 10.0


def count_syncs(contender: Contender, postgres: Server | None) -> dict[str, Any]:
    with ExitStack() as stack:
        path, running = stack.enter_context(set_up(contender, postgres))
        one = process(contender, path, running, TRACED_STEPS + 1, ("turns", {"chunk": TRACED_STEPS}))
        stack.callback(one.kill)
        traced = shutil.which("strace") is not None
        if traced:
            one.start(*STRACE, "-o", str(path / "syncs"))
        else:
            one.start()
        one.hear()
        tracer = stack.enter_context(attached(running, path)) if traced and running.pid else None
        one.go()
        turn = one.hear()
        one.go()
        ended = one.hear()
        if tracer is not None:
            tracer.terminate()
            tracer.wait()
        settings = {**running.durability, **ended["durability"]}
        if not traced:
            return {**settings, "syncs_per_step": None}
        syncs = syncs_between(path, turn["first"], turn["now"])
        return {**settings, "syncs_per_step": round(syncs / TRACED_STEPS, 2)}


@contextmanager
def attached(running: Running, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """strace on a server that is running already, with all of its processes."""
    server = psutil.Process(running.pid)
    pids = [server.pid, *(child.pid for child in server.children(recursive=True))]
    command = [*STRACE, "-o", str(path / "syncs-of-server")]
    for pid in pids:
        command += ["-p", str(pid)]
    with (path / "strace.log").open("ab") as log:
        tracer = subprocess.Popen(command, stdout=log, stderr=log)
    wait_until_traced(pids, tracer.pid)
    try:
        yield tracer
    finally:
        tracer.terminate()
        tracer.wait()


def wait_until_traced(pids: list[int], tracer: int) -> None:
    deadline = time.monotonic() + TRACE_SETTLE_S_MAX
    while time.monotonic() < deadline:
        threads = [task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*/status")]
        if all(f"TracerPid:\t{tracer}\n" in task.read_text() for task in threads if task.exists()):
            return
        time.sleep(0.01)
    raise NotHere("strace could not be attached to the server")


def syncs_between(path: Path, first: float, last: float) -> int:
    count = 0
    for file in (path / "syncs", path / "syncs-of-server"):
        for line in file.read_text(errors="replace").splitlines() if file.exists() else []:
            words = line.split(maxsplit=2)
            # A call that another thread interrupts is written in two lines; only its beginning counts.
            if len(words) == 3 and "resumed>" not in words[2] and first <= float(words[1]) <= last:
                count += words[2].startswith(SYNCS)
    return count

"""The process with acode loaded: it forks for every command, so that a kill is real and a start costs milliseconds.

One request per line on stdin, one answer per line on stdout. It only runs command lines and programs, and judges
nothing. python -m tests.outside.server [NAME OF A PLANTED BUG]
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import acode.cli
import acode.engine
import acode.formats
import acode.library
import acode.steps
import acode.store
from acode.cli import main
from tests.crash.harness.ptracer import Ended, trace
from tests.crash.harness.syscalls import NUMBERS
from tests.warm_interpreter import compile_patterns

LOOK_EVERY_S = 0.0005
STARTED = b'"event":"step_started"'


def work(request: dict[str, Any]) -> int:
    """In a child of its own: its streams are files, its environment is the request's."""
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        opened = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    if "program" in request:
        sys.argv = [request["program"]]
        try:
            runpy.run_path(request["program"], run_name="__main__")
        finally:
            sys.stdout.flush()  # this process ends without the interpreter's own end
        return 0
    return main(request["argv"])


def plainly(request: dict[str, Any]) -> dict[str, Any]:
    """Killed when the ledger has so many lines, or so many starts were said, if it is to be killed at all."""
    looked_at, word, wanted = Path(request["env"]["LEDGER"]), b"\n", request.get("lines", 0)
    if "starts" in request:
        looked_at, word, wanted = Path(request["stdout"]), STARTED, request["starts"]
        looked_at.unlink(missing_ok=True)  # of the command before
    child = os.fork()
    if child == 0:
        status = 70
        try:
            status = work(request)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            sys.stdout.flush()
            os._exit(status)
    while wanted:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return {"status": os.waitstatus_to_exitcode(status), "stops": 0}
        if looked_at.exists() and looked_at.read_bytes().count(word) >= wanted:
            os.kill(child, signal.SIGKILL)
            break
        time.sleep(LOOK_EVERY_S)
    return {"status": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "stops": 0}


def traced(request: dict[str, Any]) -> dict[str, Any]:
    """Killed at the call with this number; counted only, if that is not reached."""
    ended: Ended = trace(lambda: work(request), kill_at=request["call"])
    if ended.error:
        with open(request["stderr"], "a", encoding="utf-8") as stream:
            stream.write(ended.error)
    return {"status": ended.exit_code, "stops": ended.stops}


def lay_foreign(request: dict[str, Any]) -> dict[str, Any]:
    from tests.foreign import put_memory

    put_memory(Path(request["lay"]), tasks=2)
    return {"status": 0, "stops": 0}


def plant(name: str) -> None:
    """A bug that the oracle must find; see tests/crash/planted.py."""
    from tests.crash.planted import CATALOGUE
    from tests.crash.planted_deep import CATALOGUE as DEEP

    (planted,) = {one.bug: one for one in (*CATALOGUE, *DEEP) if one.bug == name}.values()
    planted.plant(pytest.MonkeyPatch())


def load_everything() -> None:
    """Modules that acode loads when they are needed are loaded once, here, and its patterns compiled."""
    for package in (acode.cli, acode.engine, acode.steps, acode.store, acode.library, acode.formats):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    compile_patterns()


def serve() -> None:
    load_everything()
    for line in sys.stdin:
        request = json.loads(line)
        if "lay" in request:
            answer = lay_foreign(request)
        elif request.get("call") is not None and NUMBERS:
            answer = traced(request)
        else:
            answer = plainly(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        plant(sys.argv[1])
    serve()

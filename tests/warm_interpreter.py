"""An interpreter that has loaded acode, and copies itself for each process that a test asks for: `tests/warm.py`.

A copy's parent is the parent of this process, so that a test waits for it like for any child. Nothing but the imports
and the compiled patterns is older in a copy than in a process that was started from the beginning. Like every process
that was forked with all of them, a copy forks its keeper server too.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import os
import pkgutil
import platform
import random
import runpy
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

import acode.cli
from acode.planfile import parse_plan
from acode.redact import redactor
from acode.steps.keeper_start import fork_server

SMALL_PLAN = """
title: One step of each kind
tasks:
  - id: work
    steps:
      - run: ["true", 'a', b]
        outputs: [out/**]
      - {id: text, write: {path: a.txt, content: "a\\n"}}
      - approve: go on?
"""
CLONE_PARENT = 0x8000
CLONE_NUMBER = {"x86_64": 56, "aarch64": 220}
UNLOADED = ("acode.cli.mcp", "acode.cli.ui")  # with what they load, they take longer than the others together
OTHERS = ("acode", "acode.engine.async_commits", "acode.library.session", "acode.sync", "ruamel.yaml", "http.server")
LIBRARY = ctypes.PyDLL(None, use_errno=True)  # which keeps the interpreter's lock during the call
REQUEST_BYTES_MAX = 1 << 20
STARTS_COMMANDS = frozenset({"run", "resume", "approve", "supervise"})
DESCRIPTORS_MAX = 4096


def load() -> None:
    for module in pkgutil.iter_modules(acode.cli.__path__, "acode.cli."):
        if module.name not in UNLOADED:
            importlib.import_module(module.name)
    for name in OTHERS:
        importlib.import_module(name)
    compile_patterns()


def compile_patterns() -> None:
    """Those that search for secrets and those that read plans take longer than most commands."""
    redactor(()).text("password=correct-horse-battery-staple")
    parse_plan(SMALL_PLAN, "plan.yml", plan_bytes_max=len(SMALL_PLAN), timeout_s_default=1.0)


def serve(line: socket.socket) -> None:
    gc.collect()
    gc.freeze()  # a collection in a copy does not touch, and so not copy, what is shared
    while True:
        data, descriptors, _, _ = socket.recv_fds(line, REQUEST_BYTES_MAX, 3)
        if not data:
            return
        number = copied()
        if number == 0:
            live(json.loads(data), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        line.send(str(number).encode())


def copied() -> int:
    """fork(), but with this process's parent as the parent."""
    ctypes.pythonapi.PyOS_BeforeFork()
    number: int = LIBRARY.syscall(CLONE_NUMBER[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if number == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if number < 0:
        raise OSError(ctypes.get_errno(), "no copy can be made")
    return number


def live(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    if request["own_session"]:
        os.setsid()
    for wanted, descriptor in enumerate(descriptors):
        os.dup2(descriptor, wanted)
    os.closerange(3, DESCRIPTORS_MAX)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    random.seed()
    if STARTS_COMMANDS & set(request["arguments"]):
        fork_server()
    open_streams()
    status = ended_with(request["arguments"])
    threading._shutdown()  # type: ignore[attr-defined]  # as an interpreter does at its end: threads, then exit functions
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120  # what Python says where the last words cannot be written
    os._exit(status)


def open_streams() -> None:
    encoding = sys.stdout.encoding
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding)
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = io.TextIOWrapper(raw, encoding, errors, line_buffering=name == "stderr" or raw.isatty())
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def ended_with(arguments: list[str]) -> int:
    try:
        run_main(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run_main(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "acode"]:
        sys.path[0] = os.getcwd()
        sys.argv = ["acode", *arguments[2:]]
        runpy.run_module("acode", run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(arguments[0])
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    load()
    serve(socket.socket(fileno=int(sys.argv[1])))

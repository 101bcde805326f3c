"""An observed agent that is killed with its hooks: it asks again for every call whose result it did not keep."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from acode.engine import session_commands
from acode.observed.doors import Doors, doors_in, lone_fronts, write_doors
from acode.observed.hook import handle
from acode.observed.hook_answer import Answer
from tests.crash import grounds
from tests.crash.place import Place

TURNS_MAX = 8
DEAD_AGENT = """
import os, subprocess, sys
sys.stdin.read()
os.environ["PATH"] = sys.argv[2] + ":" + os.environ["PATH"]
sys.exit(subprocess.run([sys.argv[1], "-c", "pay"], stdin=subprocess.DEVNULL).returncode)
"""


def doors(place: Place) -> None:
    """The doors lie ready; no agent was ever here."""
    place.put("old.txt", "before\n")
    write_doors(place.root / "state")


def unrecorded(place: Place) -> None:
    """The payment was made by an agent that is dead, and the hook of that call was killed: only the front noted it."""
    at = paid_by_a_dead_agent(place, recorded=False)
    assert len(lone_fronts(at)) == 1


def cut_off(place: Place) -> None:
    """The payment is on record as begun, the front has noted its end, and the agent died before its second hook."""
    paid_by_a_dead_agent(place, recorded=True)


def paid_by_a_dead_agent(place: Place, *, recorded: bool) -> Doors:
    doors(place)
    at = doors_in(place.root / "state")
    pay = place.root / "programs" / "pay"
    pay.parent.mkdir()
    pay.write_text(f"#!/bin/sh\necho k:pay: >> {shlex.quote(os.fspath(place.ledger))}\n")
    pay.chmod(0o700)
    with grounds.environment(place):
        line = [sys.executable, "-c", DEAD_AGENT, os.fspath(at.shell("bash")), os.fspath(pay.parent)]
        dead = subprocess.Popen(line, stdin=subprocess.PIPE)
        _hook(place, "SessionStart", by=dead.pid, source="startup")
        if recorded:
            call = {"tool_name": "Bash", "tool_input": {"command": "pay"}, "tool_use_id": "pay-1"}
            _hook(place, "PreToolUse", by=dead.pid, **call)
        dead.communicate(b"pay")
    assert dead.returncode == 0 and place.effects()["pay"]
    return at


def agent(place: Place) -> None:
    """A payment, whose effect is in the ledger, and a file; then the agent's session ends."""
    with grounds.environment(place):
        for _ in range(TURNS_MAX):
            if _turn(place):
                return
    raise AssertionError("not finished after eight turns")


def _turn(place: Place) -> bool:
    """False: a person had to be asked, and has answered."""
    told = _hook(place, "SessionStart", source="startup").context
    if "'Run pay' (shell" in told and "took effect" in told:  # the model needs not ask for it
        _append(place.root / "memory", "pay")
    memory, target = place.root / "memory", place.workspace / "old.txt"
    kept = memory.read_text().split() if memory.exists() else []
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "pay": ("Bash", {"command": "pay"}),
        "write": ("Write", {"file_path": os.fspath(target), "content": "the end\n"}),
    }
    for name, (tool, arguments) in calls.items():
        if name in kept:
            continue
        call = {"tool_name": tool, "tool_input": arguments, "tool_use_id": f"{name}-{os.urandom(4).hex()}"}
        answer = _hook(place, "PreToolUse", **call)
        assert not answer.error, answer.error
        if "nothing shows" in answer.deny:
            _resolve(place, answer.deny, name)
            return False
        if not answer.deny:
            _act(place, name)
            _hook(place, "PostToolUse", **call, tool_response={})
        _append(memory, name)
    _hook(place, "SessionEnd", reason="other")
    return True


def _hook(place: Place, event: str, by: int = 0, **fields: Any) -> Answer:
    told = {"session_id": "observed", "cwd": os.fspath(place.workspace), "hook_event_name": event, **fields}
    doors = doors_in(place.root / "state")
    answer = handle(json.dumps(told).encode(), dict(os.environ), doors, by or os.getpid())[1]
    if answer.once_said is not None:
        answer.once_said()
    return answer


def _act(place: Place, name: str) -> None:
    if name == "pay":
        _append(place.ledger, "k:pay:")
    else:
        (place.workspace / "old.txt").write_text("the end\n")


def _append(path: Path, line: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, f"{line}\n".encode())
    os.fsync(fd)
    os.close(fd)


def _resolve(place: Place, reason: str, name: str) -> None:
    """The person looks at what is really there, and says so."""
    session, step, *_ = reason.split("acode session resolve ")[1].split()
    written = (place.workspace / "old.txt").read_text() == "the end\n"
    happened = bool(place.effects()["pay"]) if name == "pay" else written
    answer = "applied" if happened else "not_applied"
    session_commands.resolve(place.world(), session, step, answer, note="", force=False)

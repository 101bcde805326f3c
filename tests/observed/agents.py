"""An agent of the tests: a real process that calls the real hook and runs commands behind the real front.

Payloads are built here in the shapes of each agent. The process obeys lines on its standard input, so that a test can
kill it, or let it hang, at any moment of a call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from acode.cli.rows import as_json
from acode.engine.session_list import rows
from acode.engine.workspace_store import opened
from acode.observed.doors import Doors, write_doors
from tests.warm import started
from tests.worlds import world

WAIT_S_MAX = 60.0
SESSION = {"claude": "c1a0de00-aaaa", "codex": "c0dec000-bbbb", "gemini": "9e313100-cccc", "opencode": "ses_0penc0de"}
EVENTS = {
    "claude": ("PreToolUse", "PostToolUse", "SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"),
    "codex": ("PreToolUse", "PostToolUse", "SessionStart", "UserPromptSubmit", "Stop", ""),
    "gemini": ("BeforeTool", "AfterTool", "SessionStart", "BeforeAgent", "AfterAgent", "SessionEnd"),
    "opencode": ("tool.execute.before", "tool.execute.after", "", "chat.message", "session.idle", "session.deleted"),
}
TRANSCRIPT = {"claude": "projects/p/s.jsonl", "codex": "sessions/rollout-1.jsonl", "gemini": "chats/session-1.jsonl"}
OWN_FIELDS: dict[str, dict[str, Any]] = {
    "gemini": {"timestamp": "2026-11-16T17:34:19.138Z"},
    "codex": {"turn_id": "t-1"},
}
MOMENTS = ("before", "after", "start", "prompt", "idle", "end")
SHELL_TOOL = {"claude": "Bash", "codex": "Bash", "gemini": "run_shell_command", "opencode": "bash"}
WRITE_TOOL = {"claude": "Write", "gemini": "write_file", "opencode": "write"}


def payload(agent: str, moment: str, directory: Path, **more: Any) -> dict[str, Any]:
    """What the agent tells its hook at this moment. more: tool, arguments, call, response, prompt."""
    name = EVENTS[agent][MOMENTS.index(moment)]
    if agent == "opencode":
        given = {"tool": more.get("tool"), "sessionID": SESSION[agent], "callID": more.get("call")}
        if moment == "after":
            given["args"] = more["arguments"]
        output = {"args": more.get("arguments", {})} if moment == "before" else {"output": more.get("response", "")}
        if moment == "prompt":
            output = {"parts": [{"type": "text", "text": more.get("prompt", "do the job")}]}
        where = {"directory": os.fspath(directory), "worktree": os.fspath(directory)}
        return {"agent": "opencode", "event": name, **where, "input": given, "output": output}
    file = {"claude": "projects/p/s.jsonl", "codex": "sessions/rollout-1.jsonl", "gemini": "chats/session-1.jsonl"}[
        agent
    ]
    common = {
        "session_id": more.pop("session", SESSION[agent]),
        "transcript_path": f"/home/you/.{agent}/{file}",
        "cwd": os.fspath(directory),
        "hook_event_name": name,
    }
    own: dict[str, Any] = {"gemini": {"timestamp": "2026-11-16T17:34:19.138Z"}, "codex": {"turn_id": "t-1"}}.get(
        agent, {}
    )
    if moment in ("before", "after"):
        own |= {"tool_name": more["tool"], "tool_input": more["arguments"]}
        own |= {"tool_use_id": more["call"]} if agent != "gemini" else {}
    if moment == "after":
        own |= {"tool_response": more.get("response", {"stdout": ""})}
    if moment == "prompt":
        own |= {"prompt": more.get("prompt", "do the job")}
    return {**common, **own}


PROGRAM = """
import json, os, subprocess, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "hook":
        ended = subprocess.run([asked["program"]], input=json.dumps(asked["payload"]), text=True, capture_output=True)
        said = [ended.returncode, ended.stdout, ended.stderr]
    elif asked["do"] == "start":
        subprocess.Popen(asked["line"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        continue
    elif asked["do"] == "run":
        ended = subprocess.run(asked["line"], stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True)
        said = [ended.returncode, ended.stdout.decode("utf-8", "replace"), ended.stderr.decode("utf-8", "replace")]
    print(json.dumps(said), flush=True)
"""


class Agent:
    """The process of an agent."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.calls = 0
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.env,
            cwd=place.workspace,
        )

    def tell(self, **asked: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[int, str, str]:
        assert self.process.stdout is not None
        status, out, err = json.loads(self.process.stdout.readline())
        return status, out, err

    def hook(self, moment: str, **more: Any) -> tuple[int, dict[str, Any], str]:
        told = payload(self.name, moment, more.pop("directory", self.place.workspace), **more)
        self.tell(do="hook", program=os.fspath(self.place.doors.hook), payload=told)
        status, out, err = self.answer()
        return status, json.loads(out) if out.strip() else {}, err

    def begin(self, line: str, call: str = "", **more: Any) -> tuple[int, dict[str, Any], str]:
        self.calls += 1
        self.call = call or f"call-{os.getpid()}-{self.process.pid}-{self.calls}"
        arguments = {"command": line, **more}
        return self.hook("before", tool=SHELL_TOOL[self.name], arguments=arguments, call=self.call)

    def start_command(self, line: str) -> None:
        shell = os.fspath(self.place.doors.directory / "shells" / "bash")
        self.tell(do="run", line=[shell, "-c", line])

    def start_in_background(self, line: str) -> None:
        shell = os.fspath(self.place.doors.directory / "shells" / "bash")
        self.tell(do="start", line=[shell, "-c", line])

    def end(self, line: str, **more: Any) -> tuple[int, dict[str, Any], str]:
        return self.hook("after", tool=SHELL_TOOL[self.name], arguments={"command": line}, call=self.call, **more)

    def perform(self, line: str) -> tuple[int, str, str]:
        """The whole of a call, as an undisturbed agent makes it."""
        assert self.begin(line) == (0, {}, "")
        self.start_command(line)
        ended = self.answer()
        assert self.end(line) == (0, {}, "")
        return ended

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Place:
    """A workspace, a home and the doors in it."""

    def __init__(self, base: Path) -> None:
        self.base, self.workspace, self.state = base, base / "workspace", base / "state"
        (self.workspace / ".git").mkdir(parents=True)
        (base / "home").mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        self.env = {**kept, "HOME": os.fspath(base / "home"), "ACODE_HOME": os.fspath(self.state), "LANG": "C.UTF-8"}
        self.doors: Doors = write_doors(self.state)

    @contextmanager
    def agent(self, name: str = "claude") -> Iterator[Agent]:
        made = Agent(self, name)
        try:
            yield made
        finally:
            if made.process.poll() is None:
                made.process.kill()
                made.process.wait()
            if made.process.stdin is not None and not made.process.stdin.closed:
                made.close()

    def acode(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "acode", *words]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with started(line, cwd=self.workspace, env=self.env, **streams) as process:
            told, errors = process.communicate()
        return subprocess.CompletedProcess(line, process.returncode, told, errors)

    def history(self) -> list[Any]:
        """The events of the one session, or of the last one."""
        with opened(world(self.base), look_only=True) as store:
            return [one.event for one, _, _ in store.events(store.session_ids()[-1])]

    def types(self) -> list[str]:
        return [str(type(one).__struct_config__.tag) for one in self.history()]

    def rows(self) -> list[dict[str, Any]]:
        return [as_json(one) for one in rows(world(self.base))]

    def lines(self, name: str) -> list[str]:
        path = self.workspace / name
        return path.read_text().split() if path.exists() else []


def wait_until(true: Any, what: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not true():
        assert time.monotonic() < until, f"never seen: {what}"
        time.sleep(0.01)

"""An agent's session in tests: a workspace, a scripted model as a process of its own, and what was asked of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.driver import Acode, Ended
from tests.warm import started

SERVER = Path(__file__).resolve().parents[2] / "examples" / "agent" / "scripted_model.py"
GOAL = "Add input validation to the signup form"


def plan_turn(*tasks: dict[str, Any], title: str = "The plan") -> dict[str, Any]:
    """The turn in which the model plans; a task needs an id, the rest is filled in."""
    whole = [{"title": task["id"].title(), "needs": [], "steps": [f"Do {task['id']}"], **task} for task in tasks]
    return {"says": "You plan work", "json": {"title": title, "tasks": whole}}


def task_turns(title: str, *turns: dict[str, Any]) -> dict[str, Any]:
    return {"says": f"Your task now: {title}", "turns": list(turns)}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments}


class Town:
    """The workspace, the model and the command line."""

    def __init__(self, acode: Acode, base_url: str, ledger: Path) -> None:
        self.acode = acode
        self.base_url = base_url
        self.ledger = ledger

    @property
    def workspace(self) -> Path:
        return self.acode.workspace

    @property
    def env(self) -> dict[str, str]:
        return {"ACODE_MODEL": "scripted", "ACODE_MODEL_BASE_URL": self.base_url}

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Ended:
        return self.acode("run", GOAL, *args, env={**self.env, **(env or {})})

    def resume(self, *args: str, env: Mapping[str, str] | None = None) -> Ended:
        return self.acode("resume", "--last", *args, env={**self.env, **(env or {})})

    @property
    def short(self) -> str:
        """The session's short id."""
        found: str = self.acode("session", "list", "--all", "--json").json[0]["short_id"]
        return found

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.acode("status", self.short, "--json").json
        return found

    def requests(self) -> list[dict[str, Any]]:
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return [json.loads(line) for line in lines]

    def asked(self) -> Counter[str]:
        """How often each request was made, by all that the model was told in it."""
        return Counter(entry["digest"] for entry in self.requests())

    def configure(self, text: str) -> None:
        (self.workspace / ".agent").mkdir(exist_ok=True)
        (self.workspace / ".agent" / "config.yml").write_text(text)
        self.acode("config", "trust")

    def files(self) -> dict[str, bytes]:
        """The workspace as a person sees it, without acode's own directory and what Python leaves behind."""
        return {
            str(path.relative_to(self.workspace)): path.read_bytes()
            for path in sorted(self.workspace.rglob("*"))
            if path.is_file() and not {".agent", ".git", "__pycache__"} & set(path.parts)
        }


@contextmanager
def served(script: Any, place: Path, *args: str) -> Iterator[tuple[str, Path]]:
    """The server as a process of its own, so that tests may fork without its threads."""
    place.mkdir(parents=True, exist_ok=True)
    file, ledger = place / "script.json", place / "ledger.jsonl"
    file.write_text(json.dumps(script))
    command = [sys.executable, str(SERVER), str(file), "--ledger", str(ledger), *args]
    process = started(command, cwd=place, env=os.environ, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), ledger
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


Begin = Callable[..., Town]


@pytest.fixture
def begin(acode: Acode, tmp_path: Path) -> Iterator[Begin]:
    """A town whose model makes a plan of one task, and follows these turns in it."""
    with ExitStack() as stack:

        def make(*turns: dict[str, Any]) -> Town:
            script = {"models": ["scripted"], "turns": [plan_turn({"id": "work"}), task_turns("Work", *turns)]}
            url, ledger = stack.enter_context(served(script, tmp_path / "model"))
            return Town(acode, url, ledger)

        yield make


def in_child(work: Callable[[], int]) -> int:
    """Do it in a forked process; its exit status, or the negative number of the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setsid()
            status = work()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, found = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(found)


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

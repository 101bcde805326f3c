"""Programs for tests of the library: each runs in a process of its own, keeps a ledger, and can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.warm import started

SOURCE = Path(__file__).resolve().parents[2] / "src"

HEAD = """
import json, os, sys
from pathlib import Path
import acode

LEDGER = Path(os.environ["LEDGER"])

def note(*words):
    fd = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, (" ".join(map(str, words)) + "\\n").encode())
    os.close(fd)

def tell(**found):
    print(json.dumps(found), flush=True)
"""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    told: list[dict[str, Any]]
    errors: str


class Place:
    """A workspace, a home and a ledger for the programs of one test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workspace = path / "workspace"
        self.workspace.mkdir()
        self.ledger = path / "ledger"

    def env(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        return {
            **kept,
            "HOME": str(self.path),
            "ACODE_HOME": str(self.path / "state"),
            "LEDGER": str(self.ledger),
            "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path]),
            **more,
        }

    def program(self, text: str, name: str = "program.py") -> Path:
        path = self.workspace / name
        path.write_text(HEAD + text, encoding="utf-8")
        return path

    def start(self, text: str, *args: str, **env: str) -> subprocess.Popen[str]:
        return started(
            [sys.executable, str(self.program(text)), *args],
            cwd=self.workspace,
            env=self.env(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, text: str, *args: str, **env: str) -> Ended:
        """The program, to its end."""
        with self.start(text, *args, **env) as process:
            out, err = process.communicate(timeout=60)
        told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return Ended(status=process.returncode, told=told, errors=err)

    def effects(self) -> list[str]:
        return self.ledger.read_text(encoding="utf-8").splitlines() if self.ledger.exists() else []

    def acode(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "acode", *args],
            cwd=self.workspace,
            env=self.env(),
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )

    def json(self, *args: str) -> Any:
        done = self.acode("--json", *args)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


def killed(ended: Ended) -> bool:
    return ended.status == -signal.SIGKILL

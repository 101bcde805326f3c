"""What the tests of the second tier share: a database of their own, and two machines that use it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines import Machine, url_of
from tests.postgres import Server


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

"""A fleet for each test, on a database that has its tables already: making them takes longer than most tests need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.fleets import Fleet, temporary_fleet
from tests.machines import Machine, url_of
from tests.postgres import Server


@pytest.fixture(scope="session")
def tables(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a database in which acode has made its tables and the engine's."""
    started(postgres_server)
    with postgres_server.database() as dsn:
        asked = Machine(tmp_path_factory.mktemp("tables") / "one", url_of(dsn))("fleet", "status", "--json")
        assert asked.exit_code == 0, asked
        yield str(conninfo_to_dict(dsn)["dbname"])
        started(postgres_server)


@pytest.fixture
def fleet(tmp_path: Path, postgres_server: Server, tables: str) -> Iterator[Fleet]:
    started(postgres_server)
    with postgres_server.database(tables) as dsn, temporary_fleet(tmp_path, dsn) as made:
        yield made


def started(server: Server) -> None:
    """The test before may have killed it."""
    if server.process is None or server.process.poll() is not None:
        server.start()

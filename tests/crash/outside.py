"""What a command reaches that no copy of its place holds: a database on a server, a model that answers.

Each is started once for a sweep, and stands as the ground left it before every run. It is never part of what is killed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psycopg

from tests.agent.town import served
from tests.machines import url_of
from tests.postgres import Server

OWN_SCHEMAS = ("pg_catalog", "information_schema")


class Outside(Protocol):
    """Somebody that lives on when the command is killed."""

    def keep(self) -> None:
        """The ground is laid: this is how it stands before every run."""

    def restore_outputs(self) -> None:
        """As it was kept; what a killed command has left open there is cut off."""


class Database:
    """One database on a real server. Its ground is a second one, which it is made from again."""

    NAME, GROUND = "crash", "crash_ground"

    def __init__(self, server: Server) -> None:
        self._server = server
        self.dsn = server.dsn.replace("dbname=postgres", f"dbname={self.NAME}")
        self.url = url_of(self.dsn)
        self.empty()

    def empty(self) -> None:
        """For a ground that counts what is there: another case may have been laid before."""
        self._remake(self.NAME, "template1")

    def keep(self) -> None:
        self._remake(self.GROUND, self.NAME)

    def restore_outputs(self) -> None:
        self._remake(self.NAME, self.GROUND)

    def close(self) -> None:
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            for name in (self.NAME, self.GROUND):
                connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def rows(self) -> dict[str, list[str]]:
        """Every table's rows as text; of acode's own the steps they stand for, since an attempt's number may differ."""
        with psycopg.connect(self.dsn) as connection:
            query = "SELECT tablename FROM pg_tables WHERE schemaname <> ALL(%s) ORDER BY 1"
            names = [name for (name,) in connection.execute(query, (list(OWN_SCHEMAS),))]
            found = {name: sorted(_texts(connection, f'SELECT t::text FROM "{name}" t')) for name in names}
            if "acode_applied" in found:
                found["acode_applied"] = sorted(_texts(connection, "SELECT step FROM acode_applied"))
            return found

    def _remake(self, name: str, template: str) -> None:
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            self._cut_off(connection, template)
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")

    def _cut_off(self, connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
        """A database that somebody is connected to cannot be copied."""
        query = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = %s"
        connection.execute(query, (name,))


def _texts(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> list[str]:
    return [str(text) for (text,) in connection.execute(query)]  # type: ignore[call-overload]


class Model:
    """A scripted model: what it says depends on the request alone. What it was asked stands in a file of the place."""

    def __init__(self, url: str, asked: Path) -> None:
        self.url = url
        self._asked = asked

    def keep(self) -> None:
        """A copy of the place holds it."""

    def restore_outputs(self) -> None:
        """The same."""

    def requests(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in self._asked.read_text().splitlines()]
        except FileNotFoundError:
            return []


@contextlib.contextmanager
def database_on(server: Server) -> Iterator[Database]:
    if server.process is None or server.process.poll() is not None:
        server.start()
    database = Database(server)
    try:
        yield database
    finally:
        database.close()


@contextlib.contextmanager
def model_with(script: Any, scratch: Path, asked: Path) -> Iterator[Model]:
    with served(script, scratch, "--ledger", str(asked)) as (url, _):
        yield Model(url, asked)

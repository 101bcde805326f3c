"""The server that tests get is a real one: it keeps what was committed through a kill -9, and goes away afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.postgres import Server, find_programs, program_directories, schema_on, temporary_server


def test_a_committed_row_survives_the_servers_kill(postgres_server: Server) -> None:
    with postgres_server.database() as dsn:
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE kept (n int)")
            connection.execute("INSERT INTO kept VALUES (7)")
        postgres_server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(dsn)
        postgres_server.restart()
        with psycopg.connect(dsn) as connection:
            assert connection.execute("SELECT n FROM kept").fetchall() == [(7,)]


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_gets_an_empty_database(postgres_dsn: str, turn: int) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE mine (n int)")
        connection.execute("INSERT INTO mine VALUES (%s)", [turn])
        assert connection.execute("SELECT n FROM mine").fetchall() == [(turn,)]


@pytest.fixture
def named_server(postgres_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with postgres_server.database() as dsn:
        monkeypatch.setenv("ACODE_TEST_PG_DSN", dsn)
        yield dsn


def test_a_named_server_is_used_and_the_table_lies_in_a_schema_of_its_own(named_server: str, postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("CREATE TABLE mine (n int)")
    with psycopg.connect(named_server) as connection:
        found = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'mine'").fetchall()
    assert [name.startswith("acode_test_") for (name,) in found] == [True]


def test_a_named_server_keeps_no_traces(postgres_server: Server) -> None:
    with postgres_server.database() as named:
        with schema_on(named) as dsn, psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE mine (n int)")
        with psycopg.connect(named) as connection:
            assert connection.execute("SELECT 1 FROM pg_tables WHERE tablename = 'mine'").fetchall() == []


def test_nothing_is_left_of_a_temporary_server() -> None:
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL")
    with temporary_server(programs) as server:
        place, process = server.place, server.process
        assert process is not None
    assert process.poll() is not None
    assert not place.exists()


@pytest.mark.release
def test_programs_that_the_servers_user_cannot_reach_are_copied(tmp_path: Path) -> None:
    wheels = [place for place in program_directories() if place.parent.name.startswith("pginstall")]
    if not wheels:
        pytest.skip("no PostgreSQL wheel")
    package = wheels[0].parent.parent
    closed = tmp_path / "closed"
    for name in (package.name, f"{package.name}.libs"):
        (closed / name).mkdir(parents=True)
    shutil.copytree(wheels[0].parent, closed / package.name / "pginstall", symlinks=True)
    shutil.copytree(f"{package}.libs", closed / f"{package.name}.libs", dirs_exist_ok=True)
    closed.chmod(0o700)
    programs = closed / package.name / "pginstall" / "bin"
    with temporary_server(programs) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)

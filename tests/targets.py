"""Databases that sql steps are applied to, seen by other means than acode's, and the steps themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import apsw
import psycopg
from psycopg.conninfo import conninfo_to_dict

from acode.events.definition import Sql, Step
from acode.steps.interface import Done, Failed
from tests.sites import Bench

ADD_A_ROW = "CREATE TABLE IF NOT EXISTS rows (n integer);\nINSERT INTO rows VALUES (1);\n"
PASSWORD = "hunter2-and-more"


def url_of(dsn: str, **changes: Any) -> str:
    parts = {**conninfo_to_dict(dsn), **changes}
    options = "&".join(
        f"{name}={quote(str(value))}" for name, value in parts.items() if name in ("host", "port", "options")
    )
    return f"postgresql://{parts['user']}:{PASSWORD}@/{parts['dbname']}?{options}"


class Target:
    """A database that a test can look into, by other means than acode's."""

    def __init__(self, place: str, dsn: str | None = None) -> None:
        self.place = place
        self.dsn = dsn

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        if self.dsn is not None:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                return list(connection.execute(query.encode()).fetchall())
        database = apsw.Connection(self.place)
        try:
            return list(database.execute(query))
        finally:
            database.close()

    def has(self, table: str) -> bool:
        where = "pg_tables WHERE tablename" if self.dsn else "sqlite_schema WHERE name"
        return bool(self.ask(f"SELECT 1 FROM {where} = '{table}'"))

    def rows(self, table: str = "rows") -> int:
        return int(self.ask(f"SELECT count(*) FROM {table}")[0][0]) if self.has(table) else 0


def step_for(target: Target | str, number: int = 1, **more: Any) -> Step:
    place = target if isinstance(target, str) else target.place if target.dsn else "app.db"
    return Step(id=f"main.{number}", action=Sql(file="change.sql", database=place), **more)


def change(bench: Bench, text: str) -> None:
    (bench.workspace / "change.sql").write_text(text)


def failed(outcome: Done | Failed) -> Failed:
    assert isinstance(outcome, Failed), outcome
    return outcome

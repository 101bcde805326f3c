"""A server that others can write: its text steers no terminal, and rows of another shape are refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.machines import Machine
from tests.variants import first_of

PLAN = "version: 1\ntitle: T\ntasks: [{id: a, steps: [{run: 'true'}, {approve: Go on?}, {run: 'true'}]}]\n"
STEERING = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b1m\u202e\u2066evil\u2028\r\n"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OWNED, TAMPERED = 16, 20
LOOKS = [
    ("session", "list", "--remote"),
    ("session", "list", "--remote", "--json"),
    ("sync", "status"),
    ("pull", "{id}"),
]


def columns(connection: psycopg.Connection[tuple[object, ...]], table: str) -> list[tuple[str, str]]:
    query = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s ORDER BY 1"
    return [(str(name), str(kind)) for name, kind in connection.execute(query, (table,)).fetchall()]


def test_no_text_of_the_server_steers_a_terminal(machines: tuple[Machine, Machine], database: str) -> None:
    one, two = machines
    session_id = one.run(PLAN)
    with psycopg.connect(database, autocommit=True) as connection:
        texts = [
            name for name, kind in columns(connection, "acode_sessions") if kind == "text" and name != "session_id"
        ]
        assert {"title", "state", "holder"} <= set(texts)
        for name in texts:
            before = connection.execute(f"SELECT {name} FROM acode_sessions").fetchone()  # type: ignore[arg-type]
            connection.execute(f"UPDATE acode_sessions SET {name} = %s", (STEERING,))  # type: ignore[arg-type]
            for command in LOOKS:
                ended = two(*(word.format(id=session_id) for word in command))
                assert STEERS.search(ended.stdout + ended.stderr) is None, (name, command, ended)
                assert "ACODE-000" not in ended.stdout + ended.stderr, (name, command)
            connection.execute(f"UPDATE acode_sessions SET {name} = %s", before)  # type: ignore[arg-type]


@pytest.mark.parametrize("table", first_of("acode_events", "acode_sessions", "acode_checkpoints"))
def test_columns_of_another_kind_and_empty_ones_end_with_a_named_error(
    table: str, machines: tuple[Machine, Machine], database: str, tmp_path: Path
) -> None:
    one, two = machines
    session_id = one.run(PLAN)
    listing = [LOOKS[0]] if table == "acode_sessions" else []  # a list reads no other table
    reading = [*listing, LOOKS[3], ("resume", "{id}", "--remote", "--yes")]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for name, kind in columns(connection, table):
            if name in {"session_id", "seq"}:
                continue
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {name} TO saved")  # type: ignore[arg-type]
            for other, values in (("text", (None, "true")), ("boolean", ("true",))):
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {other}")  # type: ignore[arg-type]
                for value in values:
                    connection.execute(f"UPDATE {table} SET {name} = %s", (value,))  # type: ignore[arg-type]
                    for command in reading:
                        ended = two(*(word.format(id=session_id) for word in command))
                        said = ended.stdout + ended.stderr
                        assert "ACODE-000" not in said and "Traceback" not in said, (name, kind, other, value, said)
                        assert ended.exit_code in (0, 10, OWNED, TAMPERED), (name, kind, other, value, said)
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {name}")  # type: ignore[arg-type]
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN saved TO {name}")  # type: ignore[arg-type]

"""Machines for tests of the second tier: each with a home and a workspace of its own, all with one server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from acode.engine.world import World
from acode.seal import SECRET_VARIABLE, load_keyring
from acode.store.store import Store
from acode.sync import pusher, schema
from tests.driver import Acode, Ended, Running
from tests.postgres import Server
from tests.worlds import world

PATIENCE_S = 30.0
PATIENT = f"""
import sys
from acode.cli import main
from acode.sync import pusher
pusher.EXIT_S_MAX = pusher.OWNERSHIP_S_MAX = {PATIENCE_S}
sys.exit(main(sys.argv[1:]))
"""
SECRET = "one secret for all machines of a test"
Rows = list[tuple[Any, ...]]


def url_of(dsn: str, port: int | None = None, address: str = "127.0.0.1") -> str:
    """The connection string as the URL that users configure; with a port, through a line on this machine."""
    given = conninfo_to_dict(dsn)
    name = given["dbname"]
    if port is not None:
        return f"postgresql://postgres@{address}:{port}/{name}?sslmode=disable&gssencmode=disable"
    return f"postgresql://postgres@/{name}?host={given['host']}"


def socket_of(server: Server) -> str:
    return f"{server.place}/.s.PGSQL.5432"


class Machine:
    """A user's machine: `machine("status")` runs acode there.

    A patient one gives the server as long as it takes, instead of the second that a run spends on it at the most: who
    may write is judged by what was heard, and a busy machine would turn it into a question of pace.
    """

    patient = True

    def __init__(self, place: Path, url: str | None, *, secret: str | None = SECRET) -> None:
        self.place = place
        self.workspace = place / "workspace"
        self.workspace.mkdir(parents=True)
        self.env = {"ACODE_HOME": str(place / "state"), "HOME": str(place)}
        if secret is not None:
            self.env[SECRET_VARIABLE] = secret
        self.connect(url)
        self._acode = Acode(self.workspace)

    def connect(self, url: str | None) -> None:
        self.env["ACODE_POSTGRES_URL"] = url or ""

    def __call__(self, *args: str | Path) -> Ended:
        with pytest.MonkeyPatch.context() as limits:
            if self.patient:
                limits.setattr(pusher, "EXIT_S_MAX", PATIENCE_S)
                limits.setattr(pusher, "OWNERSHIP_S_MAX", PATIENCE_S)
            return self._acode(*args, env=self.env)

    def process(self, *args: str | Path, program: Sequence[str] = (), **env: str) -> Running:
        program = program or (("-c", PATIENT) if self.patient else ("-m", "acode"))
        return self._acode.process(*args, env={**self.env, **env}, program=program)

    def stop(self) -> None:
        self._acode.stop_all()

    def plan(self, text: str) -> Path:
        path = self.workspace / "plan.yml"
        path.write_text(text)
        return path

    def run(self, text: str) -> str:
        """A session from this plan, run in this process until it ends or waits; its id."""
        ended = self("run", self.plan(text), "--json", "--new")
        return str(ended.lines[0]["session_id"])

    def world(self, **options: Any) -> World:
        env = {"PATH": os.environ["PATH"], **self.env}
        return world(self.place, env=env, **options)

    def store(self, *, look_only: bool = True) -> Store:
        made = self.world()
        keyring = load_keyring(made.state_dir, made.env, create=False)
        return Store(made.agent_dir, keyring, clock=made.clock, new_id=made.new_id, look_only=look_only)

    def log(self, session_id: str) -> Rows:
        with self.store() as store:
            return list(store.rows(session_id))


# How the server looked before each migration, the newest first.
BEFORE_MIGRATION: dict[int, tuple[str, ...]] = {
    4: (
        "DROP TABLE acode_fleet_keys, acode_fleet_sessions, acode_fleet_workers",
        "DROP TABLE acode_fleet_schedules, acode_fleet_paused",
        "DROP INDEX acode_sessions_by_beginning, acode_sessions_by_end, acode_sessions_by_short_id",
        "ALTER TABLE acode_sessions DROP COLUMN lease_seconds, DROP COLUMN lease_generation",
    ),
    3: ("ALTER TABLE acode_sessions DROP COLUMN signed",),
    2: ("ALTER TABLE acode_sessions DROP COLUMN last_node, DROP COLUMN last_generation",),
}


def undo_migrations(dsn: str, version: int) -> None:
    """The server as a client of this version has made it."""
    assert max(BEFORE_MIGRATION) == len(schema.MIGRATIONS)
    with psycopg.connect(dsn) as connection:
        for number in range(len(schema.MIGRATIONS), version, -1):
            for statement in BEFORE_MIGRATION[number]:
                connection.execute(statement)  # type: ignore[call-overload]
        connection.execute("DELETE FROM acode_migrations WHERE version > %s", (version,))


def shared_log(dsn: str, session_id: str) -> Rows:
    return _rows(dsn, "SELECT seq, body, mac FROM acode_events WHERE session_id = %s ORDER BY seq", session_id)


def assert_level(machine: Machine, dsn: str, session_id: str) -> None:
    """The shared copy is the local log, byte for byte: no duplicates, no gaps, and all that was made for it."""
    with machine.store() as store:
        assert_copied(store, dsn, session_id)


def assert_copied(store: Store, dsn: str, session_id: str) -> None:
    local = list(store.rows(session_id))
    assert [seq for seq, _, _ in local] == list(range(1, len(local) + 1))
    assert shared_log(dsn, session_id) == local
    query = "SELECT seq, body, mac FROM acode_checkpoints WHERE session_id = %s ORDER BY seq"
    assert _rows(dsn, query, session_id) == store.checkpoint_rows(session_id)
    query = "SELECT seq, body FROM acode_snapshots WHERE session_id = %s ORDER BY seq"
    assert _rows(dsn, query, session_id) == store.snapshots(session_id)
    shared = [(name, purpose) for name, purpose in store.blob_purposes(session_id) if purpose in ("output", "plan")]
    query = "SELECT sha256, purpose FROM acode_session_blobs WHERE session_id = %s ORDER BY 1, 2"
    assert _rows(dsn, query, session_id) == shared
    for name, _ in shared:
        parts = _rows(dsn, "SELECT data FROM acode_blob_parts WHERE sha256 = %s ORDER BY part", name)
        assert b"".join(part for (part,) in parts) == store.blob(session_id, name)
    (anchor,) = _rows(dsn, "SELECT seq, head FROM acode_sessions WHERE session_id = %s", session_id)
    assert anchor == (local[-1][0], local[-1][2])


def lease(dsn: str, session_id: str) -> tuple[int, str | None]:
    (found,) = _rows(dsn, "SELECT generation, owner FROM acode_sessions WHERE session_id = %s", session_id)
    return found[0], found[1]


def everything(dsn: str) -> bytes:
    """All that the second tier holds, as one heap of bytes."""
    heap = []
    with psycopg.connect(dsn) as connection:
        # Of the schema alone: the temporary tables of a line that is just being closed are nobody's, and gone soon.
        named = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'acode%' AND schemaname = current_schema()"
        tables = connection.execute(named).fetchall()
        for (table,) in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):  # type: ignore[call-overload]
                heap += [value if isinstance(value, bytes) else str(value).encode() for value in row]
    return b"\0".join(heap)


def _rows(dsn: str, query: str, *values: object) -> Rows:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query, values).fetchall()  # type: ignore[call-overload, no-any-return]

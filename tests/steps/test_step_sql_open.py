"""A transaction of a step that is still open on the server: it is waited for, and at last ended; nobody resolves it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from acode.steps.sql_postgres import lock_number
from tests.driver import Acode
from tests.targets import Target, url_of

# It is held in its middle until the test has made the table `go`.
CHANGE = """
CREATE TABLE IF NOT EXISTS rows (n integer);
INSERT INTO rows VALUES (1);
SELECT pg_sleep(60) WHERE to_regclass('go') IS NULL;
"""
PLAN = """
title: Migrate
tasks:
  - id: main
    steps:
      - sql: {database: {env: APP_URL}, file: change.sql}
        id: migrate
        timeout: %s
      - write: {path: done.txt, content: done}
"""


@contextlib.contextmanager
def left_open(acode: Acode, dsn: str, *, timeout_s: float) -> Iterator[tuple[str, psycopg.Connection[tuple[object]]]]:
    """acode killed in the middle of the statement, and a backend that still holds the lock of its step."""
    (acode.workspace / "change.sql").write_text(CHANGE)
    (acode.workspace / "plan.yml").write_text(PLAN % timeout_s)
    running = acode.process("run", "plan.yml")
    with psycopg.connect(dsn, autocommit=True) as watching:
        while not watching.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchone():
            assert running.pid
        running.kill_everything()
        watching.execute("CREATE TABLE go (n integer)")
    session = acode("session", "list", "--json").json[0]["session_id"]
    with psycopg.connect(dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number(session, "main.migrate"),))
        yield session, other


@pytest.fixture
def server(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("APP_URL", url_of(postgres_dsn))
    return postgres_dsn


@pytest.mark.req("FR-011c-053")
def test_it_is_waited_for_visibly_and_then_the_key_tells(acode: Acode, server: str) -> None:
    with left_open(acode, server, timeout_s=60) as (session, other):
        look = acode("resume", "--dry-run", session, "--json").json
        assert (look["in_progress"]["action"], look["needs_human"]) == ("wait", False)
        assert "still open" in look["in_progress"]["evidence"]
        said = acode("session", "resolve", session, "main.migrate", "--applied")
        assert said.exit_code == 16, "nobody can know yet what becomes of it"
        resuming = acode.process("resume", session)
        resuming.wait_for_line("still open")
        other.rollback()
        assert resuming.finish().exit_code == 0
    assert Target("", server).rows() == 1
    assert (acode.workspace / "done.txt").exists()


@pytest.mark.req("FR-011c-053")
def test_one_that_outlasts_the_time_of_its_step_is_ended_and_the_step_done_once(acode: Acode, server: str) -> None:
    with left_open(acode, server, timeout_s=1) as (session, other):
        ended = acode("resume", session)
        assert ended.exit_code == 0, ended.stderr
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
    assert Target("", server).rows() == 1


def test_one_that_must_not_be_ended_leaves_the_session_for_later(acode: Acode, server: str) -> None:
    """The step's user may not end another user's backend: it is still running, as a command would be."""
    with psycopg.connect(server, autocommit=True) as admin:
        name = admin.execute("SELECT 'worker_' || pg_backend_pid()").fetchone()
        assert name is not None
        admin.execute(f"CREATE ROLE {name[0]} LOGIN PASSWORD 'hunter2-and-more'".encode())
        admin.execute(f"GRANT ALL ON SCHEMA public TO {name[0]}".encode())
    worker = url_of(server, user=name[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APP_URL", worker)
        with left_open(acode, server, timeout_s=1) as (session, other):
            ended = acode("resume", session, "--json")
            assert (ended.exit_code, ended.lines[-1]["data"]["error"]["code"]) == (16, "ACODE-RESUME-012")
            other.rollback()
        assert acode("resume", session).exit_code == 0
    with psycopg.connect(server, autocommit=True) as admin:
        assert admin.execute("SELECT count(*) FROM rows").fetchone() == (1,)
        admin.execute(f"REASSIGN OWNED BY {name[0]} TO CURRENT_USER; DROP OWNED BY {name[0]}".encode())
        admin.execute(f"DROP ROLE {name[0]}".encode())

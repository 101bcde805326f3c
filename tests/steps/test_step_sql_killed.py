"""The worst moments of a sql step: the answer to its COMMIT is lost, or acode is killed right before or after it."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from acode.engine.create import run_plan
from acode.engine.resume import resume
from acode.engine.world import Options
from acode.plan import Outcome
from acode.planfile import load_plan
from acode.state import State
from acode.steps import sql
from acode.steps.interface import Done, Failed
from tests.crash.harness import needs_ptrace
from tests.crash.harness.ptracer import Stop, killed
from tests.postgres import Server
from tests.sites import Bench, world
from tests.targets import ADD_A_ROW, Target, change, failed, step_for, url_of
from tests.wire import Wire


@pytest.fixture
def bench(workspace: Path, home: Path) -> Iterator[Bench]:
    (workspace / "change.sql").write_text(ADD_A_ROW)
    made = Bench(workspace, home / "acode")
    yield made
    made.close()


# The answer to a COMMIT.


@pytest.fixture
def local_server(postgres_server: Server) -> Iterator[tuple[Server, str]]:
    """The server brought along, reached through its own socket, with a database of its own."""
    if postgres_server.process is None or postgres_server.process.poll() is not None:
        postgres_server.start()
    with postgres_server.database() as dsn:
        yield postgres_server, dsn


def socket_of(server: Server) -> str:
    return f"{server.place}/.s.PGSQL.5432"


def through(wire: Wire, dsn: str) -> str:
    return url_of(dsn, host="127.0.0.1", port=wire.port) + "&sslmode=disable&gssencmode=disable"


@pytest.mark.req("FR-011c-053")
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_whose_answer_was_lost_is_settled_by_its_key(
    bench: Bench, local_server: tuple[Server, str], cut: Literal["before", "after"]
) -> None:
    server, dsn = local_server
    target = Target("", dsn)
    with Wire(socket_of(server), cut=cut) as wire:
        step = step_for(through(wire, dsn))
        outcome = bench.run(step)
        assert wire.cuts == 1
        assert isinstance(outcome, Done if cut == "after" else Failed)
        assert target.rows() == (1 if cut == "after" else 0)
        assert isinstance(bench.run(step, 2), Done)
    assert target.rows() == 1


def test_a_server_that_is_gone_after_the_commit_leaves_the_step_open(
    bench: Bench, local_server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, dsn = local_server
    monkeypatch.setattr(sql, "ASK_AGAIN_S", 0.1)
    with Wire(socket_of(server), cut="after", heals=False) as wire:
        step = step_for(through(wire, dsn))
        started = bench.start(step)
        found = failed(bench.execute(step, started))
        assert found.reason == "signal", "neither applied nor not: it is settled later"
        assert "was lost" in found.message
        assert bench.look(step, started).outcome is Outcome.UNKNOWN
    assert Target("", dsn).rows() == 1


# Killed.


def forked(work: Callable[[], object]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of this process hold nothing the child needs
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            work()
        os._exit(0)
    return child


def migrations(workspace: Path, place: str) -> Any:
    for number in range(1, 6):
        text = f"CREATE TABLE m{number} (n integer); INSERT INTO m{number} VALUES ({number});"
        (workspace / f"{number}.sql").write_text(text)
    (workspace / "plan.yml").write_text(
        "title: Migrate\ntasks:\n  - title: Migrate\n    steps:\n"
        + "".join(f"      - sql: {{database: {place!r}, file: {number}.sql}}\n" for number in range(1, 6))
        + "  - title: Announce\n    steps:\n      - run: echo done >> announced.txt\n"
    )
    return load_plan(workspace / "plan.yml", plan_bytes_max=262_144, timeout_s_default=60.0)


def finish(workspace: Path, home: Path, target: Target, *, applied: bool) -> None:
    """Resume, and check that the world is the one of an undisturbed run."""
    from acode.engine.held_session import opened

    with opened(world(workspace, home / "acode"), look_only=True) as store:
        (session_id,) = store.session_ids()
    ended = resume(world(workspace, home / "acode"), session_id, Options())
    assert (ended.exit_code, ended.state) == (0, State.COMPLETED)
    assert ended.executed_steps == (3 if applied else 4)
    assert [target.rows(f"m{number}") for number in range(1, 6)] == [1, 1, 1, 1, 1]
    attempts = {
        row[0].rsplit(":", 2)[1]: row[0].rsplit(":", 1)[1] for row in target.ask("SELECT key FROM acode_applied")
    }
    assert attempts == {f"migrate.{number}": "2" if number == 3 and not applied else "1" for number in range(1, 6)}
    assert (workspace / "announced.txt").read_text() == "done\n"


@needs_ptrace
@pytest.mark.req("UC-011c-02", "FR-011c-032")
@pytest.mark.parametrize("applied", [False, True])
def test_killed_in_the_third_of_five_migrations_of_a_file(workspace: Path, home: Path, applied: bool) -> None:
    """Removing the rollback journal is SQLite's commit: killed right before it, and right after it."""
    plan = migrations(workspace, "app.db")

    def commits(stop: Stop) -> bool:
        return stop.name in ("unlink", "unlinkat") and stop.path().endswith("app.db-journal")

    nth = 3  # the table of keys is made by the first commit
    killed(lambda: run_plan(world(workspace, home / "acode"), plan), at=nth * 2 + applied, wanted=commits)
    target = Target(str(workspace / "app.db"))
    assert target.rows("m2") == 1 and target.rows("m3") == applied and not target.has("m4")
    finish(workspace, home, target, applied=applied)


@pytest.mark.req("UC-011c-02", "FR-011c-032")
@pytest.mark.parametrize("applied", [False, True])
def test_killed_in_the_third_of_five_migrations_of_a_server(
    workspace: Path, home: Path, local_server: tuple[Server, str], applied: bool
) -> None:
    server, dsn = local_server
    target = Target("", dsn)
    children: list[int] = []

    def kill() -> None:
        os.kill(children[0], signal.SIGKILL)

    with Wire(socket_of(server), cut="after" if applied else "before", step=3, then=kill) as wire:
        plan = migrations(workspace, through(wire, dsn))
        children.append(forked(lambda: run_plan(world(workspace, home / "acode"), plan)))
        _, status = os.waitpid(children[0], 0)
        assert (os.waitstatus_to_exitcode(status), wire.cuts) == (-signal.SIGKILL, 1)
        finish(workspace, home, target, applied=applied)


@pytest.mark.req("FR-011c-053")
def test_a_server_notices_in_the_middle_of_a_statement_that_its_acode_was_killed(
    bench: Bench, local_server: tuple[Server, str]
) -> None:
    """Else the look would find the transaction still open, and a person would have to wait for the statement's end."""
    _, dsn = local_server
    change(bench, f"{ADD_A_ROW}SELECT pg_sleep(60);")
    step = step_for(url_of(dsn))
    started = bench.start(step)
    child = forked(lambda: bench.execute(step, started))
    with psycopg.connect(dsn, autocommit=True) as watching:
        while not watching.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchone():
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert bench.look(step, started).outcome is Outcome.NOT_APPLIED
    change(bench, ADD_A_ROW)
    assert isinstance(bench.run(step, 2), Done)
    assert Target("", dsn).rows() == 1

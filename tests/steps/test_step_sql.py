"""sql steps against a real SQLite file and a real PostgreSQL: applied once, whatever happens around the commit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from acode.errors import IdempotencyConflict
from acode.events import make_key
from acode.events import types as ev
from acode.events.definition import Sql, Step
from acode.plan import Outcome
from acode.steps import sql, sql_postgres
from acode.steps.interface import Done
from tests.sites import Bench, Patient
from tests.targets import ADD_A_ROW, PASSWORD, Target, change, failed, step_for, url_of


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, workspace: Path) -> Target:
    if request.param == "sqlite":
        return Target(str(workspace / "app.db"))
    dsn = request.getfixturevalue("postgres_dsn")
    return Target(url_of(dsn), dsn)


@pytest.fixture
def bench(workspace: Path, home: Path) -> Iterator[Bench]:
    (workspace / "change.sql").write_text(ADD_A_ROW)
    made = Bench(workspace, home / "acode")
    yield made
    made.close()


# Once.


@pytest.mark.req("FR-011c-029", "FR-011c-033")
def test_the_statements_and_the_key_are_there_together(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    done = bench.execute(step_for(target), started)
    assert isinstance(done, Done)
    assert target.rows() == 1
    assert target.ask("SELECT key, session_id, step, file, sha256 FROM acode_applied") == [
        (started.key, bench.session_id, "main.1", "change.sql", started.target["sha256"])
    ]
    assert [state.path for state in done.files] == ["change.sql"]


@pytest.mark.req("FR-011c-031", "FR-011c-053")
def test_applying_it_again_under_the_same_key_changes_nothing(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    first = bench.execute(step_for(target), started)
    again = bench.execute(step_for(target), started)
    assert isinstance(first, Done) and isinstance(again, Done)
    assert again.result == first.result
    # The time of a change counts as proof only once it is old enough, so it may have come in between.
    assert [(one.path, one.sha256) for one in again.files] == [(one.path, one.sha256) for one in first.files]
    assert target.rows() == 1


def test_a_later_attempt_finds_the_earlier_one_and_repeats_nothing(bench: Bench, target: Target) -> None:
    bench.run(step_for(target))
    again = bench.start(step_for(target), 2)
    assert bench.look(step_for(target), again).outcome is Outcome.APPLIED
    assert isinstance(bench.execute(step_for(target), again), Done)
    assert target.rows() == 1


def test_a_step_that_a_person_took_back_is_applied_anew(bench: Bench, target: Target) -> None:
    step = step_for(target)
    started = bench.start(step)
    bench.execute(step, started)
    bench.journal.append(ev.StepCompleted(step=step.id, task="main", attempt=1, key=started.key))
    bench.journal.append(ev.StepsRolledBack(to=None, steps=(step.id,)), actor="user")
    again = bench.start(step, 2)
    assert bench.look(step, again).outcome is Outcome.NOT_APPLIED
    assert isinstance(bench.execute(step, again), Done)
    assert target.rows() == 2
    assert bench.look(step, again).outcome is Outcome.APPLIED


def test_two_steps_with_the_same_file_are_two_applications(bench: Bench, target: Target) -> None:
    bench.run(step_for(target, 1))
    bench.run(step_for(target, 2))
    assert target.rows() == 2


@pytest.mark.req("FR-011c-053")
def test_of_many_that_apply_the_same_step_at_once_one_does(bench: Bench, target: Target) -> None:
    change(bench, "CREATE TABLE rows (n integer); INSERT INTO rows VALUES (1)")
    started = bench.start(step_for(target))
    site = bench.site()
    database = sql.database_of(Sql(file="change.sql", database=step_for(target).action.database), site)  # type: ignore[union-attr]
    order, _ = sql.read_order(step_for(target), site, started, database)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            sql.apply(order, database, site, sql.Attended(step_for(target), site), 0)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert target.rows() == 1


# Settlement.


@pytest.mark.req("FR-011c-030", "FR-011c-032")
def test_the_key_in_the_target_settles_a_step_in_flight(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    before = bench.look(step_for(target), started)
    assert (before.outcome, before.repeatable) == (Outcome.NOT_APPLIED, True)
    done = bench.execute(step_for(target), started)
    after = bench.look(step_for(target), started)
    assert after.outcome is Outcome.APPLIED and started.key in after.evidence
    assert isinstance(done, Done)
    adopted = bench.adopt(step_for(target), started)
    assert (adopted.result, [state.path for state in adopted.files]) == (done.result, ["change.sql"])


def test_looking_makes_no_database_and_no_table(bench: Bench, target: Target) -> None:
    bench.look(step_for(target), bench.start(step_for(target)))
    assert not (bench.workspace / "app.db").exists()
    if target.dsn:
        assert not target.has("acode_applied")


@pytest.mark.req("FR-011c-053", "CODE-011c-07")
def test_the_same_key_with_other_content_is_a_conflict(bench: Bench, target: Target) -> None:
    bench.run(step_for(target))
    change(bench, "INSERT INTO rows VALUES (2)")
    other = bench.start(step_for(target))
    with pytest.raises(IdempotencyConflict) as found:
        bench.look(step_for(target), other)
    assert (found.value.code, found.value.exit_code) == ("ACODE-RESUME-007", 20)
    with pytest.raises(IdempotencyConflict):
        bench.execute(step_for(target), other)
    assert target.rows() == 1


def test_a_file_edited_after_it_was_applied_does_not_hide_that_it_was(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    bench.execute(step_for(target), started)
    change(bench, "DROP TABLE rows")
    assert bench.look(step_for(target), started).outcome is Outcome.APPLIED
    assert bench.adopt(step_for(target), started).files == ()


def test_a_target_that_cannot_be_asked_leaves_the_outcome_unknown(bench: Bench) -> None:
    gone = step_for(f"postgresql://you:{PASSWORD}@127.0.0.1:1/app?connect_timeout=2")
    found = bench.look(gone, bench.start(gone))
    assert found.outcome is Outcome.UNKNOWN and not found.repeatable
    assert "postgres://127.0.0.1:1/app cannot be asked" in found.evidence
    (bench.workspace / "app.db").write_bytes(b"this is no database, only text" * 100)
    broken = step_for("app.db")
    assert bench.look(broken, bench.start(broken)).outcome is Outcome.UNKNOWN


def test_a_preview_that_runs_no_probe_asks_no_database(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    bench.execute(step_for(target), started)
    found = bench.look(step_for(target), started, probes=False)
    assert (found.outcome, found.probe_pending) == (Outcome.UNKNOWN, True)


def test_a_variable_that_names_another_database_now_settles_nothing(bench: Bench) -> None:
    step = Step(id="main.1", action=Sql(file="change.sql", database_env="APP_DB"))
    bench.env["APP_DB"] = "one.db"
    started = bench.start(step)
    bench.execute(step, started)
    bench.env["APP_DB"] = "two.db"
    found = bench.look(step, started)
    assert found.outcome is Outcome.UNKNOWN and "one.db" in found.evidence and "two.db" in found.evidence
    assert not (bench.workspace / "two.db").exists()
    bench.env.pop("APP_DB")
    assert "APP_DB is not set" in bench.look(step, started).evidence


def test_a_migration_that_changes_the_search_path_is_still_found(bench: Bench, postgres_dsn: str) -> None:
    if os.environ.get("ACODE_TEST_PG_DSN"):
        pytest.skip("changing a whole database is nothing for somebody else's server")
    step = step_for(url_of(postgres_dsn))
    name = conninfo_to_dict(postgres_dsn)["dbname"]
    change(bench, f"CREATE SCHEMA app; ALTER DATABASE {name} SET search_path = app")
    started = bench.start(step)
    assert isinstance(bench.execute(step, started), Done)
    assert bench.look(step, started).outcome is Outcome.APPLIED
    assert isinstance(bench.run(step, 2), Done)


def test_a_transaction_that_is_still_open_on_the_server_is_waited_for(bench: Bench, postgres_dsn: str) -> None:
    step = step_for(url_of(postgres_dsn))
    bench.run(step_for(url_of(postgres_dsn), 9))  # makes the table
    started = bench.start(step)
    found: list[Any] = []
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (sql_postgres.lock_number(bench.session_id, step.id),))
        asking = threading.Thread(target=lambda: found.append(bench.look(step, started)))
        asking.start()
        with psycopg.connect(postgres_dsn, autocommit=True) as watching:
            while not watching.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone():
                assert asking.is_alive()
        values = (started.key, bench.session_id, step.id, "change.sql", started.target["sha256"])
        other.execute("INSERT INTO acode_applied VALUES (%s, %s, %s, %s, %s, now())", values)
        other.commit()
        asking.join()
    assert found[0].outcome is Outcome.APPLIED


def test_one_that_does_not_end_leaves_the_outcome_unknown(
    bench: Bench, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_postgres, "WAIT_FOR_OTHERS_S", 0.05)
    step = step_for(url_of(postgres_dsn))
    started = bench.start(step)
    with psycopg.connect(postgres_dsn) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (sql_postgres.lock_number(bench.session_id, step.id),))
        found = bench.look(step, started)
    assert found.outcome is Outcome.UNKNOWN and "still open" in found.evidence


# Failing.


def test_a_failing_statement_leaves_nothing_behind_and_names_its_line(bench: Bench, target: Target) -> None:
    change(bench, f"{ADD_A_ROW}INSERT INTO nowhere VALUES (1);")
    found = failed(bench.run(step_for(target)))
    assert found.reason == "error" and "line 3" in found.message and "nowhere" in found.message
    assert not target.has("rows") and target.rows("acode_applied") == 0
    change(bench, ADD_A_ROW)
    assert isinstance(bench.run(step_for(target), 2), Done)
    assert target.rows() == 1


def test_a_constraint_that_fails_at_the_commit_leaves_nothing_behind(bench: Bench, postgres_dsn: str) -> None:
    target = Target(url_of(postgres_dsn), postgres_dsn)
    text = "CREATE TABLE rows (n int PRIMARY KEY, up int REFERENCES rows DEFERRABLE INITIALLY DEFERRED);"
    change(bench, f"{text} INSERT INTO rows VALUES (1, 2)")
    found = failed(bench.run(step_for(target)))
    assert found.reason == "error" and "did not commit" in found.message
    assert not target.has("rows")


@pytest.mark.parametrize("text", ["VACUUM", "BEGIN; SELECT 1; COMMIT", "SAVEPOINT a"])
def test_what_no_transaction_can_hold_is_refused_before_anything_happens(
    bench: Bench, target: Target, text: str
) -> None:
    change(bench, f"{ADD_A_ROW}{text};")
    found = failed(bench.run(step_for(target)))
    assert found.reason == "error" and "line 3" in found.message and "nothing was executed" in found.message
    assert found.message.count(".") >= 2, "the way out is part of the message"
    assert not target.has("acode_applied") if target.dsn else not (bench.workspace / "app.db").exists()


def test_a_statement_that_ends_the_transaction_by_itself_cannot_hide(bench: Bench) -> None:
    """SQLite's own word: a conflict clause rolls the whole transaction back, and nothing may follow it."""
    change(
        bench, "CREATE TABLE rows (n PRIMARY KEY); INSERT INTO rows VALUES (1); INSERT OR ROLLBACK INTO rows VALUES (1)"
    )
    assert failed(bench.run(step_for("app.db"))).reason == "error"
    assert not Target(str(bench.workspace / "app.db")).has("rows")


@pytest.mark.parametrize("removal", ["DELETE FROM acode_applied", "DROP TABLE acode_applied"])
def test_a_file_that_removes_the_record_of_itself_is_rolled_back(bench: Bench, target: Target, removal: str) -> None:
    change(bench, f"{ADD_A_ROW}{removal};")
    found = failed(bench.run(step_for(target)))
    assert found.reason == "error" and "acode_applied" in found.message and "it was rolled back" in found.message
    assert not target.has("rows")
    change(bench, ADD_A_ROW)
    assert isinstance(bench.run(step_for(target), 2), Done)
    assert target.rows() == 1


def test_a_schema_that_is_dropped_with_the_record_in_it_is_not_dropped(bench: Bench, postgres_dsn: str) -> None:
    target = Target(url_of(postgres_dsn), postgres_dsn)
    change(bench, "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE public.rows (n integer)")
    found = failed(bench.run(step_for(target)))
    assert "removed acode's record" in found.message and "run step with a probe" in found.message
    assert target.has("acode_applied") and not target.has("rows")


def test_a_file_that_takes_a_role_which_cannot_see_the_record_is_applied(bench: Bench, postgres_dsn: str) -> None:
    target = Target(url_of(postgres_dsn), postgres_dsn)
    step = step_for(target)
    role = f"lesser_{bench.session_id[-12:]}".replace("-", "_")
    change(bench, f"CREATE TABLE rows (n integer); CREATE ROLE {role} NOLOGIN; SET ROLE {role}")
    started = bench.start(step)
    try:
        assert isinstance(bench.execute(step, started), Done)
        assert target.has("rows") and bench.look(step, started).outcome is Outcome.APPLIED
    finally:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {role}".encode())


def test_a_file_changed_between_start_and_execution_is_not_executed(bench: Bench, target: Target) -> None:
    started = bench.start(step_for(target))
    change(bench, "CREATE TABLE other (n integer)")
    assert "is not the file that was validated" in failed(bench.execute(step_for(target), started)).message
    assert not target.has("other")


def test_a_missing_unreadable_or_binary_file_is_said_in_words(bench: Bench) -> None:
    (bench.workspace / "change.sql").unlink()
    assert "change.sql cannot be read" in failed(bench.run(step_for("app.db"))).message
    (bench.workspace / "change.sql").write_bytes(b"SELECT '\xff'")
    assert "not UTF-8" in failed(bench.run(step_for("app.db"), 2)).message
    (bench.workspace / "change.sql").write_bytes(b"SELECT 1;\0DROP TABLE rows")
    assert "zero byte" in failed(bench.run(step_for("app.db"), 3)).message
    (bench.workspace / "elsewhere.sql").write_text(ADD_A_ROW)
    (bench.workspace / "change.sql").unlink()
    (bench.workspace / "change.sql").symlink_to("elsewhere.sql")
    assert "link" in failed(bench.run(step_for("app.db"), 4)).message
    assert not (bench.workspace / "app.db").exists()


# Time.

ENDLESS = {
    True: "SELECT pg_sleep(60)",
    False: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
}


def test_a_step_out_of_time_is_stopped_and_rolled_back(bench: Bench, target: Target) -> None:
    change(bench, f"{ADD_A_ROW}{ENDLESS[target.dsn is not None]};")
    step = step_for(target, timeout_s=0.3)
    started = bench.start(step)
    found = failed(bench.execute(step, started))
    assert found.reason == "timeout" and "0.3 s" in found.message
    assert not target.has("rows")
    assert bench.look(step, started).outcome is Outcome.NOT_APPLIED


def test_a_wish_to_stop_is_heard_in_the_middle(bench: Bench, target: Target) -> None:
    change(bench, f"{ADD_A_ROW}{ENDLESS[target.dsn is not None]};")
    asked = iter([False, True])
    bench.stop = Patient(lambda: next(asked, True))
    assert failed(bench.run(step_for(target))).reason == "signal"
    assert not target.has("rows")


def test_the_log_is_synced_while_a_step_takes_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, postgres_dsn: str
) -> None:
    monkeypatch.setattr(sql, "IDLE_S", 0.0)
    change(bench, "SELECT pg_sleep(0.3)")
    synced: list[int] = []
    step = step_for(url_of(postgres_dsn))
    assert isinstance(bench.execute(step, bench.start(step), idle=lambda: synced.append(1)), Done)
    assert synced


def test_a_file_that_somebody_else_writes_to_is_waited_for_and_named(bench: Bench) -> None:
    other = apsw.Connection(str(bench.workspace / "app.db"))
    other.execute("CREATE TABLE theirs (n); BEGIN IMMEDIATE; INSERT INTO theirs VALUES (1)")
    step = step_for("app.db", timeout_s=0.2)
    assert failed(bench.run(step)).reason in ("error", "timeout")
    other.execute("COMMIT")
    other.close()
    assert isinstance(bench.run(step_for("app.db"), 2), Done)


# Where.


def test_the_database_may_come_from_the_environment(bench: Bench, target: Target) -> None:
    bench.env["APP_DB"] = target.place if target.dsn else "app.db"
    step = Step(id="main.1", action=Sql(file="change.sql", database_env="APP_DB"))
    assert isinstance(bench.run(step), Done)
    assert target.rows() == 1


@pytest.mark.parametrize("place", ["../out.db", ".agent/workspace.db", ".Agent/x.db", "mysql://u:secret@h/d", ""])
def test_a_database_that_acode_must_not_touch_is_refused(bench: Bench, place: str) -> None:
    bench.env["APP_DB"] = place
    step = Step(id="main.1", action=Sql(file="change.sql", database_env="APP_DB"))
    found = failed(bench.run(step))
    assert "APP_DB" in found.message and "secret" not in found.message


def test_acodes_own_database_is_refused_under_any_name(bench: Bench) -> None:
    os.link(bench.agent_dir / "workspace.db", bench.workspace / "app.db")
    assert "acode's own database" in failed(bench.run(step_for("app.db"))).message


def test_a_database_behind_a_link_is_refused(bench: Bench, tmp_path: Path) -> None:
    (bench.workspace / "app.db").symlink_to(tmp_path / "outside.db")
    assert "link" in failed(bench.run(step_for("app.db"))).message
    (tmp_path / "outside").mkdir()
    (bench.workspace / "data").symlink_to(tmp_path / "outside")
    assert "link" in failed(bench.run(step_for("data/app.db"), 2)).message
    assert list((tmp_path / "outside").iterdir()) == []
    assert not (tmp_path / "outside.db").exists()


def test_a_database_file_that_does_not_exist_is_made_with_its_directory(bench: Bench) -> None:
    assert isinstance(bench.run(step_for("data/deep/app.db")), Done)
    assert Target(str(bench.workspace / "data/deep/app.db")).rows() == 1


def test_a_database_that_the_session_knows_as_a_file_is_recorded_anew(bench: Bench) -> None:
    apsw.Connection(str(bench.workspace / "app.db")).execute("CREATE TABLE old (n)")
    (bench.workspace / "other.txt").write_text("theirs")
    bench.know("app.db", "other.txt")
    started = bench.start(step_for("app.db"))
    (bench.workspace / "other.txt").write_text("changed by somebody else")
    done = bench.execute(step_for("app.db"), started)
    assert isinstance(done, Done)
    recorded = {state.path: state.sha256 for state in done.files}
    assert recorded.keys() == {"change.sql", "app.db"}
    assert recorded["app.db"] != bench.manifest["app.db"].sha256
    assert {state.path for state in bench.adopt(step_for("app.db"), started).files} == {"change.sql", "app.db"}


def test_a_wal_database_stays_one(bench: Bench) -> None:
    database = apsw.Connection(str(bench.workspace / "app.db"))
    database.execute("PRAGMA journal_mode=WAL; CREATE TABLE old (n)")
    database.close()
    assert isinstance(bench.run(step_for("app.db")), Done)
    assert Target(str(bench.workspace / "app.db")).ask("PRAGMA journal_mode") == [("wal",)]


def test_a_target_restored_from_an_older_copy_is_noticed(bench: Bench, target: Target) -> None:
    step = step_for(target)
    started = bench.start(step)
    bench.execute(step, started)
    assert sql.missing_record(step, bench.site(), started.key) is None
    found = sql.missing_record(step, bench.site(), make_key(bench.session_id, step.id, 7))
    assert found is not None and found.certain and "does not record" in found.message


# Secrets.


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://you:{PASSWORD}@127.0.0.1:1/app?connect_timeout=2",
        f"postgresql://you@127.0.0.1:1/app?password={PASSWORD}&connect_timeout=2",
        f"postgresql://you:{PASSWORD}%zz@127.0.0.1:1/app",
        f"postgresql://you:{PASSWORD}/x@127.0.0.1:1/app",
        f"postgresql://you:{PASSWORD}?x@127.0.0.1:1/app",
        f"postgresql://you:{PASSWORD}#x@127.0.0.1:1/app",
        f"postgresql://you:{PASSWORD}@127.0.0.1:1,127.0.0.1:2/app?connect_timeout=2",
    ],
)
def test_a_password_never_leaves_the_url(bench: Bench, url: str) -> None:
    step = step_for(url)
    started = bench.start(step)
    said = [started.target, bench.execute(step, started), bench.look(step, started), bench.adopt(step, started)]
    doubt = sql.missing_record(step, bench.site(), started.key)
    assert doubt is not None and not doubt.certain
    said += [failed(said[1]).message, doubt.message]
    assert PASSWORD not in repr(said)


def test_a_password_is_not_recorded_by_a_step_that_works_or_fails(bench: Bench, postgres_dsn: str) -> None:
    step = step_for(url_of(postgres_dsn))
    change(bench, "CREATE TABLE rows (n int)")
    said = [bench.run(step)]
    change(bench, f"SELECT '{PASSWORD}'::int")
    said.append(bench.run(step_for(url_of(postgres_dsn), 2)))
    assert PASSWORD not in repr(said)


def test_without_the_driver_the_way_to_get_it_is_said(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    step = step_for("postgresql://you@127.0.0.1/app")
    started = bench.start(step)
    assert 'pip install "acode-cli[postgres]"' in failed(bench.execute(step, started)).message
    assert 'pip install "acode-cli[postgres]"' in bench.look(step, started).evidence

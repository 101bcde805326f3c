"""The scanner of SQL files: what is a statement, what is only text, and what one transaction cannot hold."""

from __future__ import annotations

import pytest

from acode.steps.sql_scanner import Dialect, refusal, statements

REFUSED: dict[Dialect, list[str]] = {
    "sqlite": [
        "VACUUM",
        "vacuum into 'copy.db'",
        "BEGIN",
        "begin immediate",
        "COMMIT",
        "END TRANSACTION",
        "ROLLBACK",
        "SAVEPOINT a",
        "RELEASE a",
        "ATTACH 'other.db' AS other",
        "DETACH other",
        "PRAGMA journal_mode = WAL",
        "PRAGMA main.journal_mode=DELETE",
        "PRAGMA foreign_keys=OFF",
        "PRAGMA synchronous(0)",
        ".tables",
        "/* a comment */ -- and another\n COMMIT",
        "SELECT 'it''s', \"a\"\"b\", `c``d`, [e;f]; COMMIT",
        "CREATE TRIGGER a AFTER INSERT ON b BEGIN SELECT CASE WHEN 1 THEN 2 END; DELETE FROM c; END; COMMIT",
        "SELECT '\\'; COMMIT",
    ],
    "postgres": [
        "VACUUM FULL",
        "CREATE INDEX CONCURRENTLY a ON b (c)",
        "CREATE UNIQUE INDEX CONCURRENTLY a ON b (c)",
        "DROP INDEX CONCURRENTLY a",
        "REINDEX TABLE CONCURRENTLY a",
        "REINDEX (VERBOSE) DATABASE a",
        "ALTER TABLE a DETACH PARTITION b CONCURRENTLY",
        "CREATE DATABASE a",
        "DROP DATABASE IF EXISTS a",
        "CREATE TABLESPACE a LOCATION '/b'",
        "ALTER SYSTEM SET work_mem = '1MB'",
        "ALTER DATABASE a SET TABLESPACE b",
        "CREATE SUBSCRIPTION a CONNECTION 'b' PUBLICATION c",
        "DISCARD ALL",
        "START TRANSACTION",
        "BEGIN",
        "END",
        "ABORT",
        "PREPARE TRANSACTION 'a'",
        "COMMIT PREPARED 'a'",
        "ROLLBACK TO SAVEPOINT a",
        "COPY a FROM STDIN",
        "copy a (b, c) from stdin with csv",
        "\\connect other",
        "SELECT 1 \\gexec",
        "/* outer /* inner */ ; still a comment */ COMMIT",
        "SELECT $a$ ; $b$ ; $a$; COMMIT",
        "SELECT E'it\\'s'; COMMIT",
        "SELECT 'a\\'; COMMIT; SELECT '",
        "DO $$ BEGIN PERFORM 1; END $$; COMMIT",
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; COMMIT",
        "CREATE RULE r AS ON INSERT TO a DO (SELECT 1; SELECT 2); COMMIT",
    ],
}

ACCEPTED: dict[Dialect, list[str]] = {
    "sqlite": [
        "",
        "-- COMMIT;",
        "/* COMMIT; */",
        "/* never closed; COMMIT",
        "INSERT INTO a VALUES ('; COMMIT; --', \"VACUUM\", [ATTACH;], `BEGIN;`)",
        "CREATE TABLE vacuumed (attach TEXT, begin_at TEXT)",
        "CREATE TRIGGER a AFTER INSERT ON b BEGIN DELETE FROM c; INSERT INTO d VALUES (1); END",
        "CREATE TEMP TRIGGER a AFTER INSERT ON b BEGIN DELETE FROM c; END;",
        "PRAGMA user_version = 4",
        "PRAGMA main.user_version = 4; PRAGMA defer_foreign_keys = ON",
        "ALTER TABLE a RENAME TO b; UPDATE b SET c = 'COMMIT'",
    ],
    "postgres": [
        ";;; ; ",
        "SELECT $$ COMMIT; $$, $tag$ ; \\connect $tag$, E'\\'; COMMIT; \\'', 'a\\'",
        "/* /* COMMIT; */ ; COMMIT; */ SELECT 1",
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $body$ BEGIN COMMIT; END $body$",
        "CREATE OR REPLACE PROCEDURE p() BEGIN ATOMIC INSERT INTO a VALUES (CASE WHEN true THEN 1 END); END",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY v",
        "CREATE INDEX a ON b (c)",
        "ALTER DATABASE a SET search_path = b",
        "ALTER TABLE a DETACH PARTITION b",
        "COPY a FROM '/tmp/data.csv'",
        "SELECT a[1], $1 FROM b",
        'CREATE TABLE "COMMIT;" (a int)',
        "SET LOCAL lock_timeout = '5s'",
    ],
}


@pytest.mark.parametrize(("dialect", "text"), [(name, text) for name, texts in REFUSED.items() for text in texts])
def test_what_would_leave_the_transaction_is_refused_with_a_way_out(dialect: Dialect, text: str) -> None:
    found = refusal(text, dialect)
    assert found is not None
    assert found.what and found.hint.endswith(".")


@pytest.mark.parametrize(("dialect", "text"), [(name, text) for name, texts in ACCEPTED.items() for text in texts])
def test_words_in_strings_comments_and_bodies_are_only_text(dialect: Dialect, text: str) -> None:
    assert refusal(text, dialect) is None


def test_the_line_of_the_statement_is_named() -> None:
    found = refusal("SELECT 1;\n\n-- here\nVACUUM;", "sqlite")
    assert found is not None and (found.line, found.what) == (4, "VACUUM")


def test_statements_are_cut_where_the_database_would_cut_them() -> None:
    text = "SELECT ';';\n;CREATE TRIGGER a AFTER INSERT ON b BEGIN SELECT 1; SELECT 2; END;SELECT 3 -- ;"
    assert [text[one.start : one.end] for one in statements(text, "sqlite")] == [
        "SELECT ';';",
        "CREATE TRIGGER a AFTER INSERT ON b BEGIN SELECT 1; SELECT 2; END;",
        "SELECT 3",
    ]


def test_hostile_text_is_scanned_in_linear_time() -> None:
    for piece in ("'", '"', "/*", "$a$", "$", "--\n", "e'\\", "(", "[", ";"):
        for dialect in ("sqlite", "postgres"):
            refusal(piece * 50_000, dialect)

"""A database of others is read where it lies, its WAL too, while its owner writes; nothing is written."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from acode.observed.readonly_database import open_to_read
from tests.observed.test_inspect import picture


def owner(path: Path, mode: str = "WAL") -> apsw.Connection:
    database = apsw.Connection(str(path))
    database.execute(f"PRAGMA journal_mode = {mode}")
    database.execute("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    return database


def rows(path: Path) -> list[object]:
    with open_to_read(path) as database:
        return [row[0] for row in database.execute("SELECT x FROM t ORDER BY x")]


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_rows_of_an_open_and_of_a_closed_database_are_read_and_nothing_is_left_behind(
    mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "a b?c#.db"
    database = owner(path, mode)
    before = picture(tmp_path)
    assert rows(path) == [1]
    assert picture(tmp_path) == before
    database.execute("INSERT INTO t VALUES (2)")
    assert rows(path) == [1, 2]
    database.close()
    before = picture(tmp_path)
    assert rows(path) == [1, 2]
    assert picture(tmp_path) == before


def test_the_owner_can_write_and_checkpoint_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = owner(path)
    with open_to_read(path) as other:
        assert next(other.execute("SELECT count(*) FROM t"))[0] == 1
        database.execute("INSERT INTO t VALUES (2)")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert next(database.execute("SELECT count(*) FROM t"))[0] == 2
    database.close()


def test_nothing_can_be_written_through_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    database = owner(path)
    with open_to_read(path) as other, pytest.raises(apsw.ReadOnlyError):
        other.execute("INSERT INTO t VALUES (3)")
    database.close()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_fifo_or_a_link_in_place_of_its_files_is_not_opened(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    owner(path).close()
    strange = Path(f"{path}{suffix}")
    for make in (os.mkfifo, lambda place: place.symlink_to("/dev/zero")):
        strange.unlink(missing_ok=True)
        make(strange)
        with pytest.raises((OSError, apsw.Error)):
            rows(path)


def test_a_table_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from acode.observed import opencode, readonly_database

    monkeypatch.setattr(readonly_database, "SECONDS_MAX", 0.2)
    path = tmp_path / "opencode.db"
    database = apsw.Connection(str(path))
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
    columns = "i AS id, i AS parent_id, i AS directory, i AS version, i AS time_updated"
    database.execute(f"CREATE VIEW session AS SELECT {columns} FROM ({endless})")
    database.close()
    began = datetime.now(UTC)
    with pytest.raises(OSError, match="interrupted"):
        list(opencode.read(path, None, None))
    assert (datetime.now(UTC) - began).total_seconds() < 60

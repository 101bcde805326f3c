"""The floor that steps are measured against: SQLite alone, one WAL commit with `synchronous=FULL`, of the same bytes.

The bytes are those a step leaves in the log: its start and its completion, each with its code and its session's id, and
its share of the rows that come once in many steps: a checkpoint, a snapshot, and the names of finished steps. `one_row`
writes them as one row of one table without any index: the least that SQLite can do to keep so many bytes, and what the
targets are held against. `same_rows` writes them as the rows they are, when they come, into tables as acode has them:
what is above it is not SQLite's work but acode's own.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any, Literal

import apsw

ONE_ROW = "CREATE TABLE log(seq INTEGER PRIMARY KEY, body TEXT)"
SAME_ROWS = """
CREATE TABLE events(id INTEGER PRIMARY KEY, session_id TEXT, seq INTEGER, body TEXT, mac BLOB);
CREATE TABLE checkpoints(id INTEGER PRIMARY KEY, session_id TEXT, seq INTEGER, body TEXT, mac BLOB);
CREATE TABLE finished(session INTEGER, step TEXT, seq INTEGER, PRIMARY KEY (session, step)) WITHOUT ROWID;
"""
PER_ROW_BYTES = 32 + 36  # its code, and its session's id
# The first row and the last one come with a session's beginning and its end, whatever it did in between.
ROWS_BETWEEN = """
SELECT count(*), coalesce(sum(length(CAST(body AS BLOB))), 0) FROM checkpoints
WHERE id > (SELECT min(id) FROM checkpoints) AND id < (SELECT max(id) FROM checkpoints)
"""

Floor = Literal["one_row", "same_rows"]


class Bare:
    """A database of its own; each commit says how many seconds it took."""

    def __init__(self, path: Path, left: Left, floor: Floor) -> None:
        self._left = left
        self._text = "x" * left.total_bytes
        self._db = _open(path / "bare.db", ONE_ROW if floor == "one_row" else SAME_ROWS)
        self._insert = self._one_row if floor == "one_row" else self._same_rows
        self._number = 0

    def commit(self) -> float:
        self._number += 1
        before = time.perf_counter()
        self._db.execute("BEGIN IMMEDIATE")
        self._insert()
        self._db.execute("COMMIT")
        return time.perf_counter() - before

    def _one_row(self) -> None:
        self._db.execute("INSERT INTO log(body) VALUES (?)", (self._text,))

    def _same_rows(self) -> None:
        number, session_id, mac, execute = self._number, "x" * 36, b"x" * 32, self._db.execute
        left = self._left
        for place, size in enumerate(left.events):
            row = (number * 8 + place, session_id, number, self._text[:size], mac)
            execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
        if number % left.steps_to_a_row:
            return
        execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", (number, session_id, number, left.row_text, mac))
        for one in range(number - left.steps_to_a_row, number) if left.named else ():
            execute("INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", (1, f"work#{one}", one))


class Left:
    """What a step leaves in the log, by a session that has run so many of them."""

    def __init__(self, database: Path, *, steps: int, named: bool) -> None:
        db = apsw.Connection(os.fspath(database))
        sizes: list[Any] = list(
            db.execute(
                "SELECT instr(body, '\"step_started\"') > 0, length(CAST(body AS BLOB)) FROM events"
                " WHERE instr(body, '\"step_started\"') OR instr(body, '\"step_completed\"') ORDER BY id DESC LIMIT 2"
            )
        )
        assert sorted(row[0] for row in sizes) == [0, 1], "a step leaves its start and its completion"
        self.events = [row[1] for row in reversed(sizes)]
        self.named = named
        rows, size = next(iter(db.execute(ROWS_BETWEEN)))
        snapshots = next(iter(db.execute("SELECT coalesce(sum(length(body) + 36), 0) FROM snapshots")))[0]
        self.steps_to_a_row = max(1, steps // max(rows, 1))
        self.row_text = "x" * ((size + snapshots) // max(rows, 1))

    @property
    def total_bytes(self) -> int:
        events = sum(self.events) + len(self.events) * PER_ROW_BYTES
        share = (len(self.row_text) + PER_ROW_BYTES) // self.steps_to_a_row
        return events + share + (len("work#1000") if self.named else 0)


GROWS_UNTIL, GROWN_FROM = 300, 450  # by then the bare database's WAL file is as long as it gets, 1,000 pages


def ratios(step_s: list[float], bare_s: list[float], rounds: int) -> dict[str, float]:
    """Steps beside bare commits, of rounds of equal length; also while the log's file still grows, and afterwards.

    A commit that makes the file longer costs nearly twice as much as one that does not, and acode makes room ahead.
    """

    def between(found: list[float], low: int, high: int | None) -> float:
        each = len(found) // rounds
        return statistics.median(
            itertools.chain(*(found[at + low : at + (high or each)] for at in range(0, len(found), each)))
        )

    def of(low: int, high: int | None) -> float:
        return round(between(step_s, low, high) / between(bare_s, low, high), 3)

    return {
        "ratio_of_medians": of(0, None),
        "ratio_of_means": round(statistics.mean(step_s) / statistics.mean(bare_s), 3),
        "ratio_while_the_file_grows": of(0, GROWS_UNTIL),
        "ratio_afterwards": of(GROWN_FROM, None),
        "bare_ms_while_the_file_grows": round(between(bare_s, 0, GROWS_UNTIL) * 1000, 4),
        "bare_ms_afterwards": round(between(bare_s, GROWN_FROM, None) * 1000, 4),
    }


def _open(path: Path, tables: str) -> apsw.Connection:
    db = apsw.Connection(os.fspath(path))
    db.execute("PRAGMA journal_mode=wal")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(tables)
    return db

"""The attacker of the tests: somebody who can write the workspace's database and files, and has no key.

`Attack(workspace)` opens the database the way any SQLite tool would, with acode's own triggers out of the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

SPAN = 2**40


class Attack:
    """Write access to one workspace's database."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace / ".agent" / "workspace.db"

    @contextmanager
    def database(self) -> Iterator[apsw.Connection]:
        db = apsw.Connection(os.fspath(self.path))
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        try:
            yield db
        finally:
            db.close()

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with self.database() as db:
            return list(db.execute(statement, values))

    def body(self, seq: int, number: int = 1) -> str:
        return str(self.sql("SELECT body FROM events WHERE id = ?", number * SPAN + seq)[0][0])

    def set_body(self, seq: int, body: str, number: int = 1) -> None:
        self.sql("UPDATE events SET body = ? WHERE id = ?", body, number * SPAN + seq)

    def edit(self, seq: int, old: str, new: str) -> None:
        text = self.body(seq)
        assert old in text
        self.set_body(seq, text.replace(old, new))

    def delete(self, first: int, last: int | None = None, *, table: str = "events") -> None:
        self.sql(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", SPAN + first, SPAN + (last or first))

    def seq_of(self, kind: str, step: str | None = None) -> int:
        """The number of the last event of this type."""
        rows = self.sql("SELECT seq, body FROM events ORDER BY id DESC")
        wanted = f'"type":"{kind}"'
        return next(seq for seq, body in rows if wanted in body and (step is None or f'"step":"{step}"' in body))

    def last(self) -> int:
        return int(self.sql("SELECT max(seq) FROM events")[0][0])

    def copy_to(self, place: Path) -> Path:
        """The whole database as it stands, WAL and all."""
        place.mkdir(exist_ok=True)
        for path in self.path.parent.glob("workspace.db*"):
            shutil.copy2(path, place / path.name)
        return place

    def restore_from(self, place: Path) -> None:
        for path in self.path.parent.glob("workspace.db*"):
            path.unlink()
        for path in place.glob("workspace.db*"):
            shutil.copy2(path, self.path.parent / path.name)

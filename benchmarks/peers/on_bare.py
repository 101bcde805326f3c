"""The floor: one row of 1 KiB, committed with full durability, and nothing else."""

from __future__ import annotations

import os

import apsw

from benchmarks.peers.program import Place, Work


def run(place: Place, count: int, work: Work) -> dict[str, str]:
    db = apsw.Connection(os.fspath(place.path / "bare.db"))
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS log(seq INTEGER PRIMARY KEY, body TEXT)")
    done = next(iter(db.execute("SELECT count(*) FROM log")))[0]
    for n in range(done, count):
        result = work(n)
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO log(body) VALUES (?)", (result,))
        db.execute("COMMIT")
    return {name: str(next(iter(db.execute(f"PRAGMA {name}")))[0]) for name in ("journal_mode", "synchronous")}

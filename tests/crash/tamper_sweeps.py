"""Every byte that is signed, changed one at a time: detected before it is used, or never used at all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from acode.engine.workspace_store import opened
from acode.errors import AcodeError
from acode.store.store import Loaded, Store
from tests.crash.case import Prepared
from tests.crash.sweeps import VIOLATIONS_MAX, Tally

CHECKPOINTS = ("checkpoints", "body", "TEXT")
Flip = tuple[str, tuple[object, ...], bytes]


def flips(store: Store, table: str, column: str, bits: tuple[int, ...]) -> Iterator[Flip]:
    """Every byte of a column changed, one at a time: where it stands, and the cell as it would be."""
    key = "sha256" if table == "blobs" else "id"
    rows = list(store.db.execute(f"SELECT {key}, CAST({column} AS BLOB) FROM {table} WHERE {column} IS NOT NULL"))
    for place, cell in rows:
        for index in range(len(cell)):
            for bit in bits:
                yield key, place, cell[:index] + bytes([cell[index] ^ bit]) + cell[index + 1 :]


def judged(store: Store, session_id: str, untouched: Loaded) -> str:
    """Detected, or of no effect: the verdict on one change."""
    try:
        loaded = store.load(session_id)
    except AcodeError as error:
        assert error.exit_code == 20, error
        return "load"
    assert loaded == untouched, "a change that was not detected was used"
    verified = store.verify(session_id)
    assert verified.problems, "a change of signed bytes was not detected"
    return "verify"


def judged_when_flipped(
    store: Store, session_id: str, untouched: Loaded, field: tuple[str, str, str], flip: Flip
) -> str:
    """The change is made on the connection that reads, and taken back: the file is the same afterwards."""
    (table, column, kind), (key, where, cell) = field, flip
    store.db.execute("BEGIN")
    try:
        store.db.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE {key} = ?", (cell, where))
        return judged(store, session_id, untouched)
    finally:
        store.db.execute("ROLLBACK")


def tamper_sweep(ready: Prepared, *, every: int = 1, limit: int = VIOLATIONS_MAX) -> Tally:
    """The command has ended, and somebody without the key changes the checkpoints it left."""
    tally = Tally(limit=limit)
    ready.fresh()
    ready.act_here()
    with opened(ready.place.world(), look_only=False) as store:
        session_id = store.session_ids()[-1]
        untouched = store.load(session_id)
        for flip in islice(flips(store, *CHECKPOINTS[:2], (0x01,)), 0, None, every):
            tally.states += 1
            try:
                judged_when_flipped(store, session_id, untouched, CHECKPOINTS, flip)
            except AssertionError as error:
                tally.violations.append(f"{ready.case}, a byte of a checkpoint was changed: {error}")
            if tally.enough:
                break
    return tally

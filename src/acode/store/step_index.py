"""Finished steps of a program, found by their names.

The table of names is a hint and trusted for nothing: the event at the named place is verified like any other, and the
caller that is about to run a step proves from the log itself that it is *not* finished. Rows are read ahead in the
log's order, because a program asks for its steps in the order in which it once ran them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

from acode.errors import KeyMissing
from acode.events import types as ev
from acode.state import NESTED
from acode.store import database
from acode.store.schema import SEQ_SPAN
from acode.store.store import Store, verify_row

AHEAD_ROWS = 512
_MARK = b'"event":{"type":"step_completed","step":"'
_MARK_BYTES = len(_MARK)
_PLACE = "SELECT seq FROM finished WHERE session = ? AND step = ?"
_RANGE = """
SELECT seq, CAST(body AS BLOB), mac FROM events WHERE id BETWEEN ? AND ? AND session_id = ? ORDER BY id"""


class _Row(NamedTuple):
    seq: int
    body: bytes
    mac: bytes
    head: bytes


class Finished:
    """The finished steps of a program's session; one object per run, asked in the program's order."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._base = store.base(session_id)
        self._ahead: dict[str, _Row] = {}
        self._all: dict[str, int] | None = None
        self._in_order: dict[str, list[tuple[str, str]]] = {}

    def find(self, step: str) -> ev.StepCompleted | None:
        """The completion of the step; None says only that the hint knows of none."""
        row = self._ahead.pop(step, None)
        if row is None:
            with database.translated(self._store.path):
                place = self._store.db.execute(_PLACE, (self._base // SEQ_SPAN, step)).fetchone()
            if place is None:
                return None
            self._read_ahead(place[0])
            row = self._ahead.pop(step, None)
        return self._verified(row, step) if row is not None else None

    def at(self, seq: int, step: str) -> ev.StepCompleted | None:
        """The completion of the step with this number."""
        rows = self._rows(seq, 1)
        return self._verified(rows[0], step) if rows else None

    def failure_at(self, seq: int) -> ev.StepFailed | None:
        """The failure with this number, verified."""
        rows = self._rows(seq, 1)
        event = self._open(rows[0]) if rows else None
        return event if isinstance(event, ev.StepFailed) else None

    def prove_absent(self, step: str) -> bool:
        """Whether the whole verified log knows no completion of the step; read once, and only where it is needed."""
        return step not in self._whole_log()

    def in_order(self, place: str) -> list[tuple[str, str]]:
        """The steps finished at a place, and inside the step there, where their order was certain: by the name
        there, and by the whole name, in the order of their ends.
        """
        self._whole_log()
        return self._in_order.get(place, [])

    def _whole_log(self) -> dict[str, int]:
        if self._all is None:
            self._all = {}
            for seq, completed in completions(self._store, self._session_id):
                self._all[completed.step] = seq
                for place, local in places(completed):
                    self._in_order.setdefault(place, []).append((local, completed.step))
        return self._all

    def find_in_log(self, step: str) -> ev.StepCompleted | None:
        """For a step that the log knows and the hint does not: one of a session that was brought here, for one."""
        assert self._all is not None
        found = self.at(self._all[step], step)
        if found is not None:
            return found
        for envelope, _, _ in self._store.events(self._session_id):
            if envelope.seq == self._all[step] and isinstance(envelope.event, ev.StepCompleted):
                return envelope.event
        return None

    def _read_ahead(self, seq: int) -> None:
        if len(self._ahead) > AHEAD_ROWS:
            self._ahead.clear()  # what was not asked for in its turn is looked up again
        for row in self._rows(seq, AHEAD_ROWS):
            body = row[1]
            start = body.find(_MARK) + _MARK_BYTES
            if start >= _MARK_BYTES:
                self._ahead[body[start : body.index(b'"', start)].decode("utf-8", "replace")] = row

    def _rows(self, seq: int, limit: int) -> list[_Row]:
        """Rows from `seq` on, each with the code before it."""
        place = (self._base + seq - 1, self._base + seq + limit - 1, self._session_id)
        with database.translated(self._store.path):
            found: list[Any] = self._store.db.execute(_RANGE, place).fetchall()
        if len(found) < 2 or found[1][0] != seq:
            return []
        return [_Row(row[0], row[1], row[2], before[2]) for before, row in itertools.pairwise(found)]

    def _verified(self, row: _Row, step: str) -> ev.StepCompleted | None:
        event = self._open(row)
        return event if isinstance(event, ev.StepCompleted) and event.step == step else None

    def _open(self, row: _Row) -> ev.Known | ev.Unknown | None:
        seq, body, mac, head = row
        try:
            return verify_row(self._session_id, seq, body, mac=mac, head=head, keyring=self._store.keyring).event
        except KeyMissing:
            return None  # its key is lost; if a person has accepted it, the whole log shows that


def completions(store: Store, session_id: str) -> Iterator[tuple[int, ev.StepCompleted]]:
    """Every completion of the verified log with its number; a later one of the same step stands for the earlier."""
    for envelope, _, _ in store.events(session_id):
        if isinstance(envelope.event, ev.StepCompleted):
            yield envelope.seq, envelope.event


def places(completed: ev.StepCompleted) -> Iterator[tuple[str, str]]:
    """The places where the step has a certain order: among its neighbors, and inside the steps around it."""
    asked = completed.asked
    if asked is None or not (asked.ordered or asked.after is not None):
        return
    place, _, local = completed.step.rpartition(NESTED)
    yield place, local
    while place and asked.ordered:
        place, _, local = place.rpartition(NESTED)
        yield place, local


def finished_steps(store: Store, session_id: str) -> list[tuple[str, int]]:
    """Names and numbers of a program's finished steps as they ended; a hint, like all of this table."""
    with database.translated(store.path):
        number = store.base(session_id) // SEQ_SPAN
        return list(store.db.execute("SELECT step, seq FROM finished WHERE session = ? ORDER BY seq", (number,)))

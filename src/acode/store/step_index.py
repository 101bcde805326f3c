"""Finished steps of a program, found by their names.

The table of names is a hint and trusted for nothing: the event at the named place is verified like any other, and the
caller that is about to run a step proves from the log itself that it is *not* finished. The table is told of finished
steps with each row of checkpoints; what the log holds behind the newest one is read from there, or known by the
journal. Rows are read ahead in the log's order, because a program asks for its steps in the order in which it once ran
them. A completion that names its start is given back with what was asked for there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from acode.errors import AcodeError, ChainBroken, KeyMissing
from acode.events import Envelope
from acode.events import types as ev
from acode.state import NESTED
from acode.store import checkpoints as ck
from acode.store import database
from acode.store.schema import SEQ_SPAN
from acode.store.store import Store, verify_row
from acode.store.verification import noted_of

AHEAD_ROWS = 512
_MARK = b'"event":{"type":"step_completed","step":"'
_MARK_BYTES = len(_MARK)
_START_MARK = b'"event":{"type":"step_started",'
_NEWEST_ROW = "SELECT seq FROM checkpoints WHERE id > ? AND id < ? ORDER BY id DESC LIMIT 1"
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

    def __init__(self, store: Store, session_id: str, unindexed: Mapping[str, int] | None = None) -> None:
        self._store = store
        self._session_id = session_id
        self._base = store.base(session_id)
        self._unindexed = unindexed if unindexed is not None else _tail(store, session_id)
        self._ahead: dict[str, _Row] = {}
        self._starts: dict[int, _Row] = {}
        self._all: dict[str, int] | None = None
        self._in_order: dict[str, list[tuple[str, str]]] = {}

    def find(self, step: str) -> ev.StepCompleted | None:
        """The completion of the step; None says only that the hint knows of none."""
        row = self._ahead.pop(step, None)
        if row is None:
            place = self._unindexed.get(step) or self._in_table(step)
            if place is None:
                return None
            self._read_ahead(place)
            row = self._ahead.pop(step, None)
        return self._verified(row, step) if row is not None else None

    def _in_table(self, step: str) -> int | None:
        with database.translated(self._store.path):
            found = self._store.db.execute(_PLACE, (self._base // SEQ_SPAN, step)).fetchone()
        return int(found[0]) if found is not None else None

    def at(self, seq: int, step: str) -> ev.StepCompleted | None:
        """The completion of the step with this number."""
        rows = self._rows(seq, 1)
        return self._verified(rows[0], step) if rows else None

    def failure_at(self, seq: int) -> ev.StepFailed | None:
        """The failure with this number, verified."""
        rows = self._rows(seq, 1)
        found = self._open(rows[0]) if rows else None
        return found.event if found is not None and isinstance(found.event, ev.StepFailed) else None

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
        self._starts.clear()
        for row in self._rows(seq - 1, AHEAD_ROWS) or self._rows(seq, AHEAD_ROWS):
            name = _completed_in(row.body)
            if name is not None:
                self._ahead[name] = row
            elif _START_MARK in row.body:
                self._starts[row.seq] = row

    def _rows(self, seq: int, limit: int) -> list[_Row]:
        """Rows from `seq` on, each with the code before it."""
        place = (self._base + seq - 1, self._base + seq + limit - 1, self._session_id)
        with database.translated(self._store.path):
            found: list[Any] = self._store.db.execute(_RANGE, place).fetchall()
        if len(found) < 2 or found[1][0] != seq:
            return []
        return [_Row(row[0], row[1], row[2], before[2]) for before, row in itertools.pairwise(found)]

    def _verified(self, row: _Row, step: str) -> ev.StepCompleted | None:
        found = self._open(row)
        if found is None or not isinstance(found.event, ev.StepCompleted) or found.event.step != step:
            return None
        return self.with_asked(found.event)

    def with_asked(self, completed: ev.StepCompleted) -> ev.StepCompleted:
        """The completion with what its start says was asked for."""
        if completed.asked is not None or not completed.start:
            return completed
        row = self._starts.pop(completed.start, None) or next(iter(self._rows(completed.start, 1)), None)
        try:
            found = self._open(row) if row is not None else None
        except AcodeError:
            if completed.start in noted_of(self._store, self._session_id).seqs:
                return completed  # a person has had it set aside
            raise
        begun = ck.begun_in(found, completed.step) if found is not None else None
        if begun is None:
            if row is not None and found is None:
                return completed  # its key is lost
            raise ChainBroken(f"event {completed.start} is not the start of step {completed.step}", seq=completed.start)
        return msgspec.structs.replace(completed, asked=begun.started.asked)

    def _open(self, row: _Row) -> Envelope | None:
        keys = self._store.keys_of(self._session_id)
        try:
            return verify_row(self._session_id, row.seq, row.body, mac=row.mac, head=row.head, keys=keys)
        except KeyMissing:
            return None  # its key is lost; if a person has accepted it, the whole log shows that


def completions(store: Store, session_id: str) -> Iterator[tuple[int, ev.StepCompleted]]:
    """Every completion of the verified log with its number; a later one of the same step stands for the earlier."""
    asked = AskedBefore(store, session_id)
    for envelope, _, _ in store.events(session_id):
        event = asked.restore(envelope).event
        if isinstance(event, ev.StepCompleted):
            yield envelope.seq, event


class AskedBefore:
    """For a reader of consecutive events: restores what was asked for in completions that leave it to the start."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._open: dict[str, ev.Asked | None] = {}  # by step that has begun and not ended

    def restore(self, envelope: Envelope) -> Envelope:
        match envelope.event:
            case ev.StepStarted() as started:
                self._open[started.step] = started.asked
            case ev.Quarantined(opened=opened):
                self._open |= {one.step: one.asked for one in opened}
            case ev.StepCompleted(asked=None, start=start) as completed if start:
                whole = msgspec.structs.replace(completed, asked=self._asked(completed), start=0)
                return msgspec.structs.replace(envelope, event=whole)
        return envelope

    def _asked(self, completed: ev.StepCompleted) -> ev.Asked | None:
        if completed.step in self._open:
            return self._open.pop(completed.step)
        begun_earlier = Finished(self._store, self._session_id, {}).with_asked(completed)
        return begun_earlier.asked


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
    with store.one_view():
        number = store.base(session_id) // SEQ_SPAN
        found = dict(store.db.execute("SELECT step, seq FROM finished WHERE session = ? ORDER BY seq", (number,)))
        behind = _tail(store, session_id)
    for again in found.keys() & behind.keys():
        del found[again]
    return [*found.items(), *sorted(behind.items(), key=itemgetter(1))]


def _tail(store: Store, session_id: str) -> dict[str, int]:
    """Completions behind the newest row of checkpoints, by what their rows claim; each is verified when it is used."""
    base = store.base(session_id)
    with store.one_view():
        newest = store.db.execute(_NEWEST_ROW, (base, base + SEQ_SPAN)).fetchone()
        rows = store.stored(session_id, newest[0] if newest is not None else 0)
        return {name: seq for seq, _, body, _ in rows if (name := _completed_in(body)) is not None}


def _completed_in(body: bytes) -> str | None:
    start = body.find(_MARK) + _MARK_BYTES
    return body[start : body.index(b'"', start)].decode("utf-8", "replace") if start >= _MARK_BYTES else None

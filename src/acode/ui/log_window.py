"""A part of a session's log, verified: its end, or the events with given numbers.

A page of ten thousand steps must not read twenty thousand events before it shows anything. Each row is verified with
the code of the row before it, as everywhere; `preview` checks that nothing was cut off at
the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from acode.events import Envelope
from acode.seal import GENESIS
from acode.store.store import Store, verify_row


def last_events(store: Store, session_id: str, last_seq: int, count: int) -> Iterator[Envelope]:
    """The last `count` events up to `last_seq`, the oldest first."""
    yield from events_between(store, session_id, max(last_seq - count, 0) + 1, last_seq)


def event_at(store: Store, session_id: str, seq: int) -> Envelope | None:
    return next(events_between(store, session_id, seq, seq), None)


def events_between(store: Store, session_id: str, first: int, last: int) -> Iterator[Envelope]:
    head = GENESIS
    before = first - 2 if first > 1 else 0
    for seq, body, mac in store.rows(session_id, before, last - before):
        if seq >= first:
            yield verify_row(session_id, seq, body, mac=mac, head=head, keys=store.keys_of(session_id))
        head = mac

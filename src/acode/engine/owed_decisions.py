"""A person's decisions about a session's owner that the log does not hold yet. A lease changes on the server, and a
history is set aside, before an event can record it: only the owner writes the log. A kill in between would leave a
take-over by force without a record. So the decision is noted beside the session first, and the session's next holder
records it before anything else. An intention that had no effect is not recorded, and nothing is recorded twice: the
note holds the end of the log when the decision took effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from acode.events import decode
from acode.events import types as ev
from acode.store import sync_cursor
from acode.store.store import Store
from acode.store.sync_cursor import Cursor

if TYPE_CHECKING:
    from acode.engine.held_session import Held

EVENTS_READ_MAX = 64
Decision = ev.Forced | ev.Noted


class OwedNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`intended` takes effect with this generation of the lease; `done` has, when the log ended at `after`."""

    done: tuple[Decision, ...] = ()
    after: int = 0
    intended: Decision | None = None
    generation: int = 0


def of(cursor: Cursor) -> OwedNote:
    return OwedNote() if cursor.unsaid is None else msgspec.json.decode(cursor.unsaid, type=OwedNote)


def _with(cursor: Cursor, unsaid: OwedNote) -> Cursor:
    kept = None if unsaid == OwedNote() else msgspec.json.encode(unsaid).decode()
    return msgspec.structs.replace(cursor, unsaid=kept)


def intend(store: Store, session_id: str, generation: int, decision: Decision) -> None:
    """Durable before the server hears of it: from then on it may have taken effect, whatever becomes of us."""

    def intending(cursor: Cursor) -> Cursor:
        return _with(cursor, msgspec.structs.replace(of(cursor), intended=decision, generation=generation))

    sync_cursor.revise_cursor(store, session_id, intending)
    sync_cursor.make_durable(store)


def with_effect(cursor: Cursor, generation: int, last_seq: int) -> Cursor:
    """The lease is ours with this generation: what was intended with it has taken effect, when the log ended there."""
    before = of(cursor)
    if before.intended is None or before.generation != generation:
        return cursor
    kept = OwedNote(done=before.done, after=before.after)
    return _with(cursor, _and_done(kept, before.intended, last_seq))


def decide_here(store: Store, session_id: str, decision: Decision, last_seq: int) -> None:
    """A decision that makes this machine the owner by itself; durable before anything is appended under it."""

    def decided(cursor: Cursor) -> Cursor:
        ours = msgspec.structs.replace(cursor, standing="owner", holder="")
        return _with(ours, _and_done(of(ours), decision, last_seq))

    sync_cursor.revise_cursor(store, session_id, decided)
    sync_cursor.make_durable(store)


def after_arrival(cursor: Cursor, before: Cursor, last_seq: int, given_up: Decision | None) -> Cursor:
    """The cursor of pulled rows, with the owed decisions; `given_up`: the local events that a person gave up for
    them.
    """
    kept = of(before)
    if kept.done:
        kept = msgspec.structs.replace(kept, after=min(kept.after, last_seq))
    return _with(cursor, kept if given_up is None else _and_done(kept, given_up, last_seq))


def _and_done(before: OwedNote, decision: Decision, last_seq: int) -> OwedNote:
    after = before.after if before.done else last_seq
    return msgspec.structs.replace(before, done=(*before.done, decision), after=after)


def append_owed(run: Held) -> None:
    """Record the owed decisions, then forget them; a kill between the two is noticed by the next holder."""
    session_id = run.session.session_id
    unsaid = of(sync_cursor.cursor_of(run.store, session_id))
    if not unsaid.done:
        return
    rows = run.store.rows(session_id, unsaid.after, EVENTS_READ_MAX)
    said = [decode(body, session_id, seq).event for seq, body, _ in rows]
    owed = [one for one in unsaid.done if one not in said]
    if run.session.terminal:  # an ended session is not resumed anywhere
        owed = [one for one in owed if isinstance(one, ev.Forced)]
    if owed:
        run.append(*owed, actor="user")

    def without(cursor: Cursor) -> Cursor:
        rest = of(cursor)
        return _with(cursor, OwedNote(intended=rest.intended, generation=rest.generation))

    sync_cursor.revise_cursor(run.store, session_id, without)

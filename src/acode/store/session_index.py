"""Sessions by standing, last activity, key and part of their id.

The columns that this reads are a hint and trusted for nothing: a user of a session reads and verifies its own rows.
They are written in the transaction of the event that they follow, so that a crash leaves both or neither. A session
that runs is not noted with every event: its last row says when it was last active.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from acode.errors import AcodeError, UnknownSession
from acode.events import decode
from acode.events import types as ev
from acode.state import Session, State
from acode.state.source import FOREIGN_RUN, OBSERVED_AGENT, PROGRAM
from acode.store.schema import SEQ_SPAN

if TYPE_CHECKING:
    from acode.store.store import Store

RUNNING, STOPPED, ENDED = "running", "stopped", "ended"
NOTE = "UPDATE sessions SET standing = ?, active_us = ? WHERE number = ?"
INSERT = "INSERT INTO sessions(session_id, created_at, generation, key) VALUES (?, ?, ?, ?)"
KEYED = frozenset({PROGRAM.kind, FOREIGN_RUN.kind, OBSERVED_AGENT.kind})
ID_PART_CHARS_MIN = 4  # fewer are too easily a slip
SHORT_ID_CHARS = 8
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_LAST_AT = """
(SELECT CASE WHEN json_valid(e.body) THEN json_extract(e.body, '$.at') END FROM events e
 WHERE e.id > s.number * 1099511627776 AND e.id < (s.number + 1) * 1099511627776 ORDER BY e.id DESC LIMIT 1)"""
_UNFINISHED = f"""
SELECT s.session_id, s.active_us, CASE s.standing WHEN 'running' THEN {_LAST_AT} END
FROM sessions s WHERE s.standing <> 'ended'"""
_ENDED = """
SELECT session_id, active_us, number FROM sessions
WHERE standing = 'ended' AND active_us <= ?1 AND (active_us < ?1 OR number < ?2)
ORDER BY active_us DESC, number DESC LIMIT 64"""
_COUNT = "SELECT count(*) FROM sessions"
_ENDED_SINCE = "SELECT session_id FROM sessions WHERE standing = 'ended' AND active_us >= ?"
_UNDER_KEY = """
SELECT s.session_id, CAST(e.body AS BLOB) FROM sessions s JOIN events e ON e.id = s.number * 1099511627776 + 1
WHERE s.key = ? ORDER BY s.number DESC"""
_BEGINNING = "SELECT session_id FROM sessions WHERE session_id >= ?1 AND session_id < ?1 || '~'"
_SHORT = "SELECT session_id FROM sessions WHERE substr(session_id, -8) >= ?1 AND substr(session_id, -8) < ?1 || '~'"
_LONG_END = """
SELECT session_id FROM sessions
WHERE substr(session_id, -8) = substr(?1, -8) AND substr(session_id, -length(?1)) = ?1"""
_END = "SELECT session_id FROM sessions WHERE substr(session_id, -length(?1)) = ?1"
_LATEST = "SELECT session_id FROM sessions ORDER BY number DESC LIMIT ?"


class Entry(NamedTuple):
    """A session and when it was last active, in microseconds since 1970."""

    active_us: int
    session_id: str


# Writing, inside the transaction of the event.


def standing_of(session: Session) -> str:
    if session.terminal:
        return ENDED
    return STOPPED if session.state in (State.PAUSED, State.AWAITING_APPROVAL) else RUNNING


def note(store: Store, session: Session) -> None:
    """How the session stands now."""
    number = store.base(session.session_id) // SEQ_SPAN
    store.db.execute(NOTE, (standing_of(session), microseconds(session.updated_at), number))


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def key_of(created: object) -> str | None:
    """What a session is looked up by: a program's key, a foreign run's id, an observed agent's own session."""
    return created.task if isinstance(created, ev.SessionCreated) and created.kind in KEYED else None


# Lists, the most recently active first.


def unfinished(store: Store) -> list[Entry]:
    found = list[Entry]()
    for session_id, active_us, last_at in store.db.execute(_UNFINISHED):
        found.append(Entry(_moment(last_at, active_us), session_id))
    found.sort(reverse=True)
    return found


def _moment(text: Any, otherwise: int) -> int:
    """Of a row that is damaged the hint itself is as good as anything: the session is verified when it is used."""
    if not isinstance(text, str):
        return otherwise
    try:
        return microseconds(msgspec.convert(text, datetime))
    except (msgspec.ValidationError, TypeError):
        return otherwise


def ended(store: Store) -> Iterator[Entry]:
    """Read some at a time: the caller looks at each session between two of them."""
    before = (2**63 - 1, 0)
    while page := _page(store, before):
        for session_id, active_us, _ in page:
            yield Entry(active_us, session_id)
        before = page[-1][1], page[-1][2]


def _page(store: Store, before: tuple[int, int]) -> list[tuple[str, int, int]]:
    rows: list[Any] = store.db.execute(_ENDED, before).fetchall()
    return rows


def count(store: Store) -> int:
    return int(store.db.execute(_COUNT).get)


def newest(store: Store) -> Iterator[Entry]:
    """Unfinished and ended ones in one order."""
    return heapq.merge(unfinished(store), ended(store), reverse=True)


def active_since(store: Store, since: datetime) -> list[str]:
    """Sessions that may have an event of that time or later."""
    open_ones = [hint.session_id for hint in unfinished(store)]
    return [*open_ones, *(row[0] for row in store.db.execute(_ENDED_SINCE, (microseconds(since),)))]


# Look-ups.


def sessions_of_key(store: Store, key: str, kind: str = PROGRAM.kind, source: str | None = None) -> list[str]:
    """Sessions under this key, the latest first; each is verified when it is opened. `source`: of this one only."""
    found = list[str]()
    for session_id, body in store.db.execute(_UNDER_KEY, (key,)):
        try:
            created = decode(body, session_id, 1).event
        except AcodeError:
            continue  # it is named where sessions are listed, and can be repaired under its own id
        if not isinstance(created, ev.SessionCreated) or (created.kind, created.task) != (kind, key):
            continue
        if source is None or created.source == source:
            found.append(session_id)
    return found


def named_by(store: Store, text: str) -> list[str]:
    """Sessions whose id is the text, begins or ends with it, or whose short id begins with it; the oldest first."""
    wanted = text.strip().lower()
    if len(wanted) < ID_PART_CHARS_MIN:
        return []
    queries = [_BEGINNING, _SHORT, _LONG_END if len(wanted) >= SHORT_ID_CHARS else _END]
    return sorted({row[0] for query in queries for row in store.db.execute(query, (wanted,))})


def latest(store: Store, count_max: int) -> list[str]:
    """The sessions begun last, the oldest of them first."""
    return [row[0] for row in store.db.execute(_LATEST, (count_max,))][::-1]


def find_session(ids: Sequence[str], text: str) -> str:
    """The one session an id, or a unique part of it as `is_named_by` takes it, names; never a guess."""
    found = [one for one in ids if one == text.strip().lower()] or [one for one in ids if is_named_by(one, text)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(one[-8:] for one in found)
        raise UnknownSession(
            f"{text} fits {len(found)} sessions: {names}", hint="Type more of the id.", candidates=found
        )
    latest = list(reversed(ids))[:5]
    raise UnknownSession(
        f"no session here is called {text}"
        + (f"; there are: {', '.join(one[-8:] for one in latest)}" if latest else ""),
        candidates=latest,
    )


def is_named_by(session_id: str, text: str) -> bool:
    """Whether the text is the id, its beginning, its end, or the beginning of the short id that people are shown."""
    wanted = text.strip().lower()
    if len(wanted) < ID_PART_CHARS_MIN:
        return False
    shown = session_id[-SHORT_ID_CHARS:]
    return session_id.startswith(wanted) or session_id.endswith(wanted) or shown.startswith(wanted)

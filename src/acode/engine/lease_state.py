"""The state of a session's lease, as far as it is known here; no server is asked. The session's cursor holds the
server's last answer. A session that another machine has is only read here: an append would begin a second history.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from acode.engine import owed_decisions
from acode.engine.world import World, short
from acode.errors import HistoryDiverged, LeaseLost
from acode.events import types as ev
from acode.hints import Command, Hint, Subject
from acode.store import sync_cursor
from acode.store.journal import stamp
from acode.store.store import Store
from acode.store.sync_cursor import Cursor, Standing

Status = Literal["disabled", "up_to_date", "pending", "degraded"]


class SyncState(msgspec.Struct, frozen=True, kw_only=True):
    """One session's line in `acode status`."""

    status: Status
    pending_events: int = 0
    last_attempt_at: datetime | None = None
    next_retry_in_seconds: int | None = None  # None: nobody is going to try before the next run
    reason: str | None = None
    standing: Standing = "owner"

    def as_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


DISABLED = SyncState(status="disabled")


def sync_state(world: World, store: Store, session_id: str) -> SyncState:
    url = world.config.settings.sync.url
    if url is None:
        return DISABLED
    cursor = sync_cursor.as_seen_by(sync_cursor.cursor_of(store, session_id), server_id(url))
    return state_of(cursor, last_seq=sync_cursor.last_seq(store, session_id), now=world.clock())


def server_id(url: str) -> str:
    """Identifies the server and database of a URL, for every user and connection option; a hash, because it is
    stored.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # connecting says what is wrong with it
        return "unreadable"
    place = {name: value for name, value in parse_qsl(parts.query) if name in ("host", "hostaddr", "port", "dbname")}
    where = [parts.netloc.rpartition("@")[2], parts.path, *(f"{name}={place[name]}" for name in sorted(place))]
    return hashlib.sha256("\0".join(where).encode()).hexdigest()[:16]


def state_of(cursor: Cursor, *, last_seq: int, now: datetime) -> SyncState:
    """Pending is what the server is not known to hold; degraded is pending after an attempt that failed."""
    pending = 0 if cursor.standing == "copy" else max(0, last_seq - cursor.pushed_seq)
    lost = cursor.standing in ("fenced", "diverged")
    retry = cursor.retry_at
    return SyncState(
        status="degraded" if lost or (pending and cursor.reason) else "pending" if pending else "up_to_date",
        pending_events=pending,
        last_attempt_at=cursor.attempted_at,
        next_retry_in_seconds=round((retry - now).total_seconds()) if retry is not None and retry > now else None,
        reason=cursor.reason if lost or pending else None,
        standing=cursor.standing,
    )


TAKE_OVER = Command("resume SESSION --remote")
CHOOSE_HISTORY = Hint(
    "See both tails: {}. Take the shared history: {}; or keep the one here: {}",
    Command("sync status SESSION"),
    Command("pull SESSION --force"),
    Command("sync now SESSION --force"),
)
# A server that was restored answers, and yet knows no owner before the others have pushed again.
OFFLINE = Hint(
    "Try again when the server answers; if it was restored from a backup, after every machine that has worked on it has"
    " run: {}. If you know that no other machine has continued it, give the same command with --offline --reason TEXT"
    " (recorded).",
    Command("sync now"),
)
# What to type next about a session on which this machine may not write.
NEXT_ELSEWHERE: dict[Standing, Command] = {
    "copy": TAKE_OVER,
    "fenced": TAKE_OVER,
    "diverged": Command("sync status SESSION"),
}


def refuse_not_ours(store: Store, session_id: str) -> None:
    """A copy, or a session that another machine has taken, is not written on."""
    cursor, name = sync_cursor.cursor_of(store, session_id), short(session_id)
    if cursor.standing == "copy":
        raise LeaseLost(
            f"session {name} is a copy here: another machine owns it",
            hint=Hint("You can look at it here. To resume it here: {}", TAKE_OVER, of=name),
        )
    if cursor.standing == "fenced":
        raise LeaseLost(
            cursor.reason or f"session {name} was taken over by another machine",
            hint=Hint(
                "To resume it here: {} (with --force if it was not given back). Where the server is gone for good: {}",
                TAKE_OVER,
                Command("session unlock SESSION --force"),
                of=name,
            ),
            holder=cursor.holder,
        )
    if cursor.standing == "diverged":
        raise HistoryDiverged(
            f"session {name} was continued here and elsewhere after the same past: nothing is merged",
            hint=CHOOSE_HISTORY.about(Subject(name)),
        )


def ensure_ours(world: World, store: Store, session_id: str) -> None:
    """Before anything is appended: no other machine has the session, as far as it must be known."""
    refuse_not_ours(store, session_id)
    confirm_ours(world, store, session_id)


def confirm_ours(world: World, store: Store, session_id: str) -> None:
    """An owner asks and continues without an answer. A session that was given back may have been finished elsewhere
    since: its steps would run twice, so nothing is appended before the server has answered, however slow it is."""
    released = sync_cursor.cursor_of(store, session_id).standing == "released"
    why = world.confirm_ownership(store, session_id, released)
    if released and why is not None:
        _work_offline(world, store, session_id, why)


def _work_offline(world: World, store: Store, session_id: str, why: str) -> None:
    """A person decides that nobody has continued the session elsewhere. This machine is its owner from then on."""
    given_back_at = sync_cursor.cursor_of(store, session_id).attempted_at
    when = f" at {stamp(given_back_at)}" if given_back_at is not None else ""
    stated = (
        f"session {short(session_id)} was given back{when}: another machine may have continued it since, and the"
        f" server does not know ({why})"
    )
    reason = offline_reason(world, stated, given_back_at)
    what = f"continued offline although it was given back{when}: the server did not know its owner ({why})"
    decision = ev.Forced(what=world.redactor.text(what), reason=reason)
    owed_decisions.decide_here(store, session_id, decision, sync_cursor.last_seq(store, session_id))


def offline_reason(world: World, stated: str, given_back_at: datetime | None = None) -> str:
    """A person's reason to continue although the server does not know the session's owner; without a person the
    session waits.
    """
    reason = world.offline if world.offline is not None else world.ask_offline(stated)
    if reason is None:
        raise LeaseLost(
            stated,
            hint=OFFLINE,
            given_back_at=stamp(given_back_at) if given_back_at is not None else None,
        )
    return world.redactor.text(reason) or "none given"


def is_anothers(store: Store, session_id: str) -> bool:
    """Whether another machine has it, as far as was last heard."""
    return sync_cursor.cursor_of(store, session_id).standing not in sync_cursor.HOLDERS


def claim_here(store: Store, session_id: str) -> None:
    """A person says that the session is this machine's, whatever was last heard of another: the server may be gone.

    The next exchange with the server decides again, by the lease.
    """
    sync_cursor.change_cursor(store, session_id, standing="owner", reason=None, holder="")

"""Push everything now, in the foreground; and say how each session of the workspace stands to its shared copy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec

from acode.engine import owed_decisions
from acode.engine.held_session import held
from acode.engine.lease_state import SyncState, server_id, sync_state
from acode.engine.session_list import lock_seen
from acode.engine.workspace_store import opened, resolve_id
from acode.engine.world import World
from acode.errors import AcodeError, NoResumableSession, SyncDisabled
from acode.hints import Command, Hint
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync.delivery import Delivery, as_error, note_failure
from acode.sync.diverged_history import Tails, choose_ours, tails_of
from acode.sync.exchange import Contradiction, Pushed
from acode.sync.far_store import FarStore
from acode.sync.outbox import alone
from acode.sync.postgres import PostgresLedger, ServerFailure, connect, translated
from acode.sync.postgres import as_error as trouble_as_error
from acode.sync.protocol import Doubtful, Refusal

LOOK_S_MAX = 2.0  # a look at the server does not keep anybody waiting for long


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """The result of pushing one session's events; `refused` where another history stands in the way."""

    session_id: str
    sent: int
    set_aside: int = 0
    refused: AcodeError | None = None
    tails: Tails | None = None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    title: str
    standing: str
    sync: SyncState


def server_of(world: World) -> str:
    url = world.config.settings.sync.url
    if url is None:
        raise SyncDisabled("no server is configured for a shared copy")
    return url


def far_store(world: World) -> FarStore | None:
    url = world.config.settings.fleet.store
    return FarStore(url) if url is not None else None


@contextlib.contextmanager
def connected(world: World, give_up: Callable[[], bool] | None = None) -> Iterator[PostgresLedger]:
    """A connection to the server for a command that needs one; whatever breaks it, there is a clear error."""
    try:
        ledger = connect(server_of(world), give_up or world.stop.at_boundary)
    except ServerFailure as failure:
        raise trouble_as_error(failure) from failure
    ledger.far = far_store(world)
    try:
        with translated(ledger.url):
            yield ledger
    except ServerFailure as failure:
        raise trouble_as_error(failure) from failure
    except Contradiction as error:
        raise trouble_as_error(ServerFailure(str(error), "transient")) from error
    finally:
        ledger.close()


def deliver_now(world: World, text: str | None, *, force: bool = False, reason: str = "") -> list[Delivered]:
    """All that is pending, of one session or of all."""
    with opened(world, look_only=False) as store:
        wanted = [resolve_id(world, store, text)] if text is not None else store.session_ids()
        server = server_id(server_of(world))
        wanted = [one for one in wanted if force or owes(store, one, server) or was_pushed(store, one, server)]
        if not wanted:
            return []
        try:
            with connected(world) as ledger:
                delivery = Delivery(world, store, ledger)
                lost = delivery.find_lost()
                wanted = [one for one in wanted if force or owes(store, one, server) or one in lost]
                return [deliver_one(world, delivery, one, force=force, reason=reason) for one in wanted]
        except AcodeError as error:
            for one in wanted:
                if owes(store, one, server):
                    why = str(error.message).removeprefix("the server of the shared copy cannot be used: ")
                    note_failure(store, one, server_of(world), reason=why, at=world.clock(), retry_at=None)
            raise


def owes(store: Store, session_id: str, server: str) -> bool:
    """A copy owes nothing, and a lease that was given back with everything is not taken again for nothing."""
    cursor = sync_cursor.as_seen_by(sync_cursor.cursor_of(store, session_id), server)
    level = sync_cursor.last_seq(store, session_id) == cursor.pushed_seq
    return cursor.standing != "copy" and not (cursor.standing == "released" and level)


def was_pushed(store: Store, session_id: str, server: str) -> bool:
    """Whether the server was seen to hold something of it, which it may have lost since."""
    cursor = sync_cursor.as_seen_by(sync_cursor.cursor_of(store, session_id), server)
    return cursor.pushed_seq > 0 and cursor.standing in sync_cursor.HOLDERS


@contextlib.contextmanager
def comparing(world: World) -> Iterator[World]:
    """A world that knows the server's present content, for a command that is about to remove local rows."""
    with connected(world) as ledger:

        def missing_there(store: Store, session_id: str) -> Hint | None:
            last = sync_cursor.last_seq(store, session_id)
            head = sync_cursor.code_at(store, session_id, last)
            if ledger.code_at(session_id, last) == head and ledger.events_held(session_id, last) == last:
                return None
            return Hint("the server does not hold all of it now ({})", Command("sync now"))

        yield msgspec.structs.replace(world, missing_there=missing_there)


def deliver_one(world: World, delivery: Delivery, session_id: str, *, force: bool, reason: str) -> Delivered:
    store, aside = delivery.store, 0
    before = delivery.cursor(session_id).pushed_seq
    done = _delivered(delivery, session_id)
    if not isinstance(done, Pushed) and force:
        with alone(world, store, session_id):
            aside = choose_ours(world, delivery, session_id, reason=reason)
        done = _delivered(delivery, session_id)
    if not isinstance(done, Pushed):
        tails = tails_of(store, delivery.ledger, session_id)
        again = done.sent if isinstance(done, Doubtful) else 0
        return Delivered(session_id=session_id, sent=again, refused=as_error(session_id, done), tails=tails)
    sent = max(0, done.seq - before)
    if not lock_seen(world, session_id, store.generation(session_id)).held:
        sent += append_owed_decisions(world, delivery, session_id)
        # damaged log is pushed as it is; the machine that takes it over reports the damage
        with contextlib.suppress(AcodeError):
            delivery.release(session_id)
    return Delivered(session_id=session_id, sent=sent, set_aside=aside)


def append_owed_decisions(world: World, delivery: Delivery, session_id: str) -> int:
    """A choice that took effect just now, or in an earlier try that was killed; how many more events were sent."""
    if not owed_decisions.of(delivery.cursor(session_id)).done:
        return 0
    before = delivery.cursor(session_id).pushed_seq
    with held(world, session_id, ended_ok=True):
        pass  # its holder reports it
    done = _delivered(delivery, session_id)
    return done.seq - before if isinstance(done, Pushed) else 0


def _delivered(delivery: Delivery, session_id: str) -> Pushed | Refusal:
    last = sync_cursor.last_seq(delivery.store, session_id)
    sync_cursor.make_durable(delivery.store)
    return delivery.deliver(session_id, last)


def standings(world: World, text: str | None = None) -> list[Standing]:
    """As far as it is known here; no server is asked."""
    try:
        with opened(world, look_only=True) as store:
            ids = [resolve_id(world, store, text)] if text is not None else store.session_ids()
            return [standing_of(world, store, one) for one in ids]
    except NoResumableSession:
        return []


def standing_of(world: World, store: Store, session_id: str) -> Standing:
    title = ""
    with contextlib.suppress(AcodeError):
        title = store.peek(session_id)[0].title
    standing = sync_cursor.cursor_of(store, session_id).standing
    return Standing(session_id=session_id, title=title, standing=standing, sync=sync_state(world, store, session_id))


def compare(world: World, found: list[Standing]) -> list[Standing]:
    """The same, where the server was asked whether it still has what was pushed; it may have been restored since."""
    until = world.monotonic() + LOOK_S_MAX
    with opened(world, look_only=True) as store, connected(world, lambda: world.monotonic() > until) as ledger:
        lost = Delivery(world, store, ledger).find_lost()
        return [behind(one, lost[one.session_id], store) if one.session_id in lost else one for one in found]


def behind(standing: Standing, lost: Doubtful, store: Store) -> Standing:
    missing = max(1, sync_cursor.last_seq(store, standing.session_id) - lost.seq)
    why = as_error(standing.session_id, lost).message
    sync = msgspec.structs.replace(standing.sync, status="degraded", pending_events=missing, reason=why)
    return msgspec.structs.replace(standing, sync=sync)


def both_tails(world: World, text: str) -> Tails | None:
    """For a session that stands in the way of another history: both tails, if the server can be asked."""
    with opened(world, look_only=True) as store, connected(world) as ledger:
        return tails_of(store, ledger, resolve_id(world, store, text))

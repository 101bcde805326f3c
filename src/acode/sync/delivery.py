"""Push one workspace's pending rows to the server, session by session, and note the result here.

Used by the thread in the background and by `acode sync now`; it has no pace and no thread of its own. Blobs go before
the events that name them, so that the shared copy never names a blob that it does not hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, assert_never

import msgspec

from acode.engine import owed_decisions
from acode.engine.lease_state import CHOOSE_HISTORY, TAKE_OVER, server_id
from acode.engine.session_list import lock_seen
from acode.engine.session_place import find_place
from acode.engine.world import World, short
from acode.errors import AcodeError, HistoryDiverged, LeaseLost, LogRolledBack
from acode.hints import Command, Hint, Subject
from acode.store import sync_cursor
from acode.store.store import Store
from acode.sync import exchange
from acode.sync.exchange import Pushed
from acode.sync.outbox import (
    SessionOutbox,
    about,
    describe_holder,
    doubted_since_s,
    ended_cleanly,
    node_of,
    note_comparison,
    note_restored,
)
from acode.sync.postgres import PostgresLedger
from acode.sync.protocol import (
    Behind,
    Cut,
    Diverged,
    Doubtful,
    Elsewhere,
    Fenced,
    Mine,
    Refusal,
    Remote,
    RolledBack,
    lost_by_server,
)


class Delivery:
    """One workspace and one line to the server."""

    def __init__(
        self, world: World, store: Store, ledger: PostgresLedger, *, breathe: Callable[[], object] = lambda: None
    ) -> None:
        self.world = world
        self.store = store
        self.ledger = ledger
        self.server: str = server_id(ledger.url)
        self.breathe = breathe  # between two batches: a push beside a run leaves it the processor
        self.node: str = node_of(world.state_dir, world.workspace)

    def cursor(self, session_id: str) -> sync_cursor.Cursor:
        return sync_cursor.as_seen_by(sync_cursor.cursor_of(self.store, session_id), self.server)

    def mine(self, session_id: str, *, whole: bool = False) -> Mine:
        cursor, doubt = self.cursor(session_id), doubted_since_s(self.world.state_dir, self.server)
        return Mine(
            node=self.node,
            generation=cursor.generation,
            seq=sync_cursor.last_seq(self.store, session_id),
            pushed=cursor.pushed_seq,
            standing=cursor.standing,
            copied=doubt is not None and find_place(self.world, session_id).original is not None,
            whole=whole,
            doubted_since_s=doubt,
        )

    def deliver(self, session_id: str, through: int) -> Pushed | Refusal:
        """Everything up to `through`, which is durable here; with nothing to send, the lease is confirmed."""
        if not self.knows_owner(session_id):
            return Elsewhere()
        # A pushed row is durable here: where the server has lost it, it is pushed again.
        box = SessionOutbox(self.store, session_id, max(through, self.cursor(session_id).pushed_seq))
        whole, refilled = False, 0
        while True:
            self._deliver_blobs(session_id)
            mine = self.mine(session_id, whole=whole)
            done = exchange.push(self.ledger, session_id, mine, box, holder=describe_holder(self.world))
            self._note(session_id, done)
            if isinstance(done, Doubtful):
                refilled += done.sent
                if done.lost and (done.sent or not whole) and self.is_whole(session_id):
                    whole = True
                    continue
                return self._described_refill(session_id, msgspec.structs.replace(done, sent=refilled))
            if not isinstance(done, Pushed):
                return done
            if done.seq >= through or not done.sent:
                shown = about(self.store, session_id)
                if shown is not None:
                    self.ledger.describe(session_id, shown, node=self.node, generation=done.generation)
                return done
            self.breathe()

    def _described_refill(self, session_id: str, done: Doubtful) -> Doubtful:
        """A refill takes no lease, and yet lists show the session as the log does that the server has again."""
        shown = about(self.store, session_id) if done.sent else None
        if shown is not None:
            seq = sync_cursor.last_seq(self.store, session_id)
            self.ledger.describe_refill(session_id, shown, seq=seq)
        return done

    def knows_owner(self, session_id: str) -> bool:
        """A server under another name may be the same one, or have moved with all it holds; another one, or an older
        state of it, is no evidence. What has ended needs no owner."""
        cursor = sync_cursor.cursor_of(self.store, session_id)
        if not sync_cursor.is_lease_elsewhere(cursor, self.server):
            return True
        with contextlib.suppress(AcodeError):
            if self.store.peek(session_id)[0].terminal:
                return True
        with self.ledger.transaction():
            remote = self.ledger.look(session_id)
            if remote is None or remote.seq < cursor.pushed_seq or remote.generation < cursor.generation:
                return False
            here = sync_cursor.code_at(self.store, session_id, cursor.pushed_seq)
            return self.ledger.code_at(session_id, cursor.pushed_seq) == here

    def find_lost(self) -> dict[str, Doubtful]:
        """The sessions of this workspace of which the server has less than it was seen to have; one question for all.

        Each contact compares them, because one of them shows that the server may have lost others' work too.
        """
        here = [one for one in self.store.session_ids() if self.cursor(one).standing != "copy"]
        there = {
            one.session_id: Remote(generation=one.generation, owner=one.owner, seq=one.seq, head=b"")
            for one in self.ledger.sessions(here)
        }
        lost = {one: self.mine(one) for one in here if lost_by_server(self.mine(one), there.get(one))}
        note_comparison(self.world.state_dir, self.server, self.ledger.clock_s, compared=here, lost=lost)
        return {
            one: Doubtful(seq=there[one].seq if one in there else 0, pushed=mine.pushed, lost=True)
            for one, mine in lost.items()
        }

    def is_whole(self, session_id: str) -> bool:
        """Only a log that is whole, and holds all that was pushed, replaces what a server has lost. A copied workspace
        has another's cursor: the original may have come further."""
        if find_place(self.world, session_id).original is not None:
            return False
        if sync_cursor.last_seq(self.store, session_id) < self.cursor(session_id).pushed_seq:
            return False
        return not self.store.verify(session_id).problems

    def _deliver_blobs(self, session_id: str) -> None:
        for sha256, purpose in self.ledger.lacks(session_id, sync_cursor.shared_blobs(self.store, session_id)):
            try:
                data = self.store.blob(session_id, sha256)
            except AcodeError:
                continue  # gone or damaged here: verifying the session says so, the copy only lacks it
            self.ledger.put_blob(session_id, sha256, purpose, data)

    def _note(self, session_id: str, done: Pushed | Refusal) -> None:
        if isinstance(done, Elsewhere):
            return  # the cursor keeps what the other server said
        now, seen = self.world.clock(), self.cursor(session_id)
        # What a machine that knows of another owner misses stays missing; `find_lost` notes that once.
        if isinstance(done, Pushed | Doubtful) and done.lost and seen.standing in sync_cursor.HOLDERS:
            note_restored(self.world.state_dir, self.server, self.ledger.clock_s())
        if isinstance(done, Doubtful):
            sync_cursor.change_cursor(
                self.store, session_id, server=self.server, reason=as_error(session_id, done).message
            )
            return
        if isinstance(done, Pushed):
            heard: dict[str, Any] = {"server": self.server, "attempted_at": now, "retry_at": None}
            own_here(self.store, session_id, done.generation, pushed_seq=done.seq, **heard)
            return
        changes: dict[str, Any] = {
            "server": self.server,
            "pushed_seq": seen.pushed_seq,
            "attempted_at": now,
            "retry_at": None,
            "reason": as_error(session_id, done).message,
        }
        if not isinstance(done, RolledBack | Cut):
            # A server that later knows only an older lease than this one has lost what its holder did.
            known = max(done.generation, seen.generation)
            standing = "diverged" if isinstance(done, Diverged) else "fenced"
            changes |= {"standing": standing, "generation": known, "holder": getattr(done, "holder", "")}
        sync_cursor.change_cursor(self.store, session_id, **changes)

    def release(self, session_id: str, *, anyway: bool = False) -> bool:
        """Give the lease back, if the session waits or has ended and the server has all of it. `anyway`: whatever its
        state; a worker of a fleet keeps no session that it does not run."""
        keep = self.world.config.settings.sync.release == "never" and self.world.lease is None
        if not anyway and not ended_cleanly(self.store, session_id, keep=keep):
            return False
        mine = self.mine(session_id)
        head = sync_cursor.code_at(self.store, session_id, mine.seq)

        def note() -> None:
            """Durable before the server hears of it: an answer that is lost must not leave an owner behind here."""
            sync_cursor.change_cursor(self.store, session_id, standing="released", attempted_at=self.world.clock())
            sync_cursor.make_durable(self.store)

        return exchange.release(self.ledger, session_id, mine, head=head, note=note)

    def owing(self, without: str | None = None) -> list[tuple[str, int]]:
        """Sessions that nobody works on and that owe something, with the last event of each, durable from here on."""
        found = []
        for session_id in self.store.session_ids():
            cursor = self.cursor(session_id)
            last = sync_cursor.last_seq(self.store, session_id)
            held = lock_seen(self.world, session_id, self.store.generation(session_id)).held
            elsewhere = sync_cursor.is_lease_elsewhere(sync_cursor.cursor_of(self.store, session_id), self.server)
            if (
                session_id != without
                and last > cursor.pushed_seq
                and cursor.standing in sync_cursor.HOLDERS
                and not held
                and not elsewhere
            ):
                found.append((session_id, last))
        if found:
            sync_cursor.make_durable(self.store)
        return found


def own_here(store: Store, session_id: str, generation: int, **changes: Any) -> None:
    """The lease is ours with this generation, as the server has just said."""
    last = sync_cursor.last_seq(store, session_id)

    def owned(cursor: sync_cursor.Cursor) -> sync_cursor.Cursor:
        ours = msgspec.structs.replace(
            cursor, standing="owner", generation=generation, holder="", reason=None, **changes
        )
        return owed_decisions.with_effect(ours, generation, last)

    sync_cursor.revise_cursor(store, session_id, owned)


def note_failure(
    store: Store, session_id: str, url: str, *, reason: str, at: datetime, retry_at: datetime | None
) -> None:
    seen = sync_cursor.cursor_of(store, session_id)
    if seen.standing == "released":  # to which server it was given back, and when, stays
        return
    seen = sync_cursor.as_seen_by(seen, server_id(url))
    sync_cursor.keep_cursor(store, msgspec.structs.replace(seen, attempted_at=at, retry_at=retry_at, reason=reason))


PUSH_NOW = Command("sync now")


def as_error(session_id: str, refusal: Refusal) -> AcodeError:
    """The refusal as an error: the cause, and the two next commands."""
    name = short(session_id)
    match refusal:
        case Fenced(holder=holder, generation=generation):
            return LeaseLost(
                f"session {name} was taken over by {holder or 'another machine'}: this machine is fenced off",
                hint=Hint(
                    "It continues there. To take it over: {} (with --force if it was not given back)",
                    TAKE_OVER,
                    of=name,
                ),
                holder=holder,
                generation=generation,
            )
        case Behind(seq=seq):
            return LeaseLost(
                f"session {name} was continued elsewhere up to event {seq}, and given back",
                hint=Hint("Bring it here: {}", TAKE_OVER, of=name),
                seq=seq,
            )
        case Diverged(holder=holder, generation=generation):
            return HistoryDiverged(
                f"session {name} was continued here and elsewhere after the same past: nothing is merged",
                hint=CHOOSE_HISTORY.about(Subject(name)),
                holder=holder,
                generation=generation,
            )
        case RolledBack(seq=seq):
            return LogRolledBack(
                f"session {name} has {seq} events in the shared copy, more than here: the local database was rolled"
                " back to an older state",
                hint=Hint(
                    "Fetch the missing events: {}; or see: {}",
                    Command("pull SESSION"),
                    Command("session repair"),
                    of=name,
                ),
                seq=seq,
            )
        case Cut(seq=seq, signed=signed):
            return LogRolledBack(
                f"session {name} had come to event {signed} in the shared copy, signed by the machine that held it; the"
                f" server shows {seq} events, and that one is not among them: its end was cut off",
                hint=Hint("Nothing was kept or written. Push it again from a machine that has all of it: {}", PUSH_NOW),
                seq=seq,
                signed=signed,
            )
        case Doubtful(seq=seq, pushed=pushed, lost=lost):
            events = f"it held {seq} of the {pushed} events that were pushed of"
            had = "nobody has continued" if not lost else events if seq < pushed else "it knew only an older owner of"
            return LeaseLost(
                f"the server was restored from an older backup: {had} session {name}{'' if lost else ' there since'}",
                hint=Hint("Push again from every machine that has worked on it: {}", PUSH_NOW),
                seq=seq,
                pushed=pushed,
            )
        case Elsewhere():
            return LeaseLost(
                f"session {name} was given back, or taken over, on another server than the one that is configured now",
                hint=Hint(
                    "Configure that server again. If you know that no other machine has continued it: {} (recorded)",
                    Command("sync now SESSION --force --reason TEXT"),
                    of=name,
                ),
            )
        case _ as never:
            assert_never(never)
